"""Drivers of one server's PCI devices, bound through sysfs by PCI address, and given back whatever happens.

Nothing is written before it was looked who needs the device. A module that was loaded for it stays loaded: without a device
it does nothing, and by the end somebody else may use it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from typing import Any

from autotest.errors import TestbedError, WaitTimeout
from autotest.network import iommu, sriov
from autotest.network.nic_use import parse_use, why_kept
from autotest.network.pci_device import (
    NETWORK_CLASS,
    NetInterface,
    NotLinux,
    PciBus,
    PciDevice,
    is_for_any_device,
    is_vfio,
    parse_interfaces,
)
from autotest.network.pci_sysfs import LOOK, Holder, PciSysfs
from autotest.remote.transport import Note, Transport, unnoted
from autotest.remote.wait import wait_for

_INTERFACE_TIMEOUT = 15.0  # seconds until a device that has its driver back has its interface
_INTERVAL = 0.2  # seconds between two looks, which are commands over SSH
_NAMED = 4  # devices in an error about one that is not there


class PciDevices:
    """The PCI devices of one server. Addresses are written in full and in lower case, as sysfs has them.

    Args:
        note: is told of each change before it is made.
        root: the folder in which the server has ``sys``, ``proc`` and ``dev``.
    """

    def __init__(self, transport: Transport, note: Note = unnoted, root: str = "/") -> None:
        self._sysfs = PciSysfs(transport, root)
        self._name = transport.name
        self._note = note

    # -- looking -------------------------------------------------------------------------------------------

    def devices(self) -> list[PciDevice]:
        """All network controllers. Raises TestbedError where sysfs says what Linux does not."""
        return [device for device in self._sysfs.look().devices.values() if device.is_network]

    def show(self, address: str) -> PciDevice | None:
        """The device, None where there is none. Raises as :meth:`devices` does."""
        return self._sysfs.look().devices.get(address)

    def require(self, address: str, mac: str | None = None) -> PciDevice:
        """As :meth:`show`; where a MAC address is given and the device has an interface, it must have that one.

        Raises:
            TestbedError: there is no such device, with the network devices that there are; or it is another one.
        """
        return self._required(self._sysfs.look(), address, mac)

    def _required(self, bus: PciBus, address: str, mac: str | None = None) -> PciDevice:
        device = bus.devices.get(address)
        if device is None:
            networks = {each.address: each for each in bus.devices.values() if each.is_network}
            nearest = difflib.get_close_matches(address, networks, n=_NAMED, cutoff=0.0)
            there = ", ".join(str(networks[each]) for each in nearest) or "none"
            raise TestbedError(f"{self._name}: there is no PCI device {address}; its network devices are {there}")
        if mac and device.interfaces and mac.lower() not in device.interfaces.values():
            found = ", ".join(f"{name} with {its_mac}" for name, its_mac in device.interfaces.items())
            raise TestbedError(
                f"{self._name}: {address} is not the NIC with {mac}, it is {found}: correct test_iface_addr or test_iface_mac"
            )
        return device

    def refusal(self, address: str, allowed: Collection[str] = ()) -> str | None:
        """Why the server needs the device itself, so that no driver is taken from it; None where it may be.

        Args:
            allowed: addresses for which that does not count.

        Raises:
            TestbedError: there is no such device, or the server does not answer as Linux does.
        """
        answers = self._sysfs.ask({**LOOK, "network": {}}, sudo=True)
        bus = self._sysfs.bus(answers)
        return self._refusal(self._required(bus, address), bus, answers["network"], allowed)

    def _refusal(self, device: PciDevice, bus: PciBus, network: Any, allowed: Collection[str]) -> str | None:
        if device.sriov_numvfs:
            return f"it has {device.sriov_numvfs} virtual functions, which would go with its driver: remove them first"
        if inside := self._interfaces_inside(device.address):
            return (
                f"its interface {inside[0]} is in the network namespace that the configuration names: without its driver it "
                "would return to the machine's own: move it back first (ip -n NAMESPACE link set dev INTERFACE netns 1)"
            )
        if device.address in allowed:
            return None
        try:
            found = why_kept(device, bus, parse_use(network))
        except NotLinux as error:
            raise self._sysfs.no_answer(error) from None
        return f"it {found}; if that may end, add it to bind_in_use in the server's section" if found else None

    def _interfaces_inside(self, address: str) -> list[str]:
        """Its interfaces in the network namespace of the configuration, where the server is one."""
        if self._sysfs.namespace is None or not self._sysfs.namespace.has_network():
            return []
        try:
            found = parse_interfaces(self._sysfs.ask({"interfaces": {}}, inside=True)["interfaces"])
        except NotLinux as error:
            raise self._sysfs.no_answer(error) from None
        return [each.name for each in found.values() if each.pci == address]

    def holders(self, address: str) -> list[Holder]:
        """The processes that have the device open through VFIO or UIO: to take its driver away would wait for them."""
        return self._sysfs.holders(self._sysfs.ask({"holders": {"address": address}}, sudo=True)["holders"])

    def group_problem(self, address: str) -> str | None:
        """Why the device cannot be given to a guest as far as the IOMMU is concerned, and what would help.

        Raises:
            TestbedError: there is no such device.
        """
        bus = self._sysfs.look()
        return iommu.group_problem(self._required(bus, address), bus)

    def interface_of(self, address: str, timeout: float = _INTERFACE_TIMEOUT) -> str:
        """The name of its first network interface, once it has one and udev has named it.

        Raises:
            TestbedError: it has none in time.
        """
        return self._wait_for_interfaces(address, 1, timeout).interfaces_of(address)[0].name

    def _wait_for_interfaces(self, address: str, count: int, timeout: float) -> PciBus:
        """The bus once the device has so many, and udev has named them."""
        try:
            wait_for(
                lambda: len(self._sysfs.look().interfaces_of(address)) >= count,
                f"network interface of {address}", timeout, _INTERVAL,
            )  # fmt: skip
        except WaitTimeout:
            device = self.require(address)
            raise TestbedError(
                f"{self._name}: {address} has no network interface after {timeout:g} s, its driver is {device.driver or 'none'}"
            ) from None
        bus = self._sysfs.bus(self._sysfs.ask({"settle": {}, **LOOK}, sudo=True))
        if not bus.interfaces_of(address):
            raise TestbedError(f"{self._name}: the network interface of {address} went again")
        return bus

    # -- binding -------------------------------------------------------------------------------------------

    def bind(
        self, address: str, driver: str, *, allowed: Collection[str] = (), mac: str | None = None,
        needs_iommu: bool | None = None, kinds: Collection[int] = (NETWORK_CLASS,),
    ) -> PciDevice:  # fmt: skip
        """Bind the device to the driver; where it is already, nothing is changed. The journal undoes it.

        It is for whoever is about to use the device: one that a process has open is refused, our own included.

        Args:
            allowed: addresses of devices that may be taken although the server needs them itself; see :meth:`refusal`.
            mac: the MAC address that its interface must have, where it has one.
            needs_iommu: whether it must be possible to give it away; without it, where the driver is one of vfio's.
            kinds: base classes of devices that may be bound.

        Returns:
            The device as it is then.

        Raises:
            TestbedError: there is no such device or driver, it is not the one that is meant, it is needed or in use, or
                the driver does not take it.
        """
        asked = {**LOOK, "network": {}, "holders": {"address": address}}
        answers = self._sysfs.ask(asked, sudo=True)
        bus = self._sysfs.bus(answers)
        device = self._required(bus, address, mac)
        if device.base_class not in kinds:
            raise TestbedError(f"{self._name}: {address} is no network device, its class is {device.class_code:#08x}: left alone")
        is_given_away = is_vfio(driver) if needs_iommu is None else needs_iommu
        if is_given_away and (problem := iommu.group_problem(device, bus)):
            raise TestbedError(f"{self._name}: {address} cannot be bound to {driver}: {problem}")
        # Two programs on one NIC would take each other's frames, also where it has the driver already.
        self._sysfs.refuse_holders(address, self._sysfs.holders(answers["holders"]))
        if device.driver == driver:
            return device
        if reason := self._refusal(device, bus, answers["network"], allowed):
            raise TestbedError(f"{self._name}: {address} is not bound to {driver}: {reason}")
        if driver not in bus.drivers:
            if bus.drivers_probe_by_themselves:
                self._note("autoprobe", name=driver)
            self._load(driver)
        interfaces = json.dumps([_remembered(each) for each in bus.interfaces_of(address)])
        self._note("driver", name=address, driver=driver, before=device.driver or "", override=device.driver_override,
                   interfaces=interfaces)  # fmt: skip
        return self._change(address, driver, driver if is_for_any_device(driver) else "").devices[address]

    def _load(self, driver: str) -> None:
        """Load the driver's module; meanwhile no driver takes a device by itself, so that only what is asked for is bound."""
        answers = self._sysfs.ask({"load": {"driver": driver}, **LOOK}, sudo=True)
        if driver not in self._sysfs.bus(answers).drivers:
            said = answers["load"] or "modprobe loads a module of that name, but it brings no such driver for PCI devices"
            raise TestbedError(f"{self._name}: there is no driver {driver}: {said}")

    def _change(self, address: str, driver: str, override: str) -> PciBus:
        """Give it the driver, none for an empty one, and see whether it has it."""
        # A driver for any device takes one only by driver_override; one of the kernel's would then take any, to no good.
        named = driver if driver == override or is_for_any_device(driver) else ""
        change = {"address": address, "driver": driver, "named": named, "override": override}
        answers = self._sysfs.ask({"bind": change, "settle": {}, **LOOK}, sudo=True)
        self._sysfs.refuse_holders(address, self._sysfs.holders(answers["bind"].get("holders")))
        bus = self._sysfs.bus(answers)
        device = self._required(bus, address)
        if (device.driver or "") != driver:  # a kernel may call it a success when no driver took the device
            has = f"has the driver {device.driver}" if device.driver else "has no driver"
            why = "; ".join(filter(None, map(str, (answers["bind"].get("refused"), *(answers["bind"].get("said") or ())))))
            raise TestbedError(
                f"{self._name}: {driver or 'no driver'} was asked for {address}, but it {has}: "
                f"{why or 'the kernel does not say why'}; is it a driver for {device.vendor:04x}:{device.device:04x}?"
            )
        return bus

    def restore(self, address: str, driver: str, before: str, override: str, interfaces: str) -> bool:
        """Undo :meth:`bind`, whose note has these; returns whether there was something to do.

        A device that somebody has bound to another driver since is left alone.

        Raises:
            TestbedError: it is in use, does not take its driver, or its interface does not come back.
        """
        wanted = _interfaces_of_note(interfaces)
        bus = self._sysfs.look()
        device = bus.devices.get(address)
        if device is None or (device.driver or "") not in (driver, before, ""):
            return False
        changed = (device.driver or "") != before or device.driver_override != override
        if changed:
            if before and before not in bus.drivers:
                self._load(before)
            bus = self._change(address, before, override)
        if len(bus.interfaces_of(address)) < len(wanted):
            bus = self._wait_for_interfaces(address, len(wanted), _INTERFACE_TIMEOUT)
        return self._restore_interfaces(address, wanted, bus) or changed

    def _restore_interfaces(self, address: str, wanted: list[Mapping[str, Any]], bus: PciBus) -> bool:
        found = bus.interfaces_of(address)
        commands: list[list[str]] = []
        there = {each.name: each for each in found}
        missing = [each for each in wanted if each["name"] not in there]
        others = [each for name, each in there.items() if name not in [each["name"] for each in wanted]]
        for each, interface in zip(missing, others, strict=False):  # numbers as in eth1 are given anew, the lowest first
            if each["name"] in bus.interfaces:
                raise TestbedError(
                    f"{self._name}: the interface of {address} was {each['name']} and is {interface.name} now, because another "
                    f"has its name: rename both"
                )
            commands += [["dev", interface.name, "down"], ["dev", interface.name, "name", each["name"]]]
            there[each["name"]] = interface
        for each in wanted:
            if each["name"] in there:
                commands += _differences(each, there[each["name"]], bus)
        for command in commands:
            self._sysfs.machine.run(["ip", "link", "set", *command], sudo=True)
        return bool(commands)

    def let_drivers_probe(self) -> bool:
        """Let drivers take devices by themselves again, where loading one was cut short; returns whether that was needed."""
        if self._sysfs.look().drivers_probe_by_themselves:
            return False
        self._sysfs.ask({"store": {"path": "sys/bus/pci/drivers_autoprobe", "value": "1"}}, sudo=True)
        return True

    # -- virtual functions ---------------------------------------------------------------------------------

    def set_virtual_functions(self, address: str, count: int) -> list[str]:
        """Make virtual functions of the device, without drivers; returns their addresses. The journal undoes it.

        Raises:
            TestbedError: it cannot have so many, or has some already, of which nobody knows who uses them.
        """
        bus = self._sysfs.look()
        return sriov.make(self._sysfs, self._required(bus, address), count, self._note)

    def remove_virtual_functions(self, address: str, count: int, autoprobe: str) -> bool:
        """Undo :meth:`set_virtual_functions`, whose note has these; returns whether there was something to do.

        Raises:
            TestbedError: one of them is in use.
        """
        return sriov.remove(self._sysfs, address, count, autoprobe)

    def set_function_mac(self, address: str, number: int, mac: str) -> None:
        """Give the device's virtual function of that number the MAC address with which its driver starts. The journal undoes it.

        Raises:
            TestbedError: there is none, or the device has no interface to say so with.
        """
        sriov.set_mac(self._sysfs, self._required(self._sysfs.look(), address), number, mac, self._note)

    def restore_function_mac(self, address: str, number: int, mac: str, before: str) -> bool:
        """Undo :meth:`set_function_mac`, whose note has these; returns whether there was something to do. Raises TestbedError."""
        device = self.show(address)
        return device is not None and sriov.restore_mac(self._sysfs, device, number, mac, before)


