"""Test cases: the trials that are repetitions of each other, and their figures over the repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from autotest.report.metrics import Metric
from autotest.report.parameters import Parameters, Value, names_of, value_of
from autotest.report.trials import Trial
from autotest.results.guests import GuestFigures
from autotest.results.histogram import Histogram, sum_histograms
from autotest.results.statistics import Estimate, estimate
from autotest.results.verdicts import Verdict

LOAD = "rate"
"""The parameter that goes along the x axis; a set-up is a test case without it."""
GUESTS = "guests"
"""The parameter that is the number of guests."""


@dataclass(frozen=True)
class Case:
    """One test case.

    Attributes:
        trials: its repetitions, with whatever verdict.
        used: those that its figures are made of: the valid ones and what the user accepted, or else the under-sent ones.
        for_want: they are under-sent ones that nobody accepted, for want of valid ones.
    """

    parameters: Parameters
    trials: tuple[Trial, ...]
    used: tuple[Trial, ...]
    for_want: bool = False

    @cached_property
    def set_up(self) -> tuple[tuple[str, Value], ...]:
        """All parameters but the load, as a key."""
        return tuple(item for item in self.parameters.items() if item[0] != LOAD)

    @property
    def load(self) -> int:
        """The offered rate in kpps."""
        return int(self.parameters[LOAD])

    @property
    def number_of_guests(self) -> int:
        """0 where the host itself is measured."""
        return int(value_of(self.parameters, GUESTS) or 0)

    @property
    def under_sent(self) -> bool:
        """True where under-sent trials are among those that the figures are made of, accepted or for want of valid ones."""
        return any(trial.verdict is Verdict.UNDER_SENT for trial in self.used)

    @property
    def samples(self) -> int:
        """Latency samples that the figures are made of."""
        return sum(trial.figures.samples for trial in self.used if trial.figures)

    def values(self, metric: Metric) -> list[float]:
        """A figure of each repetition that has it, in their order."""
        found = (metric.of(trial.figures) for trial in self.used if trial.figures)
        return [value for value in found if value is not None]

    def estimate(self, metric: Metric) -> Estimate | None:
        """A figure over the repetitions; None where no repetition has it. Loss also comes pooled, from all frames."""
        values = self.values(metric)
        if not values:
            return None
        return estimate(values, self._pooled_loss() if metric.name == "loss" else None)

    @cached_property
    def guests(self) -> dict[int, list[GuestFigures]]:
        """Figures of each guest by its number, ascending, one for each repetition that has them; empty without several guests."""
        found: dict[int, list[GuestFigures]] = {}
        for trial in self.used:
            for guest in trial.figures.guests if trial.figures else ():
                found.setdefault(guest.guest, []).append(guest)
        return dict(sorted(found.items()))

    def of_guests(self, metric: Metric) -> dict[int, float]:
        """A figure of each guest by its number, mean over the repetitions; without the guests that have none."""
        found = {guest: [metric.of(one) for one in figures] for guest, figures in self.guests.items()}
        known = {guest: [value for value in values if value is not None] for guest, values in found.items()}
        return {guest: fmean(values) for guest, values in known.items() if values}

    def _pooled_loss(self) -> float | None:
        counted = [trial.figures for trial in self.used if trial.figures and trial.figures.lost is not None]
        sent = sum(found.sent or 0 for found in counted)
        return 100 * sum(found.lost or 0 for found in counted) / sent if sent else None

    def histogram(self) -> Histogram:
        """The samples of all used repetitions together, as ``acc_histogram`` has them; read now."""
        return sum_histograms(trial.histogram() for trial in self.used if trial.figures and trial.figures.samples)

    def verdicts(self) -> str:
        """How many repetitions got which verdict, like ``2 valid, 1 disturbed``."""
        counts = Counter(trial.verdict for trial in self.trials)
        if len(counts) == 1:
            return str(next(iter(counts)))
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def group_cases(trials: Iterable[Trial], accept: Collection[Verdict] = ()) -> list[Case]:
    """Test cases in the order of their first trial; those of a set-up stand together, by load.

    Args:
        accept: verdicts that count like ``valid``, by the user's choice.
    """
    groups: dict[tuple[tuple[str, object], ...], list[Trial]] = {}
    for trial in trials:
        groups.setdefault(tuple(trial.parameters.items()), []).append(trial)
    cases = [_case(group, accept) for group in groups.values()]
    order = {set_up: number for number, set_up in enumerate(dict.fromkeys(case.set_up for case in cases))}
    return sorted(cases, key=lambda case: (order[case.set_up], case.load))


def along_guests(cases: Iterable[Case]) -> list[list[Case]]:
    """Test cases that differ in nothing but their number of guests, where usable ones have several; by that number."""
    guests = [case for case in cases if case.number_of_guests]
    names = [name for name in names_of(case.parameters for case in guests) if name != GUESTS]
    lines: dict[object, list[Case]] = {}
    for case in guests:
        lines.setdefault(tuple(value_of(case.parameters, name) for name in names), []).append(case)
    several = [line for line in lines.values() if len({case.number_of_guests for case in line if case.used}) > 1]
    return [sorted(line, key=lambda case: case.number_of_guests) for line in several]


def count_left_out(cases: Iterable[Case]) -> str:
    """How many trials of cases that have figures are not in these, by verdict, like ``2 disturbed, 1 incomplete``.

    Without those that are under-sent: they are told of, or drawn, in ways of their own.
    """
    left_out = Counter(trial.verdict for case in cases if case.used for trial in case.trials if trial not in case.used)
    del left_out[Verdict.UNDER_SENT]
    return ", ".join(f"{left_out[verdict]} {verdict}" for verdict in Verdict if left_out[verdict])


def _case(trials: list[Trial], accept: Collection[Verdict]) -> Case:
    def counts(trial: Trial) -> bool:
        if trial.verdict is Verdict.INCOMPLETE and not trial.figures:  # its files cannot be used, whoever accepts it
            return False
        return trial.verdict.is_mergeable or trial.accepted or trial.verdict in accept

    used = [trial for trial in trials if counts(trial)]
    for_want = not used
    if for_want:
        used = [trial for trial in trials if trial.verdict is Verdict.UNDER_SENT]
    return Case(trials[0].parameters, tuple(trials), tuple(used), for_want and bool(used))


_SHOWN = {
    "vhost": "vhost {}",
    "ioregionfd": "ioregionfd {}",
    "qemu": "QEMU {}",
    "size": "{} B",
    "runtime": "{} s",
    "rate": "{} kpps",
}
_SHOWN |= {"queues": "queues {}", "rx_queue_size": "rx queue size {}", "tx_queue_size": "tx queue size {}"}
_SHOWN |= {GUESTS: "{} guests", "weights": "weights {}"}


def shown(parameters: Parameters, keys: Iterable[str] | None = None) -> str:
    """Parameters in one line for people, all or the named ones: ``pcvm, bridge, vhost off, 60 B``."""
    found = [(key, value_of(parameters, key)) for key in (parameters if keys is None else keys)]
    return ", ".join(_form(key, value).format(plain(value)) for key, value in found if value is not None)


def _form(key: str, value: Value) -> str:
    if key == "size" and isinstance(value, str):  # a mix of sizes
        return "{}"
    return "{} guest" if (key, value) == (GUESTS, 1) else _SHOWN.get(key, "{}")


def plain(value: Value) -> str:
    """A parameter's value as it is written in a selection."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def differing(many: Iterable[Parameters]) -> list[str]:
    """Names of the parameters, the load apart, that are not the same everywhere."""
    known = list(many)
    return [key for key in names_of(known) if key != LOAD and len({value_of(parameters, key) for parameters in known}) > 1]
