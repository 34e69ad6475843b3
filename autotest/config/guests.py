"""The testbed as each of several guests has it: guest 1 is the configuration's own, the others are counted up from it.

Guest N is called ``guestN`` and has the MAC addresses of guest 1 plus N - 1, so has its address, where one is configured; its
name for SSH has N behind its first label; links and sockets have ``-N`` behind their names. What guests share stays.
How far that goes: :mod:`autotest.config.guest_limits`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from autotest.config.testbed import GuestConfig, HostConfig, LabConfig, Testbed
from autotest.config.values import MAX_IFACE_NAME, MAX_SOCKET_PATH

FIRST = "guest"
_LINKS = ("admin_tap", "test_tap", "test_macvtap")
_SOCKETS = ("vhost_user_socket_path", "vmux_socket_path")
_MACS = ("admin_iface_mac", "test_iface_mac")
_NAME = re.compile(rf"{FIRST}([2-9]|[1-9][0-9]{{1,3}})?")
# [address], name or IPv4 address, each with or without :port; else it is an IPv6 address, as autotest.remote.ssh_config has it.
_DESTINATIONS = tuple(map(re.compile, (r"(\[)(.+)(\](?::[0-9]+)?)", r"()([^:]+)((?::[0-9]+)?)", r"()(.+)()")))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def name_of(number: int) -> str:
    """What guest ``number``, from 1, is called in output, journal and tmux.

    >>> name_of(1), name_of(2)
    ('guest', 'guest2')
    """
    return FIRST if number == 1 else f"{FIRST}{number}"


def number_of(name: str) -> int | None:
    """The number of the guest that is called so; None where no guest is."""
    match = _NAME.fullmatch(name)
    return int(match[1] or 1) if match else None


def nth_guest(testbed: Testbed, number: int) -> Testbed:
    """The testbed with the values of guest ``number``, from 1, in the sections ``host``, ``guest`` and ``lab``.

    Where a NIC is passed through, ``test_iface_addr`` and ``test_iface_mac`` of ``host`` are those of that guest's NIC; None
    where there is none for it. So are names of links and sockets that would be too long, as no kind of interface needs all of
    them; that of the tap in the admin network must do.

    Raises:
        ValueError: a value cannot be counted up so far; the message begins with section and key.
    """
    if number == 1:
        return testbed
    host = _host(testbed.host, number)
    guest = _guest(testbed, number)
    return dataclasses.replace(testbed, host=host, guest=guest, lab=_lab(testbed.lab, number))


def mac_plus(mac: str, count: int) -> str:
    """The MAC address that comes so many behind; those of one vendor end with the last three bytes.

    Raises:
        ValueError: the vendor has no such address.

    >>> mac_plus("52:54:00:fa:00:ff", 1)
    '52:54:00:fa:01:00'
    """
    value = int(mac.replace(":", ""), 16)
    if (value + count) >> 24 != value >> 24:
        raise ValueError(f"{mac} leaves room for {0x1000000 - (value & 0xFFFFFF)} guests: then the vendor's addresses end")
    digits = f"{value + count:012x}"
    return ":".join(digits[place : place + 2] for place in range(0, 12, 2))


def link_of(name: str, number: int) -> str:
    """The name of that guest's link.

    Raises:
        ValueError: it would be too long for the kernel.
    """
    found = link_name(name, number)
    if len(found) > MAX_IFACE_NAME:
        raise ValueError(f"{found} has {len(found)} characters: an interface name has at most {MAX_IFACE_NAME}")
    return found


def link_name(name: str, number: int) -> str:
    """As :func:`link_of`, however long."""
    return f"{name}-{number}"


def socket_path(path: str, number: int) -> str:
    """The path of that guest's socket, however long."""
    stem, suffix = posixpath.splitext(path)
    return f"{stem}-{number}{suffix}"


@dataclass(frozen=True)
class Destination:
    """An ``fqdn`` in its parts: ``before`` holds ``user@`` and an address's bracket, ``behind`` the other one and ``:port``."""

    before: str
    machine: str
    behind: str

    @property
    def address(self) -> Address | None:
        """What its machine is an address for; None where that is a name."""
        try:
            return ipaddress.ip_address(self.machine.partition("%")[0])
        except ValueError:
            return None

    def plus(self, count: int) -> str:
        """That of the guest that comes so many behind: a name gets the guest's number behind its first label.

        Raises:
            ValueError: there is no such address, or it is neither a name nor an address.

        >>> of_destination("root@vm.example.org").plus(2), of_destination("[fe80::ff%br0]:22").plus(1)
        ('root@vm3.example.org', '[fe80::100%br0]:22')
        """
        if self.address is not None:
            _, percent, zone = self.machine.partition("%")
            return f"{self.before}{_ip_plus(str(self.address), count)}{percent}{zone}{self.behind}"
        if not re.search(r"[^\W\d_]", self.machine):
            raise ValueError(f"{self.machine} is neither a name nor an address that can be counted up")
        return f"{self.before}{numbered(self.machine, count + 1)}{self.behind}"


