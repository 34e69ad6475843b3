"""What a machine that may become a part of a testbed has: data, and the NICs that can be the test NIC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network


@dataclass(frozen=True)
class Nic:
    """A NIC as its machine's kernel shows it.

    Attributes:
        name: of its interface; empty where the kernel has none for it.
        mac: in lower case.
        pci: its PCI address.
        driver: the kernel's for its PCI device.
        speed: in Mbit/s; None without a link, and where the driver does not tell.
        addresses: with prefix lengths.
        unfit: why it cannot be the test NIC; None where it can.
        neighbour: the MAC address of the NIC at the other end of its cable, where an LLDP daemon has heard of it.
        has_group: whether its IOMMU group can be given to a guest.
        is_veth: whether it is one end of a virtual wire.
    """

    name: str
    mac: str
    pci: str | None = None
    driver: str | None = None
    speed: int | None = None
    is_up: bool = False
    has_carrier: bool = False
    addresses: tuple[str, ...] = ()
    unfit: str | None = None
    neighbour: str | None = None
    has_group: bool = False
    is_veth: bool = False

    @property
    def link(self) -> str:
        """The state of its link, for the user."""
        if self.has_carrier:
            return "up" if not self.speed else f"{self.speed / 1000:g} Gbit/s" if self.speed >= 1000 else f"{self.speed} Mbit/s"
        return "no carrier" if self.is_up else "down"


@dataclass(frozen=True)
class Machine:
    """What one machine has.

    Attributes:
        role: ``host`` or ``loadgen``.
        is_local: whether it is this machine.
        boot, namespace: tell machines, and network namespaces of one machine, apart.
        user, home: of the login there.
        cpus: how many are online.
        memory: in MiB.
        links: the names of all its network links, alternative ones too.
        macs: the MAC addresses of all its network links.
        networks: that it has addresses in or routes to.
        programs: name to path of those of :data:`autotest.discovery.looking.PROGRAMS` that are there.
        qemus, images, reflectors: files; moongens: folders. What looking at the usual places found.
        devices: those of :data:`autotest.discovery.looking.DEVICES` that are there.
    """

    role: str
    hostname: str = ""
    is_local: bool = False
    boot: str = ""
    namespace: str = ""
    user: str = ""
    home: str = "/"
    cpus: int = 1
    memory: int = 0
    nics: tuple[Nic, ...] = ()
    links: frozenset[str] = frozenset()
    macs: frozenset[str] = frozenset()
    networks: tuple[IPv4Network, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
    qemus: tuple[str, ...] = ()
    moongens: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    reflectors: tuple[str, ...] = ()
    devices: frozenset[str] = frozenset()

    @property
    def candidates(self) -> tuple[Nic, ...]:
        """The NICs that can be the test NIC, those that probably are first."""
        found = [nic for nic in self.nics if nic.unfit is None]
        found.sort(key=lambda nic: (nic.is_veth, not nic.has_carrier, not nic.is_up, -(nic.speed or 0), nic.name))
        return tuple(found)

    def nic(self, name: str) -> Nic | None:
        """The NIC with that interface."""
        return next((nic for nic in self.nics if nic.name == name), None)


def wired_together(host: Machine, loadgen: Machine) -> tuple[list[Nic], list[Nic], str]:
    """The candidates of both that may be at the two ends of the wire, and how that is known; one each where it is certain.

    Nothing is sent to find out: an LLDP daemon may have heard of it, or no others have a link, of the same speed.
    """
    here, there = list(host.candidates), list(loadgen.candidates)
    for nic in here:
        if ends := other_ends(nic, loadgen):
            return [nic], ends[:1], "wired together, as LLDP tells"
    if host.boot == loadgen.boot and host.namespace == loadgen.namespace:
        return (here[:1], here[1:], "the only two") if len(here) == 2 else (here, here, "")
    linked = [nic for nic in here if nic.has_carrier], [nic for nic in there if nic.has_carrier]
    if all(linked):
        here, there = linked
        speeds = {nic.speed for nic in here} & {nic.speed for nic in there}
        if speeds:
            here, there = ([nic for nic in nics if nic.speed in speeds] for nics in (here, there))
    return here, there, "the only ones with a link" if all(linked) else "the only ones"


def other_ends(nic: Nic, machine: Machine) -> list[Nic]:
    """The candidates of the machine that LLDP daemons know to be at the other end of the NIC's cable."""
    return [other for other in machine.candidates if other.mac and (nic.neighbour == other.mac or other.neighbour == nic.mac)]
