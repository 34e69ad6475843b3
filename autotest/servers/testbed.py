"""The servers of a testbed together, opened lazily and closed at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from autotest.config.guests import number_of
from autotest.config.testbed import Testbed
from autotest.errors import TestbedError
from autotest.remote.transport import Transport
from autotest.resources import PROJECT_DIRECTORY
from autotest.run.journal import Change, Journal, Undo
from autotest.servers.guest import Guest
from autotest.servers.host import Host
from autotest.servers.loadgen import LoadGen
from autotest.servers.server import Server
from autotest.servers.undoing import undo


def moonprogs_folder(testbed: Testbed) -> Path:
    """Where on this machine the MoonGen programs are: as section ``local`` says, else those of this checkout."""
    configured = testbed.local.moonprogs_dir
    return testbed.file.parent / configured if configured else PROJECT_DIRECTORY / "moonprogs"


class Servers:
    """Host, guest and loadgen of one testbed; leaving the context closes their connections.

    Args:
        testbed: their configuration.
        journal_file: where their changes are written down; None: only this process knows of them.
        header: what that file begins with.
        undo_more: how changes are undone that are not one of these servers'.
        transports: ways to host and loadgen, where they are not to be reached as the configuration says.
    """

    def __init__(
        self,
        testbed: Testbed,
        journal_file: Path | None = None,
        header: Mapping[str, Any] | None = None,
        undo_more: Undo | None = None,
        transports: Mapping[str, Transport] | None = None,
    ) -> None:
        ways = transports or {}
        self.testbed = testbed
        self._undo_more = undo_more
        self.journal = Journal(self.undo, journal_file, header)
        self.host = Host(testbed, ways.get("host"), self.journal)
        self.loadgen = LoadGen("loadgen", testbed.loadgen, ways.get("loadgen"), self.journal)
        self.host.far_end_sleeps = testbed.loadgen.test_iface_dpdk_driv is not None

    @property
    def guest(self) -> Guest:
        """The guest, or the first of several."""
        return self.host.machine(1).guest

    def all(self) -> tuple[Server, ...]:
        """The servers, of several guests the first."""
        return (self.host, self.guest, self.loadgen)

    def _named(self, name: str) -> Server | None:
        if number_of(name) is not None:
            return self.host.named_machine(name).guest
        return {"host": self.host, "loadgen": self.loadgen}.get(name)

    def undo(self, change: Change) -> str | None:
        """Undo a change of one of the servers; says what was done, None where nothing was left to do."""
        server = self._named(change.server)
        if server is None:
            if self._undo_more:
                return self._undo_more(change)
            raise TestbedError(f"the journal names a server {change.server!r}, which this testbed has not")
        if self.host.transport.is_gone and server is not self.loadgen:
            return None
        if isinstance(server, Guest) and not self.host.named_machine(server.name).is_running():
            return None  # what was changed in a guest ended with it
        return undo(server, change)

    @property
    def local_moonprogs(self) -> Path:
        """The folder of this machine that the MoonGen programs come from."""
        return moonprogs_folder(self.testbed)

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for server in self.all():
            server.close()
