"""The NIC that the load goes through: there, the right one, alone with its MAC address, linked, with its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotest.config.testbed import ServerConfig
from autotest.errors import AutotestError
from autotest.network import sriov
from autotest.network.pci_device import PciDevice, is_for_any_device
from autotest.preflight.requirement import Finding, Requirement, failed, passed, warned
from autotest.preflight.survey import Survey
from autotest.servers.server import Server
from autotest.traffic.dpdk import goes_without_iommu

Link = dict[str, Any]

_OTHER_END = {"host": "loadgen", "loadgen": "host"}
# Kinds of links that have the MAC address of the one below or of a port: they are no second NIC.
_BORROWING = ("bridge", "bond", "team", "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "hsr", "macsec")
_HEADER = 14  # bytes of Ethernet, which the MTU does not count
_SHARING = ("bond", "team")  # whose ports all have one MAC address, by design


@dataclass(frozen=True)
class FrameRoom(Requirement):
    """A test NIC whose MTU leaves room for frames of that size, in bytes without CRC; DPDK sets that of a NIC that it has."""

    size: int

    @property
    def subject(self) -> str:
        return "MTU of the NIC"

    def look(self, survey: Survey) -> Finding:
        config = survey.server(self.server).config
        link = named(survey.links(self.server), config.test_iface)
        mtu = link.get("mtu") if link else None
        if mtu is None:
            return passed("that of no interface of the kernel")
        if mtu + _HEADER >= self.size:
            return passed(f"{mtu}, for frames of up to {mtu + _HEADER} bytes")
        return failed(
            f"{config.test_iface} has an MTU of {mtu} bytes, for frames of up to {mtu + _HEADER}: the tests have some of {self.size}",
            f"ip link set dev {config.test_iface} mtu {self.size - _HEADER}, or no sizes above {mtu + _HEADER}",
        )


@dataclass(frozen=True)
class KernelNic(Requirement):
    """The test NIC as an interface of the kernel, or such that it can be bound to the kernel's driver again.

    Attributes:
        or_given_away: whether it may also be bound to another driver for good.
    """

    or_given_away: bool = False

    @property
    def subject(self) -> str:
        return "NIC"

    def look(self, survey: Survey) -> Finding:
        config = survey.server(self.server).config
        link = named(survey.links(self.server), config.test_iface)
        if link is None:
            return self._without_interface(survey, config)
        if wrong := wrong_nic(survey, self.server, link):
            return wrong
        if wrong := self._port_of_another(survey, link):
            return wrong
        return self._carrier(survey, link)

    def _without_interface(self, survey: Survey, config: ServerConfig) -> Finding:
        missing = f"there is no network interface {config.test_iface}"
        if not config.test_iface_addr:
            if mac_has := with_mac(survey.links(self.server), config.test_iface_mac):
                return failed(
                    f"{missing}, but {', '.join(mac_has)} has the MAC address {config.test_iface_mac}", "correct test_iface"
                )
            return failed(missing, f"correct test_iface in [{self.server}]; for a NIC that has another driver: test_iface_addr")
        device = survey.server(self.server).pci.require(config.test_iface_addr, config.test_iface_mac)
        if device.interfaces:
            return failed(f"{missing}: that of {device.address} is {', '.join(device.interfaces)}", "correct test_iface")
        if not config.test_iface_driv:
            if self.or_given_away:
                return passed(f"{device}; it stays without an interface of the kernel")
            remedy = f"test_iface_driv in [{self.server}]: the kernel's driver, which it is then bound to"
            return failed(f"{missing}, and {device} has no driver of the kernel", remedy)
        return passed(f"{device}; it is bound to {config.test_iface_driv} for the test")

    def _port_of_another(self, survey: Survey, link: Link) -> Finding | None:
        """It may only be a port of our own bridge."""
        master = link.get("master")
        if master is None or master == getattr(survey.server(self.server).config, "test_bridge", None):
            return None
        name = link["ifname"]
        return failed(
            f"{name} is a port of {master}, which takes its frames", f"ip link set dev {name} nomaster, or correct test_iface"
        )

    def _carrier(self, survey: Survey, link: Link) -> Finding:
        nic = survey.facts(self.server).nic
        what = [link["ifname"], *([nic.driver] if nic.driver else []), *([f"{nic.speed} Mbit/s"] if nic.speed else [])]
        if "UP" not in link.get("flags", ()):
            return passed(f"{', '.join(what)}, down: it is brought up for the test")
        if "LOWER_UP" in link.get("flags", ()):
            return passed(", ".join(what))
        other = _OTHER_END[self.server]
        if not _may_have_no_link(survey, other):
            remedy = f"look at its cable and at the switch; the other end is test_iface of [{other}]"
            return failed(f"{link['ifname']} is up, but has no carrier", remedy)
        return passed(f"{', '.join(what)}, no carrier yet: the other end is down")


@dataclass(frozen=True)
class KernelDriver(Requirement):
    """The driver of the kernel that ``test_iface_driv`` names, where the NIC has one now."""

    @property
    def subject(self) -> str:
        return "NIC's driver"

    def look(self, survey: Survey) -> Finding:
        config = survey.server(self.server).config
        wanted, now = config.test_iface_driv, survey.facts(self.server).nic.driver
        if now == wanted:
            return passed(now or "")
        if now is None or named(survey.links(self.server), config.test_iface) is None:
            return passed(f"none now, {wanted} for the test")
        configured = (config.test_iface_dpdk_driv, getattr(config, "test_iface_vfio_driv", None))
        if now in configured or is_for_any_device(now):
            return passed(f"{now} now, {wanted} for the test")
        return failed(f"{config.test_iface} has the driver {now}, not {wanted}", f"correct test_iface_driv in [{self.server}]")


@dataclass(frozen=True)
class GivenAwayNic(Requirement):
    """The test NIC as a PCI device that can be bound to a driver for DPDK or VFIO, and that no process has open.

    Attributes:
        address: its PCI address, None where it is found by its interface.
        driver: what it is bound to.
        functions: how many virtual functions are made of it, of which one is bound; 0 where the NIC itself is.
    """

    address: str | None
    driver: str
    functions: int = 0

    @property
    def subject(self) -> str:
        return f"NIC for {self.driver}"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)
        config = server.config
        link = named(survey.links(self.server), config.test_iface)
        if link is not None and (wrong := wrong_nic(survey, self.server, link)):
            return wrong
        address = self.address or _address_of(server)
        if address is None:
            return failed(
                f"no PCI device has the interface {config.test_iface} or its MAC address",
                f"test_iface_addr in [{self.server}]: its PCI address",
            )
        device = server.pci.require(address, config.test_iface_mac)  # raises where it is absent or another NIC
        if not device.is_network:
            return failed(f"{device} is no network device", f"correct test_iface_addr in [{self.server}]")
        if wrong := _at_another_address(survey, self.server, link, device):
            return wrong
        if self.functions:
            if in_use := _in_use(survey, self.server, address):
                return in_use
            return self._room_for_functions(survey, device)
        return can_be_bound(survey, self.server, device, self.driver)

    def _room_for_functions(self, survey: Survey, device: PciDevice) -> Finding:
        if device.sriov_totalvfs < self.functions:
            return failed(
                f"{device} can have {device.sriov_totalvfs} virtual functions, not {self.functions}",
                "correct test_iface_vfs, or switch SR-IOV on in the firmware's settings",
            )
        if device.sriov_numvfs:
            return _used(survey, self.server, f"{device} {sriov.already_there(device)}", sriov.how_to_remove(device))
        return passed(f"{device}; {self.functions} of {device.sriov_totalvfs} virtual functions are made for the test")


@dataclass(frozen=True)
class FurtherNic(Requirement):
    """The NIC of a guest that is not the first one's: as :class:`GivenAwayNic`, but known by its PCI address alone."""

    address: str
    mac: str
    driver: str

    @property
    def subject(self) -> str:
        return "NICs of further guests"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)
        device = server.pci.require(self.address)
        if device.interfaces and self.mac not in device.interfaces.values():
            found = ", ".join(f"{name} with {mac}" for name, mac in device.interfaces.items())
            what = f"{self.address} is not the NIC with {self.mac}, it is {found}"
            return failed(what, f"correct guest_nics in [{self.server}]")
        if not device.is_network:
            return failed(f"{device} is no network device", f"correct guest_nics in [{self.server}]")
        return can_be_bound(survey, self.server, device, self.driver)


