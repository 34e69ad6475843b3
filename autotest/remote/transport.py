"""The one contract of local and remote execution; only the transport differs."""

from __future__ import annotations

import logging
import os
import posixpath
import re
import shlex
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypedDict

from autotest.errors import ArgumentError, CommandError, CommandTimeout

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = 30.0  # seconds; a set-up command that takes longer hangs


MOST_READ = 1 << 20  # bytes at once of a file that grows
TIMEOUT_CODES = (124, 137)  # of timeout(1): ended by TERM, by KILL

# env(1) takes every word with an equals sign before the program for a variable: such a program is started by a shell.
_EXEC = ("sh", "-c", 'exec "$0" "$@"')


@dataclass(frozen=True)
class Result:
    """What a command left: its exit code (128 + N after signal N) and what it wrote, decoded as UTF-8."""

    command: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


class Note(Protocol):
    """Writes a change of a machine into the journal, before it is made.

    ``machine`` names the machine of the testbed that ends when the change is undone.
    """

    def __call__(self, kind: str, /, *, machine: str = "", **details: str) -> None: ...


def unnoted(kind: str, /, *, machine: str = "", **details: str) -> None:
    """For changes that need no undoing by autotest."""


class RunOptions(TypedDict, total=False):
    """What a command may be given besides its arguments; see :meth:`Transport.run`."""

    env: Mapping[str, str] | None
    cwd: str | None
    sudo: bool
    input: str | bytes | None
    timeout: float
    check: bool


class Transport(ABC):
    """A way to one machine. Nothing is opened before it is needed, and closing twice is fine."""

    is_local: bool
    is_gone = False
    """Whether the machine has ended for good, so that nothing is left there to be undone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.after_connect: Callable[[], None] | None = None
        """Called whenever a connection was opened."""
        self.note_temporary: Callable[[str], None] | None = None
        """Called with the path of a temporary file that is about to be made there."""
        self.temporary_is_gone: Callable[[str], None] = lambda path: None
        """Called with it when the file has its own name."""

    @property
    def outside(self) -> Transport:
        """The machine itself, where this transport works in a network namespace of it."""
        return self

    def has_network(self) -> bool:
        """Whether the network that this transport works in is still there."""
        return True

    @property
    @abstractmethod
    def is_root(self) -> bool:
        """Whether the login there is root's."""

    @abstractmethod
    def argv(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        sudo: bool = False,
    ) -> list[str]:
        """The arguments as they are really run there: with sudo, namespace and so on in front where needed."""

    @abstractmethod
    def connect(self, timeout: float | None = None) -> None:
        """Open the way there unless it is open; ``timeout`` limits the first, network part of it, in seconds.

        Raises:
            ConnectError: the machine cannot be reached.
        """

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        sudo: bool = False,
        input: str | bytes | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        check: bool = True,
    ) -> Result:
        """Run a command, given as a list of arguments, and wait for its end.

        Args:
            command: program and arguments; never seen by a shell unquoted.
            env: variables to set in addition to the machine's own.
            cwd: folder to run in.
            sudo: as root, where the login is not root itself.
            input: text for its standard input; without it, the input is empty.
            timeout: seconds until it is ended by force.
            check: whether an exit code other than 0 raises.

        Raises:
            CommandError: the exit code is not 0 and ``check`` is set; carries machine, command, code, stderr.
            CommandTimeout: it did not end in time.
            ConnectError: the machine cannot be reached.
        """
        timeout = self._patient(timeout)
        argv = self.argv(self._bounded(command, timeout), env=env, cwd=cwd, sudo=sudo)
        log.debug("%s$ %s", self.name, command_line(argv))
        data = input.encode() if isinstance(input, str) else input
        ended = self._execute(command, argv, data, timeout)
        if check and ended.code != 0:
            raise CommandError(self.name, command, ended.code, ended.stderr or ended.stdout)
        return ended

    def _patient(self, timeout: float) -> float:
        """The seconds that a command gets on this machine, where it takes others that many."""
        return timeout

    def _bounded(self, command: Sequence[str], timeout: float) -> Sequence[str]:
        """The command with whatever ends it in time on the far side."""
        return command

    @abstractmethod
    def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
        """Run the arguments; ``command`` is what the user asked for. Raises CommandTimeout and ConnectError."""

    def _timed_out(self, command: Sequence[str], timeout: float, stderr: str = "") -> CommandTimeout:
        return CommandTimeout(self.name, command, None, stderr, f"did not end within {timeout:g} s")

    @abstractmethod
    def put(self, source: Path, target: str, mode: int = 0o644) -> None:
        """Copy a file of this machine to the other; it appears there whole or not at all."""

    @abstractmethod
    def get(self, source: str, target: Path) -> None:
        """Copy a file of the other machine to this one; it appears here whole or not at all."""

    @abstractmethod
    def read(self, source: str) -> str | None:
        """The content of a text file there, None when there is no such file. Starts no process."""

    @abstractmethod
    def read_from(self, source: str, start: int) -> bytes:
        """A file there from that byte on, 1 MiB at most; empty when there is no such file. Starts no process."""

    @abstractmethod
    def write(self, target: str, content: str, mode: int = 0o644) -> None:
        """Write a text file there; it appears whole or not at all."""

    def why_unwritable(self, folder: str) -> str:
        """What that machine says when root writes a file there, like ``No space left on device``; empty where it works."""
        script = 'head -c 4096 /dev/zero >"$1"; code=$?; rm -f -- "$1"; exit $code'
        probe = temporary_beside(posixpath.join(folder, "probe"))
        written = self.run(["sh", "-c", script, "sh", probe], sudo=True, check=False)
        return written.stderr.strip().rpartition(": ")[2] if written.code else ""

    @abstractmethod
    def connect_unix(self, path: str, timeout: float) -> AbstractContextManager[socket.socket]:
        """A connection to a Unix socket of that machine."""

    @abstractmethod
    def ping(self, timeout: float) -> float:
        """Reach the machine, which may take ``timeout`` seconds, and run the smallest command; returns the seconds."""

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""


