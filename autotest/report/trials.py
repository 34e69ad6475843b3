"""The trials of an output directory, as every report takes them: one object a trial, and by name what cannot be used."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from autotest.errors import ResultsError
from autotest.report.cache import Cache
from autotest.report.listing import list_directory, sources, summarised
from autotest.report.parameters import PARAMETERS, UNSAID, value_of
from autotest.report.reading import (
    Complaint,
    Parameters,
    Reading,
    Source,
    Value,
    read_trials,
)
from autotest.results.figures import Figures
from autotest.results.histogram import Histogram, parse_histogram
from autotest.results.names import HISTOGRAM, OUTPUT, TrialName
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict

__all__ = ["Complaint", "Parameters", "Results", "Trial", "Value", "parameters_of", "read_results"]


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        directory: where its files are.
        parameters: by name, in the order of the tree; those that do not apply or that its names do not say are not there.
        verdict, reason: the recorded ones; for a trial of the older tool those that its figures give.
        accepted: somebody said ``--accept`` when it was measured.
        figures: None where its files cannot be used, whoever accepts the verdict.
        testbed: which one measured it, by name; empty where that is not recorded.
        started: when, as its record has it; empty for the older tool.
        checksum: of output and histogram: no two trials print the same. Empty where one is missing.
    """

    directory: Path
    name: TrialName
    parameters: Parameters
    verdict: Verdict
    reason: str = ""
    accepted: bool = False
    figures: Figures | None = None
    testbed: str = ""
    started: str = ""
    checksum: str = ""

    def histogram(self) -> Histogram:
        """Its latency samples, read now. ResultsError where there is no whole file of them."""
        if self.figures and not self.figures.samples:  # there need not be a file
            return Histogram.of({})
        path = self.path(HISTOGRAM)
        try:
            return parse_histogram(path.read_bytes(), str(path))
        except OSError as error:
            raise ResultsError(f"{path}: {error.strerror}") from error

    def record(self) -> dict[str, Any] | None:
        """Its JSON, read now; None for the older tool."""
        return ResultStore(self.directory).load(self.name).trial

    def output(self) -> str:
        """What the generator printed, read now; empty where there is no such file."""
        try:
            return self.path(OUTPUT).read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""

    def path(self, kind: str) -> Path:
        """Its ``output``, ``histogram`` or ``trial`` file."""
        return self.directory / self.name.file(kind)


@dataclass(frozen=True)
class Results:
    """What an output directory holds.

    Attributes:
        trials: by infix and repetition. Where several testbeds measured, those of the one that measured most of them,
            together with those that do not say which one did.
        complaints: what is not used, or not as it is, by name.
        elsewhere: the trials of the other testbeds, which are used only where they are selected.
        others: how many other files there are, of other test cases or not autotest's at all.
    """

    directory: Path
    trials: tuple[Trial, ...]
    complaints: tuple[Complaint, ...] = field(default=())
    elsewhere: tuple[Trial, ...] = ()
    others: int = 0

    @cached_property
    def parameters(self) -> dict[str, list[Value]]:
        """Every parameter and the values that it has, in the order of the tree, sorted."""
        return parameters_of(self.trials)


def parameters_of(trials: Collection[Trial]) -> dict[str, list[Value]]:
    """Every parameter of these trials and the values that it has, in the order of the tree, sorted."""
    found: dict[str, set[Value]] = {}
    for trial in trials:
        for key, value in trial.parameters.items():
            found.setdefault(key, set()).add(value)
    for name, unsaid in UNSAID.items():
        if name in found and any(value_of(trial.parameters, name) == unsaid for trial in trials):
            found[name].add(unsaid)
    order = [key for key in PARAMETERS if key in found]
    return {key: sorted(found[key], key=_sorting) for key in dict.fromkeys([*order, *found])}


class _Known(NamedTuple):
    order: int
    number: int
    text: str


