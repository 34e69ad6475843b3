"""What several guests of one trial are to each other: figures of each, fairness, spreads, and whether they add up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from autotest.results.histogram import Histogram, Summary
from autotest.results.moongen import GuestTotals, MoonGenOutput

_FLOAT_ROUNDING: Final = 1e-9  # of a mean: two ways to sum it up
_MOST_NAMED: Final = 5  # guests in one reason
_UNSURE_LOSS: Final = 0.01  # of a guest's frames: the smallest step that a plot of losses shows
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class GuestFigures:
    """What one trial measured of one guest; None where it cannot be told.

    Attributes:
        guest: its number, from 1.
        mac: where its frames were sent to.
        sent, received: frames of the load, as the generator told them apart.
        sent_bytes, received_bytes: theirs, CRC included.
        lost, loss: as :class:`~autotest.results.figures.Figures` has them.
        achieved_kpps: sent / seconds / 1000, the seconds being those of the trial.
        samples: latency samples; mean_ns, percentiles and max_ns are of these, in ns.
    """

    guest: int
    mac: str
    sent: int
    received: int
    sent_bytes: int
    received_bytes: int
    lost: int | None
    loss: float | None
    achieved_kpps: float | None
    samples: int
    mean_ns: float | None = None
    p25_ns: int | None = None
    p50_ns: int | None = None
    p75_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None
    p999_ns: int | None = None
    max_ns: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """For the trial's JSON."""
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = tuple(field.name for field in fields(GuestFigures))


def guest_name(number: int) -> str:
    """What a guest is called, by its number.

    >>> guest_name(1), guest_name(2)
    ('guest', 'guest2')
    """
    return "guest" if number == 1 else f"guest{number}"


def jain_index(shares: Sequence[float]) -> float | None:
    """Fairness of how something was shared: (sum x)^2 / (n * sum x^2), from 1/n where one has all, to 1 where all have the same.

    Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer
    Systems", DEC Research Report TR-301 (1984). None where nothing was shared.
    """
    largest = max(shares, default=0)
    if largest <= 0:
        return None
    parts = [share / largest for share in shares]  # neither too large nor too small to be squared
    return min(1.0, math.fsum(parts) ** 2 / (len(parts) * math.fsum(part * part for part in parts)))


def fairness(guests: Sequence[GuestFigures], weights: Sequence[int]) -> float | None:
    """Jain's index of the guests' throughput, in frames received, relative to their weights.

    Args:
        weights: one for each of the guests; none where all have the same.

    None with fewer than two guests, and where nothing came back.
    """
    if len(guests) < 2:
        return None
    pairs = zip(guests, weights or [1] * len(guests), strict=True)
    return jain_index([guest.received / weight for guest, weight in pairs])


def spread(values: Iterable[_Number | None]) -> _Number | None:
    """The largest less the smallest of those that are known; None where fewer than two are."""
    known = [value for value in values if value is not None]
    return max(known) - min(known) if len(known) > 1 else None


def silent_guests(guests: Sequence[GuestFigures]) -> str:
    """Which guests reflected nothing, in words; empty where all did. One without a reflector has no latency to share."""
    silent = [guest for guest in guests if not guest.received]
    return _listed([f"of {guest.sent} frames sent to {guest_name(guest.guest)}, none came back" for guest in silent])


def unserved_guests(guests: Sequence[GuestFigures]) -> str:
    """Which guests got no frame at all, in words; empty where all did."""
    names = _listed([guest_name(guest.guest) for guest in guests if not guest.sent], ", ")
    return f"nothing was sent to {names}" if names else ""