def of_destination(fqdn: str) -> Destination:
    """The parts of an ``fqdn``."""
    user, at, rest = fqdn.rpartition("@")
    match = next(match for pattern in _DESTINATIONS if (match := pattern.fullmatch(rest)))
    return Destination(user + at + match[1], match[2], match[3])


def numbered(machine: str, number: int) -> str:
    """A machine's name with a number behind its first label.

    >>> numbered("vm.example.org", 2)
    'vm2.example.org'
    """
    label, dot, domain = machine.partition(".")
    return f"{label}{number}{dot}{domain}"


def _host(host: HostConfig, number: int) -> HostConfig:
    changed: dict[str, Any] = {}
    for key in _LINKS:
        if name := getattr(host, key):
            found = link_name(name, number)
            changed[key] = found if len(found) <= MAX_IFACE_NAME else None
    if host.admin_tap:
        changed["admin_tap"] = _named("host", "admin_tap", partial(link_of, host.admin_tap, number))
    for key in _SOCKETS:
        if path := getattr(host, key):
            found = socket_path(path, number)
            changed[key] = found if len(found.encode()) <= MAX_SOCKET_PATH else None
    address, mac = _nic(host, number)
    return dataclasses.replace(host, test_iface_addr=address, test_iface_mac=mac, **changed)


def _nic(host: HostConfig, number: int) -> tuple[str, str] | tuple[None, None]:
    """PCI address and MAC address of the NIC of a guest that is not the first."""
    return host.guest_nics[number - 2] if number - 2 < len(host.guest_nics) else (None, None)


def _guest(testbed: Testbed, number: int) -> GuestConfig:
    guest, count = testbed.guest, number - 1
    macs = {key: mac for key in _MACS if (mac := getattr(guest, key))}
    changed: dict[str, Any] = {key: _named("guest", key, partial(mac_plus, mac, count)) for key, mac in macs.items()}
    told = {mac: changed[key] for key, mac in macs.items()}
    destination = of_destination(guest.fqdn)
    changed["fqdn"] = _named("guest", "fqdn", partial(destination.plus, count))
    if destination.address is not None:
        told[str(destination.address)] = _ip_plus(str(destination.address), count)
    if testbed.lab:
        address = testbed.lab.guest_address.partition("/")[0]
        told[address] = _named("lab", "guest_address", partial(_ip_plus, address, count))
    _, nic = _nic(testbed.host, number)
    if nic and testbed.host.test_iface_mac:
        told[testbed.host.test_iface_mac] = nic
    changed["kernel_args"] = _with_own_values(guest.kernel_args, told)
    return dataclasses.replace(guest, **changed)


def _ip_plus(address: str, count: int) -> str:
    family = ipaddress.IPv6Address if ":" in address else ipaddress.IPv4Address
    found = family(address)
    try:
        return str(found + count)
    except ipaddress.AddressValueError:
        raise ValueError(f"{address} leaves no room for {count + 1} addresses") from None


def _with_own_values(arguments: str, told: dict[str, str]) -> str:
    """The kernel's arguments with the guest's own addresses, where they name those of guest 1."""
    if not told:
        return arguments
    # In the kernel's ip= a colon follows an IPv4 address.
    values = "|".join(re.escape(value) + (r"(?![\w.:])" if ":" in value else r"(?![\w.])") for value in told)
    return re.sub(rf"(?<![\w.:])(?:{values})", lambda match: told[match[0].lower()], arguments, flags=re.IGNORECASE)


def _lab(lab: LabConfig | None, number: int) -> LabConfig | None:
    if lab is None:
        return None
    address, slash, prefix = lab.guest_address.partition("/")
    return dataclasses.replace(lab, guest_address=_ip_plus(address, number - 1) + slash + prefix)


def _named(section: str, key: str, value: Callable[[], str]) -> str:
    """The value; what is wrong with it is said with its section and key."""
    try:
        return value()
    except ValueError as error:
        raise ValueError(f"[{section}] {key}: {error}") from None
