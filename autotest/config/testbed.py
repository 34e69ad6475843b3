"""``autotest.conf`` to a :class:`Testbed`: frozen data that says what machines there are.

The keys are promises (they are listed with their meaning in ``autotest.conf`` itself). A key is required only
by what uses it: every value but ``fqdn`` may be missing here, and :meth:`Testbed.missing` names what is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from autotest.config import quantities, values
from autotest.config.ini import IniFile, read_ini
from autotest.errors import Problem

MEMORY = quantities.mebibytes(32, 16 * 1024 * 1024)


def _key(parse: Callable[[str], Any], default: Any = None) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True)
class ServerConfig:
    """What the sections ``host``, ``guest`` and ``loadgen`` have in common.

    ``netns`` is the network namespace of this machine in which the server lives: a local server runs its
    commands there, the connection to any other is opened from there.
    """

    fqdn: str = _key(values.machine, "")
    netns: str | None = _key(values.plain_name)
    ssh_config: str | None = _key(values.path_here)
    ssh_as_root: bool = _key(values.boolean, False)
    test_iface: str | None = _key(values.iface)
    test_iface_addr: str | None = _key(values.pci_address)
    test_iface_mac: str | None = _key(values.mac)
    test_iface_driv: str | None = _key(values.plain_name)
    test_iface_dpdk_driv: str | None = _key(values.plain_name)
    bind_in_use: tuple[str, ...] = _key(values.pci_addresses, ())
    test_iface_ip_net: str | None = _key(values.ip_net)
    moongen_dir: str | None = _key(values.path)
    moonprogs_dir: str | None = _key(values.path)
    xdp_reflector_dir: str | None = _key(values.path)
    tmux_socket: str = _key(values.tmux_socket, "autotest")


@dataclass(frozen=True)
class HostConfig(ServerConfig):
    """Section ``host``."""

    admin_bridge: str | None = _key(values.iface)
    admin_bridge_ip_net: str | None = _key(values.ip_net)
    admin_tap: str | None = _key(values.iface)
    test_bridge: str | None = _key(values.iface)
    test_bridge_ip_net: str | None = _key(values.ip_net)
    test_tap: str | None = _key(values.iface)
    test_macvtap: str | None = _key(values.iface)
    test_iface_vfio_driv: str | None = _key(values.plain_name)
    test_iface_vfs: int = _key(values.integer(0, 256), 0)
    guest_nics: tuple[tuple[str, str], ...] = _key(values.nics, ())
    cpu_overcommit: int = _key(values.integer(1, 1024, "vCPUs"), 1)
    qemu_path: str = _key(values.path, "")
    accelerator: str = _key(values.choice(("auto", "kvm", "tcg")), "auto")
    testpmd_path: str = _key(values.path, "dpdk-testpmd")
    vhost_user_socket_path: str | None = _key(values.path)
    vmux_path: str | None = _key(values.path)
    vmux_qemu_path: str | None = _key(values.path)
    vmux_socket_path: str | None = _key(values.path)
    root_disk_file: str | None = _key(values.path)
    root_disk_snapshot: bool = _key(values.boolean, False)
    fsdevs: tuple[tuple[str, str], ...] = _key(values.fs_devices, ())
    cpus_vcpus: tuple[int, ...] = _key(values.cpu_list, ())
    cpus_vhost: tuple[int, ...] = _key(values.cpu_list, ())
    cpus_qemu: tuple[int, ...] = _key(values.cpu_list, ())
    cpus_switch: tuple[int, ...] = _key(values.cpu_list, ())
    scheduling_vcpus: str | None = _key(values.scheduling)
    scheduling_vhost: str | None = _key(values.scheduling)
    scheduling_qemu: str | None = _key(values.scheduling)
    scheduling_switch: str | None = _key(values.scheduling)


@dataclass(frozen=True)
class GuestConfig(ServerConfig):
    """Section ``guest``. ``memory`` in MiB, ``boot_timeout`` in seconds.

    ``kernel``, ``initrd`` and ``kernel_args`` boot a kernel directly, paths on the host; without them the disk boots.
    """

    vcpus: int = _key(values.integer(1, 1024), 2)
    memory: int = _key(MEMORY.parse, 1024)
    hugepages: bool = _key(values.boolean, False)
    admin_iface_mac: str | None = _key(values.mac)
    cpu_model: str | None = _key(values.word)
    kernel: str | None = _key(values.path)
    initrd: str | None = _key(values.path)
    kernel_args: str = _key(values.words, "")
    boot_timeout: int = _key(quantities.seconds(1, 3600).parse, 120)


@dataclass(frozen=True)
class LoadGenConfig(ServerConfig):
    """Section ``loadgen``."""


@dataclass(frozen=True)
class LocalConfig:
    """Section ``local``: this machine. ``notify_command`` is told of runs: docs/notifications.md."""

    moonprogs_dir: str | None = _key(values.path_here)
    notify_command: tuple[str, ...] = _key(values.command_line, ())


@dataclass(frozen=True)
class LabConfig:
    """Section ``lab``: there only in the configuration of the built-in testbed, which autotest brings up itself.

    With ``sshd`` both namespaces get an SSH server, so that they are reached as real machines are. With ``emulated_host`` the host is
    a QEMU machine with an IOMMU in the host's namespace, reached over SSH at ``emulated_host_address``.
    """

    directory: str = _key(values.lab_directory, "/run/autotest-lab")
    host_netns: str = _key(values.plain_name, "autotest-host")
    loadgen_netns: str = _key(values.plain_name, "autotest-loadgen")
    guest_address: str = _key(values.ip_net, "192.168.56.10/24")
    sshd: bool = _key(values.boolean, False)
    emulated_host: bool = _key(values.boolean, False)
    emulated_host_address: str = _key(values.ip_net, "192.168.57.10/24")


@dataclass(frozen=True)
class Testbed:
    """Host, guest and loadgen as ``file`` describes them; ``lab`` is None on real hardware."""

    __test__ = False

    file: Path
    host: HostConfig
    guest: GuestConfig
    loadgen: LoadGenConfig
    local: LocalConfig = LocalConfig()
    lab: LabConfig | None = None

    def missing(self, section: str, keys: Iterable[str], needed_by: str) -> list[Problem]:
        """The problems that arise when any of the section's keys has no value, with what needs it."""
        config = getattr(self, section)
        return [Problem(self.file, section, key, f"is missing: {needed_by} needs it") for key in keys if not getattr(config, key)]


