"""What a lab can leave on a machine: what is there before a test is compared with what is there after it."""

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path

NAME = os.environ.get("AUTOTEST_TEST_LAB", "at-test")
"""What the names of the tests' lab begin with; another name lets two test runs work beside each other."""
TEMPORARY = Path(tempfile.gettempdir()) / f"{NAME}-temporary"
"""The folder for temporary files of everything that a test starts."""
_LINKS = ("wire-", "br-admin", "br-test", "tap-admin", "tap-test", "tap-emulated", "macvtap-test")
"""What the names of links begin with in the configurations of the lab."""
_XDP_NAME = "reflect"
"""What the names of XDP programs begin with, autotest's own and those of the tests."""
_SETTLED = 5.0  # seconds in which the kernel has taken a namespace apart, and with it links and XDP programs
_BPF = 321  # the system call of x86_64
_PROG_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 11, 13, 15  # include/uapi/linux/bpf.h, enum bpf_cmd
_PROG_TYPE_XDP = 6
_libc = ctypes.CDLL(None, use_errno=True)


def traces() -> set[str]:
    """All that is there now, each with its kind in front."""
    return {f"{kind} {name}" for kind, find in _KINDS.items() for name in find()}


def left_since(before: Set[str]) -> list[str]:
    """What is there now and was not before; what the kernel is still taking apart gets a moment."""
    deadline = time.monotonic() + _SETTLED
    while (left := traces() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return sorted(left)


def _namespaces() -> list[str]:
    return [name for name in _names("/run/netns") if NAME in name or "autotest" in name]


def _links() -> list[str]:
    return [name for name in _names("/sys/class/net") if NAME in name or name.startswith(_LINKS)]


def clear() -> None:
    """End and remove what a test run left that was itself ended halfway, by a time limit say: nothing else has the lab's name."""
    for pid in {*_pids_with_temporary(), *_pids_within()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for place in _mounts():
        # Whatever a lab is called: the machine's own mounts, like /proc, are none of its.
        if NAME in place and place.startswith(("/run/", "/tmp/", "/var/tmp/")) and not place.startswith("/run/netns"):
            subprocess.run(["umount", "--lazy", place], check=True, timeout=10)
    for name in _namespaces():
        if NAME in name:
            subprocess.run(["ip", "netns", "delete", name], check=True, timeout=10)
    temporary = [path for path in (*_temporary_files(), str(TEMPORARY)) if NAME in path]
    for path in (*temporary, *_folders_in_run(), *_held(), *_journals()):
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):  # not within one that is gone already
            os.unlink(path)


def _pids_with_temporary() -> Iterator[int]:
    """The processes that were given the tests' folder for temporary files."""
    ours = set(_ancestors())
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) not in ours:
            with suppress(OSError):
                if f"TMPDIR={TEMPORARY}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    yield int(process.name)


def _pids_within() -> Iterator[int]:
    """The processes in the lab's namespaces."""
    for name in _namespaces():
        if NAME in name:
            found = subprocess.run(["ip", "netns", "pids", name], check=True, capture_output=True, text=True, timeout=10)
            yield from map(int, found.stdout.split())


def _mounts() -> Iterator[str]:
    for line in Path("/proc/mounts").read_text().splitlines():
        place = line.split()[1]
        if NAME in place or "autotest" in place:
            yield place


def _processes() -> Iterator[str]:
    """Those whose command line or environment names the lab, and those in a network namespace of it, or in one that has lost its name.

    A container and the sandbox of a browser have network namespaces without a name, too, but also users or processes of their own.
    """
    ours = set(_ancestors())
    foreign = {_inode("/proc/self/ns/net")}
    foreign |= {_inode(f"/run/netns/{name}") for name in _names("/run/netns") if NAME not in name}
    rest = [(kind, _inode(f"/proc/self/ns/{kind}")) for kind in ("user", "pid")]
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) in ours:
            continue
        with suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if not command or (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                continue
            mark = f"AUTOTEST_TEST_LAB={NAME}".encode()
            marked = NAME.encode() in command or mark in (process / "environ").read_bytes()
            inside = _inode(process / "ns/net") not in foreign and all(_inode(process / "ns" / kind) == ns for kind, ns in rest)
            if marked or inside:
                yield f"{process.name} {command.replace(bytes(1), b' ').decode(errors='replace')[:150]}"


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _inode(path: str | Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _tmux_servers() -> Iterator[str]:
    """Those that listen; the sockets themselves tmux leaves by its own design."""
    for path in Path("/tmp").glob(f"tmux-*/{NAME}*"):
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(str(path))
            yield str(path)


def _temporary_files() -> list[str]:
    found = [TEMPORARY / name for name in _names(TEMPORARY)]
    for folder in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
        found += [*folder.glob("autotest-*"), *(path for path in folder.glob(f"{NAME}*") if path != TEMPORARY)]
    return [str(path) for path in found]


def _states() -> list[str]:
    """Of autotest in /run: folders with state, and what says that a testbed is held."""
    return _folders_in_run() + [_shown(Path(path)) for path in _held()]


def _folders_in_run() -> list[str]:
    return [str(path) for path in (*Path("/run").glob(f"{NAME}*"), *Path("/run/autotest").glob(f"{NAME}*"))]


def _held() -> list[str]:
    found = [path for path in Path("/run/autotest/held").glob("*") if path.name != "guard"]
    return [str(path) for path in found if NAME in _shown(path)]


def _shown(held: Path) -> str:
    stem = held.name.partition(".")[0]
    with suppress(ValueError):
        return f"held: {bytes.fromhex(stem).decode()}"
    return str(held)


def _journals() -> Iterator[str]:
    base = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "autotest/journals"
    for path in base.rglob("*") if base.exists() else ():
        with suppress(OSError):
            if path.is_file() and NAME in path.read_text(errors="replace"):
                yield str(path)


def _device_files() -> list[str]:
    return [str(path) for path in Path("/dev").glob("autotest-*")]


def _xdp_programs() -> Iterator[str]:
    """Return autotest's XDP programs that the kernel holds, attached anywhere or not."""
    number = 0
    while (number := _next_program(number)) is not None:
        with suppress(OSError):
            descriptor = _bpf(_PROG_GET_FD_BY_ID, struct.pack("<I", number))[0]
            try:
                kind, name = _program(descriptor)
            finally:
                os.close(descriptor)
            if kind == _PROG_TYPE_XDP and name.startswith(_XDP_NAME):
                yield f"{number} {name}"


def _next_program(number: int) -> int | None:
    try:
        return struct.unpack_from("<I", _bpf(_PROG_GET_NEXT_ID, struct.pack("<I", number))[1], 4)[0]
    except FileNotFoundError:
        return None


def _program(descriptor: int) -> tuple[int, str]:
    info = ctypes.create_string_buffer(256)  # struct bpf_prog_info: type first, name at byte 64
    _bpf(_OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", descriptor, len(info), ctypes.addressof(info)))
    return struct.unpack_from("<I", info)[0], info.raw[64:80].rstrip(b"\0").decode()


def _bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    union = ctypes.create_string_buffer(attributes, 120)
    result = _libc.syscall(_BPF, command, ctypes.byref(union), len(union))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, union.raw


def _names(folder: str | Path) -> list[str]:
    return [path.name for path in Path(folder).iterdir()] if Path(folder).exists() else []


_KINDS = {
    "namespace": _namespaces,
    "link": _links,
    "mount": _mounts,
    "process": _processes,
    "tmux server": _tmux_servers,
    "temporary file": _temporary_files,
    "state": _states,
    "journal": _journals,
    "device file": _device_files,
    "XDP program": _xdp_programs,
}
