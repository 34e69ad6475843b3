"""Virtio over a user-space switch: DPDK's testpmd between the wire and the guest's memory.

Its options are those of https://doc.dpdk.org/guides/testpmd_app_ug/run_app.html and, for ``--vdev``, of
https://doc.dpdk.org/guides/nics/vhost.html and https://doc.dpdk.org/guides/nics/af_packet.html.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.errors import TestbedError
from autotest.interfaces import process
from autotest.interfaces.kernel import up_with_carrier, virtio
from autotest.interfaces.kind import (
    GUEST_MACHINES,
    HostNeeds,
    InterfaceKind,
    InterfaceOptions,
    given,
)
from autotest.qemu.parts import Machine, VhostUserBackend, VirtioNet
from autotest.remote.tmux import Session

if TYPE_CHECKING:
    from autotest.servers.host import Host
    from autotest.servers.virtual_machine import VirtualMachine

_SOCKET = "vhost_user_socket_path"
_SESSION = "testpmd"
_READY = "Press enter to exit"  # testpmd.c, main: forwarding has begun
_VERSION = re.compile(r"RTE Version: '([^'\n]{1,100})'")  # what EAL prints for -v
_START_TIMEOUT = 30.0  # seconds; with af_packet it took 1.3
_LONGEST_TX_RING = 1024  # VIRTQUEUE_MAX_SIZE of QEMU's include/hw/virtio/virtio.h; what QEMU allows with vhost-user
_HUGEPAGES = 512  # MiB
_MBUFS = 8192  # for each pair of queues, of 2176 bytes
_MEMORY = 224, 32  # MiB without huge pages: for all, and for each pair of queues
# DPDK's rte_kvargs.c splits there, or takes what follows for a list; there is no escape.
_NOT_IN_A_DEVICE = re.compile(r"[,=\[\]()\s\0]")


@dataclass(frozen=True)
class VhostUserNet:
    """A virtio interface whose queues another process serves."""

    nic: VirtioNet

    def render(self, machine: Machine) -> list[str]:
        # With MSI-X, but without the interrupts that only KVM takes from file descriptors, QEMU 7.2 reads through a null
        # pointer when the guest's driver starts: virtio_pci_set_guest_notifiers of hw/virtio/virtio-pci.c makes no
        # vector_irqfd then, and kvm_virtio_pci_irqfd_use takes it for granted, as vhost-user masks no notifiers.
        nic = self.nic if machine.accelerator == "kvm" else replace(self.nic, vectors=0)
        return nic.render(machine)


def _set_up(host: Host, guest: bool) -> None:
    """The test NIC with its carrier and taking all frames, or bound to its driver for DPDK."""
    config = host.config
    if config.test_iface_dpdk_driv is None:
        up_with_carrier(host)
        return
    if config.test_iface_addr is None:
        raise TestbedError(f"{host.name}: test_iface_addr is missing: vhost-user with test_iface_dpdk_driv needs it")
    host.pci.bind(config.test_iface_addr, config.test_iface_dpdk_driv, allowed=config.bind_in_use, mac=config.test_iface_mac)


def _attach(machine: VirtualMachine, options: InterfaceOptions) -> None:
    """testpmd, which connects as soon as QEMU has made the socket, and again should QEMU do so."""
    nic = _own_nic(machine) if machine.config.test_iface_dpdk_driv else _own_link(machine)
    socket = process.new_socket(machine, _SOCKET)
    command = testpmd(machine.config, nic, socket, options.queues or 1, process.cpus_of(machine.host))
    session = _session(machine)

    def is_ready() -> bool:
        return _READY in session.output()

    process.start(machine, session, command, is_ready, "to begin forwarding", _START_TIMEOUT)
    if version := _VERSION.search(session.output()):
        machine.switch_facts["switch version"] = version[1]


def _own_nic(machine: VirtualMachine) -> str:
    """The PCI address of the NIC that DPDK drives for the guest."""
    host, config = machine.host, machine.config
    address = machine.nic_address
    if machine.number > 1:
        host.pci.bind(address, given(config.test_iface_dpdk_driv), allowed=config.bind_in_use, mac=config.test_iface_mac)
    host.hugepages.require(_HUGEPAGES, host.pci.require(address).numa_node)
    return address


def _own_link(machine: VirtualMachine) -> str:
    """The link of the kernel over which the guest's frames come: the test NIC, or a macvlan on it where guests share that."""
    links, nic = machine.host.links, given(machine.host.config.test_iface)
    if machine.one_of_several:
        links.add_macvlan(machine.nic_link, nic, given(machine.testbed.guest.test_iface_mac))
        return machine.nic_link
    # Frames are for the guest's MAC address. testpmd asks for them too, but leaves it at that when it ends.
    links.promiscuous(nic)
    return nic


