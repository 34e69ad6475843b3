"""Running MoonGen programs on a server, with MoonGen or with anything laid out like it."""

from __future__ import annotations

import os
import posixpath
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotest.errors import TrafficError, WaitTimeout
from autotest.remote.tmux import Session, SessionError
from autotest.servers.server import Server

KEYS = ("test_iface", "moongen_dir", "moonprogs_dir", "test_iface_mac")
_BINARIES = ("build/MoonGen", "bin/MoonGen")  # a source build, and all others
_STOP_GRACE = 5.0  # seconds: the statistics come 200 ms after the signal
_PORT = 0  # the test interface is the only port that our configuration names


def dpdk_config(iface: str, file_prefix: str) -> str:
    """A ``--dpdk-config`` file that makes the kernel interface port 0, without hugepages or PCI devices.

    The options are the ones that worked with MoonGen 7746ff2 and its DPDK 17.08; softmoon reads the vdev entry.
    """
    options = ["--no-huge", "-m", "256", "--no-pci", "--file-prefix", file_prefix]
    options += ["--vdev", f"net_af_packet0,iface={iface},qpairs=2"]
    return "DPDKConfig {\n  cli = { " + ", ".join(_lua_string(option) for option in options) + " },\n}\n"


def _lua_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended: its exit code, and all that it printed."""

    code: int
    output: str


class MoonGen:
    """MoonGen on one server."""

    def __init__(self, server: Server, iface: str | None = None) -> None:
        self._server = server
        self._iface = iface or server.config.test_iface

    def command(self, program: str, arguments: Sequence[str]) -> list[str]:
        """The command line that runs one of the programs in ``moonprogs_dir``; the port goes first.

        Where the server has a DPDK driver for its test interface, MoonGen finds the NIC by itself: it must be the
        only one that is bound to such a driver. Else the interface stays with the kernel.
        """
        config = self._server.config
        assert config.moonprogs_dir
        command = [self._binary(), posixpath.join(config.moonprogs_dir, program)]
        if config.test_iface_dpdk_driv is None:
            assert self._iface
            prefix = f"autotest-{self._iface}"
            path = self._server.state_file(f"dpdk-{self._iface}.lua")
            content = dpdk_config(self._iface, prefix)
            if self._server.transport.read(path) != content:
                self._server.transport.write(path, content)
            command.append(f"--dpdk-config={path}")
        return [*command, str(_PORT), *arguments]

    def _binary(self) -> str:
        folder = self._server.config.moongen_dir
        assert folder
        candidates = [posixpath.join(folder, binary) for binary in _BINARIES]
        script = 'for path; do if [ -x "$path" ]; then echo "$path"; exit; fi; done'
        found = self._server.run(["sh", "-c", script, "sh", *candidates]).stdout.strip()
        if not found:
            raise TrafficError(f"{self._server.name}: moongen_dir {folder} holds neither {' nor '.join(_BINARIES)}")
        return found

    def run(
        self, program: str, arguments: Sequence[str], *, fetch: Mapping[str, Path], seconds: float, timeout: float
    ) -> ProgramEnd:
        """Run a program to its end.

        Args:
            program: its file name.
            arguments: what follows the port. The text ``{name}`` in one stands for the path of a file there.
            fetch: such names, and where the files go on this machine; a program that failed may have written none.
            seconds: how long it is expected to run; in this time its end is looked for only once a second.
            timeout: seconds after which it counts as hanging.

        Raises:
            TrafficError: it hangs; with the tail of its output.
        """
        server = self._server
        session = self._session(program)
        unique = os.urandom(6).hex()
        remote = {key: server.state_file(f"{session.name}-{unique}.{key}") for key in fetch}
        filled = [remote.get(argument[1:-1], argument) if argument.startswith("{") else argument for argument in arguments]
        session.stop(signal.SIGINT, _STOP_GRACE)  # what a killed run may have left
        try:
            session.start(self.command(program, filled), sudo=True)
            code = session.wait(timeout, quiet=seconds)
            for key, path in remote.items():
                if server.run(["test", "-e", path], check=False).code == 0:
                    server.transport.get(path, fetch[key])
                elif code == 0:
                    raise TrafficError(f"{server.name}: {program} ended in order, but wrote no {key} file")
            return ProgramEnd(code, session.output())
        except WaitTimeout as error:
            raise TrafficError(f"{error}:\n{session.tail()}") from None
        finally:
            session.stop(signal.SIGINT, _STOP_GRACE)
            if remote:
                server.run(["rm", "-f", "--", *remote.values()], sudo=True)

    def start(self, program: str, arguments: Sequence[str], ready: str, timeout: float) -> None:
        """Start a program that runs until :meth:`stop`; returns when it has printed ``ready``.

        Raises:
            TrafficError: it ended, or does not get ready within ``timeout`` seconds; then it does not run.
        """
        session = self._session(program)
        session.start(self.command(program, arguments), sudo=True)
        try:
            session.wait_for_output(ready, timeout)
        except (SessionError, WaitTimeout) as error:
            self.stop(program)
            raise TrafficError(str(error)) from None

    def stop(self, program: str) -> None:
        """End a program in order; nothing if it does not run."""
        self._session(program).stop(signal.SIGINT, _STOP_GRACE)

    def _session(self, program: str) -> Session:
        return self._server.session(posixpath.splitext(program)[0])
