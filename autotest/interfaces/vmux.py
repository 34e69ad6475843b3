"""vMux: a process that passes a NIC on or emulates one, over vfio-user. See https://github.com/vmuxIO/vmuxIO.

Its options are those of ``src/main.cpp`` there. Older builds know neither ``-b`` nor ``-u``: each is given only where it is
needed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.interfaces import process
from autotest.interfaces.kernel import TUN, attach_tap, set_up_bridge
from autotest.interfaces.kind import (
    USER_SPACE_DRIVER,
    HostNeeds,
    InterfaceKind,
    InterfaceOptions,
    given,
)
from autotest.interfaces.vfio import VFIO, bind_for_vfio, bind_own_nic
from autotest.qemu.parts import VfioUserNic
from autotest.remote.tmux import Session

if TYPE_CHECKING:
    from autotest.servers.virtual_machine import VirtualMachine

_SOCKET = "vmux_socket_path"
_SESSION = "vmux"
_START_TIMEOUT = 30.0  # seconds; DPDK, where it is used, initialises the NIC first
_GRACE = 10.0  # seconds from the signal on
_HUGEPAGES = 1024  # MiB
# An E810 has up to 2048 interrupt vectors, each with a file descriptor; 1024 are usual for a process.
_WITH_FILES = ("sh", "-c", 'ulimit -n 4096 && exec "$@"', "sh")

Arguments = Callable[[HostConfig, GuestConfig, str, str], list[str]]
"""The options of vMux behind ``-q`` and the socket, from the configuration, the NIC's PCI address, and the CPUs for DPDK."""


def _passed_through(host: HostConfig, guest: GuestConfig, address: str, cpus: str) -> list[str]:
    return ["-d", address, "-t", "none", "-m", "passthrough"]


def _on_tap(mode: str) -> Arguments:
    def arguments(host: HostConfig, guest: GuestConfig, address: str, cpus: str) -> list[str]:
        return ["-b", given(guest.test_iface_mac), "-d", "none", "-t", given(host.test_tap), "-m", mode]

    return arguments


def _on_dpdk(mode: str) -> Arguments:
    def arguments(host: HostConfig, guest: GuestConfig, address: str, cpus: str) -> list[str]:
        vmux = ["-b", given(guest.test_iface_mac), "-d", "none", "-t", "none", "-m", mode, "-u"]
        # It uses one lcore, and no other NIC. No files are shared with other processes of DPDK, or left.
        return [*vmux, "--", f"--lcores=0@({cpus})", "-n", "1", "--in-memory", "-a", address]

    return arguments


def command(host: HostConfig, guest: GuestConfig, arguments: Arguments, socket: str, address: str, cpus: str) -> list[str]:
    """The command line of vMux."""
    return [*_WITH_FILES, given(host.vmux_path), "-q", "-s", socket, *arguments(host, guest, address, cpus)]


def _start(machine: VirtualMachine, arguments: Arguments, address: str = "") -> None:
    host = machine.host
    socket = process.new_socket(machine, _SOCKET)
    line = command(machine.config, machine.testbed.guest, arguments, socket, address, process.cpus_of(host))

    def is_there() -> bool:  # it is not tried: to connect is what QEMU does, once
        return host.transport.outside.run(["test", "-S", socket], sudo=True, check=False).code == 0

    process.start(machine, _session(machine), line, is_there, f"to make its socket {socket}", _START_TIMEOUT)


def _check(machine: VirtualMachine) -> None:
    process.require_running(machine.host, _session(machine))


def _detach(machine: VirtualMachine) -> None:
    _session(machine).stop()


def _session(machine: VirtualMachine) -> Session:
    return machine.host.session(machine.own_name(_SESSION), signal.SIGINT, _GRACE)


