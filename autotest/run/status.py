"""How far a campaign is: what is done, what is to do, what went wrong, how long the rest takes. Touches nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from autotest.plan.parameters import Section
from autotest.results.failures import (
    Measured,
    NotedFailure,
    parse_time,
    read_failures,
    still_open,
)
from autotest.results.files import read_bytes
from autotest.results.names import TRIAL, TrialName
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict
from autotest.run.campaign import Campaign, Planned

#: What is added to a trial and to a set-up as long as nothing was measured, in seconds.
TRIAL_SECONDS: Final = 5.0
SET_UP_SECONDS: Final = 30.0
#: A trial that came so many seconds later than it could have was not waited for: nothing ran in between.
PAUSE_SECONDS: Final = 900.0


@dataclass
class SetUpStatus:
    """The trials of one set-up in one section.

    Attributes:
        labels: its parameters, for the user.
        findings: verdicts of trials that are done although they are not ``valid``.
        accepted: how many of these count because the user said so.
        invalid: verdicts of the trials that are there but are to be measured again.
        failed: trials to do that failed for good.
        held_back: other trials to do on a set-up that failed for good.
        least_seconds: how long the trials to do take, without what is between them.
        last: when the last trial that is there was started.
    """

    labels: tuple[str, ...]
    done: int = 0
    to_do: int = 0
    accepted: int = 0
    failed: int = 0
    held_back: int = 0
    findings: Counter[Verdict] = field(default_factory=Counter)
    invalid: Counter[Verdict] = field(default_factory=Counter)
    least_seconds: float = 0.0
    last: datetime | None = None


@dataclass
class SectionStatus:
    """A section and its output directory; ``shared`` of its trials are counted with a section before it that has them too."""

    section: Section
    directory: Path
    set_ups: list[SetUpStatus] = field(default_factory=list)
    shared: int = 0

    @property
    def total(self) -> SetUpStatus:
        """All its set-ups together."""
        return _sum(self.set_ups)


class OpenFailure(NamedTuple):
    """A noted failure that nothing made up for; ``trials`` is how many of the plan are not done because of it."""

    noted: NotedFailure
    trials: int


@dataclass(frozen=True)
class Remaining:
    """How long the rest takes.

    Attributes:
        seconds: all of it.
        per_trial, per_set_up: seconds that a trial, and the set-up before the first of several, take beyond the load,
            warm-up and rest that were asked for.
        assumed: of these, by what they are for, those that were not measured yet.
    """

    seconds: float
    per_trial: float
    per_set_up: float
    assumed: Mapping[str, float]


@dataclass(frozen=True)
class Status:
    """The state of a campaign; ``failures`` are in the order in which they were noted."""

    sections: tuple[SectionStatus, ...]
    failures: tuple[OpenFailure, ...]
    remaining: Remaining

    @cached_property
    def total(self) -> SetUpStatus:
        """All set-ups together."""
        return _sum(row for section in self.sections for row in section.set_ups)


class _Timed(NamedTuple):
    started: datetime
    ended: datetime
    least_seconds: float
    set_up: int


def _sum(rows: Iterable[SetUpStatus]) -> SetUpStatus:
    """The counts of several set-ups together."""
    total = SetUpStatus(())
    for row in rows:
        total.done += row.done
        total.to_do += row.to_do
        total.accepted += row.accepted
        total.failed += row.failed
        total.held_back += row.held_back
        total.least_seconds += row.least_seconds
        total.findings += row.findings
        total.invalid += row.invalid
    return total


def read_status(campaign: Campaign) -> Status:
    """The state of a campaign as its output directories tell it.

    Raises:
        ResultsError: an output directory cannot be read, or a newer autotest wrote into it.
    """
    walk = _Walk(campaign)
    for planned in campaign.trials():
        walk.add(planned)
    failures = tuple(walk.open_failures())
    return Status(tuple(walk.sections.values()), failures, walk.remaining())


class _Walk:
    """What is known after the trials that were walked so far; only set-ups and what is in the directories is kept."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._depth = campaign.set_up_depth
        self.sections = {
            id(section): SectionStatus(section, Path(section.settings["outputdir"])) for section in campaign.sections
        }
        directories = Counter(section.directory for section in self.sections.values())
        self._several = {directory for directory, sections in directories.items() if sections > 1}
        self._seen: set[tuple[Path, str, int]] = set()
        self._present = {
            section.directory: campaign.store(section.section).present() for section in self.sections.values()
        }
        self._noted = {directory: read_failures(directory) for directory in self._present}
        self._failed_trials = {
            (directory, trial.infix, trial.repetition): 0
            for directory, noted in self._noted.items()
            for failure in noted
            if (trial := failure.trial)
        }
        self._rows: dict[Path, list[SetUpStatus]] = {directory: [] for directory in self._present}
        self._timed: dict[Path, list[_Timed]] = {directory: [] for directory in self._present}
        self._last: tuple[object, ...] = ()

    def add(self, planned: Planned) -> None:
        section = self.sections[id(planned.section)]
        directory = section.directory
        key = (directory, planned.infix, planned.repetition)
        if directory in self._several:
            if key in self._seen:
                section.shared += 1
                return
            self._seen.add(key)
        row = self._row(section, planned)
        least = self._campaign.kind.seconds(planned.case, planned.section)
        if planned.done:
            row.done += 1
        else:
            row.to_do += 1
            row.least_seconds += least
            if key in self._failed_trials:
                self._failed_trials[key] += 1
                row.failed += 1
        if key[1:] in self._present[directory]:
            self._look_at(planned, section, row, least)

    def _row(self, section: SectionStatus, planned: Planned) -> SetUpStatus:
        """That of the trial's set-up: neighbours share it."""
        set_up = (id(section), planned.case.values_[: self._depth])
        if set_up != self._last:
            row = SetUpStatus(tuple(self._campaign.kind.labels(planned.case.prefix(self._depth), planned.section)))
            section.set_ups.append(row)
            self._rows[section.directory].append(row)
            self._last = set_up
        return section.set_ups[-1]

    def _look_at(self, planned: Planned, section: SectionStatus, row: SetUpStatus, least: float) -> None:
        """A trial of which there are files."""
        store = self._campaign.store(planned.section)
        if planned.done:
            record = _record(store, planned.name)
            verdict = Verdict(record["verdict"]) if record else Verdict.VALID
            if verdict is not Verdict.VALID:
                row.findings[verdict] += 1
                row.accepted += not verdict.is_done or bool(record.get("accepted"))
        else:
            stored = store.load(planned.name)
            record = stored.trial or {}
            row.invalid[stored.verdict] += 1
        started, ended = parse_time(record.get("started")), parse_time(record.get("ended"))
        if started and ended:
            row.last = max(row.last or started, started)
            self._timed[section.directory].append(_Timed(started, ended, least, id(row)))

    # -- what follows from it ------------------------------------------------------------------------------

    def open_failures(self) -> Iterator[OpenFailure]:
        """The failures about this plan that are still so; counts what the set-ups among them hold back."""
        for directory, noted in self._noted.items():
            rows = self._rows[directory]
            measured = [Measured(frozenset(row.labels), row.last) for row in rows if row.last]
            for failure in still_open(noted, lambda trial: False, measured):
                if failure.trial:
                    trials = self._failed_trials[directory, failure.trial.infix, failure.trial.repetition]
                else:
                    trials = sum(_hold_back(row) for row in rows if failure.concerns(row.labels))
                if trials:
                    yield OpenFailure(failure, trials)

    def remaining(self) -> Remaining:
        """Made of medians, so that a trial that took several attempts does not count much."""
        rows = [row for rows in self._rows.values() for row in rows if row.to_do]
        gaps = [gap for timed in self._timed.values() for gap in _gaps(timed)]
        within = [seconds for seconds, is_new in gaps if not is_new]
        across = [seconds for seconds, is_new in gaps if is_new]
        assumed = {} if within else {"trial": TRIAL_SECONDS}
        assumed |= {} if across else {"set-up": SET_UP_SECONDS}
        per_trial = median(within) if within else TRIAL_SECONDS
        per_set_up = max(0.0, median(across) - per_trial) if across else SET_UP_SECONDS
        seconds = sum(row.least_seconds + row.to_do * per_trial for row in rows) + len(rows) * per_set_up
        return Remaining(seconds, per_trial, per_set_up, assumed)


def _record(store: ResultStore, name: TrialName) -> dict[str, Any]:
    """The JSON of a trial that is known to be done; empty for the older tool."""
    raw = read_bytes(store.path(name, TRIAL))
    return json.loads(raw) if raw else {}


def _hold_back(row: SetUpStatus) -> int:
    row.held_back = row.to_do - row.failed
    return row.held_back


def _gaps(timed: list[_Timed]) -> Iterator[tuple[float, bool]]:
    """Seconds from the end of one trial to that of the next, beyond what was asked for, and whether the set-up is new."""
    for before, trial in pairwise(sorted(timed)):
        seconds = (trial.ended - before.ended).total_seconds() - trial.least_seconds
        if 0 <= seconds <= PAUSE_SECONDS:
            yield seconds, trial.set_up != before.set_up
