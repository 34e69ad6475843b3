"""Figures of one trial, and the verdict on them.

Loss and rates are made from frame totals, percentiles from the histogram by nearest rank; nothing comes from what
MoonGen rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from autotest.errors import ResultsError
from autotest.results.histogram import Histogram
from autotest.results.moongen import MoonGenOutput
from autotest.results.verdicts import Verdict

#: Percentiles that a trial reports, and the fields that hold them.
PERCENTILES: Final = {25.0: "p25_ns", 50.0: "p50_ns", 75.0: "p75_ns", 95.0: "p95_ns", 99.0: "p99_ns", 99.9: "p999_ns"}


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Where a figure stops being good enough. The reasons stand with the numbers.

    Attributes:
        under_sent: share of the offered rate that may be missing. One per cent: above the rounding of frame spacing
            and of start and stop over a second or more, below the smallest step that a plot of rates shows.
        stopped_early: share of the runtime that may be missing at the end; somebody or something ended a generator
            that stops before. Two per cent: twice what may be missing of the rate.
        samples: fewest latency samples. With fewer than 100 the 99th percentile is just the largest sample.
        in_flight_frames: frames received beyond those sent that are not a mismatch. One batch of MoonGen (63 frames)
            may be counted on one side only, and a guest's own frames (neighbour discovery) reach the loadgen too.
        in_flight_share: the same as a share of the frames sent, for long trials; the larger one of both holds.
        no_reflection: share of the frames sent below which, without any latency sample, what came in is taken for
            other traffic and nothing was reflected.
    """

    under_sent: float = 0.01
    stopped_early: float = 0.02
    samples: int = 100
    in_flight_frames: int = 64
    in_flight_share: float = 1e-5
    no_reflection: float = 0.01


DEFAULT_TOLERANCES: Final = Tolerances()


@dataclass(frozen=True, slots=True)
class Figures:
    """What one trial measured; None where it cannot be told.

    Attributes:
        sent, received: frames on the device with the traffic.
        lost: sent - received, not below 0; None with a counter mismatch.
        loss: lost / sent, as a fraction.
        counter_mismatch: more received than sent, beyond the in-flight margin.
        seconds: for how long frames were sent.
        achieved_kpps: sent / seconds / 1000.
        samples: latency samples; mean_ns, std_ns, percentiles and max_ns are of these, in ns.
        complete: the output has its final totals, no task died in it, and there is a histogram.
        errors: what tasks said when they died.
    """

    sent: int | None
    received: int | None
    lost: int | None
    loss: float | None
    counter_mismatch: bool
    seconds: float | None
    achieved_kpps: float | None
    samples: int
    mean_ns: float | None
    std_ns: float | None
    p25_ns: int | None
    p50_ns: int | None
    p75_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    max_ns: int | None
    complete: bool
    errors: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For the trial's JSON."""
        return {**asdict(self), "errors": list(self.errors)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Figures:
        """From the trial's JSON; unknown keys are left out. ResultsError where one is missing."""
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if name not in document]
        if missing:
            raise ResultsError(f"figures without {', '.join(missing)}")
        return cls(**{**{name: document[name] for name in names}, "errors": tuple(document["errors"])})


def figures(
    output: MoonGenOutput,
    histogram: Histogram | None,
    seconds: float | None,
    tolerances: Tolerances = DEFAULT_TOLERANCES,
) -> Figures:
    """Figures of a trial.

    Args:
        output: what MoonGen printed, parsed.
        histogram: the latency samples; None where there is no such file or it cannot be read.
        seconds: for how long frames were sent, as measured; None where unknown.
    """
    sent, received = output.sent, output.received
    lost, loss, mismatch = _loss(sent, received, tolerances)
    achieved = sent / seconds / 1000 if sent is not None and seconds and seconds > 0 else None
    samples = histogram.samples if histogram else 0
    quantiles: dict[str, int | None] = dict.fromkeys(PERCENTILES.values())
    if histogram and samples:
        quantiles = dict(zip(PERCENTILES.values(), histogram.percentiles(list(PERCENTILES)), strict=True))
    return Figures(
        sent=sent,
        received=received,
        lost=lost,
        loss=loss,
        counter_mismatch=mismatch,
        seconds=seconds,
        achieved_kpps=achieved,
        samples=samples,
        mean_ns=histogram.mean if histogram and samples else None,
        std_ns=histogram.std if histogram and samples else None,
        max_ns=histogram.max if histogram else None,
        complete=output.complete and histogram is not None and not output.errors,
        errors=output.errors,
        **quantiles,
    )


