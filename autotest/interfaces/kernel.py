"""Interfaces that the host's kernel carries: its own NIC, and virtio or emulated NICs over tap and macvtap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.interfaces.kind import (
    GUEST_MACHINES,
    HOST_MACHINE,
    MACVTAP_FD,
    HostNeeds,
    InterfaceKind,
    InterfaceOptions,
    given,
)
from autotest.qemu.parts import Backend, EmulatedNic, TapBackend, VirtioNet

if TYPE_CHECKING:
    from autotest.servers.host import Host
    from autotest.servers.virtual_machine import VirtualMachine

TUN = "/dev/net/tun"


def up_with_carrier(host: Host) -> None:
    """The test NIC with the driver of the kernel, up and with its carrier."""
    iface = host.test_nic()
    host.links.up(iface)
    host.wait_for_carrier(iface)


def _set_up_pnic(host: Host, guest: bool) -> None:
    config = host.config
    if config.test_iface_dpdk_driv and not config.test_iface_driv and host.links.show(given(config.test_iface)) is None:
        return  # the user has bound it to DPDK, and nobody says which driver it has else
    up_with_carrier(host)


def set_up_bridge(host: Host, guest: bool) -> None:
    """The test bridge with the test NIC in it."""
    config, nic = host.config, host.test_nic()
    bridge = given(config.test_bridge)
    host.links.add_bridge(bridge, config.test_bridge_ip_net)
    host.links.add_port(bridge, nic)
    host.wait_for_carrier(nic)


def attach_tap(machine: VirtualMachine, options: InterfaceOptions) -> None:
    """The guest's tap in the test bridge. A tap is made for one queue or for several: the kernel lets no QEMU mix them.

    The bridge is told the guest's address: it would send every frame for it to all guests until the guest has sent one.
    """
    several = (options.queues or 1) > 1
    links, config = machine.host.links, machine.config
    tap = given(config.test_tap)
    links.add_tap(tap, given(config.test_bridge), several)
    links.add_forwarding(tap, given(machine.testbed.guest.test_iface_mac))


def _set_up_macvtap(host: Host, guest: bool) -> None:
    nic = host.test_nic()
    host.links.up(nic)
    if not guest:
        host.links.add_macvtap(given(host.config.test_macvtap), nic, given(host.testbed.guest.test_iface_mac))
    host.wait_for_carrier(nic)


def _attach_macvtap(machine: VirtualMachine, options: InterfaceOptions) -> None:
    """The guest's macvtap."""
    config, mac = machine.config, given(machine.testbed.guest.test_iface_mac)
    machine.host.links.add_macvtap(given(config.test_macvtap), given(config.test_iface), mac)


def virtio(guest: GuestConfig, backend: Backend, options: InterfaceOptions, vectors: int | None = None) -> VirtioNet:
    """The guest's test interface as a virtio device."""
    return VirtioNet(
        "test",
        given(guest.test_iface_mac),
        backend,
        rx_queue_size=options.rx_queue_size,
        tx_queue_size=options.tx_queue_size,
        ioregionfd=options.ioregionfd,
        vectors=vectors,
    )


def _virtio_on_tap(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> VirtioNet:
    return virtio(guest, TapBackend(host.test_tap, vhost=options.vhost, queues=options.queues or 1), options)


def _virtio_on_macvtap(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> VirtioNet:
    queues = options.queues or 1
    fds = tuple(range(MACVTAP_FD, MACVTAP_FD + queues))
    return virtio(guest, TapBackend(fds=fds, vhost=options.vhost, queues=queues), options)


def _emulated_on_tap(name: str, model: str, guest_driver: str, description: str) -> InterfaceKind:
    def nic(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> EmulatedNic:
        return EmulatedNic("test", model, given(guest.test_iface_mac), TapBackend(host.test_tap))

    return InterfaceKind(
        name=name,
        description=description,
        machines=("pcvm",),
        host_keys=("test_iface", "test_bridge"),
        host_keys_of_guest=("test_tap",),
        set_up=set_up_bridge,
        attach=attach_tap,
        needs=HostNeeds(modules=("bridge", "tun"), devices=(TUN,)),
        nic=nic,
        guest_driver=guest_driver,
    )


KINDS = (
    InterfaceKind(
        name="pnic",
        description="the host's own NIC",
        machines=(HOST_MACHINE,),
        host_keys=("test_iface", "test_iface_mac"),
        set_up=_set_up_pnic,
        dut_iface=lambda host: host.test_iface,
    ),
    InterfaceKind(
        name="bridge",
        description="virtio over a tap in a bridge with the host's NIC",
        machines=(HOST_MACHINE, *GUEST_MACHINES),
        host_keys=("test_iface", "test_bridge"),
        host_keys_of_guest=("test_tap",),
        set_up=set_up_bridge,
        attach=attach_tap,
        needs=HostNeeds(modules=("bridge", "tun"), devices=(TUN,)),
        nic=_virtio_on_tap,
        guest_driver="virtio_net",
        vhost=True,
        ioregionfd=True,
        queues=True,
        ring_sizes=True,
        dut_iface=lambda host: host.test_bridge,
    ),
    InterfaceKind(
        name="macvtap",
        description="virtio over a macvtap on the host's NIC",
        machines=(HOST_MACHINE, *GUEST_MACHINES),
        host_keys=("test_iface", "test_macvtap"),
        set_up=_set_up_macvtap,
        attach=_attach_macvtap,
        needs=HostNeeds(modules=("macvtap",)),
        nic=_virtio_on_macvtap,
        guest_driver="virtio_net",
        vhost=True,
        ioregionfd=True,
        queues=True,
        ring_sizes=True,
        dut_iface=lambda host: host.test_macvtap,
        macvtap=lambda host: host.test_macvtap,
    ),
    _emulated_on_tap("bridge-e1000", "e1000", "e1000", "an emulated Intel 82540EM over a tap in a bridge with the host's NIC"),
    _emulated_on_tap(
        "bridge-rtl8139", "rtl8139", "8139cp", "an emulated Realtek 8139 over a tap in a bridge with the host's NIC"
    ),
)
