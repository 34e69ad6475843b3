"""Generator and reflectors: MoonGen programs, and the XDP reflector."""
