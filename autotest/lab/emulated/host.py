"""The emulated host's machine: its devices, its start and its end."""

from __future__ import annotations

import ipaddress
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotest.config.testbed import Testbed
from autotest.errors import ConfigError, Problem, TestbedError, WaitTimeout
from autotest.lab.guest.recipe import GuestImage, Recipe
from autotest.network.links import Links
from autotest.qemu import tsc
from autotest.qemu.console import around_panic, panic
from autotest.qemu.parts import (
    CommandLine,
    Disk,
    Kernel,
    Machine,
    Part,
    Value,
    properties,
)
from autotest.remote.local import LocalTransport
from autotest.remote.ssh import SshTransport
from autotest.remote.transport import Transport
from autotest.remote.wait import wait_for
from autotest.servers.server import Server, takes_logins

NAME = "autotest-emulated-host"
WIRE_ADDRESS = "0000:01:00.0"
"""PCI address of the NIC whose other end is the loadgen's test interface."""
SPARE_ADDRESS = "0000:02:00.0"
"""One more NIC with an IOMMU group of its own; its cable ends nowhere."""
SHARED_ADDRESSES = ("0000:03:00.0", "0000:03:00.1")
"""A NIC with two functions, which share one IOMMU group."""
SRIOV_ADDRESS = "0000:04:00.0"
"""An NVMe controller that has virtual functions."""

_RECIPE_FILES = Path(__file__).resolve().parent
_SHARED_FOLDER = "image"  # boot mounts it
_ADMIN_TAP = "tap-emulated"
_ADMIN_MAC = "52:54:00:ab:00:00"
_SPARE_MACS = ("52:54:00:ab:00:02", "52:54:00:ab:00:30", "52:54:00:ab:00:31")
_VIRTUAL_FUNCTIONS = 2
_VCPUS = 2
_MEMORY_MIB = 3072
_START_TIMEOUT = 30.0  # seconds until QEMU has made its devices
_LOGIN_TIMEOUT = 240.0  # seconds; 12 to 25 on two idle cores
_END_TIMEOUT = 10.0  # seconds
_CONSOLE_LINES = 30

# As the guest's; the second line makes the IOMMU work, and pass what is not passed through untranslated.
_KERNEL_ARGUMENTS = (
    "console=ttyS0 loglevel=1 panic=-1 mitigations=off tsc=reliable no_timer_check nowatchdog cryptomgr.notests"
    " random.trust_cpu=on nokaslr audit=0 apparmor=0"
    " intel_iommu=on iommu=pt"
)


def recipe() -> Recipe:
    """What the emulated host's image is made of."""
    return Recipe(name=NAME, own_files=_RECIPE_FILES, disk_mib=4096)


@dataclass(frozen=True)
class _Arguments(Part):
    """A part that is the same on every machine."""

    words: tuple[str, ...]

    def render(self, machine: Machine) -> list[str]:
        return list(self.words)


def _device(name: str, **values: str | int | bool) -> tuple[str, str]:
    return "-device", properties(name, values)


def _tap(identifier: str, name: str) -> tuple[str, str]:
    return "-netdev", properties("tap", {"id": identifier, "ifname": name, "script": "no", "downscript": "no"})


def _nic(mac: str, bus: str, **more: str | int | bool) -> tuple[str, str]:
    return _device("e1000e", bus=bus, mac=mac, romfile="", **more)


