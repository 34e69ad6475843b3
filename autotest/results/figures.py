"""Figures of one trial, and the verdict on them.

Loss and rates are made from frame totals, percentiles from the histogram by nearest rank; nothing comes from what
MoonGen rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from autotest.results import guests as several
from autotest.results.guests import GuestFigures
from autotest.results.histogram import Histogram, Summary
from autotest.results.moongen import MoonGenOutput, Samples
from autotest.results.per_second import dropouts, longest_sending, shown_seconds
from autotest.results.verdicts import DEFAULT_TOLERANCES, Tolerances, Verdict

#: Percentiles that a trial reports, and the fields that hold them.
PERCENTILES: Final = {25.0: "p25_ns", 50.0: "p50_ns", 75.0: "p75_ns", 95.0: "p95_ns", 99.0: "p99_ns", 99.9: "p999_ns"}

_PRINTED_ROUNDING = 0.051  # ns: MoonGen prints the mean with one decimal
_CRC_BYTES = 4
_FLOAT_ROUNDING = 1e-9  # of the mean: two ways to sum it up
# How many times its mean is larger in ns. Whole numbers of a coarse unit are up to half wrong.
_OTHER_UNITS = {"µs": 1e3, "ms": 1e6, "ps": 1e-3}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one trial measured; None where it cannot be told.

    Attributes:
        sent, received: frames on the device with the traffic.
        lost: sent - received, not below 0; None with a counter mismatch.
        loss: lost / sent, as a fraction.
        counter_mismatch: more received than sent, beyond the in-flight margin.
        seconds: for how long frames were sent; where nothing measured it, the runtime, or less where there are too few
            lines for it.
        achieved_kpps: sent / seconds / 1000.
        samples: latency samples; mean_ns, std_ns, percentiles and max_ns are of these, in ns.
        complete: the output has its final totals, no task died in it, and there is a histogram.
        errors: what tasks said when they died.
        dropout_seconds: in how many seconds of the run nothing was received; None where the output cannot tell.
        dropouts: which seconds these are, counted from 1.
        interface_sent, interface_received: frames that the kernel counted on the generator's interface meanwhile; None
            where no kernel has it.
        contradiction: how output, histogram and what is told of the guests contradict each other; empty where they do not.
        sent_bytes, received_bytes: of the frames on that device, CRC included.
        mean_size: bytes of a frame that was sent, without CRC.
        guests: the same of each guest, in the order of the generator's addresses; empty where there was only one.
        fairness: Jain's index of the guests' throughput relative to their weights, from 1/n (one guest gets all) to 1; like
            the spreads None where there are not several guests, or nothing to compare.
        loss_spread: the largest loss of a guest less the smallest, as a fraction.
        p50_spread_ns: the same of the guests' medians.
        guest_mismatch: how the counters of the guests contradict those of the device, beyond the in-flight margin; empty where
            they do not.
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
    dropout_seconds: int | None = None
    dropouts: tuple[int, ...] = ()
    interface_sent: int | None = None
    interface_received: int | None = None
    contradiction: str = ""
    sent_bytes: int | None = None
    received_bytes: int | None = None
    mean_size: float | None = None
    guests: tuple[GuestFigures, ...] = ()
    fairness: float | None = None
    loss_spread: float | None = None
    p50_spread_ns: int | None = None
    guest_mismatch: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For the trial's JSON."""
        values = {name: getattr(self, name) for name in _FIELDS}
        values["guests"] = [guest.to_dict() for guest in self.guests]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


_FIELDS = tuple(field.name for field in fields(Figures))