def contradiction(
    output: MoonGenOutput,
    numbers: Sequence[int],
    total: Summary | None,
    latencies: Mapping[int, Histogram] | None,
) -> str:
    """How what is told of the guests contradicts itself; empty where it does not.

    Args:
        numbers: of the guests that the load went to.
        total: of the histogram of all samples, None where there are none.
        latencies: histograms by the number of the guest; None where there is no such file.
    """
    expected = len(numbers) if len(numbers) > 1 else 0  # nothing is said of a single one
    if not expected and not output.guests:
        return ""
    lines = [totals.number for totals in output.guests]
    if lines != list(range(1, expected + 1)):
        many = f"{len(numbers)} guest{'s' * (len(numbers) != 1)}"
        return f"the load went to {many}, the output tells of {_told(lines)}: not of one run, or cut off"
    samples = total.samples if total else 0
    if lines and (together := sum(totals.samples for totals in output.guests)) != samples:
        return f"the guests have {together} latency samples together, the histogram holds {samples}: not of one run"
    return "" if latencies is None else _file_contradiction(output.guests, numbers, total, latencies)


def _told(lines: Sequence[int]) -> str:
    if lines == list(range(1, len(lines) + 1)):
        return str(len(lines) or "none")
    return f"those numbered {_listed(list(map(str, lines)), ', ')}"


def _file_contradiction(
    guests: Sequence[GuestTotals], numbers: Sequence[int], total: Summary | None, latencies: Mapping[int, Histogram]
) -> str:
    """How the guests' histograms contradict their lines and the histogram of all; means and maxima find what counts do not."""
    strangers = [guest_name(number) for number in sorted(latencies.keys() - set(numbers))]
    if strangers and guests:
        return f"there are latency samples of {_listed(strangers, ', ')}, to which no load went: not of one run"
    for number, totals in zip(numbers, guests, strict=False):
        held = latencies[number].samples if number in latencies else 0
        if held != totals.samples:
            told = f"the output tells of {totals.samples} latency samples of {guest_name(number)}"
            return f"{told}, its histogram holds {held}: not of one run"
    parts = [part for histogram in latencies.values() if (part := histogram.summary(()))]
    if not guests or not parts or total is None:
        return ""
    mean = math.fsum(part.mean * part.samples for part in parts) / total.samples
    if max(part.max for part in parts) != total.max or abs(mean - total.mean) > _FLOAT_ROUNDING * total.mean:
        return "the guests' histograms together are not the histogram: not of one run"
    return ""


def counter_mismatch(guests: Sequence[GuestFigures], sent: int | None, received: int | None, margin: int) -> str:
    """How the guests' frames contradict the device's totals by more than ``margin``; empty where they do not.

    What the device received beyond them would be loss of the guests, though it came back. Where a guest was sent little, its
    loss is wrong before it is more than the margin.
    """
    if not guests or sent is None or received is None:
        return ""
    for guest in guests:
        if guest.lost is None:
            return f"received {guest.received} frames from {guest_name(guest.guest)}, but sent it only {guest.sent}"
    all_sent, all_received = (sum(getattr(guest, name) for guest in guests) for name in ("sent", "received"))
    if abs(all_sent - sent) > margin:
        return f"the guests were sent {all_sent} frames together, the generator sent {sent}"
    if abs(all_received - received) > margin:
        return f"the guests returned {all_received} frames together, the generator received {received}"
    unknown = received - all_received
    for guest in guests:
        if unknown > 0 and min(unknown, guest.lost or 0) > _UNSURE_LOSS * guest.sent:
            missing = f"of {guest.sent} frames sent to {guest_name(guest.guest)}, {guest.lost} are missing"
            return f"{missing}, but of {unknown} that came back it is not known whose they are"
    return ""


def missing_in_words(missing: Mapping[str, str], there: int) -> str:
    """Which guests were not there, and why; empty where none was missing.

    Args:
        missing: reasons by the guest's name.
        there: how many were.
    """
    if not missing:
        return ""
    named = _listed([f"{name}: {reason}" if reason else name for name, reason in missing.items()])
    return f"{len(missing)} of {len(missing) + there} guests were not there: {named}"


def _listed(items: Sequence[str], separator: str = "; ") -> str:
    more = len(items) - _MOST_NAMED
    return separator.join([*items[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
