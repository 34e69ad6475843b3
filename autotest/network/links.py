"""Bridges, taps and macvtaps of one server, through iproute2. Making what is there, and removing what is not, is fine."""

from __future__ import annotations

import json
import logging
from typing import Any

from autotest.errors import TestbedError
from autotest.remote.transport import Transport
from autotest.remote.wait import wait_for

log = logging.getLogger(__name__)

_CARRIER_TIMEOUT = 10.0  # seconds; the slowest emulated NIC took 2.4


class Links:
    """The network links of one server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def show(self, name: str) -> dict[str, Any] | None:
        """What iproute2 knows of the link, None when there is none."""
        result = self._transport.run(["ip", "-json", "-details", "link", "show", "dev", name], check=False)
        return json.loads(result.stdout)[0] if result.code == 0 and result.stdout.strip() else None

    def require(self, name: str) -> dict[str, Any]:
        """As :meth:`show`; a missing link is an error that names the server.

        Raises:
            TestbedError: there is no such link.
        """
        link = self.show(name)
        if link is None:
            raise TestbedError(f"{self._transport.name}: there is no network interface {name}")
        return link

    def add_bridge(self, name: str, address: str | None = None) -> None:
        """A bridge that forwards at once and answers no multicast queries of its own; address with prefix length."""
        if not self._is_there(name, "bridge"):
            self._ip("link", "add", "name", name, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        if address:
            self._ip("address", "replace", address, "dev", name)
        self._ip("link", "set", "dev", name, "up")

    def add_tap(self, name: str, bridge: str, multi_queue: bool = False) -> None:
        """A tap that is a port of the bridge."""
        if not self._is_there(name, "tap"):
            self._ip("tuntap", "add", "dev", name, "mode", "tap", *(["multi_queue"] if multi_queue else []))
        self.add_port(bridge, name)

    def add_port(self, bridge: str, name: str) -> None:
        """Make the link a port of the bridge and bring it up.

        Raises:
            TestbedError: there is no such link, or it is a port of another bridge.
        """
        master = self.require(name).get("master")
        if master not in (None, bridge):
            raise TestbedError(f"{self._transport.name}: {name} is already a port of {master}: release it first")
        self._ip("link", "set", "dev", name, "master", bridge, "up")

    def release_port(self, bridge: str, name: str) -> None:
        """Take the link out of the bridge; nothing if it is not in there."""
        link = self.show(name)
        if link and link.get("master") == bridge:
            self._ip("link", "set", "dev", name, "nomaster")

    def add_macvtap(self, name: str, lower: str, mac: str) -> None:
        """A macvtap in bridge mode on the lower link, with the MAC address that its guest has.

        Raises:
            TestbedError: there is no lower link, or a macvtap of that name is on another one.
        """
        self.up(lower)
        if self._is_there(name, "macvtap"):
            found = self.require(name).get("link")
            if found != lower:
                raise TestbedError(f"{self._transport.name}: {name} is on {found}, not {lower}: delete it first")
        else:
            self._ip(
                "link", "add", "link", lower, "name", name, "address", mac, "type", "macvtap", "mode", "bridge"
            )
        self._ip("link", "set", "dev", name, "address", mac, "up")

    def up(self, name: str) -> None:
        self.require(name)
        self._ip("link", "set", "dev", name, "up")

    def wait_for_carrier(self, name: str) -> None:
        """Frames sent before an interface has its carrier are lost."""

        def has_carrier() -> bool:
            return "LOWER_UP" in self.require(name).get("flags", ())

        wait_for(has_carrier, f"{self._transport.name}: carrier of {name}", _CARRIER_TIMEOUT)

    def delete(self, name: str, kind: str) -> None:
        """Remove a bridge, tap or macvtap; nothing if there is none, or another kind of link has the name."""
        link = self.show(name)
        if link and _kind(link) == kind:
            self._ip("link", "delete", "dev", name)

    def macvtap_device(self, name: str) -> tuple[str, int, int]:
        """The character device of a macvtap: path, major, minor."""
        folder = f"/sys/class/net/{name}/macvtap"
        tap = self._transport.run(["ls", folder]).stdout.strip()
        major, minor = self._transport.run(["cat", f"{folder}/{tap}/dev"]).stdout.strip().split(":")
        return f"/dev/{tap}", int(major), int(minor)

    def _is_there(self, name: str, kind: str) -> bool:
        link = self.show(name)
        if link is None:
            return False
        found = _kind(link)
        if found != kind:
            raise TestbedError(
                f"{self._transport.name}: {name} is {found}, not {kind}: give the testbed another name for it"
            )
        return True

    def _ip(self, *arguments: str) -> None:
        self._transport.run(["ip", *arguments], sudo=True)


def _kind(link: dict[str, Any]) -> str:
    """The kind of a link as iproute2 names it, but a tun and a tap told apart."""
    details = link.get("linkinfo", {})
    kind = details.get("info_kind", "a physical interface")
    return details.get("info_data", {}).get("type", kind) if kind == "tun" else kind
