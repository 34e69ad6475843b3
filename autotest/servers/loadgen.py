"""The load generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotest.servers.server import Server
from autotest.traffic.moongen import MoonGen, ProgramEnd


class LoadGen(Server):
    """The machine that sends the load and takes the latency samples."""

    def run_load(
        self, program: str, arguments: Sequence[str], *, fetch: Mapping[str, Path], seconds: float, timeout: float
    ) -> ProgramEnd:
        """Run a MoonGen program to its end; see :meth:`autotest.traffic.moongen.MoonGen.run`."""
        return MoonGen(self).run(program, arguments, fetch=fetch, seconds=seconds, timeout=timeout)
