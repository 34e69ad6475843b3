"""The journals of a testbed: where they are, which processes left them, and how what they left is undone."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotest.config.testbed import Testbed
from autotest.errors import TestbedError
from autotest.remote.transport import Transport
from autotest.run.journal import Left, Undo, UndoFailed, read_journal
from autotest.run.lock import describe, is_dead, is_whole, this_process
from autotest.servers.server import is_own_name
from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)

#: How a server is reached and where its sessions are: as it was when a change was made, whatever the file says now.
_WAY = ("fqdn", "ssh_config", "ssh_as_root", "netns", "tmux_socket")
_SERVERS = ("host", "guest", "loadgen")


def state_folder() -> Path:
    """Where autotest keeps what this user's later processes are to find; it outlives a boot of this machine."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "autotest"


def journal_folder(testbed: Testbed) -> Path:
    """Where this user's journals of a testbed are."""
    host = testbed.host
    names = [host.fqdn, host.netns, host.tmux_socket]
    if is_own_name(host.fqdn) or is_own_name(testbed.loadgen.fqdn):  # homes may be shared by several machines
        names.append(this_process()["machine"])
    key = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
    return state_folder() / "journals" / key


@contextmanager
def journaled_servers(
    testbed: Testbed, undo_more: Undo | None = None, transports: Mapping[str, Transport] | None = None
) -> Iterator[Servers]:
    """The servers of a testbed; whatever is changed on them is written into a journal of this process.

    At the end the connections are closed; what was not undone stays in the journal. ``undo_more`` and ``transports`` are
    as :class:`autotest.servers.testbed.Servers` takes them.
    """
    who = this_process()
    way = {name: {key: getattr(getattr(testbed, name), key) for key in _WAY} for name in _SERVERS}
    header = {"who": who, "file": str(testbed.file), "way": way}
    begun = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")  # the order of names is the order of time, also in autumn
    path = journal_folder(testbed) / f"{begun}-{who['pid']}.journal"
    with Servers(testbed, path, header, undo_more, transports) as servers:
        try:
            yield servers
        finally:
            servers.journal.close()


def left_journals(testbed: Testbed) -> list[Left]:
    """The journals that earlier processes left, the last one first; not those of processes that live.

    Raises:
        TestbedError: one of them cannot be read.
    """
    folder = journal_folder(testbed)
    _remove_unfinished(folder)
    paths = sorted(folder.glob("*.journal"), reverse=True) if folder.is_dir() else []
    found = [read_journal(path) for path in paths if path.exists()]  # a process that lives may just be done with its own
    for left in found:
        if not is_whole(left.header.get("who")):
            raise TestbedError(f"the journal {left.path} does not tell whose it is: move it away, then look after the testbed")
    return [left for left in found if is_dead(left.header["who"]) is not False]


def _remove_unfinished(folder: Path) -> None:
    """Remove what processes left that ended while they wrote their journal anew; the journal itself is whole."""
    for path in folder.glob(".*-*.journal.new"):
        pid = path.name.rpartition("-")[2].partition(".")[0]
        if not Path("/proc", pid).exists():
            path.unlink(missing_ok=True)
            with suppress(OSError):  # there are others
                folder.rmdir()


def undo_left(
    testbed: Testbed,
    left: Left,
    undo_more: Undo | None = None,
    transports: Mapping[str, Transport] | None = None,
    forget: bool = False,
) -> list[str]:
    """Undo what a process left; returns what was done.

    Args:
        undo_more, transports: as :class:`autotest.servers.testbed.Servers` takes them.
        forget: whether what cannot be undone is dropped from the journal.

    Raises:
        UndoFailed: some of it cannot be undone; without ``forget`` it stays in the journal.
    """
    with Servers(_as_it_was(testbed, left.header.get("way")), undo_more=undo_more, transports=transports) as servers:
        journal = left.journal(servers.undo)
        done: list[str] = []
        try:
            journal.undo(say=done.append)
        except UndoFailed:
            for line in done:
                log.info("undone: %s", line)
            if forget:
                journal.forget()
            raise
        finally:
            journal.close()
    return done


def whose(left: Left) -> str:
    """For the user: which process left it."""
    return describe(left.header["who"])


def _as_it_was(testbed: Testbed, way: Any) -> Testbed:
    try:
        servers = {name: dataclasses.replace(getattr(testbed, name), **way[name]) for name in _SERVERS}
    except (KeyError, TypeError):
        raise TestbedError("the journal does not tell how the servers were reached") from None
    return dataclasses.replace(testbed, **servers)
