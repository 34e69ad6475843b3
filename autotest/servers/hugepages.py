"""Huge pages of one server: for guests and programs whose memory must be shared or reached by a device.

See https://docs.kernel.org/admin-guide/mm/hugetlbpage.html. Reserved is what is missing, of the default size, and given
back at the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from autotest.errors import TestbedError
from autotest.remote.transport import Note, Transport, unnoted

_USUAL_MOUNT = "/dev/hugepages"
_RESERVE_TIMEOUT = 120.0  # seconds; the kernel moves memory about to make huge pages
# Each line of each file with its name in front.
_LOOK = """
cd -- "$1" && grep -sH '' sys/kernel/mm/hugepages/*/*_hugepages sys/devices/system/node/node*/hugepages/*/*_hugepages \\
    proc/meminfo proc/mounts || [ $? -eq 2 ]
"""  # 2: there is no node, or no size
_COUNT = re.compile(r"sys/(?:kernel/mm|devices/system/node/node([0-9]+))/hugepages/hugepages-([0-9]+)kB/(\w+)_hugepages:([0-9]+)")
_COUNTED = ("nr", "free", "resv")
_DEFAULT_SIZE = re.compile(r"proc/meminfo:Hugepagesize:\s*([0-9]+) kB")
_MOUNT = re.compile(r"proc/mounts:\S+ (\S+) hugetlbfs (\S+) .*")
_PAGE_SIZE = re.compile(r"(?:.*,)?pagesize=([0-9]+)([KMG]?)(?:,.*)?")
_UNITS = {"": 1 / 1024, "K": 1, "M": 1024, "G": 1024 * 1024}
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class HugepageCount:
    """How many huge pages there are, and how many are free and promised to nobody."""

    total: int = 0
    free: int = 0


@dataclass(frozen=True)
class HugepageState:
    """The huge pages of a machine. Sizes are in KiB.

    Attributes:
        default_size: what who does not say a size gets.
        counts: of the whole machine, by size.
        of_nodes: the same of each NUMA node, by its number.
        mounts: folders in which a hugetlbfs is mounted, with its page size.
    """

    default_size: int
    counts: Mapping[int, HugepageCount]
    of_nodes: Mapping[int, Mapping[int, HugepageCount]]
    mounts: Mapping[str, int]


class Hugepages:
    """The huge pages of one server.

    Args:
        note: is told of each change before it is made.
        root: the folder in which the server has ``sys`` and ``proc``.
    """

    def __init__(self, transport: Transport, note: Note = unnoted, root: str = "/") -> None:
        self._machine = transport.outside
        self._name = transport.name
        self._note = note
        self._root = root

    def state(self) -> HugepageState:
        """What there is. Raises TestbedError where the kernel has no huge pages."""
        printed = self._machine.run(["sh", "-c", _LOOK, "sh", self._root]).stdout
        found = parse_state(printed)
        if found is None:
            raise TestbedError(f"{self._name}: its kernel has no huge pages (CONFIG_HUGETLBFS)")
        return found

    def require(self, mib: int, node: int | None = None) -> None:
        """See that there are so many MiB free in pages of the default size, on that NUMA node if one is given.

        Raises:
            TestbedError: there is no such node, or the kernel finds no memory for so many.
        """
        state = self.state()
        size = state.default_size
        counts = state.counts if node is None else state.of_nodes.get(node)
        if counts is None or size not in counts:
            there = ", ".join(map(str, state.of_nodes)) or "not known"
            raise TestbedError(f"{self._name}: there is no NUMA node {node} with huge pages; its nodes are {there}")
        needed = math.ceil(mib * 1024 / size)
        missing = needed - counts[size].free
        if missing <= 0:
            return
        path, before = _path(size, node), counts[size].total
        wanted = before + missing
        self._note("hugepages", path=path, before=str(before), wanted=str(wanted))
        given = self._set(path, wanted)
        if given < wanted:
            where = "" if node is None else f" on NUMA node {node}"
            raise TestbedError(
                f"{self._name}: {mib} MiB of huge pages are needed{where}, but the kernel has memory for only {given - before} of "
                f"{missing} more pages of {size} KiB: free memory, or reserve them when it boots (hugepages={wanted} on the "
                "kernel's command line)"
            )

    def restore(self, path: str, before: int, wanted: int) -> bool:
        """Undo a reservation; a number that somebody has changed since stays. Returns whether there was something to do."""
        if not before < self._read(path) <= wanted:
            return False
        self._set(path, before)
        return True

    def mount(self) -> str:
        """A folder in which a hugetlbfs of the default page size is mounted.

        Raises:
            TestbedError: there is none.
        """
        state = self.state()
        usable = [folder for folder, size in state.mounts.items() if size == state.default_size]
        if not usable:
            raise TestbedError(
                f"{self._name}: no hugetlbfs of {state.default_size} KiB pages is mounted: "
                f"mkdir -p {_USUAL_MOUNT} && mount -t hugetlbfs hugetlbfs {_USUAL_MOUNT}"
            )
        return _USUAL_MOUNT if _USUAL_MOUNT in usable else usable[0]

    def _set(self, path: str, count: int) -> int:
        """Write a number of pages; returns how many there are then: the kernel gives fewer without a word."""
        script = 'cd -- "$1" && printf %s "$3" >"$2" && cat -- "$2"'
        command = ["sh", "-c", script, "sh", self._root, path, str(count)]
        return self._number(path, self._machine.run(command, sudo=True, timeout=_RESERVE_TIMEOUT).stdout)

    def _read(self, path: str) -> int:
        return self._number(path, self._machine.run(["sh", "-c", 'cd -- "$1" && cat -- "$2"', "sh", self._root, path]).stdout)

    def _number(self, path: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}\n?", text):
            raise TestbedError(f"{self._name}: {path} holds what Linux does not write: {text[:100]!r}")
        return int(text)


def _path(size: int, node: int | None) -> str:
    where = "sys/kernel/mm" if node is None else f"sys/devices/system/node/node{node}"
    return f"{where}/hugepages/hugepages-{size}kB/nr_hugepages"


def parse_state(text: str) -> HugepageState | None:
    """Lines of the files, each with the file's name in front; None where the kernel has no huge pages."""
    default = 0
    numbers: dict[tuple[int | None, int], dict[str, int]] = {}
    mounts: list[tuple[str, str]] = []
    for line in text.splitlines():
        if match := _COUNT.fullmatch(line):
            node, size, what, number = match.groups()
            if what in _COUNTED:
                numbers.setdefault((None if node is None else int(node), int(size)), {})[what] = int(number)
        elif match := _DEFAULT_SIZE.fullmatch(line):
            default = int(match[1])
        elif match := _MOUNT.fullmatch(line):
            mounts.append((_OCTAL.sub(lambda code: chr(int(code[1], 8)), match[1]), match[2]))
    if not default or (None, default) not in numbers:
        return None
    counts = {size: _counted(found) for (node, size), found in numbers.items() if node is None}
    of_nodes: dict[int, dict[int, HugepageCount]] = {}
    for (node, size), found in numbers.items():
        if node is not None:
            of_nodes.setdefault(node, {})[size] = _counted(found)
    return HugepageState(default, counts, of_nodes, {folder: _mounted_size(options, default) for folder, options in mounts})


def _counted(found: Mapping[str, int]) -> HugepageCount:
    # What is promised to a mapping that did not touch it yet is still counted as free; nodes do not tell of it.
    return HugepageCount(found.get("nr", 0), max(0, found.get("free", 0) - found.get("resv", 0)))


def _mounted_size(options: str, default: int) -> int:
    match = _PAGE_SIZE.fullmatch(options)
    return round(int(match[1]) * _UNITS[match[2]]) if match else default
