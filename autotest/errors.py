"""The one exception tree. Whatever autotest raises on purpose is an :class:`AutotestError`.

Exit codes (see also the README):

====  ==========================================================
0     all done
1     something failed: a trial, a stage, a result file
2     wrong usage or configuration; nothing was touched
3     the testbed cannot be used: unreachable, not root, a program missing
130   interrupted
====  ==========================================================
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TESTBED = 3
EXIT_INTERRUPTED = 130


_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\r(?=\n)")  # ECMA-48, 5.4: colours, and moves of the cursor


def printable(text: str) -> str:
    """The text as it can be shown on a terminal, whoever wrote it: colours left out, other control characters escaped."""
    text = _TERMINAL_SEQUENCE.sub("", text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


class AutotestError(Exception):
    """Base of everything raised on purpose; ``str()`` is one clear message for the user.

    It may quote what a machine answered, which is data: nothing in it reaches the terminal as a control sequence.
    """

    exit_code = EXIT_FAILED

    def __str__(self) -> str:
        return printable(super().__str__())


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a configuration file: where it is, and what would be right."""

    file: Path
    section: str | None
    key: str | None
    message: str

    def __str__(self) -> str:
        where = str(self.file)
        if self.section is not None:
            where += f" [{self.section}]"
        if self.key is not None:
            where += f" {self.key}"
        return f"{where}: {self.message}"


class UsageError(AutotestError):
    """The command line asks for something that does not exist or does not fit."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """Everything that is wrong with the configuration, found at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class TestbedError(AutotestError):
    """The testbed cannot be used as it is; the message names the remedy."""

    __test__ = False  # the name begins like a test class; pytest must not collect it
    exit_code = EXIT_TESTBED


class ConnectError(TestbedError):
    """A server cannot be reached."""


class HostKeyError(ConnectError):
    """A server's SSH host key is unknown or has changed."""


class LoginRefused(ConnectError):
    """A server answers but takes none of the keys that were offered."""


class ArgumentError(AutotestError, ValueError):
    """A text cannot be handed to a program as it is: it holds a zero byte, or characters that no encoding has."""


class CommandError(AutotestError):
    """A command on a machine ended with an exit code that was not expected.

    Attributes:
        machine: name of the machine that ran it.
        command: its arguments.
        code: its exit code, None when it did not come to an end.
        stderr: what it wrote to standard error.
    """

    def __init__(self, machine: str, command: Sequence[str], code: int | None, stderr: str, reason: str | None = None) -> None:
        self.machine = machine
        self.command = tuple(command)
        self.code = code
        self.stderr = stderr
        what = reason or f"exit code {code}"
        tail = stderr.strip()[-2000:]
        super().__init__(f"{machine}: {shlex.join(self.command)}: {what}" + (f": {tail}" if tail else ""))


class CommandTimeout(CommandError):
    """A command did not end before its deadline and was ended."""


class WaitTimeout(AutotestError):
    """A condition did not come true before its deadline."""


class QemuError(AutotestError):
    """QEMU did not start, or ended when it should run; carries what it wrote to stderr."""


class TrafficError(AutotestError):
    """A generator or reflector did not do its work; carries the tail of its output."""


class ResultsError(AutotestError):
    """A result file is missing, cut off, malformed or in the way."""


class ImageError(TestbedError):
    """The lab's guest image cannot be built or used."""
