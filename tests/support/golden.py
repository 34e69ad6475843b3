"""The golden QEMU command lines: for every kind of interface on every machine type with every option, and for what else a
guest may be given.

Run as a program it writes them anew, to be read in review: ``python tests/support/golden.py``.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.interfaces import INTERFACE_KINDS, InterfaceKind, InterfaceOptions
from autotest.servers.guest import GuestSettings, qemu_command_line

FOLDER = Path(__file__).resolve().parents[1] / "qemu/golden"
RENEW = "python tests/support/golden.py"
FILES = "/golden"
"""The folder of every file and socket that a golden line names."""

HOST = HostConfig(
    fqdn="host", admin_tap="admtap", test_tap="tap", test_macvtap="macvtap", root_disk_file=f"{FILES}/root.img",
    root_disk_snapshot=True, test_iface_addr="ffff:ff:1f.7", vmux_socket_path=f"{FILES}/vmux.sock",
    vhost_user_socket_path=f"{FILES}/vhost.sock",
)  # fmt: skip
GUEST = GuestConfig(fqdn="guest", vcpus=2, memory=64, admin_iface_mac="52:54:00:fa:00:5f", test_iface_mac="52:54:00:fa:00:60")
KERNEL: dict[str, Any] = {"kernel": f"{FILES}/vmlinuz", "initrd": f"{FILES}/initrd", "kernel_args": "console=ttyS0 panic=-1"}

Option = tuple[str, str]
"""An option of QEMU and its value, which is empty where it takes none."""


@dataclass(frozen=True)
class Line:
    """One command line: the file that it is in, its section there, and the options behind the program."""

    file: str
    title: str
    options: tuple[Option, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


def all_lines() -> list[Line]:
    return [*(line for kind in INTERFACE_KINDS.values() for line in lines_of(kind)), *_of_guest()]


def lines_of(kind: InterfaceKind) -> Iterator[Line]:
    axes: dict[str, tuple[Any, ...]] = {
        "vhost": (False, True) if kind.vhost else (False,),
        "queues": (None, 4) if kind.queues else (None,),
        "ring sizes": (None, kind.longest_tx_ring) if kind.ring_sizes else (None,),
        "ioregionfd": (False, True) if kind.ioregionfd else (False,),
    }
    for machine in kind.machines if kind.nic else ():
        if machine == "host":
            continue
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            if chosen["ioregionfd"] and machine != "microvm":
                continue  # plan/ generates none
            ring = chosen.pop("ring sizes")
            options = InterfaceOptions(**chosen, rx_queue_size=ring and 1024, tx_queue_size=ring)
            given = {key: value for key, value in dataclasses.asdict(options).items() if value}
            title = " ".join([machine, *(f"{key}={'on' if value is True else value}" for key, value in given.items())])
            yield _line(kind.name, title, machine, kind, options)


def _of_guest() -> Iterator[Line]:
    """What a guest may be given beside its test interface: on a tap, on both machine types."""
    booted = dataclasses.replace(GUEST, **KERNEL)
    ways: dict[str, dict[str, Any]] = {
        "a disk that stays as it is": {},
        "a disk of its own": {"host": dataclasses.replace(HOST, root_disk_snapshot=False)},
        "a disk in qcow2": {"host": dataclasses.replace(HOST, root_disk_file=f"{FILES}/root.qcow2")},
        "a kernel": {"guest": booted},
        "a kernel that is told the rate of the counter": {"guest": booted, "tsc_khz": 2600000},
        "KVM": {"accelerator": "kvm"},
        "a CPU model": {"guest": dataclasses.replace(GUEST, cpu_model="qemu64")},
        "huge pages": {"guest": dataclasses.replace(GUEST, hugepages=True)},
        "shared folders": {"host": dataclasses.replace(HOST, fsdevs=(("home", f"{FILES}/home"), ("a,b", f"{FILES}/x,y")))},
        "a GDB server": {"gdb_socket": f"{FILES}/gdb"},
        "vhost-user and KVM": {"kind": INTERFACE_KINDS["vhost-user"], "accelerator": "kvm"},
        "vhost-user and huge pages": {
            "kind": INTERFACE_KINDS["vhost-user"],
            "guest": dataclasses.replace(GUEST, hugepages=True),
        },
    }
    for machine in ("pcvm", "microvm"):
        for title, way in ways.items():
            given: dict[str, Any] = {"kind": INTERFACE_KINDS["bridge"], "options": InterfaceOptions()} | way
            yield _line("guest", f"{machine} with {title}", machine, **given)


def _line(
    file: str,
    title: str,
    machine: str,
    kind: InterfaceKind,
    options: InterfaceOptions,
    *,
    host: HostConfig = HOST,
    guest: GuestConfig = GUEST,
    accelerator: str = "tcg",
    tsc_khz: int | None = None,
    gdb_socket: str | None = None,
) -> Line:
    command = qemu_command_line(
        host,
        guest,
        GuestSettings(machine, kind, "", options),
        program="qemu-system-x86_64",
        accelerator=accelerator,
        tsc_khz=tsc_khz,
        qmp_socket=f"{FILES}/qmp",
        gdb_socket=gdb_socket,
    )
    return Line(file, title, tuple(_options(command.render()[1:])))


def _options(arguments: list[str]) -> Iterator[Option]:
    """The arguments in pairs: in our command lines each value follows its option."""
    rest = iter([*arguments, "-"])
    option = next(rest)
    for word in rest:
        if word.startswith("-"):
            yield option, ""
            option = word
        else:
            yield option, word
            option = next(rest)


# -- as text -----------------------------------------------------------------------------------------------


def texts(lines: list[Line]) -> dict[str, str]:
    """The golden files by name.

    The first line of a machine type is written out, an option in each row. Of the others stands what they have otherwise,
    like ``diff -U0`` shows it.
    """
    files: dict[str, str] = {}
    for file, of_file in itertools.groupby(lines, lambda line: line.file):
        sections = []
        for _, of_machine in itertools.groupby(of_file, lambda line: line.title.partition(" ")[0]):
            first, *others = of_machine
            sections.append(_section(first.title, _rows(first)))
            sections += [_section(line.title, _changes(_rows(first), _rows(line))) for line in others]
        files[f"{file}.txt"] = "\n".join(sections)
    return files


def _rows(line: Line) -> list[str]:
    return [f"{option} {value}".rstrip() for option, value in line.options]


def _section(title: str, rows: list[str]) -> str:
    return "\n".join([f"[{title}]", *rows, ""])


def _changes(before: list[str], after: list[str]) -> list[str]:
    changes = difflib.unified_diff(before, after, n=0, lineterm="")
    return [row if row.startswith("@@") else f"{row[0]} {row[1:]}" for row in itertools.islice(changes, 2, None)]


def renew() -> None:
    """Write all files, and remove those of kinds that are no more."""
    FOLDER.mkdir(exist_ok=True)
    written = texts(all_lines())
    for path in FOLDER.glob("*.txt"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    renew()
