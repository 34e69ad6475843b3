"""The parts of a QEMU command line, each rendering itself to a list of arguments.

A value is escaped as QEMU wants it (a comma is doubled), so no value can add an option of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Value = str | int | bool | None

_IDENTIFIER = re.compile(r"[A-Za-z0-9._-]*")  # what may follow the first letter of one: id_wellformed of util/id.c


def properties(head: str | None, values: Mapping[str, Value]) -> str:
    """``head,key=value,...``: booleans as on and off, None left out, commas in values doubled."""
    rendered = [head] if head else []
    for key, value in values.items():
        if value is None:
            continue
        text = ("on" if value else "off") if isinstance(value, bool) else str(value)
        rendered.append(f"{key}={text.replace(',', ',,')}")
    return ",".join(rendered)


class Part(Protocol):
    """Something that renders to arguments of QEMU on a machine of the given type."""

    def render(self, machine: Machine) -> list[str]: ...


@dataclass(frozen=True)
class Machine:
    """Machine type: ``pc`` has a PCI bus, ``microvm`` has virtio-mmio only.

    With ``shared_memory`` another process can map the guest's memory, with ``hugepages`` it is of the host's huge pages.
    """

    type: str
    accelerator: str = "tcg"
    cpu_model: str = "max"
    vcpus: int = 1
    memory: int = 1024  # MiB
    shared_memory: bool = False
    hugepages: bool = False

    @property
    def has_pci(self) -> bool:
        return self.type != "microvm"

    def virtio(self, device: str) -> str:
        """The name of a virtio device on this machine's bus."""
        return f"virtio-{device}-pci" if self.has_pci else f"virtio-{device}-device"

    def render(self) -> list[str]:
        # A microvm without the clock and ACPI does not find its devices.
        values: dict[str, Value] = {} if self.has_pci else {"rtc": True, "acpi": True}
        memory: list[str] = []
        if self.shared_memory or self.hugepages:
            values["memory-backend"] = "memory"  # unlike -numa, microvm knows it, too
            backend: dict[str, Value] = {"id": "memory", "size": f"{self.memory}M", "share": self.shared_memory}
            backend |= {"hugetlb": True, "prealloc": True} if self.hugepages else {}
            memory = ["-object", properties("memory-backend-memfd", backend)]
        accelerator = "tcg,thread=multi" if self.accelerator == "tcg" else self.accelerator
        return [
            *("-machine", properties(self.type, values)),
            *("-accel", accelerator),
            *("-cpu", self.cpu_model),
            *("-smp", str(self.vcpus)),
            *("-m", str(self.memory)),
            *memory,
        ]


class Backend(Protocol):
    """What is on the host's side of a network interface: a ``-netdev``."""

    @property
    def queues(self) -> int:
        """Pairs of queues."""
        ...

    def render(self, identifier: str) -> list[str]: ...


@dataclass(frozen=True)
class TapBackend:
    """A tap by name, or a macvtap by file descriptors, one for each pair of queues; vhost in the kernel on or off."""

    ifname: str | None = None
    fds: tuple[int, ...] = ()
    vhost: bool = False
    queues: int = 1

    def render(self, identifier: str) -> list[str]:
        values: dict[str, Value] = {"id": identifier}
        if self.fds:
            values["fd" if len(self.fds) == 1 else "fds"] = ":".join(map(str, self.fds))
        else:
            values |= {"ifname": self.ifname, "script": "no", "downscript": "no"}
            values |= {"queues": self.queues} if self.queues > 1 else {}
        # Unless it is forced, a QEMU that cannot have vhost goes on without it, with a mere warning (net/tap.c).
        return ["-netdev", properties("tap", values | {"vhost": self.vhost, "vhostforce": self.vhost or None})]


@dataclass(frozen=True)
class VhostUserBackend:
    """A user-space switch that connects to a Unix socket of QEMU's."""

    socket: str
    queues: int = 1

    def render(self, identifier: str) -> list[str]:
        name = f"{identifier}-switch"
        values: dict[str, Value] = {"id": identifier, "chardev": name}
        values |= {"queues": self.queues} if self.queues > 1 else {}
        return [
            *("-chardev", properties("socket", {"id": name, "path": self.socket, "server": True, "wait": False})),
            *("-netdev", properties("vhost-user", values)),
        ]


@dataclass(frozen=True)
class VirtioNet:
    """A virtio network interface. Ring sizes in descriptors, None for QEMU's own default.

    ``ioregionfd`` sets ``use-ioregionfd``, a property that only a patched QEMU knows. ``vectors`` are those of MSI-X, None
    for as many as the queues need; a machine without PCI has none.
    """

    identifier: str
    mac: str
    backend: Backend
    rx_queue_size: int | None = None
    tx_queue_size: int | None = None
    ioregionfd: bool = False
    vectors: int | None = None

    def render(self, machine: Machine) -> list[str]:
        values: dict[str, Value] = {"netdev": self.identifier, "mac": self.mac}
        values |= {"rx_queue_size": self.rx_queue_size, "tx_queue_size": self.tx_queue_size}
        vectors = self.vectors
        if self.backend.queues > 1:
            values["mq"] = True
            vectors = 2 * self.backend.queues + 2 if vectors is None else vectors
        if machine.has_pci:
            values["vectors"] = vectors
            values["romfile"] = ""  # nobody boots from this NIC; its ROM costs boot time
        if self.ioregionfd:
            values["use-ioregionfd"] = True
        return [*self.backend.render(self.identifier), "-device", properties(machine.virtio("net"), values)]


