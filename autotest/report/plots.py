"""Plots of an output directory: latency and loss over the offered rate, as PNG and PDF.

Set-ups differ in colour, marker and line style at once: the colours are those of M. Okabe and K. Ito ("Color Universal
Design", 2008), told apart with any colour vision, and marker and line style carry it in black and white.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import (  # noqa: E402
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from autotest.errors import ResultsError  # noqa: E402
from autotest.report.cases import Case, differing, load_cases, setup_name  # noqa: E402
from autotest.results.files import write_atomically  # noqa: E402
from autotest.results.names import LoadLatencyCase  # noqa: E402

FORMATS: Final = ("png", "pdf")
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h", ">")
_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_DPI = 200
_WIDTH_IN, _AXES_HEIGHT_IN, _LEGEND_ROW_IN = 7.0, 4.2, 0.2
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}


@dataclass(frozen=True, slots=True)
class _Series:
    label: str
    style: dict[str, Any]
    frame: pd.DataFrame


def tidy(cases: Sequence[Case]) -> pd.DataFrame:
    """One row per case that has figures.

    Columns: ``setup`` (name), ``offered_kpps``, ``achieved_kpps``, ``loss_percent``, ``loss_low_percent``,
    ``loss_high_percent`` (of one repetition), ``p25_us``, ``p50_us``, ``p75_us``, ``p99_us``, ``under_sent``.
    """
    rows = []
    for case in cases:
        if not case.used:
            continue
        loss = case.loss
        row: dict[str, Any] = {"setup": setup_name(case.setup), "offered_kpps": case.parameters.rate}
        row["achieved_kpps"] = case.achieved_kpps.value if case.achieved_kpps else float("nan")
        for column, part in (("loss", "value"), ("loss_low", "low"), ("loss_high", "high")):
            row[f"{column}_percent"] = getattr(loss, part) * 100 if loss else float("nan")
        for percent in (25, 50, 75, 99):
            spread = case.percentile_ns(percent)
            row[f"p{percent}_us"] = spread.value / 1000 if spread else float("nan")
        rows.append({**row, "under_sent": case.under_sent})
    return pd.DataFrame(rows)


def plot_load_latency(outputdir: Path, infixes: Iterable[str] | None = None) -> list[Path]:
    """Write ``load_latency`` and ``packet_loss`` as .png and .pdf into the directory; returns the files.

    Drawn are the named test cases, all without ``infixes``.

    Returns nothing where no case has figures. Raises ResultsError where a file cannot be read or written.
    """
    cases = [case for case in load_cases(outputdir, infixes) if case.used]
    if not cases:
        return []
    written = []
    with plt.rc_context(_STYLE):
        series = _series(cases)
        plots = (("load_latency", _draw_latency), ("packet_loss", _draw_loss))
        for name, draw in plots:
            figure = _figure(series, draw)
            try:
                written += [_save(figure, outputdir / f"{name}.{suffix}") for suffix in FORMATS]
            finally:
                plt.close(figure)
    return written


def label(setup: LoadLatencyCase, keys: Sequence[str]) -> str:
    """A set-up by those parameters alone; those that it does not have are left out."""
    shown = {
        "vhost": lambda value: f"vhost {'on' if value else 'off'}",
        "ioregionfd": lambda value: f"ioregionfd {'on' if value else 'off'}",
        "qemu": lambda value: f"QEMU {value}",
        "size": lambda value: f"{value} B",
        "runtime": lambda value: f"{value} s",
    }
    known = [(key, getattr(setup, key)) for key in keys if getattr(setup, key) is not None]
    return ", ".join(shown.get(key, str)(value) for key, value in known)


def _series(cases: Sequence[Case]) -> list[_Series]:
    setups = list(dict.fromkeys(case.setup for case in cases))
    keys = differing(setups)
    frame = tidy(cases)
    series = []
    for number, setup in enumerate(setups):
        style = {
            "color": _COLOURS[number % len(_COLOURS)],
            "marker": _MARKERS[number % len(_MARKERS)],
            "linestyle": _LINES[number % len(_LINES)],
        }
        rows = frame[frame["setup"] == setup_name(setup)].sort_values("offered_kpps")
        series.append(_Series(label(setup, keys) or setup_name(setup), style, rows))
    return series


def _figure(series: Sequence[_Series], draw: Callable[[Axes, _Series], None]) -> Figure:
    handles = [Line2D([], [], label=one.label, markersize=5, linewidth=1.6, **one.style) for one in series]
    if any(one.frame["under_sent"].any() for one in series):
        hollow = {"color": "#555555", "marker": "o", "markerfacecolor": "white", "linestyle": "none"}
        handles.append(Line2D([], [], label="hollow: under-sent (achieved below offered)", markersize=5, **hollow))
    columns = 1 if max(len(one.label) for one in series) > 48 else 2 if len(handles) > 1 else 1
    legend_height = (-(-len(handles) // columns) + 0.5) * _LEGEND_ROW_IN
    height = _AXES_HEIGHT_IN + legend_height
    figure, axes = plt.subplots(figsize=(_WIDTH_IN, height), layout="constrained")
    for one in series:
        draw(axes, one)
    _scale_rates(axes, sorted({float(rate) for one in series for rate in one.frame["offered_kpps"]}))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)
    return figure


def _scale_rates(axes: Axes, rates: Sequence[float]) -> None:
    """Offered rates on the x axis; logarithmic where they span more than a factor of ten."""
    axes.set_xlabel("offered rate [kpps]")
    if rates[0] > 0 and rates[-1] / rates[0] > 10:
        axes.set_xscale("log")
        if len(rates) <= 12:
            axes.xaxis.set_major_locator(FixedLocator(list(rates)))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    else:
        axes.set_xlim(left=0)


def _plain(value: float, _position: int | None = None) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _draw_latency(axes: Axes, series: _Series) -> None:
    """Median with the band from 25 to 75 %, the 99th percentile as a thin line above."""
    colour = series.style["color"]
    valid, under = _parts(series.frame)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("round-trip latency [µs]")
    axes.set_title("thick line: median, band: 25 to 75 %, thin line or dash: 99 %", fontsize="medium", loc="left")
    rates = valid["offered_kpps"]
    axes.fill_between(rates, valid["p25_us"], valid["p75_us"], color=colour, alpha=0.18, linewidth=0)
    axes.plot(rates, valid["p50_us"], markersize=5, linewidth=1.6, **series.style)
    axes.plot(rates, valid["p99_us"], color=colour, linestyle=series.style["linestyle"], linewidth=0.7)
    reach = [under["p50_us"] - under["p25_us"], under["p75_us"] - under["p50_us"]]
    hollow = _hollow(series)
    axes.errorbar(under["offered_kpps"], under["p50_us"], yerr=reach, elinewidth=0.9, **hollow)
    axes.plot(under["offered_kpps"], under["p99_us"], color=colour, marker="_", linestyle="none", markersize=7)
    low, high = axes.dataLim.minposy, axes.dataLim.y1
    if low < high < 5 * low:  # no mountains out of a few per cent, and always two labelled ticks
        axes.set_ylim((low * high) ** 0.5 / 3, (low * high) ** 0.5 * 3)
    else:
        axes.set_ylim(low / 1.4, high * 1.4)


def _draw_loss(axes: Axes, series: _Series) -> None:
    """Loss of all repetitions together, with the range between them."""
    valid, under = _parts(series.frame)
    axes.set_ylabel("loss [% of frames sent]")
    axes.set_title("line: all repetitions, band: lowest to highest repetition", fontsize="medium", loc="left")
    rates = valid["offered_kpps"]
    axes.fill_between(
        rates,
        valid["loss_low_percent"],
        valid["loss_high_percent"],
        color=series.style["color"],
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(rates, valid["loss_percent"], markersize=5, linewidth=1.6, **series.style)
    axes.plot(under["offered_kpps"], under["loss_percent"], **_hollow(series))
    highest = axes.dataLim.y1
    top = min(100.0, max(1.0, 1.08 * highest))  # not less than 1 %: no mountains out of single frames
    axes.set_ylim(-0.02 * top, 1.02 * top)


def _parts(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The valid points, with a gap where one is under-sent so that no line leads past it, and the under-sent ones."""
    under = frame["under_sent"].astype(bool)
    valid = frame.copy()
    figures = [column for column in valid.columns if column.endswith(("_us", "_percent"))]
    valid.loc[under, figures] = float("nan")
    return valid, frame[under]


def _hollow(series: _Series) -> dict[str, Any]:
    style: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.2, "markersize": 5.5, "linestyle": "none"}
    style["zorder"] = 3  # above the lines of others
    return {**{key: series.style[key] for key in ("color", "marker")}, **style}


def _save(figure: Figure, path: Path) -> Path:
    buffer = io.BytesIO()
    # Without a date in it, the same results give the same file.
    metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
    figure.savefig(buffer, format=path.suffix[1:], dpi=_DPI, metadata=metadata)
    try:
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from error
    return path
