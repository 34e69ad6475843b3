"""What is said of a kind of interface that can be tested: one description says all; see the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotest.config.testbed import GuestConfig, HostConfig, Testbed
from autotest.qemu.parts import Part

if TYPE_CHECKING:
    from autotest.servers.host import Host
    from autotest.servers.virtual_machine import VirtualMachine

HOST_MACHINE = "host"
USER_SPACE_DRIVER = "vfio-pci"  # of a guest whose kernel has no driver for its interface
GUEST_MACHINES = ("pcvm", "microvm")
SOCKETS = {"vhost_user_socket_path": "vhost.sock", "vmux_socket_path": "vmux.sock"}
"""Keys of section ``host`` for sockets, and what their files are called in the host's state folder by default."""
MACVTAP_FD = 9  # the first descriptor under which QEMU gets a macvtap
QEMU_TX_RING = 256  # descriptors: more are only taken where the other end is no process of QEMU's own (hw/net/virtio-net.c)


@dataclass(frozen=True)
class InterfaceOptions:
    """What the matrix or the command line may change in an interface. None stands for QEMU's own default.

    ``queues`` are pairs, ring sizes are in descriptors.
    """

    vhost: bool = False
    ioregionfd: bool = False
    queues: int | None = None
    rx_queue_size: int | None = None
    tx_queue_size: int | None = None


@dataclass(frozen=True)
class HostNeeds:
    """What a kind needs on the host beside links that it makes itself.

    Attributes:
        programs: that must be there.
        modules: kernel modules, of which each is loaded, built in, or can be loaded.
        devices: device files that QEMU or the process opens.
        driver_key: key of section ``host`` with the driver that the test NIC is bound to; None, as well as a key that may be
            missing and is, where the kernel keeps it.
        iommu: whether the NIC, bound to a driver of vfio, must be in a group of an IOMMU that can be given away as a whole.
        hugepages: MiB of huge pages that the process takes for a NIC that the kernel does not keep.
    """

    programs: Callable[[HostConfig], tuple[str, ...]] = lambda host: ()
    modules: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    driver_key: str | None = None
    iommu: bool = False
    hugepages: int = 0


@dataclass(frozen=True)
class InterfaceKind:
    """A kind of interface: what it needs, how it is set up on the host, how QEMU offers it, and when it is valid.

    Attributes:
        name: as ``interfaces`` in ``tests.conf`` names it.
        description: for the user, in a line.
        machines: with which machine types it exists.
        host_keys: keys of section ``host`` that it needs.
        host_keys_of_guest: such keys that it needs only where a guest has it.
        set_up: makes links and binds drivers on the host, for a guest or for the host itself; the journal undoes it.
        attach: makes what each guest needs anew between that and its QEMU: a tap, a process, which is ready when this
            returns; the journal undoes it, too.
        detach: ends what would be in the way of others when that guest alone has ended.
        check: raises TestbedError when what ``attach`` started has ended or hangs; with what it wrote last.
        needs: what else must be there.
        guest_keys: keys of section ``guest`` that it needs where a guest has it.
        nic: the guest's interface for QEMU; None where no guest has it.
        guest_driver: the guest's kernel driver for it.
        vhost, ioregionfd: whether they can be switched on; off they are always.
        queues: whether there can be several.
        ring_sizes: whether they can be chosen.
        grows: whether guests can come and go without a change to what the others have.
        longest_tx_ring: in descriptors.
        reflectors: names of those that work on it; None for all.
        dut_iface: with machine ``host``, the interface of the host that the reflector works on.
        macvtap: the macvtap that QEMU gets as open files, where it is one.
        shared_memory: whether another process must reach into the guest's memory.
        qemu_path: of section ``host``, where it needs another QEMU build than the other kinds.
        keeps_nic_mac: whether the guest has the MAC address of the host's NIC.
        program: of the process that ``attach`` starts between wire and guest, which can be tried without a guest; None where it
            starts none.
        session: the tmux session of the host in which that process runs.
        socket: key of section ``host`` with the path of the socket between that process and QEMU.
    """

    name: str
    description: str
    machines: tuple[str, ...]
    host_keys: tuple[str, ...]
    set_up: Callable[[Host, bool], None]
    attach: Callable[[VirtualMachine, InterfaceOptions], None] = lambda machine, options: None
    detach: Callable[[VirtualMachine], None] = lambda machine: None
    check: Callable[[VirtualMachine], None] = lambda machine: None
    nic: Callable[[HostConfig, GuestConfig, InterfaceOptions], Part] | None = None
    host_keys_of_guest: tuple[str, ...] = ()
    guest_keys: tuple[str, ...] = ()
    needs: HostNeeds = field(default_factory=HostNeeds)
    guest_driver: str | None = None
    vhost: bool = False
    ioregionfd: bool = False
    queues: bool = False
    ring_sizes: bool = False
    grows: bool = True
    longest_tx_ring: int = QEMU_TX_RING
    reflectors: tuple[str, ...] | None = None
    dut_iface: Callable[[HostConfig], str | None] = lambda host: None
    macvtap: Callable[[HostConfig], str | None] = lambda host: None
    shared_memory: bool = False
    qemu_path: Callable[[HostConfig], str] = lambda host: host.qemu_path
    keeps_nic_mac: Callable[[HostConfig], bool] = lambda host: False
    program: Callable[[HostConfig], str] | None = None
    session: str | None = None
    socket: str | None = None

    @property
    def has_process(self) -> bool:
        """Whether there is a process between wire and guest."""
        return self.program is not None

    def keys(self, machine: str) -> Mapping[str, tuple[str, ...]]:
        """The keys that it needs with that machine type, by section."""
        if machine != HOST_MACHINE:
            mac = () if "test_iface_mac" in self.host_keys else ("test_iface_mac",)
            return {"host": self.host_keys + self.host_keys_of_guest, "guest": mac + self.guest_keys}
        # A macvtap is the host's own interface then, under the MAC address that the load goes to.
        return {"host": self.host_keys, "guest": ("test_iface_mac",) if "test_macvtap" in self.host_keys else ()}

    def nic_driver(self, host: HostConfig) -> str | None:
        """The driver that the test NIC is bound to for it; None where the kernel keeps the NIC."""
        return getattr(host, self.needs.driver_key) if self.needs.driver_key else None

    def dut_mac(self, machine: str, testbed: Testbed) -> str | None:
        """The MAC address that the load is sent to."""
        if machine == HOST_MACHINE:
            return testbed.guest.test_iface_mac if self.macvtap(testbed.host) else testbed.host.test_iface_mac
        return testbed.host.test_iface_mac if self.keeps_nic_mac(testbed.host) else testbed.guest.test_iface_mac


def by_name(kinds: Iterable[InterfaceKind]) -> dict[str, InterfaceKind]:
    """The kinds by their names, in their order."""
    found: dict[str, InterfaceKind] = {}
    for kind in kinds:
        assert kind.name not in found
        found[kind.name] = kind
    return found


def given(value: str | None) -> str:
    """The value of a key that was checked to be there before anything was touched."""
    assert value is not None
    return value