def in_flight_margin(sent: int, tolerances: Tolerances = DEFAULT_TOLERANCES) -> int:
    """Frames by which received may exceed sent without meaning a mismatch."""
    return max(tolerances.in_flight_frames, int(sent * tolerances.in_flight_share))


def _loss(sent: int | None, received: int | None, tolerances: Tolerances) -> tuple[int | None, float | None, bool]:
    """Lost frames, lost share, and whether the counters contradict each other."""
    if sent is None or received is None:
        return None, None, False
    if received - sent > in_flight_margin(sent, tolerances):
        return None, None, True
    lost = max(0, sent - received)
    return lost, lost / sent if sent else None, False


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and, in one line for people, the reason; the reason is empty for ``valid``."""

    verdict: Verdict
    reason: str = ""


def verdict(
    found: Figures,
    offered_kpps: float,
    *,
    runtime: float | None = None,
    exit_code: int = 0,
    disturbed: str = "",
    tolerances: Tolerances = DEFAULT_TOLERANCES,
) -> Judgement:
    """Judge a trial; the first that holds, in the order of how much the figures can still be trusted.

    Args:
        offered_kpps: the rate that was asked for; 0 stands for as fast as possible and is never under-sent.
        runtime: for how many seconds frames were to be sent; None where unknown.
        exit_code: of the generator; one other than 0 is expected only where there are no samples.
        disturbed: why the trial was disturbed, empty where it was not.
    """
    sent, received = found.sent or 0, found.received or 0
    if not found.complete or not sent:
        return Judgement(Verdict.INCOMPLETE, _why_incomplete(found))
    if exit_code and found.samples:
        return Judgement(Verdict.INCOMPLETE, f"the generator ended with exit code {exit_code}")
    if runtime and found.seconds is not None and found.seconds < runtime * (1 - tolerances.stopped_early):
        return Judgement(Verdict.INCOMPLETE, f"frames were sent for {found.seconds:g} s instead of {runtime:g} s")
    if disturbed:
        return Judgement(Verdict.DISTURBED, disturbed)
    if found.counter_mismatch:
        return Judgement(Verdict.COUNTER_MISMATCH, f"received {received} frames, but sent only {sent}")
    if not received or (not found.samples and received < tolerances.no_reflection * sent):
        return Judgement(Verdict.NO_REFLECTION, f"of {sent} frames sent, {received} came back")
    if found.samples < tolerances.samples:
        reason = f"{found.samples} latency samples, {tolerances.samples} are needed"
        return Judgement(Verdict.TOO_FEW_SAMPLES, reason)
    if found.achieved_kpps is None:
        return Judgement(Verdict.INCOMPLETE, "it is not known for how long frames were sent")
    if found.achieved_kpps < offered_kpps * (1 - tolerances.under_sent):
        return Judgement(Verdict.UNDER_SENT, f"sent {found.achieved_kpps:.6g} kpps, offered {offered_kpps:.6g} kpps")
    return Judgement(Verdict.VALID)


def _why_incomplete(found: Figures) -> str:
    if found.errors:
        return f"a task failed: {found.errors[0]}"
    if found.sent is None or found.received is None:
        return "the output has no final totals"
    if not found.complete:
        return "the output or the histogram is missing or cut off"
    return "nothing was sent"
