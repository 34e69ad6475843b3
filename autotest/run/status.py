"""How far a campaign is: what is done, what is to do, what went wrong, how long the rest takes. Touches nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

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
from autotest.run.estimate import Estimate, estimate


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
class Status:
    """The state of a campaign; ``failures`` are in the order in which they were noted."""

    sections: tuple[SectionStatus, ...]
    failures: tuple[OpenFailure, ...]
    remaining: Estimate

    @cached_property
    def total(self) -> SetUpStatus:
        """All set-ups together."""
        return _sum(row for section in self.sections for row in section.set_ups)


def _sum(rows: Iterable[SetUpStatus]) -> SetUpStatus:
    """The counts of several set-ups together."""
    total = SetUpStatus(())
    for row in rows:
        total.done += row.done
        total.to_do += row.to_do
        total.accepted += row.accepted
        total.failed += row.failed
        total.held_back += row.held_back
        total.findings += row.findings
        total.invalid += row.invalid
    return total


def read_status(campaign: Campaign) -> Status:
    """The state of a campaign as its output directories tell it.

    Raises:
        ResultsError: an output directory cannot be read, or a newer autotest wrote into it.
    """
    walk = _Walk(campaign)
    for planned in campaign.planned():
        walk.add(planned)
    failures = tuple(walk.open_failures())
    return Status(tuple(walk.sections.values()), failures, estimate(campaign))


class _Walk:
    """What is known after the trials that were walked so far; only set-ups and what is in the directories is kept."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._depth = campaign.set_up_depth
        self.sections = {
            id(section): SectionStatus(section, Path(section.settings["outputdir"])) for section in campaign.sections
        }
        self._present = {section.directory: campaign.store(section.section).present() for section in self.sections.values()}
        self._noted = {directory: read_failures(directory) for directory in self._present}
        self._failed_trials = {
            (directory, trial.infix, trial.repetition): 0
            for directory, noted in self._noted.items()
            for failure in noted
            if (trial := failure.trial)
        }
        self._rows: dict[Path, list[SetUpStatus]] = {directory: [] for directory in self._present}
        self._last: tuple[object, ...] = ()

    def add(self, planned: Planned) -> None:
        section = self.sections[id(planned.section)]
        directory = section.directory
        if planned.shared:
            section.shared += 1
            return
        key = (directory, planned.infix, planned.repetition)
        row = self._row(section, planned)
        if planned.done:
            row.done += 1
        else:
            row.to_do += 1
            if key in self._failed_trials:
                self._failed_trials[key] += 1
                row.failed += 1
        if key[1:] in self._present[directory]:
            self._look_at(planned, row)

    def _row(self, section: SectionStatus, planned: Planned) -> SetUpStatus:
        """That of the trial's set-up: neighbours share it."""
        set_up = (id(section), planned.case.values_[: self._depth])
        if set_up != self._last:
            row = SetUpStatus(tuple(self._campaign.kind.labels(planned.case.prefix(self._depth), planned.section)))
            section.set_ups.append(row)
            self._rows[section.directory].append(row)
            self._last = set_up
        return section.set_ups[-1]

    def _look_at(self, planned: Planned, row: SetUpStatus) -> None:
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
        if started := parse_time(record.get("started")):
            row.last = max(row.last or started, started)

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


def _record(store: ResultStore, name: TrialName) -> dict[str, Any]:
    """The JSON of a trial that is known to be done; empty for the older tool."""
    raw = read_bytes(store.path(name, TRIAL))
    return json.loads(raw) if raw else {}


def _hold_back(row: SetUpStatus) -> int:
    row.held_back = row.to_do - row.failed
    return row.held_back
