"""What parts of a set-up need: the load generator, an interface kind on the host, a guest. Pure: nothing is asked."""

from __future__ import annotations

from collections.abc import Iterator

from autotest.config.guest_limits import Own, problems
from autotest.config.testbed import GuestConfig, HostConfig, ServerConfig, Testbed
from autotest.errors import Problem
from autotest.interfaces.kind import InterfaceKind, InterfaceOptions
from autotest.network.pci_device import is_vfio
from autotest.preflight.cpus import GuestCpus, NumaNode, PlacementCpus, RealTime
from autotest.preflight.machine import (
    DeviceFile,
    Files,
    GuestMemory,
    HugepageMemory,
    Modules,
    Programs,
    QueuesOfGuest,
    WayToSockets,
)
from autotest.preflight.moongen import MoonGenThere
from autotest.preflight.nics import (
    FurtherNic,
    GivenAwayNic,
    IommuGroup,
    KernelDriver,
    KernelNic,
)
from autotest.preflight.qemu import Accelerator, Build, QemuProgram, needs_of_qemu
from autotest.preflight.rehearsal import Rehearsal
from autotest.preflight.requirement import Requirement
from autotest.servers.guest import GuestSettings, qemu_command_line
from autotest.servers.placement import roles
from autotest.traffic import dpdk

_HOST, _LOADGEN = "host", "loadgen"
_VHOST = "/dev/vhost-net"
_HOST_PROGRAMS = ("ip", "tmux")
_GUEST_PROGRAMS = ("python3",)
_TAP, _TAP_PROGRAMS = "test_tap", ("bridge",)
_LINK_MODULE = "macvlan"  # of the links of guests that share a NIC


def needs_of_testbed(testbed: Testbed) -> Iterator[Requirement]:
    """What every test needs."""
    yield from needs_of_loadgen(testbed)
    yield Programs(_HOST, _HOST_PROGRAMS, "the host")
    config = testbed.host
    given_away = config.test_iface_dpdk_driv or config.test_iface_vfio_driv
    if given_away and not config.test_iface_driv:
        functions = 0 if config.test_iface_dpdk_driv else config.test_iface_vfs
        yield GivenAwayNic(_HOST, config.test_iface_addr, given_away, functions)
    elif config.test_iface:
        yield from _kernel_nic(_HOST, config)


def needs_of_loadgen(testbed: Testbed) -> Iterator[Requirement]:
    """A server that can send the load."""
    yield Programs(_LOADGEN, _HOST_PROGRAMS, "the generator")
    yield from needs_of_moongen(_LOADGEN, testbed.loadgen)


def needs_of_moongen(server: str, config: ServerConfig) -> Iterator[Requirement]:
    """A server on which MoonGen drives the test NIC."""
    if config.moongen_dir:
        yield MoonGenThere(server)
    driver = config.test_iface_dpdk_driv
    if driver is None:
        if config.test_iface:
            yield from _kernel_nic(server, config)
        return
    yield Modules(server, (driver,))
    yield GivenAwayNic(server, config.test_iface_addr, driver)
    yield HugepageMemory(server, dpdk.MEMORY, "MoonGen", of_each_node=True)
    if is_vfio(driver) and config.test_iface_addr:
        yield IommuGroup(server, config.test_iface_addr, unsafe_driver=driver)


def needs_of_interface(testbed: Testbed, kind: InterfaceKind, guest: bool, count: int = 1) -> Iterator[Requirement]:
    """A host on which an interface kind can be set up, for so many guests or for the host itself."""
    config, needs = testbed.host, kind.needs
    yield Programs(_HOST, _HOST_PROGRAMS, "the host")
    driver = kind.nic_driver(config)
    functions = _functions(config, kind)
    if driver is None or functions:
        is_reflectors = kind.dut_iface(config) is not None and kind.dut_iface(config) == config.test_iface
        # MoonGen can reflect on a NIC that the user has bound to DPDK, and then nobody says which driver it has else.
        for_good = is_reflectors and config.test_iface_dpdk_driv is not None and config.test_iface_driv is None
        yield from _kernel_nic(_HOST, config, or_given_away=for_good)
    if programs := needs.programs(config):
        yield Programs(_HOST, programs, kind.name)
    of_driver = (driver,) if driver and driver not in needs.modules else ()
    of_several = (_LINK_MODULE,) if guest and count > 1 and _shares_nic(config, kind) else ()
    if modules := (*needs.modules, *of_driver, *of_several):
        yield Modules(_HOST, modules)
    if guest and _TAP in kind.host_keys_of_guest:
        yield Programs(_HOST, _TAP_PROGRAMS, "the guest's tap", as_root=True)
    for path in needs.devices if guest else ():
        yield DeviceFile(_HOST, path, f"interface {kind.name}")
    if driver:
        yield GivenAwayNic(_HOST, config.test_iface_addr, driver, functions)
    is_in_a_group = needs.iommu and driver is not None and is_vfio(driver)
    if is_in_a_group and config.test_iface_addr:
        yield IommuGroup(_HOST, config.test_iface_addr, of_function=functions > 0)
    addresses = [config.test_iface_addr] if config.test_iface_addr else []
    for address, mac in config.guest_nics[: count - 1] if driver and not functions else ():
        yield FurtherNic(_HOST, address, mac, str(driver))
        if is_in_a_group:
            yield IommuGroup(_HOST, address, others=tuple(addresses))
        addresses.append(address)


