"""A watch that sees whatever a configuration could set off: programs, connections, name servers, files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_STARTS = (
    "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "os.kill", "pty.spawn",
    "socket.", "ftplib.", "http.", "smtplib.", "urllib.", "webbrowser.", "_thread.start_new_thread",
)  # fmt: skip
_CHANGES = (
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.setxattr", "os.symlink",
    "os.truncate", "os.utime", "os.putenv", "os.unsetenv", "os.chdir", "shutil.", "tempfile.",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """Sees by Python's audit hook (PEP 578), so also what goes around subprocess and socket."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._on = False
        self._writable: str | None = None
        sys.addaudithook(self._hook)

    @contextmanager
    def nothing_happens(self, writable: Path | None = None) -> Iterator[None]:
        """Nothing is started or changed, but for files below ``writable``; elsewhere nobody may write then."""
        self._writable = str(writable) if writable else None
        self._on = True
        try:
            yield
        finally:
            self._on = False
        assert not self.seen, self.seen

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._on:
            return
        if event == "open":
            changes = isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
        else:
            changes = event.startswith(_CHANGES)
        if changes and self._writable:
            known = isinstance(arguments[0], int)  # a descriptor: its file was looked at when it was opened
            if not known and not str(arguments[0]).startswith(self._writable):
                raise PermissionError(13, "not here, says the test", str(arguments[0]))
        elif changes or (event.startswith(_STARTS) and event != "socket.gethostname"):  # that asks nobody
            self.seen.append(f"{event} {arguments!r}")
            raise AssertionError(self.seen[-1])


@pytest.fixture(scope="session")
def watch() -> Watch:
    return Watch()  # for the whole session: an audit hook cannot be taken away
