"""A command of the user's that is told of a run: of failures while it goes on, and of its end.

docs/notifications.md describes what it gets on standard input and in its environment.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autotest import __version__
from autotest.config.testbed import Testbed
from autotest.config.values import command_line
from autotest.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    AutotestError,
    ConfigError,
    Problem,
    UsageError,
    printable,
)
from autotest.report.status import duration
from autotest.run import interruption
from autotest.run.observer import Observer
from autotest.run.runner import End, Failure, Outcome, Summary

if TYPE_CHECKING:
    from autotest.run.campaign import Campaign

log = logging.getLogger(__name__)

VERSION: Final = 1
"""Of the format; a key that is only added does not change it."""
PAUSE: Final = 60.0
"""Seconds from the beginning of a call about failures to that of the next."""
DEADLINE: Final = 30.0
"""Seconds that a call may take."""
_MOST_FAILURES: Final = 20
_LONGEST_REASON: Final = 1000  # characters
_KEPT_OUTPUT: Final = 1000  # bytes
_POLL: Final = 0.05  # seconds
_COUNTED: Final = 0.2  # seconds after which a trial that has failed is counted, too
_GRACE: Final = 2.0  # seconds in which a command that nobody waits for any more is ended


def notify_command(given: str | None, testbed: Testbed | None) -> tuple[str, ...]:
    """The command of ``--notify``, or of the configuration where that is not there, which is not asked otherwise; empty for none.

    Raises:
        UsageError: there is no such program.
    """
    if given is None:
        assert testbed
        command, folder = testbed.local.notify_command, testbed.file.parent
    else:
        try:
            command, folder = command_line(given) if given.strip() else (), Path()
        except ValueError as error:
            raise UsageError(f"--notify: {error}") from None
    if not command:
        return ()
    program = os.path.expanduser(command[0])
    found = shutil.which(str(folder.absolute() / program) if "/" in program else program)
    if found:
        return (found, *command[1:])
    message = f"there is no program {command[0]} here, or it cannot be run"
    if given is None:
        assert testbed
        raise ConfigError([Problem(testbed.file, "local", "notify_command", message)])
    raise UsageError(f"--notify: {message}")


def notified(command: Sequence[str], testbed: Testbed, campaign: Campaign, run: Callable[[Observer], int]) -> int:
    """Run, with an observer that tells the command; returns the exit code that ``run`` returns.

    However the run ends, the last call is waited for. It is not told of a run in which nothing was to do.
    """
    if not command:
        return run(Observer())
    outputdirs = [Path(section.settings["outputdir"]) for section in campaign.sections]
    tests = [section.file for section in campaign.sections]
    notification = Notification(command, _about(campaign.kind.name, testbed.file, tests, outputdirs))
    try:
        code = run(notification)
    except BaseException as error:
        if not notification.total:
            notification.begins(_to_do(campaign))
        interrupted = isinstance(error, KeyboardInterrupt)
        expected = isinstance(error, AutotestError | OSError)
        problem = "interrupted" if interrupted else str(error) if expected else f"{type(error).__name__}: {error}"
        code = EXIT_INTERRUPTED if interrupted else getattr(error, "exit_code", EXIT_FAILED)
        interruption.undone()  # so that another interruption ends the command, too
        notification.end("interrupted" if interrupted else "error", code, problem)
        raise
    if notification.total or code != EXIT_OK:
        notification.end("failed" if code else "finished", code)
    notification.close()
    return code


def notified_of_no_start(
    command: Sequence[str], measurement: str, testbed: Path, tests: Sequence[Path], error: AutotestError
) -> None:
    """Tell the command of a run that did not begin, as something is wrong with what was asked for."""
    if command:
        notification = Notification(command, _about(measurement, testbed, tests, []))
        notification.end("error", error.exit_code, str(error))
        notification.close()


def _about(measurement: str, testbed: Path, tests: Sequence[Path], output_directories: Sequence[Path]) -> dict[str, Any]:
    def absolute(paths: Sequence[Path]) -> list[str]:
        return [str(path) for path in dict.fromkeys(path.absolute() for path in paths)]

    return {
        "autotest": __version__,
        "hostname": socket.gethostname(),
        "measurement": measurement,
        "testbed": str(testbed.absolute()),
        "tests": absolute(tests),
        "output_directories": absolute(output_directories),
    }


def _to_do(campaign: Campaign) -> int:
    from autotest.run.campaign import count

    try:
        total, done = count(campaign.trials())
    except AutotestError:  # which may be what ended the run
        return 0
    return campaign.within_limit(total - done)


class Notification(Observer):
    """Tells the command, in a thread of its own: whatever the command does, the run is not delayed and does not fail.

    Args:
        command: the program and its arguments.
        about: what each summary says of the run as a whole.
        pause, deadline: see :data:`PAUSE` and :data:`DEADLINE`.
    """

    def __init__(self, command: Sequence[str], about: dict[str, Any], pause: float = PAUSE, deadline: float = DEADLINE) -> None:
        self.total = 0
        """How many trials the run was to do, as soon as that is known."""
        self._command = tuple(command)
        self._about = about
        self._pause = pause
        self._deadline = deadline
        self._started = datetime.now().astimezone()
        self._begin = time.monotonic()
        self._counts: Counter[End] = Counter()
        self._failures: list[Failure] = []
        self._is_untold = False  # a failure has come since the last call
        self._is_over = False
        self._is_given_up = False  # nobody waits for the command any more
        self._changed = threading.Condition()
        self._is_quiet = threading.Event()  # an interrupted Thread.join takes the thread for ended
        threading.Thread(target=self._tell_of_failures, name="notification", daemon=True).start()

    # -- told by the run -----------------------------------------------------------------------------------

    def begins(self, total: int) -> None:
        self.total = total

    def ends(self, outcome: Outcome) -> None:
        self._counts[outcome.end] += 1

    def fails(self, failure: Failure) -> None:
        with self._changed:
            self._failures.append(failure)
            self._is_untold = True
            self._changed.notify()

    def ended(self, summary: Summary | None, problem: str) -> None:
        if summary:  # by now it is known how many trials each of them cost
            with self._changed:
                self._failures = list(summary.failures)

    def end(self, outcome: str, exit_code: int, problem: str = "") -> None:
        """The run is over: tell so, and wait for the call. An interruption meanwhile ends the waiting, and the command."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        try:
            self._is_quiet.wait()
            self._call(self._summary("end", outcome, exit_code, problem))
        except BaseException:
            self._is_given_up = True
            self._is_quiet.wait(_GRACE)
            raise

    def close(self) -> None:
        """Nothing more is told; whoever is being told is not waited for."""
        self._is_given_up = True
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._is_quiet.wait(_GRACE)

    # -- told to the command -------------------------------------------------------------------------------

    def _tell_of_failures(self) -> None:
        try:
            earliest = 0.0
            while summary := self._next_of_failures(earliest):
                earliest = time.monotonic() + self._pause
                self._call(summary)
        finally:
            self._is_quiet.set()

    def _next_of_failures(self, earliest: float) -> dict[str, Any] | None:
        """Wait until there is one to tell of; None when the run is over, as the last call tells of all."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_untold or self._is_over)
            self._changed.wait_for(lambda: self._is_over, max(_COUNTED, earliest - time.monotonic()))
            if self._is_over:
                return None
            self._is_untold = False
            return self._summary("failure", "running", None, "")

    def _summary(self, event: str, outcome: str, exit_code: int | None, problem: str) -> dict[str, Any]:
        now, seconds = datetime.now().astimezone(), time.monotonic() - self._begin
        counts = {
            "total": self.total,
            "done": self._counts[End.DONE],
            "failed": self._counts[End.FAILED] + self._counts[End.NOT_TRIED],
            "invalid": self._counts[End.INVALID],
            "left": max(0, self.total - self._counts.total()),
        }
        return {
            "version": VERSION,
            "event": event,
            "outcome": outcome,
            "exit_code": exit_code,
            "problem": problem,
            "text": _text(self._about["hostname"], outcome, problem, counts, seconds),
            **self._about,
            "started": self._started.isoformat(timespec="seconds"),
            "ended": now.isoformat(timespec="seconds") if event == "end" else None,
            "seconds": round(seconds, 1),
            "counts": counts,
            "failures": [
                {"name": failure.name, "reason": _cut(printable(failure.reason)), "trials": failure.trials}
                for failure in self._failures[:_MOST_FAILURES]
            ],
            "more_failures": max(0, len(self._failures) - _MOST_FAILURES),
        }

    def _call(self, summary: dict[str, Any]) -> None:
        told = {f"AUTOTEST_{key.upper()}": str(summary[key]) for key in ("event", "outcome", "text")}
        name = Path(self._command[0]).name  # its arguments may hold what is nobody's business, like the address of a chat
        try:
            # Not a pipe: it may never be read. Not a file: a full disk may be the failure.
            with open(os.memfd_create("autotest-summary"), "w+b", buffering=0) as content:
                content.write(json.dumps(summary).encode())
                content.seek(0)
                process = subprocess.Popen(
                    self._command, stdin=content, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
                    env=os.environ | told, start_new_session=True,
                )  # fmt: skip
            with process:
                problem = self._wait_for(process)
        except (OSError, ValueError) as error:  # ValueError: nothing that an environment can hold
            problem = str(error)
        if problem:
            log.warning("the notification was not sent: %s: %s", name, problem)

    def _wait_for(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the end; returns what went wrong, empty where nothing did. What it left in the background is its own."""
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        deadline, output, in_time = time.monotonic() + self._deadline, b"", True
        try:
            while process.poll() is None and in_time:
                output = (output + (process.stdout.read(1 << 16) or b""))[-_KEPT_OUTPUT:]
                time.sleep(_POLL)
                in_time = time.monotonic() < deadline and not self._is_given_up
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._is_given_up:
            return "it was not waited for"
        if not in_time:
            return f"it did not end within {self._deadline:g} s and was ended"
        output = (output + (process.stdout.read(1 << 16) or b""))[-_KEPT_OUTPUT:]
        said = output.decode(errors="replace").strip()
        return f"exit code {process.returncode}{': ' * bool(said)}{said}" if process.returncode else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


def _text(hostname: str, outcome: str, problem: str, counts: dict[str, int], seconds: float) -> str:
    """One line for a person."""
    how = {"error": "ended by an error", "running": "something failed"}.get(outcome, outcome)
    found = [f"{counts['done']} of {counts['total']} trials done"]
    found += [f"{counts[key]} {key}" for key in ("failed", "invalid", "left") if counts[key]]
    why = f" ({problem.partition(chr(10))[0]})" if outcome == "error" else ""
    return printable(f"autotest on {hostname}: {how}{why}: {', '.join(found)}, after {duration(seconds)}")
