"""What Linux says of a machine's PCI devices and of their network interfaces, understood: pure functions of an answer.

Raises everywhere: :class:`NotLinux`, where an answer is not what Linux documents; see :mod:`autotest.network.pci_there`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NETWORK_CLASS = 0x02  # the base class of network controllers; Linux, include/linux/pci_ids.h
_BRIDGE_CLASS = 0x06
_STORAGE_CLASS = 0x01

_UIO_DRIVERS = ("igb_uio", "uio_pci_generic")
_STUB = "pci-stub"  # it holds a device for nobody
_NO_OVERRIDE = ("", "(null)")  # how printf() of kernel and libc write that there is none
_VENDOR = re.compile(r"0x[0-9a-f]{4}")
_CLASS = re.compile(r"0x[0-9a-f]{6}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_NODE = re.compile(r"-1|[0-9]{1,9}")
_FLAGS = re.compile(r"0x[0-9a-f]{1,8}")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UP = 0x1  # IFF_UP; include/uapi/linux/if.h
_SET_BY_THE_USER = 3  # NET_ADDR_SET; include/uapi/linux/netdevice.h
_NO_IOMMU_GROUP = "vfio-noiommu"


class NotLinux(ValueError):
    """An answer that Linux does not give; says what of it."""


@dataclass(frozen=True)
class NetInterface:
    """A network interface of a PCI device, or one on top of such.

    Attributes:
        mac: in lower case.
        mac_is_set: whether somebody set it: it is not the device's own.
        pci: the PCI address of its device, None for one without.
        uppers: the interfaces right on top of it.
        master: the one of them that it is a port of.
    """

    name: str
    mac: str
    mac_is_set: bool
    is_up: bool
    mtu: int
    pci: str | None
    uppers: tuple[str, ...]
    master: str | None
    is_bridge: bool


@dataclass(frozen=True)
class GroupMember:
    """A device of an IOMMU group; ``class_code`` is None for one that is not on a PCI bus."""

    name: str
    class_code: int | None
    driver: str | None

    @property
    def is_in_the_way(self) -> bool:
        """Whether the kernel gives away no device of the group: a driver of its own works with this one.

        Linux, drivers/vfio/group.c and drivers/iommu/iommu.c: bridges, vfio drivers and pci-stub do no DMA of the kernel's.
        """
        is_bridge = self.class_code is not None and self.class_code >> 16 == _BRIDGE_CLASS
        return not is_bridge and self.driver is not None and not is_vfio(self.driver) and self.driver != _STUB

    def __str__(self) -> str:
        return f"{self.name} ({self.driver or 'no driver'})"


@dataclass(frozen=True)
class PciDevice:
    """A PCI device as the kernel shows it.

    Attributes:
        address: like ``0000:51:00.0``.
        vendor, device: its ids.
        class_code: 24 bits: base class, class, programming interface.
        driver: that it is bound to, None for none.
        driver_override: the only driver that may take it; empty where any may.
        numa_node: None where the machine does not tell.
        iommu_group: its number; None without an IOMMU, and for a group that vfio's mode without IOMMU made up.
        group: all members of the group, this one too.
        interfaces: its network interfaces: name to MAC address, in lower case.
        physical_function: the address of the device whose virtual function this is; None where it is none.
        sriov_totalvfs: how many virtual functions it can have.
        sriov_numvfs: how many it has.
        virtual_functions: their addresses, by their numbers.
        sriov_drivers_autoprobe: whether drivers take its new virtual functions by themselves; None where it can have none.
        disks: its block devices.
    """

    address: str
    vendor: int
    device: int
    class_code: int
    driver: str | None = None
    driver_override: str = ""
    numa_node: int | None = None
    iommu_group: int | None = None
    group: tuple[GroupMember, ...] = ()
    interfaces: Mapping[str, str] = field(default_factory=dict)
    physical_function: str | None = None
    sriov_totalvfs: int = 0
    sriov_numvfs: int = 0
    virtual_functions: tuple[str, ...] = ()
    sriov_drivers_autoprobe: bool | None = None
    disks: tuple[str, ...] = ()

    @property
    def is_virtual_function(self) -> bool:
        """Whether it is a virtual function of another device."""
        return self.physical_function is not None

    @property
    def base_class(self) -> int:
        """0x02 for network controllers, 0x01 for storage, ..."""
        return self.class_code >> 16

    @property
    def is_network(self) -> bool:
        """Whether it is a network controller."""
        return self.base_class == NETWORK_CLASS

    @property
    def has_kernel_driver(self) -> bool:
        """Whether its driver is one with which the kernel itself uses it."""
        return self.driver is not None and not is_for_any_device(self.driver)

    def __str__(self) -> str:
        return f"{self.address} ({', '.join([self.driver or 'no driver', *self.interfaces])})"


@dataclass(frozen=True)
class PciBus:
    """All PCI devices of a machine at one moment.

    Attributes:
        devices: by address.
        drivers: that are loaded.
        drivers_probe_by_themselves: whether a driver that is loaded takes all devices that it knows.
        interfaces: all network interfaces, by name.
    """

    devices: Mapping[str, PciDevice]
    drivers: frozenset[str]
    drivers_probe_by_themselves: bool
    interfaces: Mapping[str, NetInterface]

    def interfaces_of(self, address: str) -> tuple[NetInterface, ...]:
        """The network interfaces of a device."""
        return tuple(each for each in self.interfaces.values() if each.pci == address)

    @property
    def has_iommu(self) -> bool:
        """Whether any device is in an IOMMU group."""
        return any(device.iommu_group is not None for device in self.devices.values())

    def on_top_of(self, name: str) -> Iterator[str]:
        """The interfaces on top of one, over any number of levels, each once."""
        seen, todo = {name}, [name]
        while todo:
            for upper in self.interfaces[todo.pop()].uppers:
                if upper in self.interfaces and upper not in seen:
                    seen.add(upper)
                    todo.append(upper)
                    yield upper


def is_vfio(driver: str) -> bool:
    """Whether that driver is vfio-pci or one of its variants for single devices, like mlx5_vfio_pci."""
    return "vfio" in driver


def is_for_any_device(driver: str) -> bool:
    """Whether that driver is one that hands a device on, whatever it is, and does not work with it itself."""
    return is_vfio(driver) or driver in (*_UIO_DRIVERS, _STUB)


def parse_bus(bus: Any, interfaces: Any) -> PciBus:
    """The answers ``bus`` and ``interfaces``."""
    found = parse_interfaces(interfaces)
    bus = _typed(bus, dict, "the bus")
    groups = {number: _group(number, group) for number, group in _typed(bus.get("groups"), dict, "IOMMU groups").items()}
    disks = _typed(bus.get("disks"), dict, "block devices")
    devices = {
        address: _device(address, values, groups, found, disks)
        for address, values in _typed(bus.get("devices"), dict, "devices").items()
    }
    drivers = _typed(bus.get("drivers"), list, "drivers")
    autoprobe = bool(_count(bus.get("drivers_autoprobe"), "drivers_autoprobe"))
    return PciBus(devices, frozenset(_typed(driver, str, "a driver") for driver in drivers), autoprobe, found)


def parse_interfaces(interfaces: Any) -> dict[str, NetInterface]:
    """The answer ``interfaces``, by name."""
    return {name: _interface(name, values) for name, values in _typed(interfaces, dict, "interfaces").items()}


def _device(
    address: str, values: Any, groups: Mapping[str, tuple[int | None, tuple[GroupMember, ...]]],
    interfaces: Mapping[str, NetInterface], disks: Mapping[str, Any],
) -> PciDevice:  # fmt: skip
    _matching(_ADDRESS, address, "a PCI address")
    values = _typed(values, dict, address)
    group, members = (None, ()) if values.get("iommu_group") is None else groups.get(values["iommu_group"], (-1, ()))
    if group == -1 or (members and address not in [member.name for member in members]):
        raise NotLinux(f"{address} is in IOMMU group {values['iommu_group']}, which does not know of it")
    node = int(_matching(_NODE, values.get("numa_node") or "-1", f"numa_node of {address}"))
    autoprobe = values.get("sriov_drivers_autoprobe")
    override = _typed(values.get("driver_override") or "", str, f"driver_override of {address}")
    return PciDevice(
        address,
        vendor=int(_matching(_VENDOR, values.get("vendor"), f"vendor of {address}"), 16),
        device=int(_matching(_VENDOR, values.get("device"), f"device of {address}"), 16),
        class_code=int(_matching(_CLASS, values.get("class"), f"class of {address}"), 16),
        driver=_text_or_none(values.get("driver"), f"driver of {address}"),
        driver_override="" if override in _NO_OVERRIDE else override,
        numa_node=None if node < 0 else node,
        iommu_group=group,
        group=members,
        interfaces={each.name: each.mac for each in interfaces.values() if each.pci == address},
        physical_function=_text_or_none(values.get("physfn"), f"physfn of {address}"),
        sriov_totalvfs=_count(values.get("sriov_totalvfs"), f"sriov_totalvfs of {address}"),
        sriov_numvfs=_count(values.get("sriov_numvfs"), f"sriov_numvfs of {address}"),
        virtual_functions=_virtual_functions(address, values.get("virtfn")),
        sriov_drivers_autoprobe=None if autoprobe is None else bool(_count(autoprobe, f"sriov_drivers_autoprobe of {address}")),
        disks=tuple(name for name, of in disks.items() if of == address),
    )


def _virtual_functions(address: str, links: Any) -> tuple[str, ...]:
    links = _typed(links, dict, f"virtual functions of {address}")
    numbers = sorted(int(_matching(_NUMBER, number, f"virtual function of {address}")) for number in links)
    if numbers != list(range(len(links))):
        raise NotLinux(f"virtual functions of {address} are numbered {numbers}")
    return tuple(_matching(_ADDRESS, links[str(number)], f"virtfn{number} of {address}") for number in numbers)


def _group(number: str, group: Any) -> tuple[int | None, tuple[GroupMember, ...]]:
    what = f"IOMMU group {number}"
    found = int(_matching(_NUMBER, number, what))
    group = _typed(group, dict, what)
    members = []
    for name, member in _typed(group.get("members"), dict, what).items():
        values = _typed(member, dict, f"{name} in {what}")
        code = values.get("class")
        class_code = None if code is None else int(_matching(_CLASS, code, f"class of {name}"), 16)
        members.append(GroupMember(name, class_code, _text_or_none(values.get("driver"), f"driver of {name}")))
    return None if group.get("name") == _NO_IOMMU_GROUP else found, tuple(members)


def _interface(name: str, values: Any) -> NetInterface:
    values = _typed(values, dict, name)
    uppers = _typed(values.get("uppers"), list, f"what is on top of {name}")
    flags = int(_matching(_FLAGS, values.get("flags"), f"flags of {name}"), 16)
    return NetInterface(
        name,
        mac=_typed(values.get("address"), str, f"address of {name}").lower(),
        mac_is_set=_count(values.get("addr_assign_type"), f"addr_assign_type of {name}") == _SET_BY_THE_USER,
        is_up=bool(flags & _UP),
        mtu=_count(values.get("mtu"), f"mtu of {name}"),
        pci=_text_or_none(values.get("pci"), f"device of {name}"),
        uppers=tuple(_typed(upper, str, f"what is on top of {name}") for upper in uppers),
        master=_text_or_none(values.get("master"), f"master of {name}"),
        is_bridge=_typed(values.get("bridge"), bool, f"bridge of {name}"),
    )


def _count(value: Any, what: str) -> int:
    return 0 if value is None else int(_matching(_NUMBER, value, what))


def _text_or_none(value: Any, what: str) -> str | None:
    if value is None:
        return None
    return str(_typed(value, str, what))


def _matching(form: re.Pattern[str], value: Any, what: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise NotLinux(f"{what} is {str(value)[:100]!r}")
    return value


def _typed(value: Any, wanted: type, what: str) -> Any:
    if not isinstance(value, wanted):
        raise NotLinux(f"{what}: {str(value)[:100]!r}")
    return value