def _kernel_nic(server: str, config: ServerConfig, or_given_away: bool = False) -> Iterator[Requirement]:
    nic = KernelNic(server, or_given_away)
    yield nic
    if config.test_iface_driv:
        yield KernelDriver(server, after=(nic,))


def guest_problems(testbed: Testbed, kind: InterfaceKind, count: int) -> list[Problem]:
    """Why the configuration has no room for so many guests with such an interface, and for how many it has."""
    config = testbed.host
    takes_nic = kind.nic_driver(config) is not None
    own = Own(
        kind.name,
        links=tuple(key for key in (_TAP, "test_macvtap") if key in (*kind.host_keys, *kind.host_keys_of_guest)),
        nic_link=_shares_nic(config, kind),
        socket=kind.socket,
        nic=takes_nic,
        functions=_functions(config, kind) > 0,
    )
    return problems(testbed, own, count)


def _shares_nic(config: HostConfig, kind: InterfaceKind) -> bool:
    """Whether several guests have a link each on the NIC, because it may stay with the kernel, and does."""
    return kind.needs.driver_key not in (None, *kind.host_keys) and kind.nic_driver(config) is None


def _functions(config: HostConfig, kind: InterfaceKind) -> int:
    """How many virtual functions are made for it; 0 where it has the NIC itself."""
    return config.test_iface_vfs if kind.needs.driver_key == "test_iface_vfio_driv" else 0


def needs_of_guest(
    testbed: Testbed, settings: GuestSettings, build: str, rehearse: bool = True, count: int = 1
) -> Iterator[Requirement]:
    """A host on which so many guests can run; that there is room for them in the configuration is checked before.

    Args:
        build: a name of their QEMU for the user.
        rehearse: whether the process of their interface is tried without them.
    """
    kind, config, guest = settings.interface, testbed.host, testbed.guest
    of_interface = tuple(needs_of_interface(testbed, kind, guest=True, count=count))
    yield from of_interface
    yield Programs(_HOST, _GUEST_PROGRAMS, "the guest")
    yield WayToSockets(_HOST)
    program = Build(build, settings.program(config))
    files = Files(_HOST, _files(config, guest), "the guest")
    yield files
    yield from needs_of_qemu(_HOST, program, _command_line(testbed, settings))
    starts = (QemuProgram(_HOST, program), files)
    yield Accelerator(_HOST, program.program, config.accelerator, guest.kernel, after=starts)
    if settings.options.vhost:
        yield DeviceFile(_HOST, _VHOST, "vhost")
    of_process = kind.needs.hugepages if kind.nic_driver(config) else 0
    if hugepages := of_process + guest.memory * guest.hugepages:
        whose = "the guest" if count == 1 else f"{count} guests"
        yield HugepageMemory(_HOST, hugepages, f"{whose} with {kind.name}", guests=count)
    if count > 1:
        yield GuestCpus(_HOST, count, guest.vcpus)
    if count > 1 and not guest.hugepages:
        yield GuestMemory(_HOST, count, guest.memory)
    if (settings.options.queues or 1) > 1:
        yield QueuesOfGuest(_HOST, settings.options.queues or 1, guest.vcpus)
    placed = roles(vhost=settings.options.vhost, switch=kind.has_process)
    yield PlacementCpus(_HOST, placed)
    yield NumaNode(_HOST, placed)
    yield RealTime(_HOST, placed)
    if kind.has_process and rehearse:
        yield Rehearsal(_HOST, kind.name, InterfaceOptions(queues=settings.options.queues), after=of_interface)


def _files(config: HostConfig, guest: GuestConfig) -> tuple[tuple[str, str], ...]:
    named = {"root_disk_file": config.root_disk_file, "kernel": guest.kernel, "initrd": guest.initrd}
    folders = tuple((f"fsdevs {tag}", folder) for tag, folder in config.fsdevs)
    return tuple((key, path) for key, path in named.items() if path) + folders


def _command_line(testbed: Testbed, settings: GuestSettings) -> list[str]:
    """As it will be, but for sockets and what is measured only when it starts."""
    program = settings.program(testbed.host)
    line = qemu_command_line(
        testbed.host, testbed.guest, settings, program=program, accelerator="tcg", tsc_khz=None, qmp_socket="/qmp"
    )
    return line.render()
