"""What an output directory's ``failures.jsonl`` says: what could not be measured, why, and what of it still is so.

Each line is an object with ``time``, ``what`` and ``reason``. ``what`` is the name of a trial, or it is of a set-up: ``STAGE
(LABEL, LABEL ...)`` or ``all others with LABEL, LABEL ...``, where a label is a parameter's name and its value. Of what is left
to QEMU there is no label: a guest without ``queues 4`` has QEMU's own number of queues, and is another set-up than one with it.
Nor is there one of a single guest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from autotest.results.files import read_bytes
from autotest.results.names import UNSAID_OF_SET_UP, TrialName, parse_file_name
from autotest.results.store import FAILURES_FILE

_OF_A_GUEST: Final = "ioregionfd "  # the last label that each set-up has in which a guest runs

_SET_UP = re.compile(r"[^()]+ \((?P<stage>.+)\)|all others with (?P<others>.+)", re.DOTALL).fullmatch


class NotedFailure(NamedTuple):
    """One line. ``time`` is None where the line has none that can be read."""

    time: datetime | None
    what: str
    reason: str

    @property
    def trial(self) -> TrialName | None:
        """The trial that failed; None where a set-up did."""
        parsed = parse_file_name(f"trial_{self.what}.json")
        return None if parsed is None or parsed.repetition is None else TrialName(parsed.infix, parsed.repetition)

    @property
    def labels(self) -> frozenset[str]:
        """Of the set-up that failed, like ``machine pcvm``; empty where a trial did."""
        found = _SET_UP(self.what)
        return frozenset((found["stage"] or found["others"]).split(", ")) if found else frozenset()

    def concerns(self, labels: Iterable[str]) -> bool:
        """Whether a set-up with these labels is the one that failed, or stands on it."""
        return bool(self.labels) and _whole(self.labels) <= _whole(frozenset(labels))


class Measured(NamedTuple):
    """A set-up on which trials were measured: its labels, and when the last of them was started."""

    labels: frozenset[str]
    last: datetime


def read_failures(directory: Path) -> list[NotedFailure]:
    """The failures noted in an output directory, the latest of each, oldest first; a line that is cut off is left out.

    Raises ResultsError where the file is there and cannot be read.
    """
    latest: dict[str, NotedFailure] = {}
    for line in (read_bytes(directory / FAILURES_FILE) or b"").splitlines():
        found = _parse(line)
        if found:
            latest.pop(found.what, None)
            latest[found.what] = found
    return list(latest.values())


def still_open(
    failures: Iterable[NotedFailure], is_done: Callable[[TrialName], bool], measured: Iterable[Measured]
) -> list[NotedFailure]:
    """Those that nothing made up for since: the trial is not done, nothing was measured later on the set-up."""
    known = list(measured)
    return [failure for failure in failures if _is_open(failure, is_done, known)]


def _is_open(failure: NotedFailure, is_done: Callable[[TrialName], bool], measured: list[Measured]) -> bool:
    if trial := failure.trial:
        return not is_done(trial)
    if not failure.labels:
        return False  # nothing that could be looked up
    return not any((failure.time is None or last > failure.time) and failure.concerns(labels) for labels, last in measured)


def _whole(labels: frozenset[str]) -> frozenset[str]:
    """With labels of what is not said, where a guest runs."""
    if not any(label.startswith(_OF_A_GUEST) for label in labels):
        return labels
    said = {label.partition(" ")[0] for label in labels}
    return labels | {f"{name} {value}" for name, value in UNSAID_OF_SET_UP.items() if name not in said}


def _parse(line: bytes) -> NotedFailure | None:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("what"), str):
        return None
    return NotedFailure(parse_time(found.get("time")), found["what"], str(found.get("reason", "")))


def parse_time(text: object) -> datetime | None:
    """A time as the records have it, ISO 8601, taken for UTC where it does not say; None for anything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found