def _nic(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> VfioUserNic:
    return VfioUserNic("test", process.socket_of(host, _SOCKET))


def _program(host: HostConfig) -> str:
    return given(host.vmux_path)


def _programs(host: HostConfig) -> tuple[str, ...]:
    return (_program(host), "stdbuf")


def _qemu_path(host: HostConfig) -> str:
    return host.vmux_qemu_path or host.qemu_path


def _tap_kind(name: str, description: str, mode: str, guest_driver: str) -> InterfaceKind:
    arguments = _on_tap(mode)

    def attach(machine: VirtualMachine, options: InterfaceOptions) -> None:
        attach_tap(machine, options)
        _start(machine, arguments)

    return InterfaceKind(
        name=name,
        description=description,
        machines=("pcvm",),
        host_keys=("test_iface", "test_bridge", "vmux_path"),
        host_keys_of_guest=("test_tap",),
        set_up=set_up_bridge,
        attach=attach,
        detach=_detach,
        check=_check,
        needs=HostNeeds(programs=_programs, modules=("bridge", "tun"), devices=(TUN,)),
        nic=_nic,
        guest_driver=guest_driver,
        shared_memory=True,
        qemu_path=_qemu_path,
        program=_program,
        session=_SESSION,
        socket=_SOCKET,
    )


def _nic_kind(
    name: str,
    description: str,
    arguments: Arguments,
    guest_driver: str | None,
    *,
    hugepages: int = _HUGEPAGES,
    guest_keys: tuple[str, ...] = (),
    reflectors: tuple[str, ...] | None = None,
    keeps_nic_mac: Callable[[HostConfig], bool] = lambda host: False,
) -> InterfaceKind:
    def attach(machine: VirtualMachine, options: InterfaceOptions) -> None:
        bind_own_nic(machine, options)
        host, address = machine.host, machine.nic_address
        if hugepages:
            host.hugepages.require(hugepages, host.pci.require(address).numa_node)
        _start(machine, arguments, address)

    return InterfaceKind(
        name=name,
        description=description,
        machines=("pcvm",),
        host_keys=("test_iface_addr", "test_iface_mac", "test_iface_vfio_driv", "vmux_path"),
        guest_keys=guest_keys,
        set_up=bind_for_vfio,
        attach=attach,
        detach=_detach,
        check=_check,
        needs=HostNeeds(
            programs=_programs,
            modules=("vfio-pci",),
            devices=(VFIO,),
            driver_key="test_iface_vfio_driv",
            iommu=True,
            hugepages=hugepages,
        ),
        nic=_nic,
        guest_driver=guest_driver,
        reflectors=reflectors,
        shared_memory=True,
        qemu_path=_qemu_path,
        keeps_nic_mac=keeps_nic_mac,
        program=_program,
        session=_SESSION,
        socket=_SOCKET,
    )


KINDS: Sequence[InterfaceKind] = (
    _nic_kind(
        "vmux-pt",
        "the host's NIC passed through by vMux",
        _passed_through,
        None,
        hugepages=0,
        keeps_nic_mac=lambda host: not host.test_iface_vfs,
    ),
    _tap_kind("vmux-emu", "an Intel 82540EM that vMux emulates, over a tap in a bridge", "e1000-emu", "e1000"),
    _tap_kind("vmux-emu-e810", "an Intel E810 that vMux emulates, over a tap in a bridge", "emulation", "ice"),
    _nic_kind("vmux-med", "an Intel E810 that vMux mediates, over DPDK", _on_dpdk("mediation"), "ice"),
    _nic_kind("vmux-dpdk", "an Intel 82540EM that vMux emulates, over DPDK", _on_dpdk("e1000-emu"), "e1000"),
    _nic_kind("vmux-dpdk-e810", "an Intel E810 that vMux emulates, over DPDK", _on_dpdk("emulation"), "ice"),
    _nic_kind(
        "vmux-vdpdk",
        "vMux's own NIC for DPDK in the guest, over DPDK",
        _on_dpdk("vdpdk"),
        USER_SPACE_DRIVER,
        reflectors=("moongen",),
        guest_keys=("test_iface_addr", "test_iface_dpdk_driv"),
    ),
)
