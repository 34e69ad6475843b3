"""Which process is meant: its id together with its start time, because ids are used again."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

from autotest.errors import TestbedError
from autotest.remote.local import LocalTransport
from autotest.remote.transport import Transport

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Process:
    """A process of one machine.

    Attributes:
        pid: its id.
        start: when it started, in clock ticks since that machine's boot, as ``/proc/PID/stat`` has it.
    """

    pid: int
    start: int

    @classmethod
    def of_this(cls) -> Process:
        """The process that this is."""
        stat = LocalTransport("here").read(f"/proc/{os.getpid()}/stat")
        assert stat
        return cls(os.getpid(), _fields(stat)[1])

    def state(self, transport: Transport) -> str | None:
        """Its state there as proc(5) has it, like ``S`` or ``T``; None when it has ended. Starts no process."""
        try:
            stat = transport.read(f"/proc/{self.pid}/stat")
        except OSError as error:  # it ended between opening and reading, which SFTP has no number for
            if error.errno not in (None, errno.ESRCH):
                raise
            return None
        if not stat:
            return None
        state, start = _fields(stat)
        return None if start != self.start or state in "ZX" else state


def _fields(stat: str) -> tuple[str, int]:
    """State and start time of proc(5)'s stat; the name before them may hold anything, blanks and brackets too."""
    fields = stat.rpartition(")")[2].split()
    try:
        return fields[0], int(fields[19])
    except (IndexError, ValueError):
        raise TestbedError(f"a process's stat in /proc is not what Linux writes: {stat[:100]!r}") from None


def boot_id(transport: Transport) -> str:
    """What is new with every boot of that machine; empty where it is not told.

    Raises:
        TestbedError: it is not what Linux writes; it becomes part of a path, so it must be.
    """
    found = (transport.read(BOOT_ID) or "").strip()
    if found and not _UUID.fullmatch(found):
        raise TestbedError(f"{transport.name}: {BOOT_ID} is not what Linux writes: {found[:100]!r}")
    return found
