"""What is asked of tmux, on this machine through libtmux, on another through its command line."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from autotest.errors import AutotestError, CommandTimeout, TestbedError
from autotest.remote.transport import Result, Transport

if TYPE_CHECKING:
    from libtmux.common import tmux_cmd

# tmux hands its server stdin and stdout, and with one that hangs they stay open: the far side would never be at its end.
_SILENT = ("sh", "-c", 'exec "$0" "$@" </dev/null >/dev/null')
_INTERRUPTED_TIMEOUT = 3.0  # seconds for an answer when Ctrl-C came while it was waited for


class SessionError(AutotestError):
    """A session is not what it should be: gone, still there, or never started."""


class NoAnswer(SessionError):
    """Whether tmux has done what it was asked for is not known."""


class Multiplexer(Protocol):
    """What is needed of tmux, on this machine or another. The timeout is for the answer, in seconds."""

    def new_session(self, name: str, command: Sequence[str], timeout: float) -> None: ...

    def has_session(self, name: str, timeout: float) -> bool: ...

    def kill_session(self, name: str, timeout: float) -> None: ...


def _new_session(name: str, command: Sequence[str]) -> list[str]:
    """Arguments of new-session. A command of several arguments is run by tmux itself: the user's shell may be any."""
    # A semicolon at the end of an argument would end tmux's own command.
    words = [f"{word[:-1]}\\;" if word.endswith(";") else word for word in command]
    return ["-d", "-x", "200", "-y", "50", "-s", name, "--", *words]


class LocalTmux:
    """tmux of this machine, through libtmux."""

    def __init__(self, socket: str) -> None:
        import libtmux  # imported late: most commands never need it

        self._server = libtmux.Server(socket_path=socket) if posixpath.isabs(socket) else libtmux.Server(socket_name=socket)

    def new_session(self, name: str, command: Sequence[str], timeout: float) -> None:
        answer = self._ask(timeout, "new-session", *_new_session(name, command))
        if answer.returncode < 0:  # Ctrl-C goes to it, too
            raise NoAnswer(f"tmux session {name}: the tmux client was ended by signal {-answer.returncode}")
        if answer.stderr:
            raise SessionError(f"tmux session {name}: {' '.join(answer.stderr)}")

    def has_session(self, name: str, timeout: float) -> bool:
        return self._ask(timeout, "has-session", "-t", f"={name}").returncode == 0

    def kill_session(self, name: str, timeout: float) -> None:
        self._ask(timeout, "kill-session", "-t", f"={name}")

    def _ask(self, timeout: float, *arguments: str) -> tmux_cmd:
        """Run a command of tmux. A thread waits for it, because libtmux does so for ever and a tmux server may hang."""
        from libtmux.exc import LibTmuxException, TmuxCommandNotFound

        answers: SimpleQueue[tmux_cmd | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._server.cmd(*arguments))
            except Exception as error:  # noqa: BLE001  # handed to the caller's thread
                answers.put(error)

        try:
            threading.Thread(target=ask, daemon=True).start()
            answer = answers.get(timeout=timeout)
        except Empty:
            raise NoAnswer(f"tmux {arguments[0]}: the tmux server does not answer within {timeout:g} s") from None
        except BaseException:  # Ctrl-C: the thread goes on, and what it is about to make would be looked for too early
            with suppress(Empty):
                answers.get(timeout=_INTERRUPTED_TIMEOUT)
            raise
        if isinstance(answer, TmuxCommandNotFound):
            raise TestbedError("tmux is not installed on this machine: install it, say with apt-get install tmux")
        if isinstance(answer, LibTmuxException):
            raise SessionError(f"tmux {arguments[0]}: {answer}")
        if isinstance(answer, Exception):
            raise answer
        return answer


class RemoteTmux:
    """tmux of another machine, through its command line."""

    def __init__(self, transport: Transport, socket: str) -> None:
        self._transport = transport
        self._tmux = [*_SILENT, "tmux", "-u", "-S" if posixpath.isabs(socket) else "-L", socket]

    def new_session(self, name: str, command: Sequence[str], timeout: float) -> None:
        self._ask(timeout, "new-session", *_new_session(name, command), check=True)

    def has_session(self, name: str, timeout: float) -> bool:
        return self._ask(timeout, "has-session", "-t", f"={name}").code == 0

    def kill_session(self, name: str, timeout: float) -> None:
        self._ask(timeout, "kill-session", "-t", f"={name}")

    def _ask(self, timeout: float, *arguments: str, check: bool = False) -> Result:
        try:
            return self._transport.run([*self._tmux, *arguments], timeout=timeout, check=check)
        except CommandTimeout:
            raise NoAnswer(f"tmux {arguments[0]}: the tmux server does not answer within {timeout:g} s") from None
