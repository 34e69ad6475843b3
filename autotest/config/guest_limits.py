"""How many guests a configuration has room for: what is counted up for each ends somewhere, or meets something else.

Each limit is computed, not found by trying, so that a plan of a thousand guests is checked as fast as one of two.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from autotest.config.guests import (
    Address,
    link_name,
    numbered,
    of_destination,
    socket_path,
)
from autotest.config.testbed import ServerConfig, Testbed
from autotest.config.values import MAX_IFACE_NAME, MAX_MACHINE, MAX_SOCKET_PATH
from autotest.errors import Problem

_LINKS = ("test_iface", "admin_bridge", "admin_tap", "test_bridge", "test_tap", "test_macvtap")
_OF_A_VENDOR = 1 << 24  # MAC addresses


@dataclass(frozen=True)
class Own:
    """What each of several guests has of its own with an interface kind, beside what it has with all kinds.

    Attributes:
        interface: the kind, for the user.
        links: keys of section ``host`` with the names of its links.
        nic_link: whether it has a link on ``test_iface``.
        socket: key of section ``host`` with the path of its socket.
        nic: whether it has a NIC, or a virtual function of one.
        functions: whether that is a virtual function.
    """

    interface: str
    links: tuple[str, ...] = ()
    nic_link: bool = False
    socket: str | None = None
    nic: bool = False
    functions: bool = False


@dataclass(frozen=True)
class Limit:
    """Because of a key there is no room for more than ``most`` guests; ``reason`` is for the user."""

    section: str
    key: str
    most: int
    reason: str


def problems(testbed: Testbed, own: Own, count: int) -> list[Problem]:
    """Why there cannot be so many guests, each with the largest number that its key has room for; one for a key."""
    found: dict[tuple[str, str], Problem] = {}
    for limit in sorted(limits(testbed, own), key=lambda limit: limit.most):
        if limit.most < count:
            room = f"room for at most {limit.most} guest{'s' * (limit.most != 1)} with interface {own.interface}, not {count}"
            where = limit.section, limit.key
            found.setdefault(where, Problem(testbed.file, *where, f"{limit.reason}: {room}"))
    return list(found.values())


def limits(testbed: Testbed, own: Own) -> Iterator[Limit]:
    """All limits to the number of guests, those included that nobody reaches."""
    yield from _of_macs(testbed)
    yield from _of_addresses(testbed)
    yield from _of_names(testbed)
    yield from _of_links(testbed, own)
    if own.socket and (path := getattr(testbed.host, own.socket)):
        yield _of_socket(own.socket, path)
    if own.nic:
        yield _of_nics(testbed, own)


# -- MAC addresses -----------------------------------------------------------------------------------------


def _of_macs(testbed: Testbed) -> Iterator[Limit]:
    bases = {key: mac for key in ("admin_iface_mac", "test_iface_mac") if (mac := getattr(testbed.guest, key))}
    for key, mac in bases.items():
        room = _OF_A_VENDOR - _number(mac) % _OF_A_VENDOR
        yield Limit("guest", key, room, f"guest {room + 1} would get no MAC address behind {mac}, those of {mac[:8]} end before")
        for other, whose in _other_macs(testbed, key):
            if (distance := _number(other) - _number(mac)) > 0:
                yield Limit("guest", key, distance, f"guest {distance + 1} would get {other}, which is {whose}")


def _other_macs(testbed: Testbed, key: str) -> Iterator[tuple[str, str]]:
    """Those that no guest may get as its ``key``, and whose they are."""
    for section in ("host", "loadgen"):
        if mac := getattr(testbed, section).test_iface_mac:
            yield mac, f"[{section}] test_iface_mac"
    for _, mac in testbed.host.guest_nics:
        yield mac, "in [host] guest_nics"
    for other in {"admin_iface_mac", "test_iface_mac"} - {key}:
        if mac := getattr(testbed.guest, other):
            yield mac, f"{other} of the first guest"


def _number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


# -- addresses and names -----------------------------------------------------------------------------------


def _of_addresses(testbed: Testbed) -> Iterator[Limit]:
    admin = _interface(testbed.host.admin_bridge_ip_net)
    if (address := of_destination(testbed.guest.fqdn).address) is not None:
        network = admin.network if admin and address in admin.network else None
        yield from _counted_up(testbed, "guest", "fqdn", address, network)
    if testbed.lab:
        of_lab = ipaddress.ip_interface(testbed.lab.guest_address)
        for network in (of_lab.network, *([admin.network] if admin and of_lab.ip in admin.network else [])):
            yield from _counted_up(testbed, "lab", "guest_address", of_lab.ip, network)


def _counted_up(
    testbed: Testbed, section: str, key: str, first: Address, network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
) -> Iterator[Limit]:
    if network is None:
        room = (1 << first.max_prefixlen) - int(first)
        yield Limit(section, key, room, f"guest {room + 1} would get no address behind {first}")
    else:
        # The last address of an IPv4 network is for all of it; a network of two has none such (RFC 3021).
        for_all = first.version == 4 and network.num_addresses > 2
        room = int(network.broadcast_address) - int(first) + 1 - for_all
        reason = f"guest {room + 1} would get no address of {network} behind {first}"
        yield Limit(section, key, room, reason + f", where {network.broadcast_address} is the broadcast address" * for_all)
    for other, whose in _other_addresses(testbed):
        if other.version == first.version and (distance := int(other) - int(first)) > 0:
            yield Limit(section, key, distance, f"guest {distance + 1} would get {other}, which is {whose}")


def _other_addresses(testbed: Testbed) -> Iterator[tuple[Address, str]]:
    host, lab = testbed.host, testbed.lab
    told = {"[host] admin_bridge_ip_net": host.admin_bridge_ip_net, "[host] test_bridge_ip_net": host.test_bridge_ip_net}
    if lab and lab.emulated_host:
        told["[lab] emulated_host_address"] = lab.emulated_host_address
    for whose, value in told.items():
        if interface := _interface(value):
            yield interface.ip, whose
    for section, server in _reached_alike(testbed):
        if (address := of_destination(server.fqdn).address) is not None:
            yield address, f"[{section}] fqdn"


def _of_names(testbed: Testbed) -> Iterator[Limit]:
    """Two servers of one name would be one: what is meant for a guest would be done to the other."""
    destination = of_destination(testbed.guest.fqdn)
    if destination.address is not None:
        return
    digits = MAX_MACHINE - len(testbed.guest.fqdn.encode())
    most = _up_to(digits)
    yield Limit("guest", "fqdn", most, f"the name of guest {most + 1} would have more than {MAX_MACHINE} bytes")
    label = destination.machine.partition(".")[0]
    for section, server in _reached_alike(testbed):
        other = of_destination(server.fqdn).machine
        match = re.match(rf"{re.escape(label)}([1-9][0-9]*)", other, re.IGNORECASE)
        if match and (number := int(match[1])) > 1 and numbered(destination.machine, number).lower() == other.lower():
            yield Limit("guest", "fqdn", number - 1, f"guest {number} would be called {other}, which is [{section}] fqdn")


def _reached_alike(testbed: Testbed) -> Iterator[tuple[str, ServerConfig]]:
    """The servers that the same name leads to from where the guests are reached."""
    guest = testbed.guest
    for section in ("host", "loadgen"):
        server: ServerConfig = getattr(testbed, section)
        if (server.netns, server.ssh_config) == (guest.netns, guest.ssh_config):
            yield section, server


def _interface(value: str | None) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    return ipaddress.ip_interface(value) if value else None


# -- links, sockets, NICs ----------------------------------------------------------------------------------


def _of_links(testbed: Testbed, own: Own) -> Iterator[Limit]:
    host, loadgen = testbed.host, testbed.loadgen
    others = {name: f"[host] {key}" for key in _LINKS if (name := getattr(host, key))}
    if (host.fqdn, host.netns) == (loadgen.fqdn, loadgen.netns) and loadgen.test_iface:
        others[loadgen.test_iface] = "[loadgen] test_iface"
    for key in ("admin_tap", *own.links, *(["test_iface"] if own.nic_link else [])):
        if not (name := getattr(host, key)):
            continue
        most = _up_to(MAX_IFACE_NAME - len(link_name(name, 0)) + 1)
        link = link_name(name, most + 1)
        reason = f"guest {most + 1} would have the link {link}, and an interface name has at most {MAX_IFACE_NAME} characters"
        yield Limit("host", key, most, reason)
        for other, whose in others.items():
            # Of several guests the first has a link on the NIC as well.
            if (number := _counted_to(name, other)) > 1 or (number == 1 and key == "test_iface"):
                yield Limit("host", key, max(1, number - 1), f"guest {number} would have the link {other}, which is {whose}")


def _counted_to(name: str, other: str) -> int:
    """The number of the guest whose link of that name the other one would be; 0 where none would."""
    number = other.removeprefix(f"{name}-") if other.startswith(f"{name}-") else ""
    return int(number) if re.fullmatch(r"[1-9][0-9]*", number) else 0


def _of_socket(key: str, path: str) -> Limit:
    most = _up_to(MAX_SOCKET_PATH - len(socket_path(path, 0).encode()) + 1)
    reason = f"guest {most + 1} would have {socket_path(path, most + 1)}, and a socket's path has at most {MAX_SOCKET_PATH} bytes"
    return Limit("host", key, most, reason)


def _of_nics(testbed: Testbed, own: Own) -> Limit:
    host = testbed.host
    if own.functions:
        count = host.test_iface_vfs
        return Limit("host", "test_iface_vfs", count, f"each guest gets a virtual function, and there are {count}")
    count = 1 + len(host.guest_nics)
    reason = f"each guest gets a NIC of its own, and test_iface_addr and guest_nics name {count}"
    return Limit("host", "guest_nics", count, reason)


def _up_to(digits: int) -> int:
    """The largest number with so many digits; the first guest always has a name, as it is without a number."""
    return max(1, int(10 ** max(0, digits)) - 1)