def full_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    sudo: bool = False,
    netns: str | None = None,
) -> list[str]:
    """The arguments with sudo, namespace, folder and environment in front, each only where it is asked for."""
    if not command:
        raise ValueError("an empty command")
    require_text(f"the arguments of {command[0]!r}", *command, *(env or {}).values(), cwd or "")
    if not command[0] or command[0].startswith("-"):
        raise ArgumentError(f"{command[0]!r} is not the name of a program")
    for key in env or {}:
        if not key.isidentifier() or not key.isascii():
            raise ArgumentError(f"{key!r} is not the name of a variable")
    prefix: list[str] = []
    if sudo:
        prefix += ["sudo", "-n", "--"]
    if netns:
        prefix += ["ip", "netns", "exec", netns]
    if env or cwd:
        prefix += ["env"]
        if cwd:
            prefix += ["-C", cwd]
        prefix += [f"{key}={value}" for key, value in (env or {}).items()]
        prefix += _EXEC if "=" in command[0] else ()
    return [*prefix, *command]


def require_text(what: str, *texts: str) -> None:
    """Raises ArgumentError where one of the texts cannot be an argument or a path; ``what`` is for the user.

    Names of files that are no UTF-8 pass: Python keeps their bytes, and :func:`to_bytes` gives them back.
    """
    for text in texts:
        if "\0" in text:
            raise ArgumentError(f"a zero byte in {what}")
        try:
            to_bytes(text)
        except UnicodeEncodeError:
            raise ArgumentError(f"{text!r} in {what} cannot be written as UTF-8") from None


def to_bytes(text: str) -> bytes:
    """The text as it goes over the wire: UTF-8, but the bytes of a file name that is none as they are."""
    return text.encode("utf-8", "surrogateescape")


def socat_address(kind: str, value: str) -> str:
    """One address for socat's command line; ``value`` is data: there ``:``, ``,`` and ``!!`` would say more."""
    return f"{kind}:" + re.sub(r"([^A-Za-z0-9/._-])", r"\\\1", value)


def temporary_beside(target: str, note: Callable[[str], None] | None = None) -> str:
    """A name in the same folder that nobody else will choose, for writing before renaming; ``note`` is told of it."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.tmp")
    if note:
        note(temporary)
    return temporary


def command_line(command: Sequence[str]) -> str:
    """For the log, and for the one place where a remote shell reads the command: it may be sh, bash or zsh."""
    return " ".join(_quoted(argument) for argument in command)


def _quoted(argument: str) -> str:
    # zsh takes an unquoted =ls for the path of ls.
    return f"'{argument}'" if argument.startswith("=") and shlex.quote(argument) == argument else shlex.quote(argument)
