"""The guest: a QEMU virtual machine on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.errors import TestbedError
from autotest.interfaces.kind import InterfaceKind, InterfaceOptions
from autotest.qemu.parts import (
    CommandLine,
    Control,
    Disk,
    GdbServer,
    Kernel,
    Machine,
    Part,
    SharedFolder,
    TapBackend,
    VirtioNet,
    program_of,
)
from autotest.remote.transport import Transport
from autotest.servers.dut import DeviceUnderTest

QEMU_MACHINES = {"pcvm": "pc", "microvm": "microvm"}


class Guest(DeviceUnderTest):
    """A guest, reached over its admin interface.

    ``nic`` is its interface under test; None before it has booted.
    """

    nic: str | None = None

    @cached_property
    def transport(self) -> Transport:
        """The way there.

        Raises:
            TestbedError: its name leads to this machine, so that commands for the guest would be run here.
        """
        found = super().transport
        if found.is_local:
            raise TestbedError(f"{self.name}: fqdn {self.config.fqdn} is this machine, not a guest: give the guest's own name")
        return found

    @property
    def boot(self) -> str:
        """Not asked for: what is changed in a guest ends with its QEMU, which the host knows."""
        return ""

    def find_nic(self, mac: str) -> str:
        """Find the interface under test by its MAC address: each kind of interface may give it another name.

        Returns the name of its driver, empty where the kernel names none.

        Raises:
            TestbedError: there is none with it, or more than one.
        """
        found = self.links.with_mac(mac)
        if self.config.test_iface in found:
            self.nic = self.config.test_iface
        elif len(found) == 1:
            self.nic = found[0]
        else:
            what = ", ".join(found) or "no network interface"
            raise TestbedError(f"{self.name}: {what} has the MAC address {mac} of the interface under test")
        link = self.run(["readlink", "--", f"/sys/class/net/{self.nic}/device/driver"], check=False).stdout
        return link.strip().rpartition("/")[2]

    def close(self) -> None:
        super().close()
        for folder in ("state_dir", "memory_dir"):  # the next connection may be to another boot, where there is none yet
            self.__dict__.pop(folder, None)


@dataclass(frozen=True)
class GuestSettings:
    """One way to run the guest: what the matrix or the command line may change from boot to boot.

    ``machine`` is pcvm or microvm. An empty ``qemu_path`` stands for the build that the configuration names.
    """

    machine: str
    interface: InterfaceKind
    qemu_path: str
    options: InterfaceOptions = InterfaceOptions()
    debug: bool = False

    def program(self, host: HostConfig) -> str:
        """The QEMU program."""
        return program_of(self.qemu_path or self.interface.qemu_path(host))


def with_overrides(
    host: HostConfig, guest: GuestConfig, vcpus: int | None, memory: int | None, disk: str | None
) -> tuple[HostConfig, GuestConfig]:
    """The configuration with the values of ``run-guest``'s options, memory in MiB."""
    if disk:
        host = replace(host, root_disk_file=disk)
    return host, replace(guest, vcpus=vcpus or guest.vcpus, memory=memory or guest.memory)


def qemu_command_line(
    host: HostConfig,
    guest: GuestConfig,
    settings: GuestSettings,
    *,
    program: str,
    accelerator: str,
    tsc_khz: int | None,
    qmp_socket: str,
    gdb_socket: str | None = None,
) -> CommandLine:
    """The command line of the guest. Pure: the keys that it needs were checked before.

    ``tsc_khz`` is told to a kernel that is booted under TCG: microvm hangs without it, and with a wrong value the
    guest's clock runs wrong by the same factor.
    """
    assert host.root_disk_file and host.admin_tap and guest.admin_iface_mac
    assert settings.interface.nic
    machine = Machine(
        type=QEMU_MACHINES[settings.machine],
        accelerator=accelerator,
        cpu_model=guest.cpu_model or ("host" if accelerator == "kvm" else "max"),
        vcpus=guest.vcpus,
        memory=guest.memory,
        shared_memory=settings.interface.shared_memory,
        hugepages=guest.hugepages,
    )
    arguments = [guest.kernel_args, f"tsc_early_khz={tsc_khz}" if tsc_khz else ""]
    parts: list[Part] = [Kernel(guest.kernel, guest.initrd, " ".join(filter(None, arguments)))] if guest.kernel else []
    parts += [
        Disk(host.root_disk_file, host.root_disk_snapshot),
        VirtioNet("admin", guest.admin_iface_mac, TapBackend(ifname=host.admin_tap)),
        settings.interface.nic(host, guest, settings.options),
        *(SharedFolder(tag, folder) for tag, folder in host.fsdevs),
        Control(qmp_socket),
    ]
    if gdb_socket:
        parts.append(GdbServer(gdb_socket))
    return CommandLine(program, machine, parts)
