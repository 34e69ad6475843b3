"""tmux sessions for what runs long: QEMU, generators, reflectors.

Each has its own log file, pid file and exit-code file, so its end is known exactly and survives this process.
A user can watch: ``tmux -L SOCKET attach -t NAME``.
"""

from __future__ import annotations

import posixpath
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from autotest.errors import CommandError, WaitTimeout
from autotest.remote.following import FollowedFile
from autotest.remote.multiplexer import (
    LocalTmux,
    Multiplexer,
    NoAnswer,
    RemoteTmux,
    SessionError,
)
from autotest.remote.processes import Process
from autotest.remote.transport import Note, Transport, unnoted
from autotest.remote.wait import wait_for

# The exit code appears only after tee has written the last of the output. tee ignores SIGINT, so that Ctrl-C of
# an attached user reaches the program alone. The program is never in the background: it keeps its signals. Around the
# code stand wall clock and uptime at start and end: they tell whether the clock was set in between.
_WRAPPER = (
    'log=$1; code=$2; shift 2; clocks() { date +%s.%N; cut -d " " -f 1 /proc/uptime; }; start=$(clocks); '
    '{ "$@"; echo $? $start $(clocks) >"$code.tmp"; } 2>&1 | tee -i -- "$log"; mv -- "$code.tmp" "$code"'
)
# Behind sudo and into the namespace: the process is the command's own, not that of what leads to it. Field 22 of
# proc(5)'s stat is the start time; the name before it is this shell's and holds no blanks.
_NOTE_PROCESS = (
    'read -r stat <"/proc/$$/stat"; set -- "$stat" "$@"; echo $$ $(echo "$1" | cut -d " " -f 22) >"$0"; shift; exec "$@"'
)
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?")
_LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of 64-bit Linux
# tmux runs what stands in #() of a session's name, cuts one at a colon and changes a dot; and it is a file's name here.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_TMUX_TIMEOUT = 10.0  # seconds for an answer of the tmux server
_HURRIED_TMUX_TIMEOUT = 0.7  # seconds for it when the process was asked to end
_POLL = 0.02  # seconds
_LIFE_POLL = 1.0  # seconds between looks whether the process is still there
_SERVER_ENDED = "server exited"  # in what tmux says then, client_exit_message of its client.c
_SERVER_END_TIMEOUT = 2.0  # seconds that a tmux server may take to end
_START_TIMEOUT = 5.0  # seconds from the start of a session to its command's
_UNDER_WAY_TIMEOUT = 2.0  # seconds in which a session appears whose start was interrupted
_WRAPPER_TIMEOUT = 1.0  # seconds from the end of a command to its exit code
_KILL_TIMEOUT = 5.0  # seconds in which a process that was killed is gone

# Machine, socket and name of each session that tmux was asked for without saying yet that it is there or will not be.
# It belongs to the process, because a start and its undoing are the work of two objects.
_under_way: set[tuple[str, str, str]] = set()


