"""What a trial's figures are called, measured in and compared by, for every table, plot, comparison and export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from autotest.results.figures import Figures

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a trial.

    Attributes:
        name: on the command line; with the unit it is the column of an export.
        label: for people, without the unit.
        unit: what :meth:`of` gives.
        better: which way is an improvement; None where neither is.
        of: the figure in that unit, None where the trial has none.
    """

    name: str
    label: str
    unit: str
    better: Better | None
    of: Callable[[Figures], float | None]

    @property
    def column(self) -> str:
        """Name and unit in ASCII: ``p50_us``."""
        unit = {"µs": "us", "%": "percent"}.get(self.unit, self.unit)
        return f"{self.name}_{unit}" if unit else self.name


def _scaled(field: str, factor: float) -> Callable[[Figures], float | None]:
    def of(figures: Figures) -> float | None:
        value = getattr(figures, field)
        return None if value is None else value * factor

    return of


def _in_us(field: str) -> Callable[[Figures], float | None]:
    """Divided and not multiplied: 8149 ns are 8.149 us, and not 8.149000000000001."""

    def of(figures: Figures) -> float | None:
        value = getattr(figures, field)
        return None if value is None else value / 1000

    return of


def _throughput(figures: Figures) -> float | None:
    if figures.achieved_kpps is None or figures.loss is None:
        return None
    return figures.achieved_kpps * (1 - figures.loss)


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
)
METRICS: Final = {metric.name: metric for metric in _ALL}
