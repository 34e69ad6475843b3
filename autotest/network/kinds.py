"""The kinds of interfaces that can be tested. One description says all about a kind; adding one touches this file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotest.config.testbed import GuestConfig, HostConfig, Testbed
from autotest.network.links import Links


@dataclass(frozen=True)
class InterfaceKind:
    """What a kind of interface needs, how it is set up on the host, and how QEMU offers it to the guest.

    Attributes:
        name: as ``interfaces`` in ``tests.conf`` names it.
        host_keys: keys of section ``host`` that it needs; with machine ``host`` all but ``test_tap``.
        set_up: makes the links on the host; what is already there is fine.
        dut_iface: with machine ``host``, the interface of the host that the reflector works on.
        tap: the tap that the guest's interface is connected to, where it is one.
        macvtap: the macvtap that the guest's interface is connected to, where it is one.
        virtio: whether the guest sees a virtio device, so that vhost and ioregionfd can be asked for.
        host_only: whether it exists with machine ``host`` alone.
    """

    name: str
    host_keys: tuple[str, ...]
    set_up: Callable[[Links, Testbed, bool], None]
    dut_iface: Callable[[HostConfig], str | None]
    tap: Callable[[HostConfig], str | None] = lambda host: None
    macvtap: Callable[[HostConfig], str | None] = lambda host: None
    virtio: bool = True
    host_only: bool = False


def _set_up_pnic(links: Links, testbed: Testbed, guest: bool) -> None:
    if testbed.host.test_iface_dpdk_driv and links.show(_given(testbed.host.test_iface)) is None:
        return  # bound to DPDK: no interface of the kernel
    links.up(_given(testbed.host.test_iface))
    links.wait_for_carrier(_given(testbed.host.test_iface))


def _set_up_bridge(links: Links, testbed: Testbed, guest: bool) -> None:
    host = testbed.host
    bridge, nic = _given(host.test_bridge), _given(host.test_iface)
    links.add_bridge(bridge, host.test_bridge_ip_net)
    links.add_port(bridge, nic)
    if guest:
        links.add_tap(_given(host.test_tap), bridge)
    links.wait_for_carrier(nic)


def _set_up_macvtap(links: Links, testbed: Testbed, guest: bool) -> None:
    host = testbed.host
    links.add_macvtap(_given(host.test_macvtap), _given(host.test_iface), _given(testbed.guest.test_iface_mac))
    links.wait_for_carrier(_given(host.test_iface))


def _given(value: str | None) -> str:
    """A key that was checked to be there before anything was touched."""
    assert value is not None
    return value


INTERFACE_KINDS = {
    kind.name: kind
    for kind in (
        InterfaceKind(
            name="pnic",
            host_keys=("test_iface", "test_iface_mac"),
            set_up=_set_up_pnic,
            dut_iface=lambda host: host.test_iface,
            host_only=True,
        ),
        InterfaceKind(
            name="bridge",
            host_keys=("test_iface", "test_bridge", "test_tap"),
            set_up=_set_up_bridge,
            dut_iface=lambda host: host.test_bridge,
            tap=lambda host: host.test_tap,
        ),
        InterfaceKind(
            name="macvtap",
            host_keys=("test_iface", "test_macvtap"),
            set_up=_set_up_macvtap,
            dut_iface=lambda host: host.test_macvtap,
            macvtap=lambda host: host.test_macvtap,
        ),
    )
}


def dut_mac(kind: InterfaceKind, machine: str, host: HostConfig, guest: GuestConfig) -> str | None:
    """The MAC address that the load is sent to."""
    if machine != "host" or kind.macvtap(host):
        return guest.test_iface_mac
    return host.test_iface_mac
