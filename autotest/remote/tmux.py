"""tmux sessions for what runs long: QEMU, generators, reflectors.

Each has its own log file, pid file and exit-code file, so its end is known exactly and survives this process.
A user can watch: ``tmux -L SOCKET attach -t NAME``.
"""

from __future__ import annotations

import posixpath
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from autotest.errors import AutotestError, TestbedError, WaitTimeout
from autotest.remote.transport import Transport, command_line
from autotest.remote.wait import wait_for

# The exit code appears only after tee has written the last of the output. tee ignores SIGINT, so that Ctrl-C of
# an attached user reaches the program alone. The program is never in the background: it keeps its signals.
_WRAPPER = (
    'log=$1; code=$2; shift 2; { "$@"; echo $? >"$code.tmp"; } 2>&1 | tee -i "$log"; mv "$code.tmp" "$code"'
)
# Behind sudo and into the namespace: the pid is the command's own, not that of what leads to it.
_NOTE_PID = 'echo $$ >"$0"; exec "$@"'
_POLL = 0.02  # seconds
_START_TIMEOUT = 2.0  # seconds from the start of a session to the pid of its command


class SessionError(AutotestError):
    """A session is not what it should be: gone, still there, or never started."""


class Multiplexer(Protocol):
    """What is needed of tmux, on this machine or another."""

    def new_session(self, name: str, command: Sequence[str]) -> None: ...

    def has_session(self, name: str) -> bool: ...

    def kill_session(self, name: str) -> None: ...


class LocalTmux:
    """tmux of this machine, through libtmux."""

    def __init__(self, socket: str) -> None:
        import libtmux  # imported late: most commands never need it

        self._server = (
            libtmux.Server(socket_path=socket) if posixpath.isabs(socket) else libtmux.Server(socket_name=socket)
        )

    def new_session(self, name: str, command: Sequence[str]) -> None:
        from libtmux.exc import LibTmuxException

        try:
            self._server.new_session(session_name=name, window_command=command_line(command), x=200, y=50)
        except LibTmuxException as error:
            raise SessionError(f"tmux session {name}: {error}") from None

    def has_session(self, name: str) -> bool:
        from libtmux.exc import TmuxCommandNotFound

        try:
            return self._server.has_session(name, exact=True)
        except TmuxCommandNotFound:
            raise TestbedError("tmux is not installed on this machine: install it, say with apt-get install tmux") from None

    def kill_session(self, name: str) -> None:
        from libtmux.exc import LibTmuxException

        try:
            self._server.cmd("kill-session", target=f"={name}")
        except LibTmuxException as error:
            raise SessionError(f"tmux session {name}: {error}") from None


class RemoteTmux:
    """tmux of another machine, through its command line."""

    def __init__(self, transport: Transport, socket: str) -> None:
        self._transport = transport
        self._tmux = ["tmux", "-S" if posixpath.isabs(socket) else "-L", socket]

    def new_session(self, name: str, command: Sequence[str]) -> None:
        size = ["-x", "200", "-y", "50"]
        self._transport.run([*self._tmux, "-u", "new-session", "-d", *size, "-s", name, "--", command_line(command)])

    def has_session(self, name: str) -> bool:
        return self._transport.run([*self._tmux, "has-session", "-t", f"={name}"], check=False).code == 0

    def kill_session(self, name: str) -> None:
        self._transport.run([*self._tmux, "kill-session", "-t", f"={name}"], check=False)


