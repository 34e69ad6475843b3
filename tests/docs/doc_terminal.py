"""A terminal that runs the command lines of a page one after the other, and compares what is printed with what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# set -a: what is assigned lasts as what is exported does
_RUN = 'cd -- "$(cat "$1/folder")" && . "$1/environment" && set -a && (exit "$2"); eval "$3"'
_KEEP = 'code=$?; pwd >"$1/folder"; export -p >"$1/environment"; exit $code'
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class Terminal:
    """bash, with a folder, environment and exit code that last from one line to the next.

    Attributes:
        code: the exit code of the last line.
    """

    def __init__(self, folder: Path, state: Path, environment: Mapping[str, str], timeout: float = 240) -> None:
        self.code = 0
        self._state = state
        self._timeout = timeout
        self._environment = os.environ | environment
        state.mkdir()
        (state / "folder").write_text(str(folder))
        (state / "environment").write_text("")

    @property
    def folder(self) -> Path:
        """Where it is."""
        return Path((self._state / "folder").read_text().rstrip("\n"))

    def run(self, command: str) -> str:
        """Everything that a command line prints, in the order in which it is printed.

        Raises:
            AssertionError: it did not end in time.
        """
        process = subprocess.Popen(
            ["bash", "-c", f"{_RUN}\n{_KEEP}", "bash", str(self._state), str(self.code), command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not done within {self._timeout} s: {command}\n{_end(process)}") from None
        except BaseException:  # pytest is interrupted
            _end(process)
            raise
        self.code = process.returncode
        return printed


def _end(process: subprocess.Popen[str]) -> str:
    """End it with all that it started, as Ctrl-C does, or at once where that takes too long; returns what it has printed."""
    for number in (signal.SIGINT, signal.SIGKILL):
        os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=30)[0]
    raise AssertionError("a process that SIGKILL does not end")


@dataclass(frozen=True)
class Missing:
    """A line that a page shows and that was not printed."""

    line: str
    printed: str

    def __str__(self) -> str:
        return f"shown in the page, but not printed: {self.line}\n--- printed:\n{self.printed}"


def missing_line(shown: Iterable[str], printed: str) -> Missing | None:
    """The first line of those shown that is not among the printed ones, behind those before it; None where all are there.

    Numbers, times and white space may differ, and ``...`` stands for anything. Lines may be printed that are not shown.

    >>> missing_line(["host reached in 0.7 ms", "...", "12 trials, 3 ..."], "host   reached in 1 ms\\n4 trials, 3 done") is None
    True
    >>> missing_line(["3 done"], "3 failed").line
    '3 done'
    """
    left = iter([_plain(line) for line in printed.splitlines()])
    for line in shown:
        pattern = ".*".join(re.escape(part.strip()) for part in _plain(line).split("..."))
        if pattern not in ("", ".*") and not any(re.fullmatch(pattern, there) for there in left):
            return Missing(line, printed)
    return None


def _plain(line: str) -> str:
    return " ".join(_NUMBER.sub("#", _ESCAPES.sub("", line)).split())