@dataclass(frozen=True)
class IommuGroup(Requirement):
    """An IOMMU, and a group of it in which nothing else is that the kernel uses.

    Attributes:
        address: the PCI address of the NIC.
        of_function: whether it is a virtual function of the NIC that is given away: that will be in a group of its own.
        unsafe_driver: a driver of vfio that will do without an IOMMU, where vfio is told so; None where none will.
        others: PCI addresses of NICs of other guests.
    """

    address: str
    of_function: bool = False
    unsafe_driver: str | None = None
    others: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return "IOMMU"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)
        pci = server.pci
        if self.unsafe_driver and goes_without_iommu(server, self.unsafe_driver):
            return passed("none is needed: vfio's enable_unsafe_noiommu_mode is on")
        group = pci.require(self.address).iommu_group
        if self.of_function and group is not None:
            return passed(f"{self.address} is behind one, and so are its virtual functions")
        if group is not None and (shared := [other for other in self.others if pci.require(other).iommu_group == group]):
            what = f"{self.address} is in IOMMU group {group} with {', '.join(shared)} of another guest"
            return failed(f"{what}: only one can have the group", "name NICs of different groups: guest_nics in [host]")
        if problem := pci.group_problem(self.address):
            what, _, remedy = problem.partition(": ")
            return failed(what, remedy)
        return passed(f"group {group} of {self.address} can be given away")


