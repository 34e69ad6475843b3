"""The guest's initramfs: busybox, the few modules that the root disk and the NICs need, and ``init``.

Format: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst ("newc"). It stays uncompressed: unpacking
costs more under emulation than the 3 MB do.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_CONSOLE = (5, 1)  # major and minor number of /dev/console
_DIRECTORIES = ("bin", "dev", "modules", "new", "proc", "run", "sys")


class ModuleError(LookupError):
    """A kernel has no module of this name, neither loadable nor built in."""


@dataclass(frozen=True)
class Entry:
    """One file, directory or device node of the archive."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def archive(entries: Iterable[Entry]) -> bytes:
    """The entries as a cpio archive in the order given; everything belongs to root, all times are 0."""
    trailer = Entry("TRAILER!!!", 0)
    return b"".join(_record(number, entry) for number, entry in enumerate([*entries, trailer], start=1))


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def build_initramfs(init: bytes, busybox: bytes, modules: Mapping[str, bytes]) -> bytes:
    """The archive; ``modules`` maps file names to contents in the order in which ``init`` shall load them."""
    entries = [Entry(name, stat.S_IFDIR | 0o755) for name in _DIRECTORIES]
    entries += [
        Entry("dev/console", stat.S_IFCHR | 0o600, device=_CONSOLE),
        Entry("bin/busybox", stat.S_IFREG | 0o755, busybox),
        Entry("init", stat.S_IFREG | 0o755, init),
        Entry("modules/order", stat.S_IFREG | 0o644, "".join(f"{name}\n" for name in modules).encode()),
    ]
    entries += [Entry(f"modules/{name}", stat.S_IFREG | 0o644, data) for name, data in modules.items()]
    return archive(entries)


def load_modules(directory: Path, names: Iterable[str]) -> dict[str, bytes]:
    """File name to content of the named modules, each after what it depends on; built-in ones are left out.

    ``directory`` is ``/lib/modules/VERSION`` of a kernel, after depmod.

    Raises:
        ModuleError: there is no such module.
        OSError: the kernel's lists cannot be read.
    """
    dependencies = parse_dependencies((directory / "modules.dep").read_text())
    builtin = {_module_name(line) for line in (directory / "modules.builtin").read_text().split()}
    return {PurePosixPath(path).name: (directory / path).read_bytes() for path in load_order(dependencies, builtin, names)}


def parse_dependencies(text: str) -> dict[str, tuple[str, ...]]:
    """``modules.dep``: path of each module to the paths that it needs, the deepest one last."""
    result = {}
    for line in text.splitlines():
        path, _, needed = line.partition(":")
        result[path] = tuple(needed.split())
    return result


def load_order(dependencies: Mapping[str, tuple[str, ...]], builtin: set[str], names: Iterable[str]) -> list[str]:
    """Paths of the modules in an order in which insmod accepts them. Raises ModuleError."""
    paths = {_module_name(path): path for path in dependencies}
    order: list[str] = []
    for name in names:
        wanted = _module_name(name)
        if wanted in builtin:
            continue
        if wanted not in paths:
            raise ModuleError(f"the kernel has no module {name}")
        path = paths[wanted]
        order += [needed for needed in (*reversed(dependencies[path]), path) if needed not in order]
    return order


def _module_name(path: str) -> str:
    """The kernel takes ``-`` and ``_`` in module names for the same."""
    return re.sub(r"\.ko(\.\w+)?$", "", PurePosixPath(path).name).replace("-", "_")
