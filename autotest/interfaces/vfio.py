"""The host's NIC, or a virtual function of it, passed through to the guest with VFIO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.interfaces.kind import HostNeeds, InterfaceKind, InterfaceOptions, given
from autotest.qemu.parts import VfioNic

if TYPE_CHECKING:
    from autotest.servers.host import Host
    from autotest.servers.virtual_machine import VirtualMachine

VFIO = "/dev/vfio/vfio"


def bind_for_vfio(host: Host, guest: bool) -> None:
    """The test NIC with its driver for VFIO, or the virtual functions that are made of it for the guests."""
    config = host.config
    address, driver = given(config.test_iface_addr), given(config.test_iface_vfio_driv)
    if not config.test_iface_vfs:
        host.pci.bind(address, driver, allowed=config.bind_in_use, mac=config.test_iface_mac)
        return
    nic = host.test_nic()
    host.links.up(nic)
    host.wait_for_carrier(nic)
    host.functions = tuple(host.pci.set_virtual_functions(address, config.test_iface_vfs))


def bind_own_nic(machine: VirtualMachine, options: InterfaceOptions) -> None:
    """The NIC, or the virtual function with the guest's MAC address, of that guest, with its driver for VFIO."""
    host, config, address = machine.host, machine.config, machine.nic_address
    driver = given(config.test_iface_vfio_driv)
    if host.functions:
        of_guest = given(machine.testbed.guest.test_iface_mac)
        host.pci.set_function_mac(given(host.config.test_iface_addr), machine.number - 1, of_guest)
        host.pci.bind(address, driver)
    elif machine.number > 1:  # that of the first is bound for all its guests
        host.pci.bind(address, driver, allowed=config.bind_in_use, mac=config.test_iface_mac)


def _nic(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> VfioNic:
    return VfioNic("test", given(host.test_iface_addr))


KINDS = (
    InterfaceKind(
        name="vfio",
        description="the host's NIC passed through",
        machines=("pcvm",),
        host_keys=("test_iface_addr", "test_iface_mac", "test_iface_vfio_driv"),
        set_up=bind_for_vfio,
        attach=bind_own_nic,
        needs=HostNeeds(modules=("vfio-pci",), devices=(VFIO,), driver_key="test_iface_vfio_driv", iommu=True),
        nic=_nic,
        keeps_nic_mac=lambda host: not host.test_iface_vfs,
    ),
)
