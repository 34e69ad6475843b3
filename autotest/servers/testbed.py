"""The servers of a testbed together, opened lazily and closed at the end."""

from __future__ import annotations

import dataclasses
import platform
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import autotest
from autotest.config.testbed import Testbed
from autotest.servers.guest import Guest
from autotest.servers.host import Host
from autotest.servers.loadgen import LoadGen
from autotest.servers.server import Server

PROJECT_DIRECTORY = Path(__file__).resolve().parents[2]


def moonprogs_folder(testbed: Testbed) -> Path:
    """Where on this machine the MoonGen programs are: as section ``local`` says, else those of this checkout."""
    configured = testbed.local.moonprogs_dir
    return testbed.file.parent / configured if configured else PROJECT_DIRECTORY / "moonprogs"


class Servers:
    """Host, guest and loadgen of one testbed; leaving the context closes their connections."""

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.host = Host(testbed)
        self.guest = Guest("guest", testbed.guest)
        self.loadgen = LoadGen("loadgen", testbed.loadgen)

    def all(self) -> tuple[Server, ...]:
        return (self.host, self.guest, self.loadgen)

    @property
    def local_moonprogs(self) -> Path:
        """The folder of this machine that the MoonGen programs come from."""
        return moonprogs_folder(self.testbed)

    def identity(self) -> dict[str, Any]:
        """What a trial's record says of the testbed: its configuration, what runs the guest, and the versions at work."""
        return {**self._constant, "guest": self.host.guest_facts}

    @cached_property
    def _constant(self) -> dict[str, Any]:
        configuration = {
            section: dataclasses.asdict(getattr(self.testbed, section)) for section in ("host", "guest", "loadgen")
        }
        versions = {"autotest": autotest.__version__, "python": platform.python_version()}
        for server in (self.host, self.loadgen):
            versions[f"kernel of {server.name}"] = server.run(["uname", "-r"]).stdout.strip()
        return {"testbed": configuration, "versions": versions}

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for server in self.all():
            server.close()
