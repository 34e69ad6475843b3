"""What was read from an output directory, kept so that it is not read again: in the user's cache folder, not beside the results.

It cannot lie: what it holds of a trial counts only where all files of that trial have the device, inode, size and times that they
had, where they were settled then, and where the code that reads is the same. Anything else, a file that is damaged, cut
off, not ours or not there, is as good as no cache. It may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import autotest
from autotest import report, results
from autotest.report.reading import Reading, read_file
from autotest.results import verdicts
from autotest.results.files import sha256, write_atomically
from autotest.results.signatures import Signature, are_settled

log = logging.getLogger(__name__)

UNUSED_S: Final = 90 * 24 * 3600.0
"""Caches that were written longer ago are removed with the next one that is written."""

Files = Mapping[str, Signature]


class Cache:
    """Readings of the trials in one directory, by the trial's name.

    Constructing it reads the cache; nothing here raises where that cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = _path(directory)
        self._directory = os.path.realpath(directory)
        self._entries = self._read() if self._path else {}
        self._known = dict(self._entries)

    def get(self, name: str, files: Files) -> Reading | None:
        """What is known of a trial whose files, by kind, have these signatures now."""
        entry = self._entries.get(name)
        if entry is None or entry[0] != files:
            return None
        try:
            return Reading.from_row(entry[1])
        except (ValueError, TypeError):
            return None

    def put(self, name: str, files: Files, reading: Reading, listed_ns: int) -> None:
        """Remember a trial that was read after its files had been listed at that time; not if it may still be changing."""
        if are_settled(files.values(), listed_ns):
            self._entries[name] = [files, reading.row()]
        else:
            self._entries.pop(name, None)

    def keep_only(self, names: set[str]) -> None:
        """Forget the trials that are not there any more."""
        for name in self._entries.keys() - names:
            del self._entries[name]

    def save(self) -> None:
        """Write what has changed, if anything has."""
        if self._path is None or self._entries == self._known:
            return
        body = json.dumps(self._entries, separators=(",", ":")).encode()
        header = {"directory": self._directory, "reader": _reader(), "sha256": sha256(body)}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(header).encode() + b"\n" + body, sync=False)
            _remove_unused(self._path.parent)
        except OSError as error:
            log.debug("not cached: %s", error)

    def _read(self) -> dict[str, Any]:
        assert self._path
        try:
            head, _, body = read_file(str(self._path), self._path.stat().st_size).partition(b"\n")
            header = json.loads(head)
            if (header["directory"], header["reader"], header["sha256"]) != (self._directory, _reader(), sha256(body)):
                raise ValueError("of another directory, another autotest, or damaged")
            entries = json.loads(body)
            if not all(len(entry) == 2 for entry in entries.values()):
                raise ValueError("not a cache")
            return dict(entries)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.debug("%s is not used: %s", self._path, error)
            return {}


def _path(directory: Path) -> Path | None:
    """Where the cache of a directory lies; None where the user has no folder for caches.

    XDG Base Directory Specification 0.8: a relative path in the variable is to be ignored.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    except RuntimeError:
        return None
    digest = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()
    return folder / "autotest" / "results" / f"{digest[:32]}.json"


def _remove_unused(folder: Path) -> None:
    now = time.time()
    for path in folder.iterdir():
        with suppress(OSError):
            if now - path.stat().st_mtime > UNUSED_S:
                path.unlink()


def _reader() -> str:
    """What is the same only where the same files are read in the same way."""
    return sha256(f"{_code()}\n{verdicts.DEFAULT_TOLERANCES!r}".encode())


@cache
def _code() -> str:
    """Checksum of the sources of the two rooms that read results: more than those that matter, but none is forgotten."""
    sources = hashlib.sha256(f"{autotest.__version__} {platform.python_version()} {np.__version__}".encode())
    for room in (results, report):
        for path in sorted(Path(room.__path__[0]).glob("*.py")):
            sources.update(path.read_bytes())
    return sources.hexdigest()