def _sorting(value: Value) -> _Known:
    return _Known(0, value, "") if isinstance(value, int) else _Known(1, 0, value)


@contextmanager
def _without_collector() -> Iterator[None]:
    """What is read has no cycles, but Python's garbage collector looks at all of it again and again: 7 % of it all."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collector()
def read_results(directory: Path, infixes: Iterable[str] | None = None) -> Results:
    """The trials in a directory, or those of the named test cases, in that order.

    Nothing there is changed. What was read is kept in the user's cache folder.

    Raises:
        ResultsError: there is no such directory, or it cannot be read, or a newer autotest wrote into it.
    """
    listed_ns = time.time_ns()
    listing = list_directory(directory)
    found, complaints = sources(listing, infixes)
    cache = Cache(directory)
    cache.keep_only({f"{infix}_rep{repetition}" for infix, repetition in listing.files})
    readings = _readings(directory, cache, found, listed_ns)
    trials = []
    for source, reading in zip(found, readings, strict=True):
        complaints += reading.complaints
        trials.append(_trial(directory, source, reading))
    others = listing.count - sum(len(source.files) for source in found)
    trials, copies = _without_copies(trials)
    trials, elsewhere, left_out = _by_testbed(trials)
    return Results(directory, tuple(trials), (*complaints, *copies, *left_out), tuple(elsewhere), others)


def _readings(directory: Path, cache: Cache, found: Sequence[Source], listed_ns: int) -> list[Reading]:
    """What the files of these trials say, from the cache where they are unchanged."""
    known = [None if source.unusable else cache.get(str(source.name), source.files) for source in found]
    unknown = [source for source, reading in zip(found, known, strict=True) if reading is None]
    fresh = read_trials(directory, unknown)
    for source, reading in zip(unknown, fresh, strict=True):
        cache.put(str(source.name), source.files, reading, listed_ns)
    cache.save()
    remaining = iter(fresh)
    return [next(remaining) if reading is None else reading for reading in known]


def _trial(directory: Path, source: Source, reading: Reading) -> Trial:
    return Trial(
        directory,
        source.name,
        source.parameters,
        reading.verdict,
        reading.reason,
        reading.accepted,
        reading.figures,
        reading.testbed,
        reading.started,
        reading.checksum,
    )


def _without_copies(trials: Sequence[Trial]) -> tuple[list[Trial], list[Complaint]]:
    """Only one of those repetitions of a test case whose output and histogram are the same to the last byte.

    No two are: the other is a copy, and to count it twice would make the confidence interval too narrow.
    """
    used: dict[tuple[str, str], Trial] = {}
    for trial in sorted(trials, key=lambda trial: not trial.verdict.is_mergeable):  # a copied record does not fit its copy
        used.setdefault((trial.name.infix, trial.checksum), trial)
    kept = []
    complaints = []
    for trial in trials:
        same = used[trial.name.infix, trial.checksum]
        if same is trial or not trial.checksum:
            kept.append(trial)
        else:
            complaints.append(Complaint(trial.name.output, f"left out as a copy of repetition {same.name.repetition}"))
    return kept, complaints


def _by_testbed(trials: Sequence[Trial]) -> tuple[list[Trial], list[Trial], list[Complaint]]:
    """The trials of the testbed with most of them, those of the others, and which ones these are."""
    counts = Counter(trial.testbed for trial in trials if trial.testbed)
    if len(counts) < 2:
        return list(trials), [], []
    used = min(counts, key=lambda testbed: (-counts[testbed], testbed))
    complaints = []
    for testbed in sorted(counts.keys() - {used}):
        names = [trial.name.trial for trial in trials if trial.testbed == testbed]
        message = f"measured on testbed {testbed}, not on {used} like most: left out unless selected by testbed={testbed}"
        complaints += summarised(names, message)
    elsewhere = [trial for trial in trials if trial.testbed not in ("", used)]
    return [trial for trial in trials if trial.testbed in ("", used)], elsewhere, complaints