@dataclass(frozen=True)
class EmulatedNic:
    """A NIC that QEMU emulates, by its model: ``e1000``, ``rtl8139``."""

    identifier: str
    model: str
    mac: str
    backend: Backend

    def render(self, machine: Machine) -> list[str]:
        values: dict[str, Value] = {"netdev": self.identifier, "mac": self.mac, "romfile": ""}
        return [*self.backend.render(self.identifier), "-device", properties(self.model, values)]


@dataclass(frozen=True)
class VfioNic:
    """A NIC of the host, or a virtual function of one, passed through by its PCI address."""

    identifier: str
    address: str

    def render(self, machine: Machine) -> list[str]:
        return ["-device", properties("vfio-pci", {"host": self.address, "id": self.identifier})]


@dataclass(frozen=True)
class VfioUserNic:
    """A NIC that another process emulates or passes on, which listens on a Unix socket; needs a QEMU with vfio-user."""

    identifier: str
    socket: str

    def render(self, machine: Machine) -> list[str]:
        return ["-device", properties("vfio-user-pci", {"socket": self.socket, "id": self.identifier})]


@dataclass(frozen=True)
class Disk:
    """The root disk. With ``snapshot`` the image stays as it is, whatever the guest writes."""

    file: str
    snapshot: bool = False

    @property
    def format(self) -> str:
        return "qcow2" if self.file.endswith(".qcow2") else "raw"

    def render(self, machine: Machine) -> list[str]:
        # A colon in a relative path ends the name of a protocol: nbd:..., json:...
        file = self.file if self.file.startswith("/") else f"./{self.file}"
        drive: dict[str, Value] = {"id": "root", "file": file, "format": self.format, "if": "none"}
        drive |= {"snapshot": True} if self.snapshot else {"cache": "none"}
        return [
            *("-drive", properties(None, drive)),
            *("-device", properties(machine.virtio("blk"), {"drive": "root"})),
        ]


@dataclass(frozen=True)
class Kernel:
    """A kernel that is booted directly."""

    kernel: str
    initrd: str | None
    arguments: str

    def render(self, machine: Machine) -> list[str]:
        initrd = ["-initrd", self.initrd] if self.initrd else []
        return ["-kernel", self.kernel, *initrd, "-append", self.arguments]


@dataclass(frozen=True)
class SharedFolder:
    """A folder of the host that the guest can mount by its tag, over 9p."""

    tag: str
    path: str

    def render(self, machine: Machine) -> list[str]:
        hexadecimal = self.tag.encode("utf-8", "surrogateescape").hex()
        identifier = f"fs-{self.tag}" if _IDENTIFIER.fullmatch(self.tag) else f"fsx-{hexadecimal}"
        return [
            *("-fsdev", properties("local", {"id": identifier, "path": self.path, "security_model": "none"})),
            *("-device", properties(machine.virtio("9p"), {"fsdev": identifier, "mount_tag": self.tag})),
        ]


@dataclass(frozen=True)
class Control:
    """QMP on a Unix socket, and the serial console on the standard input and output of QEMU."""

    qmp_socket: str

    def render(self, machine: Machine) -> list[str]:
        return [
            *("-chardev", properties("socket", {"id": "qmp", "path": self.qmp_socket, "server": True, "wait": False})),
            *("-mon", "chardev=qmp,mode=control"),
            *("-chardev", "stdio,id=console,signal=off"),
            *("-serial", "chardev:console"),
        ]


@dataclass(frozen=True)
class GdbServer:
    """A GDB server for debugging the guest's kernel, on a Unix socket: ``target remote SOCKET``."""

    socket: str

    def render(self, machine: Machine) -> list[str]:
        values: dict[str, Value] = {"id": "gdb", "path": self.socket, "server": True, "wait": False}
        return ["-chardev", properties("socket", values), "-gdb", "chardev:gdb"]


@dataclass(frozen=True)
class CommandLine:
    """A whole QEMU command line: the program, the machine, and its parts in the order of their bus addresses."""

    program: str
    machine: Machine
    parts: Sequence[Part] = field(default_factory=tuple)

    def render(self) -> list[str]:
        """The list of arguments, the program first."""
        arguments = [self.program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        arguments += self.machine.render()
        for part in self.parts:
            arguments += part.render(self.machine)
        return arguments


def program_of(path: str) -> str:
    """The QEMU program of a build: the path may name the program itself, or the folder that it is in."""
    if not path:
        return "qemu-system-x86_64"
    name = path.rstrip("/").rpartition("/")[2]
    return path if name.startswith("qemu-system-") else f"{path.rstrip('/')}/qemu-system-x86_64"
