"""Latency, loss and throughput over the offered rate. The figures are those of :meth:`Case.estimate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from autotest.report.cases import LOAD, Case
from autotest.report.metrics import METRICS
from autotest.report.plots.layout import Layout, Series
from autotest.report.plots.points import (
    Points,
    alone,
    connected,
    draw_means,
    interval_key,
    label_decades,
    loss_scale_key,
    of_all,
    readable,
    scale_latencies,
    scale_losses,
    under_sent,
)
from autotest.report.plots.style import (
    GREY,
    PALE,
    PLAIN,
    Chart,
    hollow_key,
    key,
    line_style,
)

_MOST_TICKS = 12


def offered(case: Case) -> float:
    """The offered rate in kpps; for 0, which stands for as fast as possible, the achieved one."""
    return float(case.load) or achieved(case)


def achieved(case: Case) -> float:
    """The rate in kpps that was really sent, mean over the repetitions; the offered one where that is unknown."""
    found = case.estimate(METRICS["achieved"])
    return found.mean if found else float(case.load)


def _line(series: Series) -> Points:
    return connected(series, offered)


def _apart(series: Series, *, at_achieved: bool) -> Points:
    """The under-sent points: latency and loss belong to the rate that was really sent."""
    return under_sent(series, achieved if at_achieved else offered)


def _draw_latency(axes: Axes, series: Series) -> None:
    """Median with its confidence interval, band from 25 to 75 %, the 99th percentile as a thin line."""
    style, label = line_style(series.number), series.label
    colour = style["color"]
    line, apart = _line(series), _apart(series, at_achieved=True)
    p25, p50, p75, p99 = (line.of(name)[0] for name in ("p25", "p50", "p75", "p99"))
    axes.fill_between(line.x, p25, p75, color=colour, alpha=0.18, linewidth=0, label=f"{label}: 25 to 75 %")
    axes.plot(line.x, p99, color=colour, linestyle=style["linestyle"], linewidth=0.7, label=f"{label}: 99 %")
    draw_means(axes, series, "p50", line, apart)
    for points, lone in ((line, alone(p50)), (apart, np.ones(len(apart.cases), bool))):
        if lone.any():  # a band and a line have no width where there is no neighbour
            rates = points.x[lone]
            low, high, highest = (points.of(name)[0][lone] for name in ("p25", "p75", "p99"))
            axes.vlines(rates, low, high, colors=colour, alpha=0.3, linewidth=6, label=f"{label}: 25 to 75 %")
            axes.plot(rates, highest, color=colour, marker="_", linestyle="none", markersize=7, label=f"{label}: 99 %")


def _draw_loss(axes: Axes, series: Series) -> None:
    draw_means(axes, series, "loss", _line(series), _apart(series, at_achieved=True), highest=100)


def _draw_throughput(axes: Axes, series: Series) -> None:
    draw_means(axes, series, "throughput", _line(series), _apart(series, at_achieved=False))


# -- axes --------------------------------------------------------------------------------------------------


def _scale_latency(panels: Sequence[Axes], layout: Layout, _log: bool) -> None:
    axes = panels[0]
    _scale_rates(axes, layout)
    scale_latencies(axes, [value for name in ("p25", "p50", "p99") for value in of_all(layout, name)])


def _scale_loss(panels: Sequence[Axes], layout: Layout, log: bool) -> None:
    axes = panels[0]
    _scale_rates(axes, layout)
    scale_losses(axes, float(of_all(layout, "loss").max(initial=0)), log=log)


def _scale_throughput(panels: Sequence[Axes], layout: Layout, _log: bool) -> None:
    """Both axes of one kind, so that the diagonal is straight."""
    axes = panels[0]
    _scale_rates(axes, layout)
    rates = [offered(case) for case in layout.cases]
    received = of_all(layout, "throughput")
    diagonal = [(min(rates) or max(rates) / 1000) if axes.get_xscale() == "log" else 0, max(rates)]
    for panel in panels:
        panel.plot(diagonal, diagonal, color=PALE, linewidth=0.9, zorder=1, label="received = offered")
    if axes.get_xscale() == "log" and received.min(initial=np.inf) > 0:
        axes.set_yscale("log")
        axes.set_ylim(min([*received, *rates]) / 1.25, max([*received, *rates]) * 1.25)
        label_decades(axes)
    else:
        axes.set_ylim(0, 1.05 * max([*received, *rates]))


def _scale_rates(axes: Axes, layout: Layout) -> None:
    """The x axis; logarithmic where the rates span more than a factor of ten."""
    rates = sorted({rate for case in layout.cases for rate in (offered(case), achieved(case)) if rate > 0})
    if not rates or rates[-1] <= 10 * rates[0]:
        axes.set_xlim(0, 1.05 * rates[-1] if rates else 1)
        return
    axes.set_xscale("log")
    margin = (rates[-1] / rates[0]) ** 0.04
    axes.set_xlim(rates[0] / margin, rates[-1] * margin)
    ticks = sorted({offered(case) for case in layout.cases})
    if len(ticks) <= _MOST_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(readable(ticks, layout.columns)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(PLAIN)


# -- legend ------------------------------------------------------------------------------------------------


def _latency_key(layout: Layout, _log: bool) -> list[Artist]:
    band = Patch(color=GREY, alpha=0.25, linewidth=0, label="25th to 75th percentile")
    hollow = hollow_key(layout, "at the rate that was sent")
    lone = [key("99th percentile of a lone point", marker="_", markersize=7, linestyle="none")] if _has_lone(layout) else []
    return [key("median"), band, key("99th percentile", linewidth=0.7), *lone, *interval_key(layout), *hollow]


def _has_lone(layout: Layout) -> bool:
    """Whether any point stands where no line leads."""
    every = [series for panel in layout.panels for series in panel.series]
    return any(_apart(series, at_achieved=True).cases or alone(_line(series).of("p50")[0]).any() for series in every)


def _loss_key(layout: Layout, log: bool) -> list[Artist]:
    return [*interval_key(layout), *hollow_key(layout, "at the rate that was sent"), *loss_scale_key(log)]


def _throughput_key(layout: Layout, _log: bool) -> list[Artist]:
    diagonal = key("received = offered", color=PALE, linewidth=0.9)
    return [diagonal, *interval_key(layout), *hollow_key(layout, "less sent than offered")]


def _rate_label(layout: Layout) -> str:
    if any(case.under_sent for case in layout.cases):
        return "offered rate (hollow points: achieved rate) [kpps]"
    return "offered rate [kpps]"


LATENCY: Final = Chart(
    _draw_latency,
    _scale_latency,
    _latency_key,
    lambda layout: (_rate_label(layout), f"round-trip latency [{METRICS['p50'].unit}]"),
    axis=LOAD,
)
LOSS: Final = Chart(
    _draw_loss,
    _scale_loss,
    _loss_key,
    lambda layout: (_rate_label(layout), f"loss [{METRICS['loss'].unit} of the frames sent]"),
    axis=LOAD,
)
THROUGHPUT: Final = Chart(
    _draw_throughput,
    _scale_throughput,
    _throughput_key,
    lambda _: ("offered rate [kpps]", f"throughput: received rate [{METRICS['throughput'].unit}]"),
    axis=LOAD,
)
