"""What a machine's network would lose with a NIC: pure functions of what sysfs, iproute2 and ss say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autotest.network.pci_device import NotLinux, PciBus, PciDevice

_LOCAL_SCOPES = ("link", "host", "nowhere")  # of an address that only its own link knows; rt_scopes(5)
# Of ss -H: two numbers, then the local end. An IPv6 address stands in brackets, one of a link has a zone behind it.
_CONNECTION = re.compile(r"\s*[0-9]+\s+[0-9]+\s+\[?([0-9a-fA-F:.]+|\*)(?:%[^\]\s]+)?\]?(?:%\S+?)?:\S+\s+\S+\s*(.*)")
_SSHD = re.compile(r'\("sshd')  # from OpenSSH 9.8 on a session is served by sshd-session
_MAPPED = "::ffff:"  # in front of an IPv4 address that came to a socket for both


@dataclass(frozen=True)
class NetworkUse:
    """How one network namespace of a machine is used.

    Attributes:
        addresses: of each interface, those that others than its own link's machines know.
        local_addresses: of each interface the others.
        default_routes: the interfaces over which they go.
        ssh: the machine's own addresses to which SSH connections came.
    """

    addresses: Mapping[str, tuple[str, ...]]
    local_addresses: Mapping[str, tuple[str, ...]]
    default_routes: frozenset[str]
    ssh: frozenset[str]


def parse_use(answer: Any) -> NetworkUse:
    """The answer ``network`` of :mod:`autotest.network.pci_there`. Raises NotLinux where it is not one."""
    if not isinstance(answer, dict):
        raise NotLinux(f"the network: {str(answer)[:100]!r}")
    wide: dict[str, tuple[str, ...]] = {}
    local: dict[str, tuple[str, ...]] = {}
    try:
        for link in objects(answer["addresses"]):
            known = [info for info in link.get("addr_info", ()) if info]
            wide[link["ifname"]] = tuple(info["local"] for info in known if info["scope"] not in _LOCAL_SCOPES)
            local[link["ifname"]] = tuple(info["local"] for info in known if info["scope"] in _LOCAL_SCOPES)
        routes = [*objects(answer["routes"]), *objects(answer["routes6"])]
        hops = [hop for route in routes for hop in (route, *route.get("nexthops", ()))]
        devices = frozenset(hop["dev"] for hop in hops if "dev" in hop)
    except (KeyError, TypeError, AttributeError):
        raise NotLinux(f"addresses and routes: {str(answer)[:200]!r}") from None
    return NetworkUse(wide, local, devices, frozenset(_ssh(answer.get("connections"), answer.get("login"))))


def objects(text: Any) -> list[dict[str, Any]]:
    """What ``ip -json`` printed; some versions print empty objects among the others. NotLinux for anything else."""
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        raise NotLinux(f"ip: {text[:200]!r}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise NotLinux(f"ip: {text[:200]!r}")
    return [each for each in found if each]


def _ssh(connections: Any, login: Any) -> Iterable[str]:
    if not isinstance(connections, str):
        raise NotLinux(f"ss: {str(connections)[:100]!r}")
    for line in filter(None, connections.splitlines()):
        if not (match := _CONNECTION.fullmatch(line)):
            raise NotLinux(f"ss: {line[:200]!r}")
        if _SSHD.search(match[2]):
            yield _plain(match[1])
    if login is not None:
        fields = str(login).split()  # ssh(1), SSH_CONNECTION: client, its port, server, its port
        if len(fields) != 4:
            raise NotLinux(f"SSH_CONNECTION: {str(login)[:100]!r}")
        yield _plain(fields[2].partition("%")[0])


def _plain(address: str) -> str:
    return address.lower().removeprefix(_MAPPED)


def why_kept(device: PciDevice, bus: PciBus, use: NetworkUse) -> str | None:
    """Why the machine needs this NIC itself, None where it does not."""
    for name in device.interfaces:
        if found := why_interface_kept(name, bus, use):
            return found
    if device.is_network and device.has_kernel_driver and not device.interfaces:
        return f"is bound to {device.driver}, but its interface is not to be seen here, perhaps it is a container's"
    if device.disks:
        return f"has disks: {', '.join(device.disks)}"
    return None


def why_interface_kept(name: str, bus: PciBus, use: NetworkUse) -> str | None:
    """Why the machine needs this interface itself, None where it does not.

    What is on top of an interface counts as its own: the addresses of a bridge, bond or VLAN are reached over it.
    """
    stack = [name, *bus.on_top_of(name)]
    for each in stack:
        over = name if each == name else f"{each}, on top of {name}"
        if each in use.default_routes:
            return f"carries the default route ({over})"
        wide, local = use.addresses.get(each, ()), use.local_addresses.get(each, ())
        if reached := sorted(use.ssh.intersection(map(_plain, (*wide, *local)))):
            return f"carries an SSH connection to this machine ({reached[0]}, {over})"
        if wide:
            return f"has the address {wide[0]} ({over})"
    gone = [each for each in stack[1:] if not bus.interfaces[each].is_bridge]
    if gone:  # to be a port of a bridge can be restored
        return f"is below {gone[0]}, which would go with it ({name})"
    return None