def figures(
    output: MoonGenOutput,
    latencies: Histogram | Summary | None,
    seconds: float | None,
    tolerances: Tolerances = DEFAULT_TOLERANCES,
    *,
    interface: tuple[int, int] | None = None,
    unreadable: str = "",
    guests: Sequence[int] = (),
    weights: Sequence[int] = (),
    guest_latencies: Mapping[int, Histogram] | None = None,
) -> Figures:
    """Figures of a trial.

    Args:
        output: what MoonGen printed, parsed.
        latencies: the histogram, or its summary with :data:`PERCENTILES`; None where there is no such file or it cannot be
            read.
        seconds: for how long frames were to be sent, which counts where the output does not say for how long they were;
            None where unknown.
        interface: frames that the kernel counted meanwhile as sent and as received; None where it could not.
        unreadable: what is wrong with the histogram, or the guests' histograms, where that is why one is None.
        guests: the numbers of the guests that the load went to, in the order of the generator's addresses. Not given, the
            output tells how many there were.
        weights: their shares of the load, in the same order; none where all have the same. ValueError for another number.
        guest_latencies: their histograms, by the guest's number; None where there are none, or they cannot be read.
    """
    sent, received, sent_bytes = output.sent, output.received, output.sent_bytes
    if output.seconds is not None:
        seconds = output.seconds
    elif seconds is not None and (longest := longest_sending(output)) is not None:
        seconds = min(seconds, longest)
    lost, loss, mismatch = _loss(sent, received, seconds, tolerances)
    achieved = sent / seconds / 1000 if sent is not None and seconds and seconds > 0 else None
    summary = latencies.summary(list(PERCENTILES)) if isinstance(latencies, Histogram) else latencies
    silent = dropouts(output)
    percentiles: dict[str, Any] = dict.fromkeys(PERCENTILES.values())
    if summary:
        percentiles = dict(zip(PERCENTILES.values(), summary.percentiles, strict=True))
    numbers = tuple(guests) or tuple(range(1, len(output.guests) + 1))
    of_guests = _guest_figures(output, numbers, guest_latencies, seconds, tolerances)
    contradiction = unreadable
    if not unreadable and latencies is not None:
        contradiction = _contradiction(output.samples, summary)
        contradiction = contradiction or several.contradiction(output, numbers, summary, guest_latencies)
    return Figures(
        sent=sent,
        received=received,
        lost=lost,
        loss=loss,
        counter_mismatch=mismatch,
        seconds=seconds,
        achieved_kpps=achieved,
        samples=summary.samples if summary else 0,
        mean_ns=summary.mean if summary else None,
        std_ns=summary.std if summary else None,
        **percentiles,
        max_ns=summary.max if summary else None,
        complete=output.complete and latencies is not None and not output.errors,
        errors=output.errors,
        dropout_seconds=None if silent is None else len(silent),
        dropouts=silent or (),
        interface_sent=interface[0] if interface else None,
        interface_received=interface[1] if interface else None,
        contradiction=contradiction,
        sent_bytes=sent_bytes,
        received_bytes=output.received_bytes,
        mean_size=sent_bytes / sent - _CRC_BYTES if sent and sent_bytes is not None else None,
        **(_compared(of_guests, weights, sent, received, in_flight_margin(sent or 0, seconds, tolerances)) if of_guests else {}),
    )


def _compared(
    guests: tuple[GuestFigures, ...], weights: Sequence[int], sent: int | None, received: int | None, margin: int
) -> dict[str, Any]:
    """The figures that only several guests have."""
    return {
        "guests": guests,
        "fairness": several.fairness(guests, weights),
        "loss_spread": several.spread(guest.loss for guest in guests),
        "p50_spread_ns": several.spread(guest.p50_ns for guest in guests),
        "guest_mismatch": several.counter_mismatch(guests, sent, received, margin),
    }


def _guest_figures(
    output: MoonGenOutput,
    numbers: Sequence[int],
    latencies: Mapping[int, Histogram] | None,
    seconds: float | None,
    tolerances: Tolerances,
) -> tuple[GuestFigures, ...]:
    """Figures of each guest; none where there is one guest, or other guests than the output tells of."""
    if len(numbers) < 2 or [totals.number for totals in output.guests] != list(range(1, len(numbers) + 1)):
        return ()
    found = []
    for number, totals in zip(numbers, output.guests, strict=True):
        lost, loss, _ = _loss(totals.sent, totals.received, seconds, tolerances)
        held = latencies.get(number) if latencies is not None else None
        summary = held.summary(list(PERCENTILES)) if held is not None else None
        values = dict(zip(PERCENTILES.values(), summary.percentiles, strict=True)) if summary else {}
        found.append(
            GuestFigures(
                guest=number,
                mac=totals.mac,
                sent=totals.sent,
                received=totals.received,
                sent_bytes=totals.sent_bytes,
                received_bytes=totals.received_bytes,
                lost=lost,
                loss=loss,
                achieved_kpps=totals.sent / seconds / 1000 if seconds and seconds > 0 else None,
                samples=totals.samples,
                mean_ns=summary.mean if summary else None,
                max_ns=summary.max if summary else None,
                **values,
            )
        )
    return tuple(found)


def _contradiction(printed: Samples | None, summary: Summary | None) -> str:
    """How the line about the samples and the histogram contradict each other; empty where they do not."""
    samples = summary.samples if summary else 0
    if printed is None:
        return ""
    if printed.count != samples:
        return f"the output tells of {printed.count} latency samples, the histogram holds {samples}: not of one run"
    if summary is None or not math.isfinite(printed.average_ns):
        return ""
    if abs(printed.average_ns - summary.mean) <= _PRINTED_ROUNDING + _FLOAT_ROUNDING * abs(printed.average_ns):
        return ""
    means = f"a mean of {printed.average_ns:.1f} ns in the output, of {summary.mean:.6g} in the histogram"
    if not summary.mean:
        return f"{means}: the histogram is not in ns"
    factor = printed.average_ns / summary.mean
    for unit, usual in _OTHER_UNITS.items():
        if usual / 2 <= factor <= usual * 2:
            return f"{means}, which must be in {unit}: units are mixed"
    return f"{means}: not of one run"


