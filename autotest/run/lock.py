"""One autotest at a time works on a testbed: two would end each other's guests and count each other's frames.

It holds for the autotests of one machine; another machine that uses the same testbed is not seen.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from autotest.config.testbed import Testbed
from autotest.errors import TestbedError


@contextmanager
def testbed_lock(testbed: Testbed) -> Iterator[None]:
    """Hold the testbed as long as the context lasts; the kernel gives it back however the process ends.

    Raises:
        TestbedError: another process holds it; with its id, its command and since when.
    """
    descriptor = os.open(_path(testbed), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0).decode(errors="replace") or "another process"
            raise TestbedError(f"the testbed is in use by {holder}: wait for its end, or end it") from None
        os.ftruncate(descriptor, 0)
        command = " ".join(sys.argv[1:])
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        os.pwrite(descriptor, f"process {os.getpid()} (autotest {command}) since {now}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _path(testbed: Testbed) -> Path:
    folder = Path("/run/autotest") if os.geteuid() == 0 else Path("~/.cache/autotest/run").expanduser()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    host = testbed.host
    key = hashlib.sha256(repr((host.fqdn, host.netns, host.tmux_socket)).encode()).hexdigest()[:16]
    return folder / f"testbed-{key}.lock"
