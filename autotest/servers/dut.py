"""The device under test: the machine, host or guest, that reflects the load."""

from __future__ import annotations

from autotest.errors import UsageError
from autotest.servers.server import Server
from autotest.traffic.reflectors import REFLECTOR_KINDS, ReflectorKind


class DeviceUnderTest(Server):
    """A machine that can reflect the load."""

    def reflector_up(self, name: str, iface: str | None = None) -> None:
        """Start the reflector ``moongen`` or ``xdp`` on an interface, by default the test interface."""
        _kind(name).up(self, self._iface(iface))

    def reflector_down(self, name: str, iface: str | None = None) -> None:
        """Stop it; nothing if it does not run."""
        _kind(name).down(self, self._iface(iface))

    def _iface(self, iface: str | None) -> str:
        chosen = iface or self.config.test_iface
        if chosen is None:
            raise UsageError(f"{self.name}: no interface is named, and its section has no test_iface")
        return chosen


def _kind(name: str) -> ReflectorKind:
    if name not in REFLECTOR_KINDS:
        raise UsageError(f"unknown reflector {name!r}: there are {', '.join(REFLECTOR_KINDS)}")
    return REFLECTOR_KINDS[name]
