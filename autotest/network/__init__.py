"""Links of a server: bridge, tap, macvtap."""
