"""The output directory: which trials are done, and how a new one gets in.

A trial is committed by renaming its ``trial_INFIX_repN.json`` into place, which holds verdict, sizes and checksums of
its other files. From the first change of a commit to that last rename, a placeholder with verdict ``incomplete`` stands
there: without it, an interrupted commit would look like a trial of the older tool, which wrote no JSON.

Earlier files of a trial that is measured again are kept in the subfolder ``invalid/`` as
``KIND_INFIX_repN.K.SUFFIX``, K counting from 1; nothing reads them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from autotest.errors import ResultsError
from autotest.results import files as whole
from autotest.results.names import SUFFIXES, TRIAL, TrialName, parse_file_name
from autotest.results.records import (
    FILE_KINDS,
    READABLE_VERSIONS,
    StoredTrial,
    acceptance,
    json_bytes,
    new_record,
    placeholder,
    stored_trial,
)
from autotest.results.timing import Timing
from autotest.results.verdicts import Verdict

INVALID_DIRECTORY: Final = "invalid"
FAILURES_FILE: Final = "failures.jsonl"


class _Known(NamedTuple):
    """What is remembered of a trial."""

    verdict: Verdict
    is_accepted: bool
    identity: str | None
    can_be_accepted: bool = False
    timing: Timing = Timing()

    @classmethod
    def of(cls, stored: StoredTrial) -> _Known:
        record = stored.trial or {}
        identity = record.get("identity")
        recorded = identity.get("hash") if isinstance(identity, dict) else None
        can_be_accepted = stored.verdict is not Verdict.VALID and not stored.unacceptable
        is_accepted = can_be_accepted and bool(record.get("accepted"))
        return cls(
            stored.verdict, is_accepted, recorded if isinstance(recorded, str) else None, can_be_accepted, Timing.of(record)
        )

    def counts(self, accept: Collection[Verdict]) -> bool:
        return self.verdict.is_done or self.is_accepted or (self.can_be_accepted and self.verdict in accept)


class ResultStore:
    """Trials in one output directory. Constructing it touches nothing; the directory may not exist yet."""

    def __init__(self, outputdir: Path) -> None:
        self.outputdir = Path(outputdir)
        self._names: set[str] | None = None
        self._done: dict[TrialName, _Known] = {}

    # What is there

    def refresh(self) -> None:
        """Forget what is known, so that the directory is listed and its files are read again."""
        self._names = None
        self._done.clear()

    def trials(self) -> list[TrialName]:
        """All trials of which there is any file, sorted."""
        found = set()
        for file_name in self._listing():
            parsed = parse_file_name(file_name)
            if parsed is not None and parsed.repetition is not None:
                found.add(TrialName(parsed.infix, parsed.repetition))
        return sorted(found, key=lambda name: (name.infix, name.repetition))

    def present(self) -> set[tuple[str, int]]:
        """Infix and repetition of all trials of which there is any file: a quick look before :meth:`is_done`."""
        return {(name.infix, name.repetition) for name in self.trials()}

    def is_done(self, name: TrialName, accept: Collection[Verdict] = ()) -> bool:
        """True where measuring this trial again would bring nothing new, or the user accepts its verdict: now, with
        ``accept``, or at an earlier time, as :meth:`accept` noted.

        Answers from one listing of the directory where there is no file of that name, and remembers what is done; see
        :meth:`refresh`. Raises ResultsError for a trial of a newer autotest.
        """
        listing = self._listing()
        if not listing or (name.trial not in listing and name.output not in listing):
            return False
        if name not in self._done:
            stored = self.load(name)
            known = _Known.of(stored)
            if not known.counts(accept):
                return False
            self._done[name] = known
        return self._done[name].counts(accept)

    def identity(self, name: TrialName) -> str | None:
        """The hash of what determined the result of a trial; None where its record has none.

        Reads nothing for a trial of which :meth:`is_done` has said that it is done.
        """
        return (self._done.get(name) or _Known.of(self.load(name))).identity

    def timing(self, name: TrialName) -> Timing:
        """How long a trial took; reads nothing where :meth:`identity` would not."""
        return (self._done.get(name) or _Known.of(self.load(name))).timing

    def record(self, name: TrialName) -> dict[str, Any]:
        """The JSON of a trial, whatever became of its other files; empty where there is none that can be read."""
        try:
            found = json.loads(whole.read_bytes(self.path(name, TRIAL)) or b"{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def accept(self, name: TrialName, accept: Collection[Verdict]) -> bool:
        """Note in a trial's record that its verdict, one of those, is accepted, by whom and when.

        The verdict stays. Returns whether that was new: another verdict, one that needs no acceptance, what was noted before
        and what cannot be used stay as they are. Raises ResultsError where it cannot be written.
        """
        known = self._done.get(name) or _Known.of(self.load(name))
        if known.is_accepted or not known.can_be_accepted or known.verdict not in accept:
            return False
        document = self.load(name).trial
        assert document  # nothing else can be accepted
        document["accepted"] = acceptance()
        try:
            whole.write_atomically(self.path(name, TRIAL), json_bytes(document))
        except ValueError as error:  # somebody edited it: NaN, half a character
            raise ResultsError(f"{self.path(name, TRIAL)}: cannot be written again as JSON: {error}") from error
        except OSError as error:
            raise ResultsError(f"{error.filename or self.path(name, TRIAL)}: cannot write: {error.strerror}") from error
        self._done[name] = known._replace(is_accepted=True)
        return True

    def load(self, name: TrialName) -> StoredTrial:
        """Read a trial from disk and check that its files belong together.

        With our JSON: version known, files there with the recorded sizes and checksums. Without (older tool): output
        with final totals, histogram that parses and is not empty; such a trial counts as valid. Raises ResultsError
        for the JSON of a newer autotest.
        """
        contents = {kind: whole.read_bytes(self.path(name, kind)) for kind in FILE_KINDS}
        found = {kind: content for kind, content in contents.items() if content is not None}
        return stored_trial(self.outputdir, name, whole.read_bytes(self.path(name, TRIAL)), found)

    def path(self, name: TrialName, kind: str) -> Path:
        """Where a trial's file of one kind lies: ``output``, ``histogram``, ``guests`` or ``trial``."""
        return self.outputdir / name.file(kind)

    def _listing(self) -> set[str]:
        if self._names is None:
            try:
                with os.scandir(self.outputdir) as entries:
                    self._names = {entry.name for entry in entries}
            except FileNotFoundError:
                self._names = set()
            except OSError as error:
                raise ResultsError(f"{self.outputdir}: {error.strerror}") from error
        return self._names

    # What gets in

    def check_writable(self) -> None:
        """Raise ResultsError where results cannot be written; leaves nothing behind."""
        created: list[Path] = []
        try:
            created = whole.make_directory(self.outputdir)
            whole.write_temporary(self.outputdir, b"").unlink()
        except OSError as error:
            raise ResultsError(f"{self.outputdir}: results cannot be written here: {error.strerror}") from error
        finally:
            for path in reversed(created):
                with contextlib.suppress(OSError):
                    path.rmdir()

    def working_directory(self) -> AbstractContextManager[Path]:
        """A directory beside the results for the files of a trial that runs; :meth:`clean` knows it."""
        return whole.temporary_directory(self.outputdir)

    @contextlib.contextmanager
    def naming_itself(self) -> Iterator[None]:
        """An OSError that names no file, as that of writing to a full disk, is about this directory."""
        try:
            yield
        except OSError as error:
            if error.filename is None and error.errno is not None:
                error.filename = str(self.outputdir)
            raise

    def commit(
        self,
        name: TrialName,
        files: Mapping[str, Path | bytes | str],
        trial: Mapping[str, Any],
        *,
        replace: bool = False,
    ) -> StoredTrial:
        """Make a trial part of the results, as one step: after a crash at any point it is done or not, never half.

        Args:
            name: the trial; files of an earlier attempt that is not done move to ``invalid/``.
            files: content, or the file to copy, for ``output`` and ``histogram``, both needed for a verdict that
                counts as done, and ``guests``.
            trial: what the JSON shall hold: ``verdict`` and anything else, ``accepted`` among it: an :func:`acceptance` or
                None, and None where the files cannot be used whoever accepts it. ``version``, ``infix``, ``repetition``
                and ``files`` are added here.
            replace: whether the trial may be done already; its files move to ``invalid/`` then, too.

        Raises ResultsError where the trial is done already, where content does not fit the verdict, and where
        something cannot be written.
        """
        contents = _contents(name, files)
        document = new_record(name, contents, trial)
        try:
            whole.make_directory(self.outputdir)
            earlier = self.load(name)
            if not replace and _Known.of(earlier).counts(()):
                raise ResultsError(f"{self.path(name, TRIAL)}: this trial is done already and is not overwritten")
            self._commit(name, contents, document)
        except OSError as error:
            raise ResultsError(f"{error.filename or self.outputdir}: cannot commit: {error.strerror}") from error
        finally:
            self._note_change(name)
        stored = StoredTrial(name, Verdict(document["verdict"]), document, contents)
        if _Known.of(stored).counts(()):
            self._done[name] = _Known.of(stored)
        return stored

    def note_failure(self, what: str, reason: str) -> None:
        """Add a line to ``failures.jsonl``: what could not be measured, why, and when. Nothing is ever removed there.

        Raises ResultsError where it cannot be written.
        """
        path = self.outputdir / FAILURES_FILE
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "what": what, "reason": reason}
        try:
            whole.make_directory(self.outputdir)
            with open(path, "ab+") as file:
                if file.tell():  # a line that a crash cut off stays alone
                    file.seek(-1, os.SEEK_END)
                    file.write(b"" if file.read() == b"\n" else b"\n")
                file.write((json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ResultsError(f"{path}: cannot write: {error.strerror}") from error

    def clean(self) -> list[Path]:
        """Remove temporary files that dead runs left; returns them."""
        return [
            path
            for directory in (self.outputdir, self.outputdir / INVALID_DIRECTORY)
            for path in whole.remove_stale_temporaries(directory)
        ]

    def _commit(self, name: TrialName, contents: Mapping[str, bytes], document: Mapping[str, Any]) -> None:
        record = self.path(name, TRIAL)
        temporaries: dict[Path, Path] = {}
        try:
            for kind, content in contents.items():
                temporaries[self.path(name, kind)] = whole.write_temporary(self.outputdir, content)
            final = whole.write_temporary(self.outputdir, json_bytes(document))
            temporaries[record] = final
            self._keep_earlier(name)
            whole.write_atomically(record, json_bytes(placeholder(name)))
            for kind in FILE_KINDS:
                if (path := self.path(name, kind)) in temporaries:
                    os.replace(temporaries.pop(path), path)
                else:
                    path.unlink(missing_ok=True)
            whole.sync_directory(self.outputdir)
            os.replace(temporaries.pop(record), record)
            whole.sync_directory(self.outputdir)
        finally:
            for path in temporaries.values():
                with contextlib.suppress(OSError):
                    path.unlink()

    def _keep_earlier(self, name: TrialName) -> None:
        """Give the files of an earlier attempt a second name in ``invalid/``; empty ones are not worth it.

        A second name and not a move: the earlier JSON must stay in place until the placeholder replaces it.
        """
        record = whole.read_bytes(self.path(name, TRIAL))
        if record in [json_bytes(placeholder(name, version)) for version in READABLE_VERSIONS]:
            record = None
        kinds = [kind for kind in FILE_KINDS if (path := self.path(name, kind)).is_file() and path.stat().st_size]
        kinds += [TRIAL] if record else []
        if not kinds:
            return
        folder = self.outputdir / INVALID_DIRECTORY
        whole.make_directory(folder)
        attempt = 1
        while any((folder / _kept_name(name, kind, attempt)).exists() for kind in SUFFIXES):
            attempt += 1
        for kind in kinds:
            _second_name(self.path(name, kind), folder / _kept_name(name, kind, attempt))
        whole.sync_directory(folder)

    def _note_change(self, name: TrialName) -> None:
        self._done.pop(name, None)
        if self._names is not None:
            for kind in SUFFIXES:
                if self.path(name, kind).exists():
                    self._names.add(name.file(kind))
                else:
                    self._names.discard(name.file(kind))


def _contents(name: TrialName, files: Mapping[str, Path | bytes | str]) -> dict[str, bytes]:
    contents = {}
    for kind, source in files.items():
        if kind not in FILE_KINDS:
            raise ResultsError(f"{name}: a trial has no file of kind {kind!r}, only {', '.join(FILE_KINDS)}")
        if isinstance(source, Path):
            content = whole.read_bytes(source)
            if content is None:
                raise ResultsError(f"{source}: no such file, needed as {kind} of {name}")
            contents[kind] = content
        else:
            contents[kind] = source.encode() if isinstance(source, str) else source
    return contents


def _kept_name(name: TrialName, kind: str, attempt: int) -> str:
    return f"{kind}_{name}.{attempt}.{SUFFIXES[kind]}"


def _second_name(path: Path, other: Path) -> None:
    try:
        os.link(path, other)
    except OSError:  # a file system without hard links
        temporary = whole.write_temporary(other.parent, path.read_bytes())
        with contextlib.suppress(OSError):
            shutil.copystat(path, temporary)
        os.replace(temporary, other)
