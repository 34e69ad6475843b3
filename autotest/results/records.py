"""The JSON of a trial, ``trial_INFIX_repN.json``: what it holds, and whether it and the trial's files belong together.

Reading directories and writing into them is what :mod:`autotest.results.store` does.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autotest.errors import ResultsError
from autotest.results.files import sha256
from autotest.results.names import GUESTS, HISTOGRAM, OUTPUT, TrialName
from autotest.results.verdicts import Verdict

TRIAL_VERSION: Final = 3
#: Versions that are read: 1 had neither ``identity`` nor ``machines``, and ``testbed`` was the configuration itself; 2 knew
#: of one guest only.
READABLE_VERSIONS: Final = (1, 2, TRIAL_VERSION)
#: Kinds of files that a load latency trial must have to be done; one of another measurement kind needs its output only.
DATA_KINDS: Final = (OUTPUT, HISTOGRAM)
LOAD_LATENCY: Final = "load-latency"
"""The measurement kind of the older tool's trials, and of ours: its files are parsed before a trial counts as done."""
#: Those that it can have beside its JSON; one that is recorded must be there.
FILE_KINDS: Final = (*DATA_KINDS, GUESTS)
_CALLED: Final = {GUESTS: "file of the guests' histograms"}
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

    @property
    def is_accepted(self) -> bool:
        """True where its record says that the user accepts its verdict."""
        return bool((self.trial or {}).get("accepted")) and not self.unacceptable

    @property
    def unacceptable(self) -> str:
        """Why its verdict cannot be accepted, empty where it can: there must be a record, files that belong to it, and
        something to make figures of. That there are no samples can be accepted.
        """
        if self.trial is None:
            return "there is no record of it"
        return self.reason or ("" if self.verdict.is_done else _unusable_content(self.files, self.trial))


def acceptance() -> dict[str, str]:
    """``accepted`` of a trial's JSON: when a verdict was accepted, and by whom."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):  # no environment, and a user id without a name
        user = str(os.getuid())
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), "by": f"{user}@{socket.gethostname()}"}


def stored_trial(outputdir: Path, name: TrialName, record: bytes | None, files: Mapping[str, bytes]) -> StoredTrial:
    """A trial from the content of its JSON, None where there is none, and of those of its files that are there.

    See :meth:`ResultStore.load`; its reasons do not name the JSON.
    """
    if record is None:
        reason = _content_problem(files, {}, name.histogram)
        return StoredTrial(name, Verdict.INCOMPLETE if reason else Verdict.VALID, None, files, reason)
    try:
        trial = json.loads(record)
    except (ValueError, RecursionError) as error:
        return StoredTrial(name, Verdict.INCOMPLETE, None, files, f"not JSON: {error}")
    version = trial.get("version") if isinstance(trial, dict) else None
    if isinstance(version, int) and version > TRIAL_VERSION:
        raise ResultsError(
            f"{outputdir / name.trial}: written by a newer autotest (format {version}, this one knows {TRIAL_VERSION}): "
            "use that autotest, or another output directory"
        )
    reason = _record_problem(trial, name, files)
    if reason:
        return StoredTrial(name, Verdict.INCOMPLETE, trial if isinstance(trial, dict) else None, files, reason)
    return StoredTrial(name, Verdict(trial["verdict"]), trial, files)


def new_record(name: TrialName, contents: Mapping[str, bytes], trial: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a trial, checked against its files."""
    taken = [key for key in STORE_KEYS if key in trial]
    if taken:
        raise ResultsError(f"{name}: the keys {', '.join(taken)} of a trial are written by the store")
    try:
        verdict = Verdict(trial.get("verdict", ""))
    except ValueError as error:
        raise ResultsError(f"{name}: {trial.get('verdict')!r} is not a verdict") from error
    if verdict.is_done and (problem := _content_problem(contents, trial, name.histogram)):
        raise ResultsError(f"{name}: cannot be {verdict}: {problem}")
    document = {
        "version": TRIAL_VERSION,
        "infix": name.infix,
        "repetition": name.repetition,
        **trial,
        "verdict": str(verdict),
        "files": {
            kind: {"name": name.file(kind), "size": len(content), "sha256": sha256(content)} for kind, content in contents.items()
        },
    }
    if trial.get("accepted") and not verdict.is_done and _unusable_content(contents, trial):
        document["accepted"] = None
    try:
        json_bytes(document)
    except (TypeError, ValueError) as error:
        raise ResultsError(f"{name}: cannot be written as JSON: {error}") from error
    return document


def _required(record: Mapping[str, Any]) -> tuple[str, ...]:
    return DATA_KINDS if _is_load_latency(record) else (OUTPUT,)


def _is_load_latency(record: Mapping[str, Any]) -> bool:
    return bool(record.get("measurement", LOAD_LATENCY) == LOAD_LATENCY)


def _content_problem(contents: Mapping[str, bytes], record: Mapping[str, Any], histogram: str) -> str:
    """Why these files do not make a measured trial; empty where they do."""
    missing = [kind for kind in _required(record) if not contents.get(kind)]
    if missing:
        return f"no {' and no '.join(missing)}, or nothing in it"
    return _unusable_content(contents, record, histogram)


def _unusable_content(contents: Mapping[str, bytes], record: Mapping[str, Any], histogram: str = "the histogram") -> str:
    """Why no figures can be made of these files; empty where they can. There may be no latency samples."""
    if not _is_load_latency(record):
        return "" if contents.get(OUTPUT) else "the output is missing or empty"
    # Imported here: most of what is asked is answered without reading any file.
    from autotest.results.guest_latencies import parse_guest_latencies
    from autotest.results.histogram import parse_histogram
    from autotest.results.moongen import parse_moongen_output

    if not parse_moongen_output(contents.get(OUTPUT, b"")).complete:
        return "the output has no final totals"
    try:
        parse_histogram(contents.get(HISTOGRAM, b""), histogram, allow_empty=True)
        parse_guest_latencies(contents.get(GUESTS, b""), "the guests' histograms")
    except ResultsError as error:
        return str(error)
    return ""


def _record_problem(trial: object, name: TrialName, contents: Mapping[str, bytes]) -> str:
    """Why a trial's JSON and files do not belong together; empty where they do."""
    if not isinstance(trial, dict) or not _is_readable(trial.get("version")):
        return "not the record of a trial"
    if (trial.get("infix"), trial.get("repetition")) != (name.infix, name.repetition):
        return "the record of another trial"
    try:
        verdict = Verdict(trial.get("verdict", ""))
        recorded = {kind: (entry["size"], entry["sha256"]) for kind, entry in trial["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return "verdict or files are not what they should be"
    if verdict.is_done and (missing := [kind for kind in _required(trial) if kind not in recorded]):
        return f"{verdict}, but without {' or '.join(missing)}"
    for kind, (size, checksum) in recorded.items():
        content = contents.get(kind)
        if content is None:
            return f"the {_CALLED.get(kind, kind)} is missing"
        if len(content) != size or sha256(content) != checksum:
            return f"the {_CALLED.get(kind, kind)} is not the one that was measured"
    return ""


def _is_readable(version: object) -> bool:
    return type(version) is int and version in READABLE_VERSIONS  # True is no version, though it equals 1


def placeholder(name: TrialName, version: int = TRIAL_VERSION) -> dict[str, Any]:
    return {
        "version": version,
        "infix": name.infix,
        "repetition": name.repetition,
        "verdict": str(Verdict.INCOMPLETE),
        "reason": "the commit of this trial was interrupted",
        "files": {},
    }


def json_bytes(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
