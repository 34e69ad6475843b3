"""The QEMU command line from typed parts, and QMP."""
