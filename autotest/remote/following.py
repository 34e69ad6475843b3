"""Following a file that another program writes, without a process for it."""

from __future__ import annotations

from autotest.remote.transport import Transport


class FollowedFile:
    """A text file of a machine; each look at it reads only what was not read before."""

    def __init__(self, machine: Transport, path: str) -> None:
        self._machine = machine
        self._path = path
        self._read = 0  # bytes

    def news(self) -> str:
        """The whole lines that were written since the last time; empty where there are none, or no such file."""
        found = self._machine.read_from(self._path, self._read)
        whole = found[: found.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace")
