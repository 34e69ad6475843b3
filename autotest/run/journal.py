"""The journal of changes to machines: each is written down with its undoing before it is made.

Leaving a stage, an error, Ctrl-C and ``autotest recover`` all undo the same way: from the last change back to the
first, by what the journal says. So what a run that was killed left can be undone by any later process.

The file is a header and then one JSON object a line: ``{"change": N, ...}`` before a change is made, ``{"undone": N}``
after it was undone, ``{"kept": COMMAND}`` when what stands is meant to stay. A last line that a crash cut off belongs
to a change that was not made. A journal whose changes are all undone is removed.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autotest.errors import AutotestError, ConnectError, TestbedError
from autotest.run.interruption import requested

log = logging.getLogger(__name__)

VERSION = 1
_COMPACT_AT = 1000  # lines, of which most are about changes that were undone


@dataclass(frozen=True)
class Change:
    """One change of a machine.

    Attributes:
        number: counts from 1 within a journal.
        server: which machine of the testbed.
        boot: the boot id of that machine; nothing that is noted here outlives its next boot. Empty: not known.
        kind: which undoing it takes.
        details: what the undoing needs to know.
        machine: the machine of the testbed that ends with the undoing, and with it all changes that were made to it.
    """

    number: int
    server: str
    kind: str
    details: Mapping[str, str]
    boot: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return f"{self.server}: {self.kind} {self.details.get('name') or self.details.get('path') or ''}".rstrip()


Undo = Callable[[Change], str | None]
"""Undoes a change; says what it did, None where nothing was left to do. Raises AutotestError or OSError."""


class UndoFailed(TestbedError):
    """Changes could not be undone; they stay in the journal."""

    def __init__(self, problems: list[tuple[Change, Exception]]) -> None:
        self.problems = problems
        super().__init__("\n".join(f"cannot undo {change}: {error}" for change, error in problems))


class Journal:
    """The changes of one process, or those that an earlier one left.

    Args:
        undo: how a change is undone.
        path: the file; it is made with the first change. None: the changes are only known to this process.
        header: what the file begins with: whose it is, and which testbed's.
    """

    def __init__(self, undo: Undo, path: Path | None = None, header: Mapping[str, Any] | None = None) -> None:
        self._undo = undo
        self._path = path
        self._header = {"version": VERSION, **(header or {})}
        self._standing: dict[int, Change] = {}
        self._last = 0
        self._lines = 0
        self._file: int | None = None
        self._unreachable: dict[str, ConnectError] = {}
        self._lock = threading.RLock()  # changes are noted by the threads of several machines
        self._is_nested = False  # within a context that undoes what is changed in it

    @property
    def path(self) -> Path | None:
        """Its file."""
        return self._path

    def is_unreachable(self, server: str) -> bool:
        """Whether that server could not be reached when something was last undone."""
        return server in self._unreachable

    @property
    def standing(self) -> tuple[Change, ...]:
        """The changes that are not undone, in the order in which they were made."""
        with self._lock:
            return tuple(self._standing.values())

    def begin(self) -> None:
        """Make the file before anything is held or changed: a process that dies is then known to have been at work.

        Raises:
            TestbedError: it cannot be written.
        """
        try:
            if self._path and self._file is None:
                self._rewrite()
        except OSError as error:
            raise TestbedError(f"the journal {self._path} cannot be written: {error.strerror}; nothing is changed") from None

    def note(self, server: str, kind: str, *, boot: str = "", machine: str = "", details: Mapping[str, str]) -> None:
        """Write down a change that is about to be made.

        Raises:
            TestbedError: the journal cannot be written, so the change must not be made.
        """
        with self._lock:
            change = Change(self._last + 1, server, kind, dict(details), boot, machine)
            self._last = change.number
            self._standing[change.number] = change
            try:
                self._write(_change_line(change), durable=True)
            except OSError as error:
                del self._standing[change.number]
                raise TestbedError(f"the journal {self._path} cannot be written: {error.strerror}; nothing is changed") from None

    def settle(self, server: str, kind: str, details: Mapping[str, str]) -> None:
        """Nothing is left to undo of the last change that was noted like this."""
        with self._lock:
            like = [change for change in self.standing if (change.server, change.kind, change.details) == (server, kind, details)]
            for change in like[-1:]:
                self._undone(change)

    @contextmanager
    def scope(self, server: str = "") -> Iterator[None]:
        """All changes that are made within the context are undone at its end, whatever ends it.

        Those of one server only, where it is named: what happens to others at the same time is none of its business.

        Raises:
            UndoFailed: at the end of a context that is left in order. Else it is logged, and the first error goes on.
        """
        mark = self._last
        with self._undone_after_error(mark, server) as outermost:
            yield
        self._undo_all(mark, outermost, server)

    @contextmanager
    def _undone_after_error(self, mark: int, server: str = "") -> Iterator[bool]:
        """Gives whether it is the outermost one; an interruption may keep one within it from being left at all."""
        outermost, self._is_nested = not self._is_nested, True
        try:
            yield outermost
        except BaseException:
            self._is_nested = not outermost
            try:
                self._undo_all(mark, outermost, server)
            except UndoFailed as error:
                log.error(error)
            raise
        self._is_nested = not outermost

    def _undo_all(self, mark: int, outermost: bool, server: str) -> None:
        """As :meth:`undo`; Ctrl-C meanwhile asks for just that, so it is done to the end before it is passed on.

        In a hurry the outermost context undoes all at once: what ends with a machine need not be undone on it.
        """
        if requested() and not outermost:
            return
        try:
            self.undo(mark, server)
        except KeyboardInterrupt:
            if not outermost:
                raise
            try:
                self.undo(mark, server)
            except UndoFailed as error:
                log.error(error)
            raise

    def undo(self, after: int = 0, server: str = "", say: Callable[[str], None] = log.debug) -> None:
        """Undo the changes after that number, of one server or of all, the last one first; ``say`` is told what was done.

        A change that cannot be undone does not keep the others. Changes of a machine that ends with one of these
        changes end with it.

        Raises:
            UndoFailed: some could not be undone.
        """
        problems: list[tuple[Change, Exception]] = []
        if not requested():
            self._unreachable.clear()
        chosen = [change for change in self.standing if change.number > after and server in ("", change.server)]
        ending = {change.machine: change.number for change in reversed(chosen) if change.machine}
        for change in reversed(chosen):
            if change.number > ending.get(change.server, change.number):
                continue
            try:
                if change.server in self._unreachable:  # not waited for again
                    raise self._unreachable[change.server]
                said = self._undo(change)
            except (AutotestError, OSError) as error:
                if isinstance(error, ConnectError):
                    self._unreachable[change.server] = error
                problems.append((change, error))
                continue
            if said:
                say(said)
            self._undone_with_machine(change)
        if problems:
            raise UndoFailed(problems)

    def undo_machine(self, machine: str) -> None:
        """End a machine of the testbed; whatever was changed on it ends with it, and is not undone one by one.

        Raises what undoing does.
        """
        for change in reversed(self.standing):
            if change.machine == machine:
                self._undo(change)
                self._undone_with_machine(change)

    def _undone_with_machine(self, change: Change) -> None:
        ended = [other for other in self.standing if other.server == change.machine and other.number > change.number]
        for each in (*ended, change):
            self._undone(each)

    @contextmanager
    def kept(self, command: str) -> Iterator[None]:
        """What is changed within the context is meant to stay when this process ends; after an error it is undone.

        Raises:
            TestbedError: that it is meant to stay cannot be written down.
        """
        mark = self._last
        with self._undone_after_error(mark):
            yield
            if self._standing:
                try:
                    self._write({"kept": command}, durable=True)
                except OSError as error:
                    raise TestbedError(f"the journal {self._path} cannot be written: {error.strerror}") from None

    def forget(self) -> None:
        """Drop what stands without undoing it."""
        self._standing.clear()
        self.close()

    def close(self) -> None:
        """The end of this process's work; the file stays where changes stand."""
        before, self._file = self._file, None
        if before is not None:
            os.close(before)
        if self._path and not self._standing:
            self._path.unlink(missing_ok=True)
            with suppress(OSError):  # other journals are in there, or there never was one
                self._path.parent.rmdir()

    def _undone(self, change: Change) -> None:
        with self._lock:
            self._standing.pop(change.number, None)
            try:
                self._write({"undone": change.number})
            except OSError as error:  # it is undone all the same, and to undo it again does no harm
                log.debug("the journal %s cannot be written: %s", self._path, error)

    def _write(self, line: Mapping[str, Any], durable: bool = False) -> None:
        if self._path is None:
            return
        if self._file is None or self._lines >= _COMPACT_AT + len(self._standing):
            self._rewrite()
            if "change" in line:
                return  # it is among those that stand
        assert self._file is not None
        _append(self._file, _encoded(line))
        self._lines += 1
        if durable:
            os.fdatasync(self._file)

    def _rewrite(self) -> None:
        """A file of just what stands, put in the place of the one before in one step."""
        assert self._path
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.new")
        lines = [self._header, *(_change_line(change) for change in self.standing)]
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _append(descriptor, b"".join(map(_encoded, lines)))
            os.fsync(descriptor)
            os.replace(temporary, self._path)
            _sync_folder(self._path.parent)
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        before, self._file, self._lines = self._file, descriptor, len(lines)
        if before is not None:
            os.close(before)


