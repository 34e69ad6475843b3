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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autotest.errors import ResultsError
from autotest.results import files as whole
from autotest.results.names import (
    HISTOGRAM,
    OUTPUT,
    SUFFIXES,
    TRIAL,
    TrialName,
    parse_file_name,
)
from autotest.results.verdicts import Verdict

TRIAL_VERSION: Final = 1
INVALID_DIRECTORY: Final = "invalid"
FAILURES_FILE: Final = "failures.jsonl"
#: Kinds of files that a trial can have, and must have to be done.
DATA_KINDS: Final = (OUTPUT, HISTOGRAM)
#: Keys of the JSON that the store writes itself.
STORE_KEYS: Final = ("version", "infix", "repetition", "files")


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """A trial as it lies in the output directory.

    Attributes:
        verdict: what counts: the recorded verdict, or ``incomplete`` where the files do not belong together.
        trial: content of our JSON; None for a trial of the older tool.
        files: content of the data files that are there, by kind.
        reason: what is wrong, where ``verdict`` does not come from the JSON.
    """

    name: TrialName
    verdict: Verdict
    trial: dict[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    reason: str = ""


class ResultStore:
    """Trials in one output directory. Constructing it touches nothing; the directory may not exist yet."""

    def __init__(self, outputdir: Path) -> None:
        self.outputdir = Path(outputdir)
        self._names: set[str] | None = None
        self._done: set[TrialName] = set()

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

    def is_done(self, name: TrialName) -> bool:
        """True where measuring this trial again would bring nothing new.

        Answers from one listing of the directory where there is no file of that name, and remembers what is done; see
        :meth:`refresh`. Raises ResultsError for a trial of a newer autotest.
        """
        listing = self._listing()
        if not listing or (name.trial not in listing and name.output not in listing):
            return False
        if name in self._done:
            return True
        if self.load(name).verdict.is_done:
            self._done.add(name)
            return True
        return False

    def load(self, name: TrialName) -> StoredTrial:
        """Read a trial from disk and check that its files belong together.

        With our JSON: version known, files there with the recorded sizes and checksums. Without (older tool): output
        with final totals, histogram that parses and is not empty; such a trial counts as valid. Raises ResultsError
        for the JSON of a newer autotest.
        """
        contents = {kind: whole.read_bytes(self.path(name, kind)) for kind in DATA_KINDS}
        found = {kind: content for kind, content in contents.items() if content is not None}
        raw = whole.read_bytes(self.path(name, TRIAL))
        if raw is None:
            reason = _content_problem(found, self.outputdir / name.histogram)
            return StoredTrial(name, Verdict.INCOMPLETE if reason else Verdict.VALID, None, found, reason)
        path = self.path(name, TRIAL)
        try:
            trial = json.loads(raw)
        except ValueError as error:
            return StoredTrial(name, Verdict.INCOMPLETE, None, found, f"{path}: not JSON: {error}")
        version = trial.get("version") if isinstance(trial, dict) else None
        if isinstance(version, int) and version > TRIAL_VERSION:
            raise ResultsError(
                f"{path}: written by a newer autotest (format {version}, this one knows {TRIAL_VERSION}): "
                "use that autotest, or another output directory"
            )
        reason = _record_problem(trial, name, found)
        if reason:
            trial = trial if isinstance(trial, dict) else None
            return StoredTrial(name, Verdict.INCOMPLETE, trial, found, f"{path}: {reason}")
        return StoredTrial(name, Verdict(trial["verdict"]), trial, found)

    def path(self, name: TrialName, kind: str) -> Path:
        """Where a trial's file of one kind lies: ``output``, ``histogram`` or ``trial``."""
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
        self, name: TrialName, files: Mapping[str, Path | bytes | str], trial: Mapping[str, Any]
    ) -> StoredTrial:
        """Make a trial part of the results, as one step: after a crash at any point it is done or not, never half.

        Args:
            name: the trial; files of an earlier attempt that is not done move to ``invalid/``.
            files: content, or the file to copy, for ``output`` and ``histogram``; both needed for a verdict that
                counts as done.
            trial: what the JSON shall hold: ``verdict`` and anything else. ``version``, ``infix``, ``repetition`` and
                ``files`` are added here.

        Raises ResultsError where the trial is done already, where content does not fit the verdict, and where
        something cannot be written.
        """
        contents = _contents(name, files)
        document = _document(name, contents, trial)
        try:
            whole.make_directory(self.outputdir)
            earlier = self.load(name)
            if earlier.verdict.is_done:
                raise ResultsError(f"{self.path(name, TRIAL)}: this trial is done already and is not overwritten")
            self._commit(name, contents, document)
        except OSError as error:
            raise ResultsError(f"{error.filename or self.outputdir}: cannot commit: {error.strerror}") from error
        finally:
            self._note_change(name)
        verdict = Verdict(document["verdict"])
        if verdict.is_done:
            self._done.add(name)
        return StoredTrial(name, verdict, document, contents)

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
            final = whole.write_temporary(self.outputdir, _json_bytes(document))
            temporaries[record] = final
            self._keep_earlier(name)
            whole.write_atomically(record, _json_bytes(_placeholder(name)))
            for kind in DATA_KINDS:
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
        if record == _json_bytes(_placeholder(name)):
            record = None
        kinds = [kind for kind in DATA_KINDS if (path := self.path(name, kind)).is_file() and path.stat().st_size]
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
        self._done.discard(name)
        if self._names is not None:
            for kind in SUFFIXES:
                if self.path(name, kind).exists():
                    self._names.add(name.file(kind))
                else:
                    self._names.discard(name.file(kind))