class Session:
    """One long-running command in a tmux session of its own.

    Args:
        transport: the machine that it runs on.
        socket: the tmux socket, a name or an absolute path.
        name: the session's name, unique on that socket.
        folder: where its log, pid and exit code are kept.
    """

    def __init__(self, transport: Transport, socket: str, name: str, folder: str) -> None:
        self._transport = transport
        self._tmux: Multiplexer = LocalTmux(socket) if transport.is_local else RemoteTmux(transport, socket)
        self.name = name
        self.log_file = posixpath.join(folder, f"{name}.log")
        self._pid_file = posixpath.join(folder, f"{name}.pid")
        self._code_file = posixpath.join(folder, f"{name}.exit")

    def start(self, command: Sequence[str], *, sudo: bool = False) -> None:
        """Start the command; its output goes to the pane and to :attr:`log_file`.

        Raises:
            SessionError: a session of this name is there already.
        """
        if self.exists():
            if self.exit_code() is None:
                raise SessionError(f"{self._transport.name}: tmux session {self.name} is already running")
            self._tmux.kill_session(self.name)  # its command has ended, tmux is about to notice or told to keep it
        self._transport.run(["rm", "-f", "--", self.log_file, self._pid_file, self._code_file])
        noted = self._transport.argv(["sh", "-c", _NOTE_PID, self._pid_file, *command], sudo=sudo)
        self._tmux.new_session(self.name, ["sh", "-c", _WRAPPER, self.name, self.log_file, self._code_file, *noted])

    def exists(self) -> bool:
        """Whether the session is there."""
        return self._tmux.has_session(self.name)

    def exit_code(self) -> int | None:
        """The exit code of the command, None while there is none."""
        content = self._transport.read(self._code_file)
        return int(content) if content and content.strip() else None

    def pid(self) -> int | None:
        """The process that the command is, None before it has started."""
        content = self._transport.read(self._pid_file)
        return int(content) if content and content.strip() else None

    def output(self) -> str:
        """All that the command has written so far."""
        return self._transport.read(self.log_file) or ""

    def tail(self, lines: int = 15) -> str:
        """The last lines of the output, for an error message."""
        return "\n".join(line.rstrip() for line in self.output().splitlines()[-lines:])

    def wait(self, timeout: float, quiet: float = 0.0) -> int:
        """Wait for the end of the command and return its exit code.

        In the first ``quiet`` seconds, when the command is expected to work undisturbed, its end is looked for
        only once a second.

        Raises:
            WaitTimeout: it still runs after ``timeout`` seconds.
        """
        start = time.monotonic()
        while True:
            code = self.exit_code()
            if code is not None:
                return code
            elapsed = time.monotonic() - start
            if elapsed >= timeout:
                raise WaitTimeout(f"{self._transport.name}: {self.name} did not end within {timeout:g} s")
            time.sleep(min(1.0, quiet - elapsed, timeout - elapsed) if elapsed < quiet else _POLL)

    def wait_for_output(self, text: str, timeout: float) -> None:
        """Wait until the command has written the text.

        Raises:
            SessionError: it ended without; with the tail of its output.
            WaitTimeout: it still runs and has not written it; with the tail of its output.
        """

        def written() -> bool:
            ended = self.exit_code()
            if text in self.output():
                return True
            if ended is not None:
                raise SessionError(
                    f"{self._transport.name}: {self.name} ended with exit code {ended} before it wrote {text!r}:\n"
                    f"{self.tail()}"
                )
            return False

        try:
            wait_for(written, f"{self._transport.name}: {self.name} to write {text!r}", timeout)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}:\n{self.tail()}") from None

    def stop(self, signal_number: signal.Signals = signal.SIGTERM, grace: float = 5.0) -> None:
        """End exactly this command: first the signal, SIGKILL after ``grace`` seconds; nothing if it has ended."""
        if not self.exists():
            return
        with suppress(WaitTimeout):  # it may be so young that it has no pid yet
            wait_for(lambda: self.exit_code() is not None or self.pid(), self.name, _START_TIMEOUT, _POLL)
        for number in (signal_number, signal.SIGKILL):
            pid = self.pid()
            if pid is None or self.exit_code() is not None:
                break
            if self._transport.run(["kill", f"-{number.value}", str(pid)], sudo=True, check=False).code != 0:
                break  # it has ended, but a child of it keeps its output open
            try:
                self.wait(grace)
                break
            except WaitTimeout:
                continue
        self._tmux.kill_session(self.name)