@dataclass
class Left:
    """A journal that a process left.

    Attributes:
        path: its file.
        header: whose it is.
        changes: those that are not undone.
        kept: the command that meant them to stay; empty where it ended before its time.
    """

    path: Path
    header: Mapping[str, Any]
    changes: list[Change] = field(default_factory=list)
    kept: str = ""

    def journal(self, undo: Undo) -> Journal:
        """The journal to go on with."""
        journal = Journal(undo, self.path, self.header)
        journal._standing = {change.number: change for change in self.changes}
        journal._last = max(journal._standing, default=0)
        return journal


def read_journal(path: Path) -> Left:
    """Read what a process left.

    Raises:
        TestbedError: the file is not a journal, or of a newer autotest, or cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TestbedError(f"the journal {path} cannot be read: {error.strerror}") from None
    parsed = [_parsed(line) for line in lines[:-1]]  # behind the last newline: nothing, or a line that was cut off
    header = parsed[0] if parsed else None
    if header is None or header.get("version") != VERSION:
        raise TestbedError(f"{path} is no journal of this version of autotest")
    left = Left(path, header)
    standing: dict[int, Change] = {}
    for line in parsed[1:]:
        try:
            if line is None:
                raise ValueError
            if "change" in line:
                change = _read_change(line)
                standing[change.number] = change
            elif "undone" in line:
                standing.pop(_number(line["undone"]), None)
            else:
                left.kept = _text(line["kept"])
        except (KeyError, TypeError, ValueError):
            raise TestbedError(f"the journal {path} is damaged: mend it or move it away, then look after the testbed") from None
    left.changes = list(standing.values())
    return left


def _change_line(change: Change) -> dict[str, Any]:
    fields = asdict(change)
    return {"change": fields.pop("number"), **fields}


def _read_change(line: Mapping[str, Any]) -> Change:
    details = {key: _text(value) for key, value in dict(line["details"]).items()}
    return Change(
        _number(line["change"]), _text(line["server"]), _text(line["kind"]), details, _text(line["boot"]), _text(line["machine"])
    )


def _number(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _append(descriptor: int, content: bytes) -> None:
    """All of it or an error: a full disk may take a part."""
    written = os.write(descriptor, content)
    if written != len(content):
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_END) - written)
        raise OSError(28, os.strerror(28))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
