"""The load generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotest.servers.server import Server
from autotest.traffic.moongen import Hear, MoonGen, ProgramEnd, unheard

_DPDK_START = 40.0  # seconds


class LoadGen(Server):
    """The machine that sends the load and takes the latency samples."""

    def run_load(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        fetch: Mapping[str, Path],
        seconds: float,
        timeout: float,
        give: Mapping[str, str] | None = None,
        hear: Hear = unheard,
    ) -> ProgramEnd:
        """Run a MoonGen program to its end; see :meth:`autotest.traffic.moongen.MoonGen.run`.

        On a NIC of its own it gets more time than ``timeout``: DPDK initialises it, and its link comes up only then.
        """
        if self.config.test_iface_dpdk_driv:
            timeout += _DPDK_START
        return MoonGen(self).run(program, arguments, give=give, fetch=fetch, seconds=seconds, timeout=timeout, hear=hear)