def in_flight_margin(sent: int, seconds: float | None = None, tolerances: Tolerances = DEFAULT_TOLERANCES) -> int:
    """Frames by which two counters of the same frames may differ without meaning a mismatch.

    ``in_flight_frames`` for each minute or part of one: spanning tree, LLDP and neighbour discovery go on as long as the run.
    """
    minutes = max(1, math.ceil((seconds or 0) / 60))
    return max(tolerances.in_flight_frames * minutes, int(sent * tolerances.in_flight_share))


def _loss(
    sent: int | None, received: int | None, seconds: float | None, tolerances: Tolerances
) -> tuple[int | None, float | None, bool]:
    """Lost frames, lost share, and whether the counters contradict each other."""
    if sent is None or received is None:
        return None, None, False
    if received - sent > in_flight_margin(sent, seconds, tolerances):
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
    missing: str = "",
    tolerances: Tolerances = DEFAULT_TOLERANCES,
) -> Judgement:
    """Judge a trial; the first that holds, in the order of how much the figures can still be trusted.

    Args:
        offered_kpps: the rate that was asked for; 0 stands for as fast as possible: never under-sent nor over-sent.
        runtime: for how many seconds frames were to be sent; None where unknown.
        exit_code: of the generator; one other than 0 is expected only where there are no samples.
        disturbed: why the trial was disturbed, empty where it was not.
        missing: which guests were not there, empty where all were.
    """
    sent, received = found.sent or 0, found.received or 0
    if incomplete := _why_incomplete(found, runtime, exit_code, tolerances):
        return Judgement(Verdict.INCOMPLETE, incomplete)
    if disturbed:
        return Judgement(Verdict.DISTURBED, disturbed)
    if mismatch := _counter_mismatch(found, tolerances) or found.guest_mismatch:
        return Judgement(Verdict.COUNTER_MISMATCH, mismatch)
    if not received or (not found.samples and received < tolerances.no_reflection * sent):
        return Judgement(Verdict.NO_REFLECTION, f"of {sent} frames sent, {received} came back")
    if silent := several.silent_guests(found.guests):
        return Judgement(Verdict.NO_REFLECTION, silent)
    if len(found.dropouts) > tolerances.dropout_seconds:
        which = f"second {shown_seconds(found.dropouts)}"
        return Judgement(Verdict.DISTURBED, f"nothing was received in {which}, though frames were sent")
    if found.samples < tolerances.min_samples:
        reason = f"{found.samples} latency samples, {tolerances.min_samples} are needed"
        return Judgement(Verdict.TOO_FEW_SAMPLES, reason)
    if found.achieved_kpps is None:
        return Judgement(Verdict.INCOMPLETE, "it is not known for how long frames were sent")
    rates = f"sent {found.achieved_kpps:.6g} kpps, offered {offered_kpps:.6g} kpps"
    if offered_kpps and found.achieved_kpps > offered_kpps * (1 + tolerances.over_sent):
        return Judgement(Verdict.DISTURBED, f"{rates}: another load than the one that it stands for")
    under_sent = found.achieved_kpps < offered_kpps * (1 - tolerances.under_sent)
    if missing:
        return Judgement(Verdict.MISSING_GUESTS, f"{missing}; {rates}" if under_sent else missing)
    if under_sent:
        return Judgement(Verdict.UNDER_SENT, rates)
    return Judgement(Verdict.VALID)


def _why_incomplete(found: Figures, runtime: float | None, exit_code: int, tolerances: Tolerances) -> str:
    """What is missing, or does not belong together; empty where all is there."""
    if found.errors:
        return f"a task failed: {found.errors[0]}"
    if found.sent is None or found.received is None:
        return "the output has no final totals"
    if found.contradiction:
        return found.contradiction
    if not found.complete:
        return "the output or the histogram is missing or cut off"
    if not found.sent:
        return "nothing was sent"
    if unserved := several.unserved_guests(found.guests):
        return unserved
    if exit_code and found.samples:
        return f"the generator ended with exit code {exit_code}"
    if runtime and found.seconds is not None and found.seconds < runtime * (1 - tolerances.stopped_early):
        return f"frames were sent for {found.seconds:g} s instead of {runtime:g} s"
    return ""


def _counter_mismatch(found: Figures, tolerances: Tolerances) -> str:
    """How counters of the same frames differ by more than what is in flight; empty where they do not.

    What the interface received beyond the generator's count matters only where frames are missing: they may then have been
    lost by the generator. Where also the interface received so little that nothing was reflected, nothing was lost there.
    """
    sent, received = found.sent or 0, found.received or 0
    margin = in_flight_margin(sent, found.seconds, tolerances)
    if found.counter_mismatch:
        return f"received {received} frames, but sent only {sent}"
    if found.interface_sent is not None and abs(sent - found.interface_sent) > margin:
        return f"the generator claims {sent} frames sent, the interface sent {found.interface_sent}"
    if found.interface_received is None:
        return ""
    missed = found.interface_received - received
    is_little = not found.samples and found.interface_received < tolerances.no_reflection * sent
    if missed < -margin or (missed > margin and found.lost and not is_little):
        return f"the generator claims {received} frames received, the interface received {found.interface_received}"
    return ""
