"""What a trial's figures are called, measured in and compared by, for every table, plot, comparison and export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from autotest.results.figures import Figures
from autotest.results.guests import GuestFigures

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a trial.

    Attributes:
        name: on the command line; with the unit it is the column of an export.
        label: for people, without the unit.
        unit: what :meth:`of` gives.
        better: which way is an improvement; None where neither is.
        of: the figure in that unit, None where the trial has none; takes :class:`Figures`, and those of :data:`GUEST_METRICS`
            take :class:`GuestFigures`, too.
    """

    name: str
    label: str
    unit: str
    better: Better | None
    of: Callable[[Any], float | None]

    @property
    def column(self) -> str:
        """Name and unit in ASCII: ``p50_us``."""
        unit = {"µs": "us", "%": "percent", "B": "bytes", "Mbit/s": "mbps"}.get(self.unit, self.unit)
        return f"{self.name}_{unit}" if unit else self.name

    @property
    def title(self) -> str:
        """Name and unit for the head of a table: ``p50 [µs]``."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def _scaled(field: str, factor: float) -> Callable[[Any], float | None]:
    def of(figures: Any) -> float | None:
        value = getattr(figures, field)
        return None if value is None else value * factor

    return of


def _in_us(field: str) -> Callable[[Any], float | None]:
    """Divided and not multiplied: 8149 ns are 8.149 us, and not 8.149000000000001."""

    def of(figures: Any) -> float | None:
        value = getattr(figures, field)
        return None if value is None else value / 1000

    return of


def _throughput(figures: Figures | GuestFigures) -> float | None:
    if figures.achieved_kpps is None or figures.loss is None:
        return None
    return figures.achieved_kpps * (1 - figures.loss)


def _bit_rate(figures: Figures) -> float | None:
    if figures.received_bytes is None or not figures.seconds:
        return None
    return 8 * figures.received_bytes / figures.seconds / 1e6


_ALL = (
    Metric("achieved", "achieved rate", "kpps", "higher", _scaled("achieved_kpps", 1)),
    Metric("throughput", "throughput", "kpps", "higher", _throughput),
    Metric("loss", "loss", "%", "lower", _scaled("loss", 100)),
    Metric("mean", "mean latency", "µs", "lower", _in_us("mean_ns")),
    Metric("std", "standard deviation of the latency", "µs", "lower", _in_us("std_ns")),
    Metric("p25", "25th percentile of the latency", "µs", "lower", _in_us("p25_ns")),
    Metric("p50", "median latency", "µs", "lower", _in_us("p50_ns")),
    Metric("p75", "75th percentile of the latency", "µs", "lower", _in_us("p75_ns")),
    Metric("p95", "95th percentile of the latency", "µs", "lower", _in_us("p95_ns")),
    Metric("p99", "99th percentile of the latency", "µs", "lower", _in_us("p99_ns")),
    Metric("p999", "99.9th percentile of the latency", "µs", "lower", _in_us("p999_ns")),
    Metric("max", "largest latency", "µs", "lower", _in_us("max_ns")),
    Metric("samples", "latency samples", "", None, _scaled("samples", 1)),
    Metric("mean_size", "mean frame size", "B", None, _scaled("mean_size", 1)),
    Metric("bit_rate", "received bit rate", "Mbit/s", "higher", _bit_rate),
    Metric("fairness", "fairness between the guests (Jain's index)", "", "higher", _scaled("fairness", 1)),
    Metric("loss_spread", "spread of the guests' losses", "%", "lower", _scaled("loss_spread", 100)),
    Metric("p50_spread", "spread of the guests' median latencies", "µs", "lower", _in_us("p50_spread_ns")),
)
METRICS: Final = {metric.name: metric for metric in _ALL}
BETWEEN_GUESTS: Final = ("fairness", "loss_spread", "p50_spread")
"""Metrics that only trials with several guests have."""
GUEST_METRICS: Final = ("achieved", "throughput", "loss", "mean", "p25", "p50", "p75", "p95", "p99", "p999", "max", "samples")
"""Metrics that each of several guests has."""