def _contents(name: TrialName, files: Mapping[str, Path | bytes | str]) -> dict[str, bytes]:
    contents = {}
    for kind, source in files.items():
        if kind not in DATA_KINDS:
            raise ResultsError(f"{name}: a trial has no file of kind {kind!r}, only {' and '.join(DATA_KINDS)}")
        if isinstance(source, Path):
            content = whole.read_bytes(source)
            if content is None:
                raise ResultsError(f"{source}: no such file, needed as {kind} of {name}")
            contents[kind] = content
        else:
            contents[kind] = source.encode() if isinstance(source, str) else source
    return contents


def _document(name: TrialName, contents: Mapping[str, bytes], trial: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a trial, checked against its files."""
    taken = [key for key in STORE_KEYS if key in trial]
    if taken:
        raise ResultsError(f"{name}: the keys {', '.join(taken)} of a trial are written by the store")
    try:
        verdict = Verdict(trial.get("verdict", ""))
    except ValueError as error:
        raise ResultsError(f"{name}: {trial.get('verdict')!r} is not a verdict") from error
    if verdict.is_done and (problem := _content_problem(contents, Path(name.histogram))):
        raise ResultsError(f"{name}: cannot be {verdict}: {problem}")
    document = {
        "version": TRIAL_VERSION,
        "infix": name.infix,
        "repetition": name.repetition,
        **trial,
        "verdict": str(verdict),
        "files": {
            kind: {"name": name.file(kind), "size": len(content), "sha256": whole.sha256(content)}
            for kind, content in contents.items()
        },
    }
    try:
        _json_bytes(document)
    except (TypeError, ValueError) as error:
        raise ResultsError(f"{name}: cannot be written as JSON: {error}") from error
    return document


def _content_problem(contents: Mapping[str, bytes], histogram_path: Path) -> str:
    """Why these files do not make a measured trial; empty where they do."""
    missing = [kind for kind in DATA_KINDS if not contents.get(kind)]
    if missing:
        return f"no {' and no '.join(missing)}, or nothing in it"
    # Imported here: most of what is asked is answered without reading any file.
    from autotest.results.histogram import parse_histogram
    from autotest.results.moongen import parse_moongen_output

    if not parse_moongen_output(contents[OUTPUT].decode("utf-8", "replace")).complete:
        return "the output has no final totals"
    try:
        parse_histogram(contents[HISTOGRAM], str(histogram_path))
    except ResultsError as error:
        return str(error)
    return ""


def _record_problem(trial: object, name: TrialName, contents: Mapping[str, bytes]) -> str:
    """Why a trial's JSON and files do not belong together; empty where they do."""
    if not isinstance(trial, dict) or trial.get("version") != TRIAL_VERSION:
        return "not the record of a trial"
    if (trial.get("infix"), trial.get("repetition")) != (name.infix, name.repetition):
        return "the record of another trial"
    try:
        verdict = Verdict(trial.get("verdict", ""))
        recorded = {kind: (entry["size"], entry["sha256"]) for kind, entry in trial["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return "verdict or files are not what they should be"
    if verdict.is_done and set(recorded) != set(DATA_KINDS):
        return f"{verdict}, but without {' or '.join(kind for kind in DATA_KINDS if kind not in recorded)}"
    for kind, (size, checksum) in recorded.items():
        content = contents.get(kind)
        if content is None:
            return f"the {kind} is missing"
        if len(content) != size or whole.sha256(content) != checksum:
            return f"the {kind} is not the one that was measured"
    return ""


def _placeholder(name: TrialName) -> dict[str, Any]:
    return {
        "version": TRIAL_VERSION,
        "infix": name.infix,
        "repetition": name.repetition,
        "verdict": str(Verdict.INCOMPLETE),
        "reason": "the commit of this trial was interrupted",
        "files": {},
    }


def _json_bytes(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


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
