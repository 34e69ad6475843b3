"""The lab: the built-in testbed of network namespaces, veth and QEMU on this machine."""