def _devices(wire_tap: str, wire_mac: str) -> list[str]:
    """The PCI devices to play with. A device behind a root port of its own has an IOMMU group of its own.

    The firmware numbers the buses behind the root ports in the order of their slots, so the addresses are always the same.
    """
    ports = [("rp1", 0x10), ("rp2", 0x11), ("rp3", 0x12), ("rp4", 0x13)]
    words: list[str] = []
    for number, (port, slot) in enumerate(ports, start=1):
        words += _device("pcie-root-port", id=port, bus="pcie.0", addr=hex(slot), chassis=number, slot=number)
    words += _tap("wire", wire_tap)
    spare, first, second = _SPARE_MACS
    words += _nic(wire_mac, "rp1", netdev="wire")
    words += _nic(spare, "rp2")
    words += _nic(first, "rp3", addr="0.0", multifunction=True)
    words += _nic(second, "rp3", addr="0.1")
    words += _device("nvme-subsys", id="nvme")
    # What nvme_check_constraints (hw/nvme/ctrl.c) asks for: two queues and one interrupt for each function, two queues left.
    words += _device(
        "nvme", serial="autotest", bus="rp4", subsys="nvme", sriov_max_vfs=_VIRTUAL_FUNCTIONS, max_ioqpairs=6, msix_qsize=8,
        sriov_vq_flexible=2 * _VIRTUAL_FUNCTIONS, sriov_vi_flexible=_VIRTUAL_FUNCTIONS,
    )  # fmt: skip
    return words


class _Ended(SshTransport):
    """To a machine that has ended, and with it all that was changed on it."""

    is_gone = True


