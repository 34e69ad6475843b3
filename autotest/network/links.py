"""Bridges, taps and macvtaps of one server, through iproute2. Making what is there, and removing what is not, is fine.

What is there already is somebody else's: it is used as it is found. Each change is noted with what undoes it.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
from typing import Any

from autotest.errors import TestbedError
from autotest.remote.transport import Note, Transport, unnoted
from autotest.remote.wait import wait_for

log = logging.getLogger(__name__)

_XDP_MODES = {1: "xdpdrv", 2: "xdpgeneric", 3: "xdpoffload"}  # include/uapi/linux/if_link.h, XDP_ATTACHED_*
_CARRIER_TIMEOUT = 30.0  # seconds; the slowest emulated NIC took 2.4, the links of real ones are trained
_MACVTAP_DEVICE = re.compile(r"tap[0-9]{1,10}")
_DEVICE_NUMBER = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")
# What is looked at in a link, and of which type iproute2 gives it. A tunnel's link may be null.
_LINK_TYPES: dict[str, Any] = {"ifname": str, "altnames": list, "flags": list, "master": str, "link": str | None}
_LINK_TYPES |= {"address": str, "linkinfo": dict, "xdp": dict}
_INFO_TYPES = {"info_kind": str, "info_data": dict}
_BORROWING = ("bridge", "bond", "vlan", "macvlan", "team")  # kinds of links that have the MAC address of another


class Links:
    """The network links of one server."""

    def __init__(self, transport: Transport, note: Note = unnoted) -> None:
        self._transport = transport
        self._note = note

    def show(self, name: str) -> dict[str, Any] | None:
        """What iproute2 knows of the link, None when there is none.

        Raises:
            TestbedError: what it says is not what iproute2 says, or is about another link.
        """
        result = self._transport.run(["ip", "-json", "-details", "link", "show", "dev", name], check=False)
        links = [link for link in self._understood(result.stdout) if link] if result.code == 0 else []
        if not links:
            return None
        link = links[0]
        if not _typed(link, _LINK_TYPES) or not _typed(link.get("linkinfo", {}), _INFO_TYPES):
            raise self._no_answer(result.stdout)
        if name not in (link.get("ifname"), *link.get("altnames", ())):
            raise self._no_answer(result.stdout)
        return link

    def with_mac(self, mac: str) -> list[str]:
        """The links with that MAC address, of those that are no bridge and the like: these take one from their ports."""
        links = [link for link in self.all() if link.get("address", "").lower() == mac.lower()]
        return [link["ifname"] for link in links if _kind(link) not in _BORROWING]

    def all(self) -> list[dict[str, Any]]:
        """All links, as iproute2 shows them. Raises as :meth:`show` does."""
        shown = self._transport.run(["ip", "-json", "-details", "link", "show"]).stdout
        links = [link for link in self._understood(shown) if link]
        for link in links:
            if "ifname" not in link or not _typed(link, _LINK_TYPES) or not _typed(link.get("linkinfo", {}), _INFO_TYPES):
                raise self._no_answer(shown)
        return links

    def frames(self, name: str) -> tuple[int, int] | None:
        """How many frames the link has sent and received since it was made; None when nothing counts them."""
        result = self._transport.run(["ip", "-json", "-statistics", "link", "show", "dev", name], check=False)
        links = [link for link in self._understood(result.stdout) if link] if result.code == 0 else []
        try:
            counts = links[0]["stats64"]
            sent, received = counts["tx"]["packets"], counts["rx"]["packets"]
        except (LookupError, TypeError):
            return None
        return (sent, received) if type(sent) is type(received) is int else None

    def _understood(self, answer: str) -> list[dict[str, Any]]:
        """The objects that ``ip -json`` printed."""
        try:
            found = json.loads(answer or "[]")
        except (ValueError, RecursionError):
            raise self._no_answer(answer) from None
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._no_answer(answer)
        return found

    def _no_answer(self, answer: str) -> TestbedError:
        return TestbedError(f"{self._transport.name}: ip answers what iproute2 does not: {answer[:200]!r}")

    def require(self, name: str) -> dict[str, Any]:
        """As :meth:`show`; a missing link is an error that names the server.

        Raises:
            TestbedError: there is no such link.
        """
        link = self.show(name)
        if link is None:
            raise TestbedError(f"{self._transport.name}: there is no network interface {name}")
        return link

    def add_bridge(self, name: str, address: str | None = None, *, keeps_mac: bool = False) -> None:
        """A bridge that forwards at once and answers no multicast queries of its own; address with prefix length.

        With ``keeps_mac`` it stays at its first MAC address. Else it takes that of its ports which is the lowest, and who
        had found it by the one before must look for it again. One that is there already is somebody else's: it is used as it
        is, and stays.
        """
        if not self._is_there(name, "bridge"):
            self._note("link", name=name, type="bridge")
            self._ip("link", "add", "name", name, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
            if keeps_mac:
                self._ip("link", "set", "dev", name, "address", str(self.require(name)["address"]))
            self._ip("link", "set", "dev", name, "up")
        if address and not self._has_address(name, address):
            self._note("address", name=name, address=address)
            self._ip("address", "add", "local", address, "dev", name)
        self.up(name)

    def _has_address(self, name: str, address: str) -> bool:
        shown = self._transport.run(["ip", "-json", "address", "show", "dev", name]).stdout
        wanted = ipaddress.ip_interface(address)
        try:
            found = [info for link in self._understood(shown) for info in link.get("addr_info", ())]
            return wanted in [ipaddress.ip_interface(f"{info['local']}/{info['prefixlen']}") for info in found]
        except (KeyError, TypeError, ValueError):
            raise self._no_answer(shown) from None

    def remove_address(self, name: str, address: str) -> bool:
        """Take an address off the link; returns whether there was one to take."""
        if self.show(name) is None or not self._has_address(name, address):
            return False
        self._ip("address", "delete", "local", address, "dev", name)
        return True

    def note_neighbour(self, name: str, address: str, mac: str) -> None:
        """Note that :meth:`set_neighbour` follows; a bridge forgets all entries when a new port changes its own address."""
        self._note("neighbour", name=name, address=address, mac=mac, before=self._neighbour(name, address))

    def set_neighbour(self, name: str, address: str, mac: str) -> None:
        """A permanent neighbour entry on the link, so that no answer must be waited for."""
        self._ip("neighbour", "replace", "to", address, "lladdr", mac, "dev", name, "nud", "permanent")

    def restore_neighbour(self, name: str, address: str, mac: str, before: str) -> bool:
        """Remove a neighbour entry, or give it the MAC address from before; returns whether there was something to do."""
        if self.show(name) is None:
            return False
        found = self._neighbour(name, address)
        if found == before or found not in ("", mac.lower()):
            return False
        if before:
            self.set_neighbour(name, address, before)
        else:
            self._ip("neighbour", "delete", "to", address, "dev", name)
        return True

    def _neighbour(self, name: str, address: str) -> str:
        """The MAC address of a permanent neighbour entry; empty where there is none."""
        shown = self._transport.run(["ip", "-json", "neighbour", "show", "to", address, "dev", name, "nud", "permanent"])
        entries = self._understood(shown.stdout)
        return str(entries[0].get("lladdr", "")).lower() if entries else ""

    def add_tap(self, name: str, bridge: str, multi_queue: bool = False) -> None:
        """A tap that is a port of the bridge."""
        if self._is_there(name, "tap"):
            self.add_port(bridge, name)
            return
        self._note("link", name=name, type="tap")
        self._ip("tuntap", "add", "dev", name, "mode", "tap", *(["multi_queue"] if multi_queue else []))
        self._ip("link", "set", "dev", name, "master", bridge, "up")

    def add_forwarding(self, name: str, mac: str) -> None:
        """Have the bridge whose port the link is send frames for that address there, and nowhere else, from the start.

        See ``bridge fdb`` of bridge(8).
        """
        if not self._forwards(name, mac):
            self._note("forwarding", name=name, mac=mac)
            self._transport.run(["bridge", "fdb", "replace", mac, "dev", name, "master", "static"], sudo=True)

    def remove_forwarding(self, name: str, mac: str) -> bool:
        """Have the bridge forget what :meth:`add_forwarding` told it; returns whether it knew."""
        if self.show(name) is None or not self._forwards(name, mac):
            return False
        self._transport.run(["bridge", "fdb", "delete", mac, "dev", name, "master"], sudo=True)
        return True

    def _forwards(self, name: str, mac: str) -> bool:
        # As root, who alone has /sbin among the folders that programs are looked for in.
        shown = self._transport.run(["bridge", "-json", "fdb", "show", "dev", name], sudo=True).stdout
        found = (entry for entry in self._understood(shown) if str(entry.get("mac", "")).lower() == mac.lower())
        return any(entry.get("master") and entry.get("state") == "static" for entry in found)

    def add_port(self, bridge: str, name: str) -> None:
        """Make the link a port of the bridge and bring it up.

        Raises:
            TestbedError: there is no such link, or it is a port of another bridge.
        """
        master = self.require(name).get("master")
        if master not in (None, bridge):
            raise TestbedError(f"{self._transport.name}: {name} is already a port of {master}: release it first")
        if master is None:
            self._note("port", bridge=bridge, name=name)
            self._ip("link", "set", "dev", name, "master", bridge)
        self.up(name)

    def release_port(self, bridge: str, name: str) -> bool:
        """Take the link out of the bridge; returns whether it was in there."""
        link = self.show(name)
        if not link or link.get("master") != bridge:
            return False
        self._ip("link", "set", "dev", name, "nomaster")
        return True

    def add_macvtap(self, name: str, lower: str, mac: str) -> None:
        """A macvtap in bridge mode on the lower link, with the MAC address that its guest has.

        Raises:
            TestbedError: there is no lower link, or a link of that name already.
        """
        self._add_on(lower, name, "macvtap", mac)

    def add_macvlan(self, name: str, lower: str, mac: str) -> None:
        """A macvlan in bridge mode on the lower link, as :meth:`add_macvtap`."""
        self._add_on(lower, name, "macvlan", mac)

    def _add_on(self, lower: str, name: str, kind: str, mac: str) -> None:
        self.up(lower)
        if self._is_there(name, kind):
            found = self.require(name)
            if found.get("link") != lower:
                raise TestbedError(f"{self._transport.name}: {name} is on {found.get('link')}, not {lower}: delete it first")
            if found.get("address", "").lower() != mac.lower():
                raise TestbedError(
                    f"{self._transport.name}: {name} has the address {found.get('address')}, not {mac}: delete it first"
                )
        else:
            self._note("link", name=name, type=kind)
            self._ip("link", "add", "link", lower, "name", name, "address", mac, "type", kind, "mode", "bridge")
            self._ip("link", "set", "dev", name, "up")
        self.up(name)

    def up(self, name: str) -> None:
        """Bring the link up.

        Raises:
            TestbedError: there is no such link.
        """
        if "UP" not in self.require(name).get("flags", ()):
            self._note("up", name=name)
            self._ip("link", "set", "dev", name, "up")

    def down(self, name: str) -> bool:
        """Take the link down; returns whether it was up."""
        link = self.show(name)
        if link is None or "UP" not in link.get("flags", ()):
            return False
        self._ip("link", "set", "dev", name, "down")
        return True

    def promiscuous(self, name: str) -> None:
        """Have the link take frames for every MAC address.

        Raises:
            TestbedError: there is no such link.
        """
        if not self._is_promiscuous(self.require(name)):
            self._note("promiscuous", name=name)
            self._ip("link", "set", "dev", name, "promisc", "on")

    def end_promiscuous(self, name: str) -> bool:
        """Have the link take frames for its own MAC address only; returns whether it took others."""
        link = self.show(name)
        if link is None or not self._is_promiscuous(link):
            return False
        self._ip("link", "set", "dev", name, "promisc", "off")
        return True

    @staticmethod
    def _is_promiscuous(link: dict[str, Any]) -> bool:
        """Whether somebody has set it so; what a bridge does to its ports is not shown there."""
        return "PROMISC" in link.get("flags", ())

    def wait_for_carrier(self, name: str) -> None:
        """Frames sent before an interface has its carrier are lost."""

        wait_for(lambda: self._has_carrier(name), f"{self._transport.name}: carrier of {name}", _CARRIER_TIMEOUT)

    def require_up(self, name: str) -> None:
        """Raises TestbedError when there is no such link, or it is down."""
        if "UP" not in self.require(name).get("flags", ()):
            raise TestbedError(f"{self._transport.name}: {name} is down")

    def require_carrier(self, name: str) -> None:
        """Raises TestbedError when there is no such link, or it has no carrier."""
        if not self._has_carrier(name):
            raise TestbedError(f"{self._transport.name}: {name} has no carrier: its cable or its other end is down")

    def _has_carrier(self, name: str) -> bool:
        return "LOWER_UP" in self.require(name).get("flags", ())

    def delete(self, name: str, kind: str) -> bool:
        """Remove a bridge, tap or macvtap; returns whether there was a link of that kind and name."""
        link = self.show(name)
        if not link or _kind(link) != kind:
            return False
        self._ip("link", "delete", "dev", name)
        return True

    def attach_xdp(self, name: str, mode: str, path: str, section: str) -> None:
        """Load an XDP program from an object file; ``mode`` is ``xdpdrv`` or ``xdpgeneric``.

        Raises:
            TestbedError: there is no such link, or it has an XDP program already.
            CommandError: the program does not load in that mode.
        """
        if attached := self._xdp(name):
            found = ", ".join(f"{program} ({mode})" for mode, program in attached.items())
            raise TestbedError(f"{self._transport.name}: {name} has an XDP program already, {found}: take it off first")
        self._note("xdp", name=name, mode=mode)
        self._ip("link", "set", "dev", name, mode, "obj", path, "sec", section)

    def detach_xdp(self, name: str, mode: str) -> bool:
        """Take the XDP program of that mode off the link; returns whether there was one."""
        if self.show(name) is None or mode not in self._xdp(name):
            return False
        self._ip("link", "set", "dev", name, mode, "off")
        return True

    def has_xdp(self, name: str) -> bool:
        """Whether the link is there and has an XDP program."""
        return self.show(name) is not None and bool(self._xdp(name))

    def _xdp(self, name: str) -> dict[str, str]:
        """The XDP programs on a link: mode to the program's name."""
        found = self.require(name).get("xdp", {})
        try:
            programs = found.get("attached", [found] if found else [])
            return {_XDP_MODES[each["mode"]]: str(each["prog"].get("name", "without a name")) for each in programs}
        except (LookupError, TypeError, AttributeError):
            raise self._no_answer(json.dumps(found)) from None

    def macvtap_device(self, name: str) -> tuple[str, int, int]:
        """The character device of a macvtap: path, major, minor.

        Raises:
            TestbedError: the kernel does not say so of this link.
        """
        folder = f"/sys/class/net/{name}/macvtap"
        tap = self._transport.run(["ls", "--", folder]).stdout.strip()
        if not _MACVTAP_DEVICE.fullmatch(tap):
            raise TestbedError(f"{self._transport.name}: {folder} names no device of a macvtap: {tap[:100]!r}")
        number = self._transport.run(["cat", "--", f"{folder}/{tap}/dev"]).stdout.strip()
        if not (found := _DEVICE_NUMBER.fullmatch(number)):
            raise TestbedError(f"{self._transport.name}: {folder}/{tap}/dev holds no device number: {number[:100]!r}")
        return f"/dev/{tap}", int(found[1]), int(found[2])

    def _is_there(self, name: str, kind: str) -> bool:
        link = self.show(name)
        if link is None:
            return False
        found = _kind(link)
        if found != kind:
            raise TestbedError(f"{self._transport.name}: {name} is {found}, not {kind}: give the testbed another name for it")
        return True

    def _ip(self, *arguments: str) -> None:
        self._transport.run(["ip", *arguments], sudo=True)


def _typed(values: dict[str, Any], types: dict[str, Any]) -> bool:
    """Whether those of the values that are there have these types."""
    return all(isinstance(values[key], wanted) for key, wanted in types.items() if key in values)


def _kind(link: dict[str, Any]) -> str:
    """The kind of a link as iproute2 names it, but a tun and a tap told apart."""
    details = link.get("linkinfo", {})
    kind = str(details.get("info_kind", "a physical interface"))
    return str(details.get("info_data", {}).get("type", kind)) if kind == "tun" else kind