class Session:
    """One long-running command in a tmux session of its own.

    Args:
        transport: the machine that it runs on.
        socket: the tmux socket, a name or an absolute path.
        name: the session's name, unique on that socket.
        folder: where its log, pid and exit code are kept.
    """

    def __init__(
        self,
        transport: Transport,
        socket: str,
        name: str,
        folder: str,
        *,
        note: Note = unnoted,
        end_signal: signal.Signals = signal.SIGTERM,
        grace: float = 5.0,
    ) -> None:
        if not _NAME.fullmatch(name):
            allowed = "use letters, digits, _ and -"
            raise SessionError(f"{transport.name}: {name!r} cannot be the name of a tmux session: {allowed}")
        self._transport = transport
        self._machine = transport.outside  # a session and its files are the machine's, in whatever network it works
        self._tmux: Multiplexer = LocalTmux(socket) if transport.is_local else RemoteTmux(transport, socket)
        self._identity = (transport.name, socket, name)
        self._note = note
        self._end_signal = end_signal
        self._grace = grace
        self.name = name
        self.log_file = posixpath.join(folder, f"{name}.log")
        self._process_file = posixpath.join(folder, f"{name}.pid")
        self._code_file = posixpath.join(folder, f"{name}.exit")

    def start(self, command: Sequence[str], *, sudo: bool = False, kind: str = "session", machine: str = "") -> None:
        """Start the command; its output goes to the pane and to :attr:`log_file`.

        ``kind`` and ``machine`` are for the journal: which undoing it takes, and the machine of the testbed that it is.

        Raises:
            SessionError: a session of this name is there already.
        """
        if self.exists():
            if self.exit_code() is None:
                raise SessionError(f"{self._transport.name}: tmux session {self.name} is already running")
            self._tmux.kill_session(self.name, _TMUX_TIMEOUT)  # its command has ended, tmux is about to notice or told to keep it
        details = {"name": self.name, "end_signal": self._end_signal.name, "grace": f"{self._grace:g}"}
        self._note(kind, machine=machine, **details)
        self._remove_files()
        noted = self._transport.argv(["sh", "-c", _NOTE_PROCESS, self._process_file, *command], sudo=sudo)
        self._open(["sh", "-c", _WRAPPER, self.name, self.log_file, self._code_file, *noted])

    def _open(self, command: Sequence[str]) -> None:
        """Make the session. A tmux server that is just ending, because its last session has, takes no new one."""
        deadline = time.monotonic() + _SERVER_END_TIMEOUT
        _under_way.add(self._identity)
        while True:
            try:
                self._tmux.new_session(self.name, command, _TMUX_TIMEOUT)
                break
            except NoAnswer:
                raise
            except (SessionError, CommandError) as error:
                if _SERVER_ENDED not in str(error) or time.monotonic() >= deadline:
                    _under_way.discard(self._identity)
                    raise
            if self._process() or self.exit_code() is not None:
                break  # it was made, and has ended already: it was itself the last one
            time.sleep(_POLL)
        _under_way.discard(self._identity)

    def exists(self) -> bool:
        """Whether the session is there."""
        return self._tmux.has_session(self.name, _TMUX_TIMEOUT)

    def is_running(self) -> bool:
        """Whether the session or the process of its command is there."""
        return self.state() is not None or self.exists()

    def exit_code(self) -> int | None:
        """The exit code of the command, None while there is none."""
        end = self._end_record()
        return int(end[0]) if end else None

    def duration(self) -> float | None:
        """For how many seconds the command ran, None while it has not ended."""
        end = self._end_record()
        return end[4] - end[2] if end else None

    def clock_jump(self) -> float | None:
        """By how many seconds the machine's clock was set while the command ran, None while it has not ended."""
        end = self._end_record()
        return (end[3] - end[1]) - (end[4] - end[2]) if end else None

    def _end_record(self) -> list[float] | None:
        """Exit code, wall clock and uptime at the start, wall clock and uptime at the end."""
        return self._numbers(self._code_file, 5)

    def pid(self) -> int | None:
        """The process that the command is, None before it has started."""
        process = self._process()
        return process.pid if process else None

    def state(self) -> str | None:
        """The state of the command's process as proc(5) has it; None when there is none."""
        process = self._process()
        return process.state(self._machine) if process else None

    def _process(self) -> Process | None:
        found = self._numbers(self._process_file, 2)
        if not found:
            return None
        pid, start = found
        if pid != int(pid) or not 1 < pid <= _LARGEST_PID:  # signals go there, and 1 is the machine's init
            raise SessionError(f"{self._transport.name}: {self._process_file} is damaged: {pid:g} is no process of ours")
        return Process(int(pid), int(start))

    def _numbers(self, path: str, count: int) -> list[float] | None:
        """What one of the session's files says, None where it is not there or not written yet."""
        words = (self._machine.read(path) or "").split()
        if not words:
            return None
        if len(words) != count or not all(_NUMBER.fullmatch(word) for word in words):
            raise SessionError(f"{self._transport.name}: {path} is damaged: {' '.join(words)[:50]!r}")
        return [float(word) for word in words]

    def output(self) -> str:
        """All that the command has written so far."""
        return self._machine.read(self.log_file) or ""

    def tail(self, lines: int = 15) -> str:
        """The last lines of the output, for an error message."""
        return "\n".join(line.rstrip() for line in self.output().splitlines()[-lines:])

    def wait(self, timeout: float, quiet: float = 0.0, hear: Callable[[str], None] | None = None) -> int:
        """Wait for the end of the command and return its exit code.

        In the first ``quiet`` seconds, when the command is expected to work undisturbed, its end is looked for
        only once a second. ``hear`` is told once a second of the whole lines that it has written since: who writes lives, so
        that takes the place of a look at its process.

        Raises:
            SessionError: it is gone without an exit code: something has ended it together with its session.
            WaitTimeout: it still runs after ``timeout`` seconds.
        """
        start = time.monotonic()
        next_look = start + _LIFE_POLL
        log = FollowedFile(self._machine, self.log_file)
        while True:
            code = self.exit_code()
            if code is not None:
                return code
            now = time.monotonic()
            elapsed = now - start
            if elapsed >= timeout:
                raise WaitTimeout(f"{self._transport.name}: {self.name} did not end within {timeout:g} s{self._hint()}")
            if now >= next_look:
                news = log.news() if hear else ""
                if hear and news:
                    hear(news)
                else:
                    self.require_life()
                next_look = now + _LIFE_POLL
            time.sleep(min(1.0, quiet - elapsed, timeout - elapsed) if elapsed < quiet else _POLL)

    def _hint(self) -> str:
        return ": its process is stopped" if self.state() == "T" else ""

    def require_life(self) -> None:
        """Raises SessionError when the command is gone, and so is what would write down its exit code."""
        if not self.is_running() and self.exit_code() is None:
            folder = posixpath.dirname(self._code_file)
            unwritable = self._machine.why_unwritable(folder)
            reason = f"{folder}: {unwritable}" if unwritable else "its tmux session or server was ended"
            raise SessionError(
                f"{self._transport.name}: {self.name} is gone and left no exit code: {reason}\n{self.tail()}".rstrip()
            )

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
                    f"{self._transport.name}: {self.name} ended with exit code {ended} before it wrote {text!r}:\n{self.tail()}"
                )
            return False

        try:
            wait_for(written, f"{self._transport.name}: {self.name} to write {text!r}", timeout)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}{self._hint()}:\n{self.tail()}") from None

    def stop(self, *, hurry: bool = False) -> bool:
        """End exactly this command and forget it; returns whether it was there.

        First comes the signal, and SIGKILL when the time of grace is over; in a hurry that is at most a second. Only
        then tmux is asked for anything: it may hang, and the command must not live on because of that. Its files are
        removed: who wants the output reads it before.

        Raises:
            SessionError: not even SIGKILL ends it, or tmux does not answer. The files stay then, for another try.
        """
        grace = min(self._grace, 1.0) if hurry else self._grace
        was_there = self._end_command(grace)
        try:
            if self._end_session(grace, _HURRIED_TMUX_TIMEOUT if hurry else _TMUX_TIMEOUT):
                was_there = True
        except NoAnswer as error:
            self._end_command(grace)  # it may have begun since
            if not self._known_process():
                raise
            raise SessionError(
                f"{self._transport.name}: {self.name} is ended, but its tmux session cannot be removed: {error}"
            ) from None
        self._remove_files()
        return was_there

    def _end_command(self, grace: float) -> bool:
        """End the process of the command; returns whether it was there."""
        process = self._known_process()
        if not process or not process.state(self._machine):
            return False
        self._end(process, grace)
        return True

    def _end_session(self, grace: float, timeout: float) -> bool:
        """Remove the session from tmux, and end what it has begun meanwhile; returns whether one of them was there."""
        was_there = self._is_in_tmux(timeout)
        if was_there:
            with suppress(WaitTimeout):  # it may be so young that it has no process yet
                wait_for(self._has_begun, self.name, _START_TIMEOUT, _POLL)
        was_there = self._end_command(grace) or was_there
        if self._tmux.has_session(self.name, timeout):

            def has_ended() -> bool:
                return self.exit_code() is not None or not self._tmux.has_session(self.name, timeout)

            with suppress(WaitTimeout, SessionError):  # what writes the exit code is about to end, too
                wait_for(has_ended, self.name, _WRAPPER_TIMEOUT, _POLL)
            self._tmux.kill_session(self.name, timeout)
        return was_there

    def _is_in_tmux(self, timeout: float) -> bool:
        """Whether the session is there. One whose start was interrupted may be about to appear."""
        deadline = time.monotonic() + _UNDER_WAY_TIMEOUT
        while not self._tmux.has_session(self.name, timeout):
            if self._identity not in _under_way or self._has_begun() or time.monotonic() >= deadline:
                _under_way.discard(self._identity)
                return False
            time.sleep(_POLL)
        _under_way.discard(self._identity)
        return True

    def _has_begun(self) -> bool:
        try:
            return self._process() is not None or self.exit_code() is not None
        except SessionError:  # a damaged file is one that was written
            return True

    def _known_process(self) -> Process | None:
        with suppress(SessionError):  # a damaged file names no process
            return self._process()
        return None

    def _end(self, process: Process, grace: float) -> None:
        for number, seconds in ((self._end_signal, grace), (signal.SIGKILL, _KILL_TIMEOUT)):
            self._machine.run(["kill", f"-{number.value}", str(process.pid)], sudo=True, check=False)
            with suppress(WaitTimeout):
                wait_for(lambda: process.state(self._machine) is None, self.name, seconds, _POLL)
                return
        raise SessionError(f"{self._transport.name}: process {process.pid} of {self.name} cannot be ended")

    def _remove_files(self) -> None:
        files = [self.log_file, self._process_file, self._code_file, f"{self._code_file}.tmp"]
        self._machine.run(["rm", "-f", "--", *files], sudo=True)