def _remembered(interface: NetInterface) -> dict[str, Any]:
    """What of an interface goes with its driver, and does not come back with it."""
    return {
        "name": interface.name, "up": interface.is_up, "mtu": interface.mtu, "master": interface.master or "",
        "mac": interface.mac if interface.mac_is_set else "",
    }  # fmt: skip


def _interfaces_of_note(text: str) -> list[Mapping[str, Any]]:
    types: dict[str, type] = {"name": str, "up": bool, "mtu": int, "master": str, "mac": str}
    try:
        found = json.loads(text)
        whole = all(isinstance(each[key], wanted) for each in found for key, wanted in types.items())
    except (ValueError, LookupError, TypeError):
        whole = False
    if not whole:
        raise TestbedError(f"the journal does not tell which interfaces there were: {text[:100]!r}")
    return list(found)


def _differences(wanted: Mapping[str, Any], found: NetInterface, bus: PciBus) -> list[list[str]]:
    """The arguments of ``ip link set`` that make the interface what it was."""
    name = wanted["name"]
    commands = []
    if wanted["mac"] and wanted["mac"] != found.mac:
        commands.append(["dev", name, "address", wanted["mac"]])
    if wanted["mtu"] != found.mtu:
        commands.append(["dev", name, "mtu", str(wanted["mtu"])])
    if wanted["master"] != (found.master or "") and wanted["master"] in bus.interfaces:
        commands.append(["dev", name, "master", wanted["master"]])
    if wanted["up"] and not found.is_up:
        commands.append(["dev", name, "up"])
    return commands
