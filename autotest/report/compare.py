"""Comparison of two sets of results: which test cases belong together, and whether their figures differ.

docs/statistics.md says why each method was taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autotest.config.values import nearest
from autotest.errors import UsageError
from autotest.report.cases import Case, count_left_out, plain, shown
from autotest.report.metrics import BETWEEN_GUESTS, METRICS, Metric
from autotest.report.parameters import Parameters, Value, names_of, value_of
from autotest.report.trials import Trial
from autotest.results.statistics import (
    Estimate,
    RankTest,
    cliffs_delta,
    correct,
    difference_interval,
    estimate,
    rank_test,
    repetitions_needed,
    smallest_p,
)
from autotest.results.verdicts import Verdict

DEFAULT_METRICS: Final = ("achieved", "loss", "p50", "p99")
DEFAULT_ALPHA: Final = 0.05
_OF_THE_SENDER: Final = ("achieved", "throughput")
"""What under-sent trials tell as well as valid ones do. Without them a sender that fails now and then would look unchanged."""


class Outcome(StrEnum):
    """What a comparison of one figure of one test case came to."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    #: There is a difference, but its mean is not beyond the threshold.
    WITHIN_THRESHOLD = "within threshold"
    #: None was shown, by a test that could have shown one.
    NO_DIFFERENCE = "no difference"
    #: So few that no values could have shown one.
    TOO_FEW = "too few repetitions"
    #: One side sent what was asked for and the other did not: their latency and loss are of different loads.
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Threshold:
    """How large a difference must be to count: a share of A's mean, or so much in the metric's unit."""

    value: float = 0.0
    relative: bool = False

    def __str__(self) -> str:
        return f"{100 * self.value:g}%" if self.relative else f"{self.value:g}"

    def is_exceeded(self, difference: float, base: float) -> bool:
        return abs(difference) > (self.value * abs(base) if self.relative else self.value)


@dataclass(frozen=True)
class Pair:
    """A test case of A and the one of B that it is compared with; ``parameters`` are those that both have."""

    parameters: Parameters
    a: Case
    b: Case