_SECTIONS: dict[str, type] = {
    "host": HostConfig,
    "guest": GuestConfig,
    "loadgen": LoadGenConfig,
    "local": LocalConfig,
    "lab": LabConfig,
}
_REQUIRED_SECTIONS = ("host", "guest", "loadgen")
_ADDRESSES = ("admin_bridge_ip_net", "test_bridge_ip_net", "guest_address", "emulated_host_address")
_FREE_SECTION = "common"  # holds whatever the user interpolates elsewhere

T = TypeVar("T")


def load_testbed(path: Path, project_directory: Path) -> Testbed:
    """Read ``autotest.conf``.

    Raises:
        ConfigError: with every problem found.
    """
    ini = read_ini(path, project_directory)
    loaded: dict[str, Any] = {}
    known = [*_SECTIONS, _FREE_SECTION]
    for name in ini.sections:
        if name not in known:
            ini.problem(name, None, f"unknown section{values.nearest(name, known)}; known are {', '.join(known)}")
    for name, section_type in _SECTIONS.items():
        if name in ini.sections:
            loaded[name] = _load_section(ini, name, section_type)
        elif name in _REQUIRED_SECTIONS:
            ini.problem(name, None, "section is missing")
    known_keys = {entry.name for section_type in _SECTIONS.values() for entry in dataclasses.fields(section_type)}
    ini.check_defaults(known_keys, free=True)
    for name in _REQUIRED_SECTIONS:
        if name in loaded and not loaded[name].fqdn and not ini.has_problem(name, "fqdn"):
            ini.problem(name, "fqdn", "is missing: host name or address of the machine, localhost for this one")
    if all(name in loaded for name in _REQUIRED_SECTIONS):
        lab = None if ini.has_problem_in("lab") else loaded.get("lab")  # else its defaults would clash with the rest
        for problem in _cross_problems(Testbed(file=path, **{**loaded, "lab": lab})):
            if not ini.has_problem(str(problem.section), str(problem.key)):
                ini.add(problem)
    ini.raise_problems()
    return Testbed(file=path, **loaded)


def _load_section(ini: IniFile, name: str, section_type: type[T]) -> T:
    parsers = {entry.name: entry.metadata["parse"] for entry in dataclasses.fields(section_type)}  # type: ignore[arg-type]
    for key in ini.keys(name):
        if key not in parsers and not ini.is_inherited(key):
            ini.problem(name, key, f"unknown key{values.nearest(key, list(parsers))}")
    arguments = {}
    for key, parse in parsers.items():
        text = ini.value(name, key)
        if text:
            try:
                arguments[key] = parse(text)
            except ValueError as error:
                ini.problem(name, key, str(error))
    return section_type(**arguments)


