"""Files that appear whole or not at all.

A file is written under a temporary name in its own directory, brought to disk, and then renamed. Temporary names tell
host and process id, so those of dead runs can be found and removed later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from autotest.errors import ResultsError

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755
TEMPORARY_PREFIX: Final = ".autotest-tmp."
#: Temporary files of another machine (a shared directory) are taken for dead after this many seconds.
FOREIGN_AGE_S: Final = 24 * 3600
_match_temporary = re.compile(r"\.autotest-tmp\.(?P<host>[^.]*)\.(?P<pid>[0-9]{1,9})\.[0-9a-f]+").fullmatch


def _this_host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40]


def temporary_path(directory: Path) -> Path:
    """A fresh temporary name in a directory."""
    return directory / f"{TEMPORARY_PREFIX}{_this_host()}.{os.getpid()}.{secrets.token_hex(6)}"


@contextlib.contextmanager
def temporary_directory(directory: Path) -> Iterator[Path]:
    """A directory for files that are not complete yet; gone with the context, or with the next run's cleaning."""
    make_directory(directory)
    path = temporary_path(directory)
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_temporary(directory: Path, content: bytes, *, sync: bool = True) -> Path:
    """Write content under a temporary name and return it; nothing stays behind on an error."""
    path = temporary_path(directory)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, FILE_MODE)  # whatever the umask
            file.write(content)
            if sync:
                file.flush()
                os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    return path


def write_atomically(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace a file's content as one step; OSError leaves the file as it was.

    Without ``sync`` a power failure may bring back the older content or, on some file systems, an empty file: only for
    what can be made again and whose reader notices.
    """
    try:
        temporary = write_temporary(path.parent, content, sync=sync)
    except OSError as error:  # the temporary name says nothing to the user
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Bring renames in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> list[Path]:
    """Create a directory with its parents, mode 0755; returns those created, outermost first."""
    missing = []
    for path in (directory, *directory.parents):
        if path.exists():
            break
        missing.append(path)
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            path.chmod(DIRECTORY_MODE)
    return missing[::-1]


def remove_stale_temporaries(directory: Path) -> list[Path]:
    """Remove temporary files and directories that no living process will finish; returns them."""
    removed = []
    for path in _temporaries(directory):
        if _is_stale(path):
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                removed.append(path)
    return removed


def _temporaries(directory: Path) -> Iterator[Path]:
    if not directory.is_dir():
        return
    with os.scandir(directory) as entries:
        found = [entry.name for entry in entries if entry.name.startswith(TEMPORARY_PREFIX)]
    yield from (directory / name for name in found)


def _is_stale(path: Path) -> bool:
    match = _match_temporary(path.name)
    if match is None:
        return False
    if match["host"] != _this_host():
        with contextlib.suppress(FileNotFoundError):
            return time.time() - path.stat().st_mtime > FOREIGN_AGE_S
        return False
    try:
        os.kill(int(match["pid"]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def sha256(content: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes | None:
    """Content of a file, None where there is no such file; ResultsError where it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