@dataclass(frozen=True)
class Matching:
    """Which test cases belong together.

    Attributes:
        apart: the parameters that A and B differ in, each with its one value there; None where it does not apply.
        same: pairs that share trials, which says nothing about a difference; they are not in ``pairs``.
        only_a, only_b: cases without a partner.
    """

    pairs: tuple[Pair, ...]
    apart: Mapping[str, tuple[Value | None, Value | None]]
    same: tuple[Pair, ...] = ()
    only_a: tuple[Case, ...] = ()
    only_b: tuple[Case, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One figure of one pair.

    Attributes:
        a, b: over the repetitions, in the metric's unit; None where no repetition has the figure.
        difference: B - A; ``relative``: of A's mean, None where that is 0.
        interval: of the difference, alone and not corrected; None where it cannot be told.
        effect: Cliff's delta, positive where B has the larger values.
        test: None where there is nothing to test, or where it may not be compared.
        p: corrected for all comparisons that were made; None where it cannot fall below alpha.
    """

    pair: Pair
    metric: Metric
    outcome: Outcome
    a: Estimate | None = None
    b: Estimate | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    effect: float | None = None
    test: RankTest | None = None
    p: float | None = None

    @property
    def relative(self) -> float | None:
        return self.difference / abs(self.a.mean) if self.difference is not None and self.a and self.a.mean else None

    @property
    def repetitions(self) -> tuple[int, int]:
        """How many have the figure, on either side."""
        return (self.a.repetitions if self.a else 0), (self.b.repetitions if self.b else 0)

    @property
    def is_worse(self) -> bool:
        """Whether it is worse in B, or gone."""
        return self.outcome is Outcome.REGRESSION or self.is_lost

    @property
    def is_lost(self) -> bool:
        """A has the figure and no repetition of B: nothing to test, and nothing that a nightly run should pass over.

        But for what is between guests where B has one.
        """
        cannot_be = self.metric.name in BETWEEN_GUESTS and self.pair.b.number_of_guests < 2
        return self.a is not None and self.b is None and not cannot_be


@dataclass(frozen=True)
class Compared:
    """All comparisons that were made together.

    Attributes:
        counted: for how many of them p is corrected.
        varying: how many have values that are not all the same.
    """

    matching: Matching
    comparisons: tuple[Comparison, ...]
    alpha: float
    counted: int
    varying: int

    def count(self, outcome: Outcome) -> int:
        return sum(comparison.outcome is outcome for comparison in self.comparisons)

    @property
    def is_worse(self) -> bool:
        """Whether anything is worse in B, or gone."""
        return any(comparison.is_worse for comparison in self.comparisons)

    def repetitions_needed(self, comparisons: int | None = None) -> int:
        """On each side, for a single one to come out among so many comparisons; without a number, among all that vary."""
        return repetitions_needed(max(self.varying if comparisons is None else comparisons, 1), self.alpha)


def match(a: Sequence[Case], b: Sequence[Case]) -> Matching:
    """Find for each test case of A the one of B.

    A parameter that has one value in all of A and another one in all of B is what is compared; all others must be equal.

    Raises:
        UsageError: no case has a partner, all are the same trials on both sides, or one stands in two directories of a side.
    """
    for side, cases in (("A", a), ("B", b)):
        _require_one_directory(side, cases)
    keys = names_of(case.parameters for case in (*a, *b))
    values_a, values_b = ({key: {value_of(case.parameters, key) for case in cases} for key in keys} for cases in (a, b))
    apart = {
        key: (next(iter(values_a[key])), next(iter(values_b[key])))
        for key in keys
        if len(values_a[key]) == len(values_b[key]) == 1 and values_a[key] != values_b[key]
    }
    shared = [key for key in keys if key not in apart]
    cases_a, cases_b = ({tuple(value_of(case.parameters, key) for key in shared): case for case in cases} for cases in (a, b))
    found = [
        Pair({key: case.parameters[key] for key in shared if key in case.parameters}, case, cases_b[key_of])
        for key_of, case in cases_a.items()
        if key_of in cases_b
    ]
    if not found:
        raise UsageError(_why_no_match(values_a, values_b))
    pairs = [pair for pair in found if not _share_trials(pair)]
    if not pairs:
        raise UsageError("A and B are the same trials: name two directories, or two selections that have none in common")
    return Matching(
        tuple(pairs),
        apart,
        tuple(pair for pair in found if _share_trials(pair)),
        tuple(case for key_of, case in cases_a.items() if key_of not in cases_b),
        tuple(case for key_of, case in cases_b.items() if key_of not in cases_a),
    )


def _require_one_directory(side: str, cases: Iterable[Case]) -> None:
    for case in cases:
        directories = sorted({str(trial.directory) for trial in case.trials})
        if len(directories) > 1:
            raise UsageError(f"{side} has {shown(case.parameters)} in {' and in '.join(directories)}: name one of them as {side}")


def _share_trials(pair: Pair) -> bool:
    """Also when they were copied: no two trials print the same."""
    a, b = ({_identity(trial) for trial in case.used or case.trials} for case in (pair.a, pair.b))
    return bool(a & b)


def _identity(trial: Trial) -> str:
    return trial.checksum or str(trial.path("output").resolve())


def _why_no_match(values_a: Mapping[str, set[Value | None]], values_b: Mapping[str, set[Value | None]]) -> str:
    def listed(values: set[Value | None]) -> str:
        return ", ".join(sorted("none" if value is None else plain(value) for value in values))

    lines = [
        f"  {key}: {listed(values)} in A, {listed(values_b[key])} in B"
        for key, values in values_a.items()
        if values.isdisjoint(values_b[key]) and max(len(values), len(values_b[key])) > 1
    ]
    if not lines:
        return "no test case of A is in B: their parameters occur on both sides, but not in the same combinations"
    return "\n".join(
        [
            "no test case of A is in B; they have nothing in common in",
            *lines,
            "to compare one value with another, select one on each side, like DIR:interface=bridge DIR:interface=macvtap",
        ]
    )


def compare(
    matching: Matching,
    metrics: Sequence[Metric],
    alpha: float = DEFAULT_ALPHA,
    thresholds: Mapping[str, Threshold] | None = None,
) -> Compared:
    """Compare these metrics of each pair: the pairs in their order, in each the metrics in theirs.

    Args:
        alpha: the chance that is taken of calling anything a difference where there is none at all.
        thresholds: by name of the metric; a difference counts where that of the means is larger. 0 for the others.
    """
    limits = thresholds or {}
    raw = [_Raw.of(pair, metric) for pair in matching.pairs for metric in metrics]
    tests = [values.test() for values in raw]
    corrected = correct(tests, alpha)
    comparisons = []
    for values, test, p in zip(raw, tests, corrected.p, strict=True):
        outcome = _outcome(values, p, corrected.limit, alpha, limits.get(values.metric.name, Threshold()))
        comparisons.append(_comparison(values, test, 1.0 if outcome is Outcome.NO_DIFFERENCE and p is None else p, outcome))
    varying = sum(test.smallest < 1 for test in tests)
    return Compared(matching, tuple(comparisons), alpha, sum(p is not None for p in corrected.p), varying)


@dataclass(frozen=True)
class _Raw:
    """What a metric of a pair is compared by: its value in each repetition of A and of B."""

    pair: Pair
    metric: Metric
    a: Sequence[float]
    b: Sequence[float]

    @classmethod
    def of(cls, pair: Pair, metric: Metric) -> _Raw:
        return cls(pair, metric, _values(pair.a, metric), _values(pair.b, metric))

    @property
    def is_comparable(self) -> bool:
        return self.pair.a.for_want == self.pair.b.for_want or self.metric.name in _OF_THE_SENDER

    def test(self) -> RankTest:
        return rank_test(self.a, self.b) if self.a and self.b and self.is_comparable else RankTest(1.0, 1.0)

    @property
    def difference(self) -> float:
        return estimate(self.b).mean - estimate(self.a).mean


def _values(case: Case, metric: Metric) -> list[float]:
    if metric.name not in _OF_THE_SENDER:
        return case.values(metric)
    trials = [trial for trial in case.trials if trial in case.used or trial.verdict is Verdict.UNDER_SENT]
    found = (metric.of(trial.figures) for trial in trials if trial.figures)
    return [value for value in found if value is not None]


def _outcome(values: _Raw, p: float | None, limit: float, alpha: float, threshold: Threshold) -> Outcome:
    if not values.is_comparable:
        return Outcome.NOT_COMPARABLE
    if p is None:
        could_not = smallest_p(len(values.a), len(values.b)) >= limit
        return Outcome.TOO_FEW if could_not else Outcome.NO_DIFFERENCE
    if p >= alpha:
        return Outcome.NO_DIFFERENCE
    difference, effect = values.difference, cliffs_delta(values.a, values.b)
    # The test speaks of the ranks, the threshold of the means. One outlier can turn the mean against all the others.
    if difference * effect <= 0 or not threshold.is_exceeded(difference, estimate(values.a).mean):
        return Outcome.WITHIN_THRESHOLD
    return Outcome.IMPROVEMENT if (difference > 0) == (values.metric.better == "higher") else Outcome.REGRESSION


def _comparison(values: _Raw, test: RankTest, p: float | None, outcome: Outcome) -> Comparison:
    a, b = (estimate(found) if found else None for found in (values.a, values.b))
    if a is None or b is None:
        return Comparison(values.pair, values.metric, outcome, a, b)
    difference, effect = values.difference, cliffs_delta(values.a, values.b)
    if outcome is Outcome.NOT_COMPARABLE:
        return Comparison(values.pair, values.metric, outcome, a, b, difference)
    interval = difference_interval(values.a, values.b)
    return Comparison(values.pair, values.metric, outcome, a, b, difference, interval, effect, test, p)


def findings(pair: Pair) -> list[str]:
    """What the verdicts of a pair say, for people: where one side sent, or measured, what the other one did not."""
    found = []
    for one, case, name, other in (("A", pair.a, "B", pair.b), ("B", pair.b, "A", pair.a)):
        if case.used and not case.for_want and other.for_want:
            found.append(f"valid in {one}, under-sent in {name}")
        elif case.used and not other.used:
            found.append(f"{'under-sent' if case.for_want else 'valid'} in {one}, nothing usable in {name}: {other.verdicts()}")
    if not pair.a.used and not pair.b.used:
        found.append(f"nothing usable in A: {pair.a.verdicts()}, nor in B: {pair.b.verdicts()}")
    if pair.a.for_want and pair.b.for_want:
        found.append("under-sent in A and in B: these are figures of under-sent trials")
    counts = [sum(trial.verdict is Verdict.UNDER_SENT for trial in case.trials) for case in (pair.a, pair.b)]
    if any(counts) and not pair.a.for_want and not pair.b.for_want:
        found.append(f"under-sent: {counts[0]} of {len(pair.a.trials)} trials in A, {counts[1]} of {len(pair.b.trials)} in B")
    left_out = [f"{listed} in {one}" for one, case in (("A", pair.a), ("B", pair.b)) if (listed := count_left_out([case]))]
    if left_out:
        found.append(f"left out: {'; '.join(left_out)}")
    return found


def parse_metrics(texts: Sequence[str]) -> list[Metric]:
    """From ``NAME[,NAME]`` texts; the default ones without any. UsageError for a name that there is not."""
    names = [name.strip() for text in texts for name in text.split(",")] or list(DEFAULT_METRICS)
    known = [metric.name for metric in METRICS.values() if metric.better]
    for name in names:
        if name not in known:
            why = "neither more nor less of it is better" if name in METRICS else f"no such metric{nearest(name, known)}"
            raise UsageError(f"--metric {name}: {why}; there are {', '.join(known)}")
    return [METRICS[name] for name in dict.fromkeys(names)]


def parse_thresholds(texts: Sequence[str], metrics: Sequence[Metric]) -> dict[str, Threshold]:
    """From ``p50=5%`` (of A's mean) and ``loss=0.5`` (in the metric's unit). UsageError for anything else."""
    found: dict[str, Threshold] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in {metric.name for metric in metrics}:
            raise UsageError(
                f"--threshold {text}: compared are {', '.join(metric.name for metric in metrics)}; --metric names others"
            )
        if name in found:
            raise UsageError(f"--threshold {text}: {name} has two thresholds")
        number = value.removesuffix("%")
        if not _is_number(number):
            raise UsageError(
                f"--threshold {text}: expected a share, like {name}=5%, or a value of 0 or more in its unit, like {name}=0.5"
            )
        relative = value.endswith("%")
        found[name] = Threshold(float(number) / (100 if relative else 1), relative)
    return found


_is_number = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}").fullmatch
