"""What an output directory says about each load latency test case; the common ground of summary and plots."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from autotest.errors import ResultsError
from autotest.results.figures import Figures, figures, verdict
from autotest.results.histogram import Histogram, parse_histogram, sum_histograms
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import (
    HISTOGRAM,
    OUTPUT,
    LoadLatencyCase,
    parse_load_latency_infix,
)
from autotest.results.store import ResultStore, StoredTrial
from autotest.results.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Repetition:
    """One trial: its verdict with the reason, its figures and samples (None where its files cannot be read)."""

    repetition: int
    verdict: Verdict
    reason: str
    figures: Figures | None
    histogram: Histogram | None


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over several repetitions: the value for all together, and the lowest and highest of one."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Case:
    """One test case with its repetitions.

    Attributes:
        used: the repetitions that the figures below are made of: the valid ones, or else the under-sent ones.
        histogram: their samples together; percentiles are taken from it.
    """

    infix: str
    parameters: LoadLatencyCase
    repetitions: tuple[Repetition, ...]
    used: tuple[Repetition, ...]
    histogram: Histogram

    @property
    def setup(self) -> LoadLatencyCase:
        """All parameters but the rate: what one line of a plot has in common (its rate is set to 0)."""
        return replace(self.parameters, rate=0)

    @property
    def under_sent(self) -> bool:
        """True where the figures come from under-sent trials, for want of valid ones."""
        return bool(self.used) and self.used[0].verdict is Verdict.UNDER_SENT

    @property
    def samples(self) -> int:
        """Latency samples that the figures are made of."""
        return self.histogram.samples

    @property
    def achieved_kpps(self) -> Spread | None:
        """Rate really sent: mean over repetitions."""
        return self._spread(lambda found: found.achieved_kpps, lambda values: sum(values) / len(values))

    @property
    def loss(self) -> Spread | None:
        """Lost share: all frames lost over all frames sent."""
        counted = [r.figures for r in self.used if r.figures and r.figures.lost is not None and r.figures.sent]
        if not counted:
            return None
        total = sum(found.lost or 0 for found in counted) / sum(found.sent or 0 for found in counted)
        return self._spread(lambda found: found.loss, lambda _: total)

    def percentile_ns(self, percent: float) -> Spread | None:
        """A latency percentile of all samples together, with the lowest and highest of one repetition."""
        merged = self.histogram.percentile(percent)
        values = [r.histogram.percentile(percent) for r in self.used if r.histogram]
        known = [value for value in values if value is not None]
        return None if merged is None or not known else Spread(merged, min(known), max(known))

    def verdicts(self) -> str:
        """How many repetitions got which verdict, like ``2 valid, 1 disturbed``."""
        counts = Counter(repetition.verdict for repetition in self.repetitions)
        if len(counts) == 1:
            return str(next(iter(counts)))
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])

    def _spread(
        self, of: Callable[[Figures], float | None], together: Callable[[list[float]], float]
    ) -> Spread | None:
        values = [value for r in self.used if r.figures and (value := of(r.figures)) is not None]
        return Spread(together(values), min(values), max(values)) if values else None


def load_cases(outputdir: Path, infixes: Iterable[str] | None = None) -> list[Case]:
    """The load latency test cases in a directory: the named ones with their set-ups in that order, or all.

    The cases of a set-up stand together, by rate.

    Files of other names are passed over.

    The send time of a trial comes from its JSON (``figures.seconds``); a trial of the older tool has none, so its
    nominal runtime is taken, and its verdict is judged here. Raises ResultsError where there is no such directory, or a
    trial comes from a newer autotest.
    """
    if not outputdir.is_dir():
        raise ResultsError(f"{outputdir}: no such directory")
    store = ResultStore(outputdir)
    found: dict[str, list[Repetition]] = defaultdict(list)
    parameters: dict[str, LoadLatencyCase] = {}
    present = {name.infix for name in store.trials()}
    wanted = present if infixes is None else dict.fromkeys(infix for infix in infixes if infix in present)
    for name in store.trials():
        if name.infix in wanted and (parsed := parse_load_latency_infix(name.infix)) is not None:
            parameters[name.infix] = parsed
            found[name.infix].append(_repetition(store.load(name), parsed))
    cases = [_case(infix, parameters[infix], found[infix]) for infix in wanted if infix in found]
    if infixes is None:
        return sorted(cases, key=lambda case: (setup_name(case.setup), case.parameters.rate))
    order = {setup: number for number, setup in enumerate(dict.fromkeys(case.setup for case in cases))}
    return sorted(cases, key=lambda case: (order[case.setup], case.parameters.rate))


def setup_name(parameters: LoadLatencyCase) -> str:
    """A set-up in one line: what the infix holds, but for the rate."""
    named = parameters.infix.rsplit("_", 3)[0]
    return f"{named}, {parameters.size} B, {parameters.runtime} s"


def differing(setups: Iterable[LoadLatencyCase]) -> list[str]:
    """Names of the parameters, rate apart, that are not the same in all set-ups."""
    known = list(setups)
    keys = ("machine", "interface", "qemu", "vhost", "ioregionfd", "reflector", "size", "runtime")
    return [key for key in keys if len({getattr(setup, key) for setup in known}) > 1]


def _case(infix: str, parameters: LoadLatencyCase, repetitions: list[Repetition]) -> Case:
    used: tuple[Repetition, ...] = ()
    for wanted in (Verdict.VALID, Verdict.UNDER_SENT):
        used = used or tuple(repetition for repetition in repetitions if repetition.verdict is wanted)
    merged = sum_histograms(repetition.histogram for repetition in used if repetition.histogram)
    return Case(infix, parameters, tuple(repetitions), used, merged)


def _repetition(stored: StoredTrial, parameters: LoadLatencyCase) -> Repetition:
    number = stored.name.repetition
    reason = stored.reason or str((stored.trial or {}).get("reason", ""))
    if not stored.files.get(OUTPUT):
        return Repetition(number, stored.verdict, reason, None, None)
    try:
        histogram = parse_histogram(stored.files.get(HISTOGRAM, b""), stored.name.histogram)
    except ResultsError:
        histogram = None
    output = parse_moongen_output(stored.files[OUTPUT].decode("utf-8", "replace"))
    found = figures(output, histogram, _seconds(stored, parameters))
    judged = stored.verdict
    if stored.trial is None and judged.is_done:
        judgement = verdict(found, parameters.rate)
        judged, reason = judgement.verdict, judgement.reason
    return Repetition(number, judged, reason, found, histogram)


def _seconds(stored: StoredTrial, parameters: LoadLatencyCase) -> float | None:
    if stored.trial is None:
        return float(parameters.runtime)
    recorded = stored.trial.get("figures")
    seconds = recorded.get("seconds") if isinstance(recorded, dict) else None
    return float(seconds) if isinstance(seconds, int | float) else None