class EmulatedHost:
    """The emulated host of a lab; its files are in ``directory``, it runs in the host's namespace.

    Its wire is a tap in the loadgen's namespace, which is the loadgen's test interface.

    Raises:
        ConfigError: its network has but one address.
    """

    def __init__(self, testbed: Testbed, directory: Path) -> None:
        assert testbed.lab
        self._testbed = testbed
        self._lab = testbed.lab
        self.directory = directory
        self._inside = LocalTransport(self._lab.host_netns, self._lab.host_netns)
        address = ipaddress.ip_interface(self._lab.emulated_host_address)
        self.address = str(address.ip)
        neighbour = next((host for host in address.network.hosts() if host != address.ip), None)
        if neighbour is None:
            says = f"{address} has no room for the namespace's own address: expected one like 192.168.57.10/24"
            raise ConfigError([Problem(testbed.file, "lab", "emulated_host_address", says)])
        self._own_end = f"{neighbour}/{address.network.prefixlen}"

    @property
    def _console(self) -> Path:
        return self.directory / "console.log"

    @property
    def _pid_file(self) -> Path:
        return self.directory / "qemu.pid"

    def pid(self) -> int | None:
        """The process of its QEMU, None when it does not run."""
        try:
            pid = int(self._pid_file.read_text())
            command = Path("/proc", str(pid), "cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self._pid_file).encode() in command else None

    def start(self, image: Path, guest_image: Path) -> None:
        """Start it where it does not run; the loadgen's test interface is there afterwards.

        Args:
            image: directory of its own image.
            guest_image: directory of the guest's, which it can read.

        Raises:
            QemuError, CommandError: QEMU does not start.
        """
        if self.pid() is not None:
            return
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._console.unlink(missing_ok=True)
        wire = self._testbed.loadgen.test_iface
        assert wire and self._testbed.loadgen.test_iface_mac
        self._make_admin_tap()
        for netns in (self._lab.host_netns, self._lab.loadgen_netns):  # of one that ended by itself
            Links(LocalTransport(netns, netns)).delete(wire, "tap")
        # QEMU opens a tap in the namespace that it runs in; an open one may be moved to another.
        self._inside.run(["ip", "tuntap", "add", "dev", wire, "mode", "tap"])
        self._inside.run(["ip", "link", "set", "dev", wire, "address", self._testbed.loadgen.test_iface_mac])
        command = self.command_line(GuestImage(image, image.name), guest_image)
        self._inside.run(command, timeout=_START_TIMEOUT)
        self._inside.run(["ip", "link", "set", "dev", wire, "netns", self._lab.loadgen_netns])

    def _make_admin_tap(self) -> None:
        if Links(self._inside).show(_ADMIN_TAP) is None:
            self._inside.run(["ip", "tuntap", "add", "dev", _ADMIN_TAP, "mode", "tap"])
            self._inside.run(["ip", "address", "add", self._own_end, "dev", _ADMIN_TAP])
            self._inside.run(["ip", "link", "set", "dev", _ADMIN_TAP, "up"])
            # Its first answer need not be waited for.
            entry = ["to", self.address, "lladdr", _ADMIN_MAC, "dev", _ADMIN_TAP, "nud", "permanent"]
            self._inside.run(["ip", "neighbour", "replace", *entry])

    def command_line(self, image: GuestImage, guest_image: Path) -> list[str]:
        """QEMU's arguments: it goes into the background when its devices are there."""
        arguments = f"{_KERNEL_ARGUMENTS} tsc_early_khz={tsc.tsc_khz()}"
        arguments += f" autotest.admin={_ADMIN_MAC},{self._lab.emulated_host_address}"
        wire, mac = self._testbed.loadgen.test_iface, self._testbed.host.test_iface_mac
        assert wire and mac
        folder: dict[str, Value] = {"path": str(guest_image), "mount_tag": _SHARED_FOLDER}
        folder |= {"security_model": "none", "readonly": True}
        parts: list[Part] = [
            # Before every device that it shall translate for.
            _Arguments(_device("intel-iommu", **{"intremap": True, "caching-mode": True})),
            Kernel(str(image.kernel), str(image.initrd), arguments),
            Disk(str(image.disk), snapshot=True),
            _Arguments(_tap("admin", _ADMIN_TAP)),
            _Arguments(_device("virtio-net-pci", netdev="admin", mac=_ADMIN_MAC, romfile="")),
            _Arguments(("-virtfs", properties("local", folder))),
            _Arguments(tuple(_devices(wire, mac))),
            _Arguments(("-chardev", properties("file", {"id": "console", "path": str(self._console)}))),
            _Arguments(("-serial", "chardev:console", "-daemonize", "-pidfile", str(self._pid_file))),
        ]
        # TCG in any case: it has an AMD processor's virtualisation, so that the same modules work everywhere.
        machine = Machine("q35", "tcg", "max,la57=off", _VCPUS, _MEMORY_MIB)
        return CommandLine("qemu-system-x86_64", machine, parts).render()

    def wait_for_login(self) -> None:
        """Wait until it takes a login.

        Raises:
            TestbedError: it ended, its kernel gave up, or it is too slow; with its console's last lines.
            HostKeyError, LoginRefused: it answers, but not as it should.
        """
        config = self._testbed.host
        server = Server("host", config, SshTransport("host", config.fqdn, config.ssh_config))
        try:
            wait_for(lambda: self._answers(server), f"a login at the emulated host {config.fqdn}", _LOGIN_TIMEOUT)
        except WaitTimeout as error:
            raise TestbedError(f"{error}; its console says:\n{self._console_tail()}") from None
        finally:
            server.close()

    def _answers(self, server: Server) -> bool:
        console = self._console.read_text(errors="replace")
        if reason := panic(console):
            raise TestbedError(f"the emulated host's kernel gave up: {reason}\n{around_panic(console, _CONSOLE_LINES)}")
        if self.pid() is None:
            raise TestbedError(f"the emulated host has ended; its console says:\n{self._console_tail()}")
        return takes_logins(server, 1.0)

    def _console_tail(self) -> str:
        return "\n".join(self._console.read_text(errors="replace").splitlines()[-_CONSOLE_LINES:])

    def ended(self) -> Transport:
        """The way to it when it does not run."""
        return _Ended("host", self._testbed.host.fqdn, self._testbed.host.ssh_config)

    def stop(self) -> None:
        """End it, and with it all that was changed in it; nothing if it does not run."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            pid = self.pid()
            if pid is None:
                return
            with suppress(ProcessLookupError):
                os.kill(pid, sent)
            with suppress(WaitTimeout):
                wait_for(lambda: self.pid() is None, "the end of the emulated host", _END_TIMEOUT)
        if self.pid() is not None:
            raise TestbedError(f"the emulated host, process {self.pid()}, does not end")