def testpmd(config: HostConfig, nic: str, socket: str, queues: int, cpus: str) -> list[str]:
    """The command line of testpmd, as port 0 the test NIC and as port 1 the guest.

    Args:
        nic: its PCI address where DPDK drives it, else the link of the kernel.
        socket: of QEMU.
        queues: pairs of them, at both ports.
        cpus: that it may run on, as DPDK writes a list of CPUs.

    Raises:
        TestbedError: DPDK has no way to write the name of the interface or the socket.
    """
    command = [config.testpmd_path, "-v", f"--lcores=0@({cpus}),1@({cpus})", "--no-telemetry"]
    if config.test_iface_dpdk_driv is None:
        base, each = _MEMORY
        command += ["--no-pci", "--no-huge", "-m", str(base + each * queues), "--no-shconf"]
        command.append(f"--vdev=net_af_packet0,iface={_device_value(nic)},qpairs={queues}")
    else:  # no files are shared with other processes of DPDK, or left
        command += ["--in-memory", "-a", nic]
    command.append(f"--vdev=net_vhost0,iface={_device_value(socket)},queues={queues},client=1")
    command += ["--", "--forward-mode=io", "--auto-start", f"--rxq={queues}", f"--txq={queues}"]
    if config.test_iface_dpdk_driv is None:
        command.append("--no-numa")  # memory that is not of huge pages is all of node 0 to DPDK
    return [*command, f"--total-num-mbufs={_MBUFS * queues}"]


def _device_value(name: str) -> str:
    if found := _NOT_IN_A_DEVICE.search(name):
        raise TestbedError(f"DPDK takes nothing named {name!r}: to --vdev {found[0]!r} is not part of a name")
    return name


def _check(machine: VirtualMachine) -> None:
    process.require_running(machine.host, _session(machine))


def _detach(machine: VirtualMachine) -> None:
    _session(machine).stop()


def _session(machine: VirtualMachine) -> Session:
    return machine.host.session(machine.own_name(_SESSION))


def _nic(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> VhostUserNet:
    backend = VhostUserBackend(process.socket_of(host, _SOCKET), options.queues or 1)
    return VhostUserNet(virtio(guest, backend, options))


KINDS: Sequence[InterfaceKind] = (
    InterfaceKind(
        name="vhost-user",
        description="virtio over DPDK's testpmd on the host's NIC",
        machines=GUEST_MACHINES,
        host_keys=("test_iface",),
        set_up=_set_up,
        attach=_attach,
        detach=_detach,
        check=_check,
        grows=False,
        needs=HostNeeds(
            programs=lambda host: (host.testpmd_path, "stdbuf"),
            driver_key="test_iface_dpdk_driv",
            iommu=True,
            hugepages=_HUGEPAGES,
        ),
        nic=_nic,
        guest_driver="virtio_net",
        queues=True,
        ring_sizes=True,
        longest_tx_ring=_LONGEST_TX_RING,
        shared_memory=True,
        program=lambda host: host.testpmd_path,
        session=_SESSION,
        socket=_SOCKET,
    ),
)