def _cross_problems(testbed: Testbed) -> list[Problem]:
    """What is wrong only in combination: one name or address given to two things, or one that needs another."""
    problems = [problem for named in _with_names_of_their_own(testbed) for problem in _clashes(testbed, named)]
    problems += [
        Problem(testbed.file, "guest", "kernel", f"is missing: {key} needs it")
        for key in ("initrd", "kernel_args")
        if getattr(testbed.guest, key) and not testbed.guest.kernel
    ]
    problems += _nics_named_twice(testbed)
    if testbed.lab:
        problems += _outside_the_lab(testbed, testbed.lab)
    return problems


def _nics_named_twice(testbed: Testbed) -> Iterator[Problem]:
    """The NICs of further guests that are the first one's, or have the MAC address of somebody else."""
    known = {testbed.host.test_iface_addr: "[host] test_iface_addr"}
    for section in ("host", "guest", "loadgen"):
        known[getattr(testbed, section).test_iface_mac] = f"[{section}] test_iface_mac"
    known[testbed.guest.admin_iface_mac] = "[guest] admin_iface_mac"
    for name in (name for nic in testbed.host.guest_nics for name in nic):
        if name in known:
            message = f"{name} is already {known[name]}: expected the NICs of the guests behind the first, each its own"
            yield Problem(testbed.file, "host", "guest_nics", message)


def _with_names_of_their_own(testbed: Testbed) -> Iterator[list[tuple[str, str]]]:
    """Sections and keys whose values must all be different."""
    host, guest, loadgen, lab = testbed.host, testbed.guest, testbed.loadgen, testbed.lab
    yield [("host", "test_iface_mac"), *(("guest", key) for key in ("test_iface_mac", "admin_iface_mac")),
           ("loadgen", "test_iface_mac")]  # fmt: skip
    links = ("test_iface", "admin_bridge", "admin_tap", "test_bridge", "test_tap", "test_macvtap")
    same_machine = bool(host.fqdn) and (host.fqdn, host.netns) == (loadgen.fqdn, loadgen.netns)
    yield [*(("host", key) for key in links), *([("loadgen", "test_iface")] if same_machine else [])]
    yield [("host", "admin_bridge_ip_net"), ("host", "test_bridge_ip_net"), *([("lab", "guest_address")] if lab else [])]
    # What is meant for the guest would be done to the host. A guest at localhost stands for none: machine type host only.
    if guest.fqdn != "localhost" and (host.netns, host.ssh_config) == (guest.netns, guest.ssh_config):
        yield [("host", "fqdn"), ("guest", "fqdn")]
    if lab:
        yield [("lab", "host_netns"), ("lab", "loadgen_netns")]
    if lab and lab.emulated_host:
        yield [("host", "admin_bridge_ip_net"), ("lab", "emulated_host_address")]
    if lab and lab.sshd:  # two machines to the user, one tmux to us
        yield [("host", "fqdn"), ("guest", "fqdn"), ("loadgen", "fqdn")]
        yield [("host", "tmux_socket"), ("loadgen", "tmux_socket")]


def _clashes(testbed: Testbed, keys: Iterable[tuple[str, str]]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for section, key in keys:
        value = getattr(getattr(testbed, section), key)
        name = value.partition("/")[0] if value and key in _ADDRESSES else value
        if name in first:
            yield Problem(testbed.file, section, key, f"{name} is already {first[name]}: each needs its own")
        elif name:
            first[name] = f"[{section}] {key}"


def _outside_the_lab(testbed: Testbed, lab: LabConfig) -> Iterator[Problem]:
    """Servers of the lab that would be looked for outside it: what is done to the lab would be done to the real network."""
    if lab.emulated_host and lab.sshd:
        yield Problem(
            testbed.file, "lab", "sshd", "must be no with emulated_host: the emulated host has an SSH server of its own"
        )
    if lab.emulated_host and (testbed.host.netns or testbed.host.fqdn == "localhost"):
        yield Problem(testbed.file, "host", "fqdn", "must be a name for the emulated host, without netns: it is reached over SSH")
        return
    for section, netns in (("host", lab.host_netns), ("guest", lab.host_netns), ("loadgen", lab.loadgen_netns)):
        config = getattr(testbed, section)
        over_ssh = (lab.sshd or (lab.emulated_host and section != "loadgen")) and config.fqdn != "localhost"
        if config.netns != netns and not (over_ssh and config.netns is None):
            yield Problem(testbed.file, section, "netns", f"must be {netns}, from where the lab's {section} is reached")