def can_be_bound(survey: Survey, name: str, device: PciDevice, driver: str) -> Finding:
    """Whether the device can be bound to the driver: no process has it open, and the machine does not need it itself."""
    if in_use := _in_use(survey, name, device.address):
        return in_use
    if device.driver == driver:
        return passed(str(device))
    server = survey.server(name)
    if reason := server.pci.refusal(device.address, server.config.bind_in_use):
        return failed(f"{device.address} is somebody else's: {reason}", f"name another NIC in [{name}]")
    return passed(f"{device}; it is bound to {driver} for the test")


def _in_use(survey: Survey, server: str, address: str) -> Finding | None:
    holders = survey.server(server).pci.holders(address)
    return _used(survey, server, f"{address} is in use: {'; '.join(map(str, holders))}", "end it first") if holders else None


def _used(survey: Survey, server: str, detail: str, remedy: str) -> Finding:
    """A guest that was started by hand is ended before anything is measured, and what was set up for it goes with it."""
    host = survey.servers.host
    if server == host.name and host.guest_is_running():
        return warned(f"{detail}; perhaps by the guest that is running", "autotest kill-guest, then autotest teardown-network")
    return failed(detail, remedy)


def named(links: Sequence[Link], name: str | None) -> Link | None:
    """The link of that name, or with that alternative name."""
    return next((link for link in links if name is not None and name in (link["ifname"], *link.get("altnames", ()))), None)


def with_mac(links: Sequence[Link], mac: str | None) -> list[str]:
    """The names of the NICs with that MAC address: without links that have it from another one."""
    return [
        link["ifname"]
        for link in links
        if mac and link.get("address", "").lower() == mac.lower() and not _has_it_from_another(link)
    ]


def _has_it_from_another(link: Link) -> bool:
    info = link.get("linkinfo", {})
    return info.get("info_kind") in _BORROWING or info.get("info_slave_kind") in _SHARING


def wrong_nic(survey: Survey, server: str, link: Link) -> Finding | None:
    """What is wrong where the interface has another MAC address than is configured, or shares it with another NIC."""
    mac, found, name = survey.server(server).config.test_iface_mac, str(link.get("address", "")).lower(), link["ifname"]
    if not mac:
        return None
    having = with_mac(survey.links(server), mac)
    if found != mac.lower():
        hint = f"; {', '.join(having)} has it" if having else ""
        return failed(
            f"{name} has the MAC address {found}, not {mac}{hint}", f"correct test_iface or test_iface_mac in [{server}]"
        )
    if others := [other for other in having if other != name and other not in _below(survey.links(server), link)]:
        return failed(
            f"{mac} is the MAC address of {name} and of {', '.join(others)}: whose frames are whose cannot be told",
            f"give one of them another: ip link set dev {others[0]} address ...",
        )
    return None


def _below(links: Sequence[Link], link: Link) -> set[str]:
    """The interfaces that it stands on, of which it may have the MAC address, as a macvlan in passthru mode does."""
    found: set[str] = set()
    while (lower := str(link.get("link") or "")) and lower not in found:
        found.add(lower)
        link = named(links, lower) or {}
    return found


def _address_of(server: Server) -> str | None:
    """The PCI address of the test NIC by its interface, else by its MAC address; None where no device, or several, have it."""
    name, mac, devices = server.config.test_iface, (server.config.test_iface_mac or "").lower(), server.pci.devices()
    found = [device.address for device in devices if name in device.interfaces]
    found = found or [device.address for device in devices if mac in device.interfaces.values()]
    return found[0] if len(found) == 1 else None


def _at_another_address(survey: Survey, server: str, link: Link | None, device: PciDevice) -> Finding | None:
    found = survey.facts(server).nic.pci_address
    config = survey.server(server).config
    if link is None or link["ifname"] in device.interfaces or not config.test_iface_addr:
        return None
    where = f"at {found}" if found else "no PCI device"
    return failed(f"{link['ifname']} is {where}, not test_iface_addr {device.address}", f"correct one of them in [{server}]")


def _may_have_no_link(survey: Survey, name: str) -> bool:
    """Whether the NIC there is down, or not the kernel's: then its other end has no carrier, which comes with the test."""
    try:
        link = named(survey.links(name), survey.server(name).config.test_iface)
    except AutotestError:  # nothing is known of it; where it is needed, that is a finding of its own
        return True
    return link is None or "UP" not in link.get("flags", ())
