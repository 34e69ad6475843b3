"""SHA-256 of what a measurement runs: files and folders of a machine, and MoonGen programs with what they load."""

from __future__ import annotations

import hashlib
import logging
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path

from autotest.results.identity import checksum
from autotest.servers.server import Server, parse_sha256sums

log = logging.getLogger(__name__)

_SLOWEST = 10e6  # bytes per second, as of a busy file server or an emulated CPU; slower storage counts as hanging
_LEAST_TIMEOUT = 60.0  # seconds
_WORTH_A_WORD = 2**30  # bytes
# A changed file has another inode, size, time of modification or, whatever copied it, time of change.
_STATE = 'for file; do [ -f "$file" ] && [ -r "$file" ] && stat -L -c "%i %s %.9Y %.9Z" -- "$file" || echo missing; done'
_STATE_LINE = re.compile(r"[0-9]{1,20} ([0-9]{1,19}) [0-9.]{1,40} [0-9.]{1,40}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ALL_OF = 'cd -- "$0" && find -L "$@" -type f -exec sha256sum -- {} + 2>/dev/null'
_REQUIRED = re.compile(r"""\brequire\s*\(?\s*["']([A-Za-z0-9_.-]+)["']""")


def file_checksum(server: Server, path: str) -> str | None:
    """The checksum of a file there, None where there is no such file or root cannot read it.

    A guest's disk may have tens of GB: the answer is remembered there until the machine's next boot, as long as the
    file stays the same.
    """
    path = _path(path)
    state = server.run(["sh", "-c", _STATE, "sh", path], sudo=True).stdout.strip()
    found = _STATE_LINE.fullmatch(state)
    if found is None:
        return None
    name = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    memory = posixpath.join(server.memory_dir, f"sha256-{name}")
    known_state, _, known = (server.transport.read(memory) or "").strip().rpartition(" ")
    if known_state == state and _SHA256.fullmatch(known):
        return known
    size = int(found[1])
    if size >= _WORTH_A_WORD:
        log.info("%s: checksum of %s, %.1f GiB, once", server.name, path, size / 2**30)
    sums = parse_sha256sums(server.run(["sha256sum", "--", path], sudo=True, timeout=_LEAST_TIMEOUT + size / _SLOWEST).stdout)
    answer = next(iter(sums.values()), None)
    if answer:
        server.transport.write(memory, f"{state} {answer}\n")
    return answer


def file_inode(server: Server, path: str) -> str | None:
    """Where a file there really is, symbolic links followed, with its inode: another file put in its place has another."""
    script = 'readlink -f -- "$1" && stat -L -c %i -- "$1"'
    lines = server.run(["sh", "-c", script, "sh", _path(path)], sudo=True, check=False).stdout.splitlines()
    return f"{lines[0]} (inode {lines[1]})" if len(lines) == 2 else None


def generator_checksum(server: Server, local_programs: Path, is_there: bool = True) -> str | None:
    """The checksum over MoonGen's binary and its own Lua files, or over those of softmoon; None where there are none.

    A server that is not there, as a guest before it boots, is not asked: None, unless this machine knows.

    Where ``moongen_dir`` lies within ``moonprogs_dir``, it comes from this machine's folder of programs, and that is asked:
    a set-up is about to copy it there.
    """
    folder, programs = server.config.moongen_dir, server.config.moonprogs_dir
    if folder is None:
        return None
    parts = ("build/MoonGen", "bin/MoonGen", "lua", "libmoon/lua")
    within = posixpath.relpath(folder, programs) if programs else ".."
    local = local_programs / within
    if within.partition("/")[0] != ".." and local.is_dir():
        names = (path for part in parts for path in sorted([local / part, *(local / part).rglob("*")]) if path.is_file())
        found = {f"./{name.relative_to(local).as_posix()}": _of(name) for name in names}
    elif not is_there:
        return None
    else:
        arguments = [f"./{part}" for part in parts]
        found = parse_sha256sums(server.run(["sh", "-c", _ALL_OF, _path(folder), *arguments], sudo=True, check=False).stdout)
    return checksum(found) if found else None


def program_checksum(local_programs: Path, program: str) -> str | None:
    """The checksum over a MoonGen program of ours and what it loads from its folder; None where there is none."""
    if not (local_programs / program).is_file():
        return None
    found: dict[str, str] = {}
    waiting = [program]
    while waiting:
        path = local_programs / (name := waiting.pop())
        if name not in found and path.is_file():
            found[name] = _of(path)
            modules: Sequence[str] = _REQUIRED.findall(path.read_text("utf-8", "replace"))
            waiting += [f"{module.replace('.', '/')}.lua" for module in modules]
    return checksum(found)


def _path(path: str) -> str:
    """The path as it is no more than that: a dash alone is the standard input, and cd looks in CDPATH for a bare name."""
    return path if path.startswith("/") else f"./{path}"


def _of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
