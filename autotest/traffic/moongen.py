"""Running MoonGen programs on a server, with MoonGen or with anything laid out like it."""

from __future__ import annotations

import os
import posixpath
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotest.errors import TrafficError, WaitTimeout
from autotest.remote.multiplexer import SessionError
from autotest.remote.tmux import Session
from autotest.servers.server import Server
from autotest.traffic import dpdk
from autotest.traffic.dpdk import DpdkNic

KEYS = ("test_iface", "moongen_dir", "moonprogs_dir", "test_iface_mac")
BINARIES = ("build/MoonGen", "bin/MoonGen")  # a source build, and all others
_COUNTERS_COPIED = 1.2  # seconds

Hear = Callable[[str], None]
"""Told of what a program writes."""


def unheard(text: str) -> None:
    """For who does not want to know."""


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        code: its exit code.
        output: all that it printed.
        seconds: for how long it ran.
        clock_jump: by how many seconds the wall clock there was set meanwhile.
        interface: frames that the kernel counted meanwhile as sent and received by the test interface; None where it is not
            the kernel's.
    """

    code: int
    output: str
    seconds: float = 0.0
    clock_jump: float | None = None
    interface: tuple[int, int] | None = None


class MoonGen:
    """MoonGen on one server."""

    def __init__(self, server: Server, iface: str | None = None) -> None:
        self._server = server
        self._iface = iface or server.config.test_iface

    def command(self, program: str, arguments: Sequence[str]) -> list[str]:
        """The command line that runs one of the programs in ``moonprogs_dir``; the port goes first.

        Where the server has a DPDK driver for its test interface, MoonGen gets the NIC that was made ready for it; see
        :func:`autotest.traffic.dpdk.make_nic_ready`. Else the interface stays with the kernel.
        """
        config = self._server.config
        assert config.moonprogs_dir
        file = dpdk.config_file(self._server) if self._drives_nic else self._interface_config()
        program = posixpath.join(config.moonprogs_dir, program)
        return [self.binary(), program, f"--dpdk-config={file}", str(dpdk.PORT), *arguments]

    @property
    def _drives_nic(self) -> bool:
        return self._server.config.test_iface_dpdk_driv is not None

    def _interface_config(self) -> str:
        assert self._iface
        path = self._server.state_file(f"dpdk-{self._iface}.lua")
        content = dpdk.interface_config(self._iface, f"autotest-{self._iface}")
        if self._server.transport.read(path) != content:
            self._server.note("file", path=path)
            self._server.transport.write(path, content)
        return path

    def _nic(self) -> DpdkNic | None:
        """The NIC that MoonGen drives itself, made ready where it is not yet; None where the kernel keeps it."""
        if not self._drives_nic:
            return None
        return dpdk.nic_of(self._server) or dpdk.make_nic_ready(self._server, self._iface)

    def binary(self) -> str:
        """The program's path there. Raises TrafficError where ``moongen_dir`` holds none."""
        folder = self._server.config.moongen_dir
        assert folder
        candidates = [posixpath.join(folder, binary) for binary in BINARIES]
        script = 'for path; do if [ -x "$path" ]; then echo "$#"; exit; fi; shift; done'
        left = self._server.run(["sh", "-c", script, "sh", *candidates]).stdout.strip()
        for number, candidate in enumerate(reversed(candidates), 1):
            if left == str(number):  # only the number is the server's answer, never a path that is then run
                return candidate
        raise TrafficError(f"{self._server.name}: moongen_dir {folder} holds neither {' nor '.join(BINARIES)}")

    def run(
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
        """Run a program to its end.

        Args:
            program: its file name.
            arguments: what follows the port. The text ``{name}`` in one stands for the path of a file there, ``@{name}`` for
                that path behind the sign.
            fetch: such names, and where the files go on this machine; a program that failed may have written none.
            seconds: how long it is expected to run; in this time its end is looked for only once a second.
            timeout: seconds after which it counts as hanging.
            give: such names, and the text of the files that the program reads.
            hear: told once a second of the whole lines that it has written. They are fetched whether somebody wants them or
                not, so that what is measured is the same.

        Raises:
            TrafficError: it hangs, or works with another NIC than the configured one; with the tail of its output.
        """
        server = self._server
        session = self._session(program)
        unique = os.urandom(6).hex()
        remote = {key: server.state_file(f"{session.name}-{unique}.{key}") for key in (*fetch, *(give or ()))}
        places = {f"{sign}{{{key}}}": f"{sign}{path}" for key, path in remote.items() for sign in ("", "@")}
        filled = [places.get(argument, argument) for argument in arguments]
        command = self.command(program, filled)
        with server.journal.scope():
            nic = self._nic()
            for path in remote.values():
                server.note("file", path=path)
            for key, text in (give or {}).items():
                server.transport.write(remote[key], text)
            session.stop()  # what a run without a journal may have left
            before = self._frames()
            session.start(command, sudo=True)
            try:
                code = session.wait(timeout, quiet=seconds, hear=hear)
            except WaitTimeout as error:
                raise TrafficError(f"{error}:\n{session.tail()}") from None
            except SessionError as error:
                raise TrafficError(str(error)) from None
            output = session.output()
            if nic:
                dpdk.require_nic(server, nic, output, failed=code != 0)
            self._let_counters_settle()
            interface = _difference(before, self._frames())
            for key, path in ((key, remote[key]) for key in fetch):
                if server.run(["test", "-e", path], check=False).code == 0:
                    server.transport.get(path, fetch[key])
                elif code == 0:
                    raise TrafficError(f"{server.name}: {program} ended in order, but wrote no {key} file")
            return ProgramEnd(code, output, session.duration() or 0.0, session.clock_jump(), interface)

    def _frames(self) -> tuple[int, int] | None:
        """What the kernel has counted on the interface; it counts nothing where DPDK's drivers have it."""
        if self._drives_nic or not self._iface:
            return None
        return self._server.links.frames(self._iface)

    def _let_counters_settle(self) -> None:
        """Drivers of real NICs (tg3, bnxt and others) copy the NIC's own counters only once a second; software has them at once."""
        if self._drives_nic or not self._iface:
            return
        if self._server.run(["test", "-e", f"/sys/class/net/{self._iface}/device"], check=False).code == 0:
            time.sleep(_COUNTERS_COPIED)

    def start(self, program: str, arguments: Sequence[str], ready: str, timeout: float) -> None:
        """Start a program that runs until :meth:`stop`; returns when it has printed ``ready``.

        Raises:
            TrafficError: it ended, does not get ready within ``timeout`` seconds, or works with another NIC than the
                configured one; then it does not run.
        """
        session = self._session(program)
        session.stop()  # what a run without a journal may have left
        nic = self._nic()
        session.start(self.command(program, arguments), sudo=True)
        try:
            session.wait_for_output(ready, timeout)
            if nic:
                dpdk.require_nic(self._server, nic, session.output())
        except (SessionError, WaitTimeout, TrafficError) as error:
            self.stop(program)
            raise TrafficError(str(error)) from None

    def stop(self, program: str) -> None:
        """End a program in order; nothing if it does not run."""
        self._session(program).stop()

    def check(self, program: str) -> None:
        """Raises TrafficError when a program that was started has ended or hangs; with the tail of its output."""
        session = self._session(program)
        state = session.state()
        if state in (None, "T"):
            code = session.exit_code()
            how = "is stopped" if state else f"ended with exit code {code}" if code is not None else "was ended"
            raise TrafficError(f"{self._server.name}: {program} {how}:\n{session.tail()}")

    def _session(self, program: str) -> Session:
        # The statistics come 200 ms after the signal.
        return self._server.session(posixpath.splitext(program)[0], signal.SIGINT)


def _difference(before: tuple[int, int] | None, after: tuple[int, int] | None) -> tuple[int, int] | None:
    """Frames sent and received in between; None where one is unknown, or the interface was made anew."""
    if before is None or after is None or after[0] < before[0] or after[1] < before[1]:
        return None
    return after[0] - before[0], after[1] - before[1]
