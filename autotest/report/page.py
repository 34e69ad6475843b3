"""The HTML report: one file that needs nothing else, with charts, every trial, its log and its JSON.

The file holds three things: the index (JSON that the page reads at once: cases, their figures, one row a trial), chunks
(the logs, records or quantiles of a few trials each, compressed, opened when somebody looks at one of them), and
plotly.js (compressed too, to a third), which comes with the package ``plotly``. ``assets/`` has the page itself.
"""

from __future__ import annotations

import base64
import functools
import gzip
import html
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any, Final
from urllib.parse import quote

from autotest import __version__
from autotest.errors import ResultsError
from autotest.report.cases import (
    GUESTS,
    LOAD,
    Case,
    along_guests,
    differing,
    group_cases,
    plain,
    shown,
)
from autotest.report.environment import differences, environment, in_common
from autotest.report.metrics import GUEST_METRICS, METRICS
from autotest.report.parameters import Parameters, Value, names_of, value_of
from autotest.report.trials import Results, Trial
from autotest.results.names import HISTOGRAM, OUTPUT, TRIAL
from autotest.results.statistics import Estimate
from autotest.results.verdicts import Verdict

Source = tuple[Results, Sequence[Trial]]
"""An output directory, and the trials of it that the report is about."""

#: What the page may take; where logs would exceed it, their middles are left out.
PAGE_BYTES: Final = 9_500_000
_FOR_THE_REST: Final = 100_000
_LONGEST_LOG: Final = 1_000_000
_SHORTEST_LOG: Final = 500
_TRIALS_A_CHUNK: Final = 16
_SHOWN_COMPLAINTS: Final = 1000
_SHOWN_GUESTS: Final = 32
"""Of a test case; the ranges and the figures between the guests are of all of them."""
_DIRECTORY: Final = "directory"
#: Percentiles of a CDF: every per cent, and the tail.
_GRID: Final = (*range(100), 99.5, 99.8, 99.9, 99.95, 99.99, 99.995, 99.999, 100)
#: One module on the page, in this order.
_SCRIPTS: Final = ("base.js", "charts.js", "guests.js", "table.js", "page.js")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class _Shown:
    """A test case as the page shows it.

    Attributes:
        parameters: those of the case, after its directory where there are several; also what only others' names say.
    """

    case: Case
    parameters: dict[str, Value]


def render_page(
    sources: Sequence[Source],
    accept: Collection[Verdict] = (),
    *,
    beside: Path,
    made: datetime,
    command: str = "",
    page_bytes: int = PAGE_BYTES,
) -> bytes:
    """The report as a whole HTML file.

    Args:
        accept: verdicts that count like ``valid``.
        beside: the directory that the file will be in: links to the trials' files start there.
        made: the time to be shown.
        command: that made it, for the reader.
        page_bytes: how large the file may become before logs are shortened.

    Raises:
        ResultsError: there is no trial.
    """
    cases = _cases(sources, accept)
    if not cases:
        raise ResultsError(f"{', '.join(str(results.directory) for results, _ in sources)}: no load latency trials")
    trials = [trial for shown_case in cases for trial in shown_case.case.trials]
    records = [_record(trial) for trial in trials]
    index = _index(sources, cases, beside) | _environment(cases, records)
    index |= {"made": made.isoformat(sep=" ", timespec="seconds"), "command": command, "version": __version__}
    plotly = _packed(_plotly())
    packed = {"records": _packed_chunks(records), "quantiles": _packed_chunks([_quantiles(trial) for trial in trials])}
    room = page_bytes - len(plotly) - len(_inline(index)) - sum(len(chunk) for chunks in packed.values() for chunk in chunks)
    packed["logs"], shortened = _packed_logs(trials, room - _FOR_THE_REST)
    index |= {"shortened": shortened, "trialsPerChunk": _TRIALS_A_CHUNK}
    parts = {
        "title": html.escape(index["title"]),
        "style": _asset("page.css"),
        "script": "\n".join(map(_asset, _SCRIPTS)),
        "data": _inline(index),
        "chunks": "\n".join(_scripts(name, chunks) for name, chunks in packed.items()),
        "plotly": plotly,
    }
    page = _PLACEHOLDER.sub(lambda found: parts[found[1]], _asset("page.html"))
    return page.encode("utf-8", "replace")


def _asset(name: str) -> str:
    return resources.files("autotest.report").joinpath("assets", name).read_text("utf-8")


@functools.cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _inline(document: object) -> str:
    """JSON that can stand in a script element, whatever its texts are."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _packed(text: str) -> str:
    """Text for the browser's DecompressionStream; the same text gives the same result."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode("ascii")


# -- the index ---------------------------------------------------------------------------------------------


def _cases(sources: Sequence[Source], accept: Collection[Verdict]) -> list[_Shown]:
    """The test cases of all directories; a trial that several sources select is there once."""
    directories: dict[Path, dict[str, Trial]] = {}
    for results, trials in sources:
        known = directories.setdefault(results.directory, {})
        for trial in trials:
            known.setdefault(str(trial.name), trial)
    cases = {directory: group_cases(there.values(), accept) for directory, there in directories.items()}
    names = names_of(case.parameters for cases_there in cases.values() for case in cases_there)
    return [
        _Shown(case, {**({_DIRECTORY: str(directory)} if len(directories) > 1 else {}), **_whole(case.parameters, names)})
        for directory, cases_there in cases.items()
        for case in cases_there
    ]


def _whole(parameters: Parameters, names: Iterable[str]) -> dict[str, Value]:
    """With those of these names that its own do not say."""
    found = {name: value_of(parameters, name) for name in names if name not in parameters}
    return {**parameters, **{name: value for name, value in found.items() if value is not None}}


def _index(sources: Sequence[Source], cases: Sequence[_Shown], beside: Path) -> dict[str, Any]:
    directories = list(dict.fromkeys(results.directory for results, _ in sources))
    everything = [shown_case.parameters for shown_case in cases]
    keys = names_of(everything)
    varying = differing(everything)
    set_ups = {key: number for number, key in enumerate(dict.fromkeys(map(_set_up, cases)))}
    complaints = dict.fromkeys(
        (str(results.directory), complaint.file, complaint.message) for results, _ in sources for complaint in results.complaints
    )
    same = [key for key in keys if key not in varying and all(key in parameters for parameters in everything) and key != "rate"]
    return {
        "title": f"Load latency: {', '.join(directory.resolve().name for directory in directories)}",
        "directories": [str(directory.resolve()) for directory in directories],
        "complaints": list(complaints)[:_SHOWN_COMPLAINTS],
        "complaintCount": len(complaints),
        "keys": [key for key in keys if key in varying or key == "rate"],
        "everywhere": shown(everything[0], same),
        "metrics": [{"name": metric.name, "label": metric.label, "unit": metric.unit} for metric in METRICS.values()],
        "guestMetrics": GUEST_METRICS,
        "verdicts": [str(verdict) for verdict in Verdict],
        "setUps": [shown(dict(key), varying) or shown(dict(key)) for key in set_ups],
        "cases": [_case(shown_case, set_ups[_set_up(shown_case)], beside) for shown_case in cases],
        "trials": [_row(trial, one.case, number) for number, one in enumerate(cases) for trial in one.case.trials],
        "lines": _lines(cases),
        "grid": _GRID,
        "span": _span(cases),
    }


def _lines(cases: Sequence[_Shown]) -> list[dict[str, Any]]:
    """Test cases that differ in their number of guests only: how a line along that number is called, and theirs."""
    numbers = {id(one.case): number for number, one in enumerate(cases)}
    directories: dict[Value | None, list[Case]] = {}
    for one in cases:
        directories.setdefault(one.parameters.get(_DIRECTORY), []).append(one.case)
    lines = [[numbers[id(case)] for case in line] for there in directories.values() for line in along_guests(there)]
    names = [name for name in (*differing(cases[line[0]].parameters for line in lines), LOAD) if name != GUESTS]
    return [{"label": shown(cases[line[0]].parameters, names), "cases": line} for line in lines]


def _set_up(shown_case: _Shown) -> tuple[tuple[str, Value], ...]:
    return tuple(item for item in shown_case.parameters.items() if item[0] != "rate")


def _case(shown_case: _Shown, set_up: int, beside: Path) -> dict[str, Any]:
    case = shown_case.case
    first = case.trials[0]
    folder = quote(os.path.relpath(first.directory.resolve(), beside.resolve()))
    return {
        "parameters": {key: plain(value) if isinstance(value, bool) else value for key, value in shown_case.parameters.items()},
        "setUp": set_up,
        "load": case.load,
        "underSent": case.under_sent,
        "used": len(case.used),
        "samples": case.samples,
        "verdicts": case.verdicts(),
        "figures": {name: _figures(case.estimate(metric)) for name, metric in METRICS.items()},
        "guests": _guests(case),
        "folder": "" if folder == "." else f"{folder}/",
        "infix": first.name.infix,
    }


def _guests(case: Case) -> dict[str, Any] | None:
    """What came of each of several guests, mean over the repetitions, and from where to where that goes; None without several."""
    if not case.guests:
        return None
    numbers = list(case.guests)[:_SHOWN_GUESTS]
    figures = {name: case.of_guests(METRICS[name]) for name in GUEST_METRICS}
    frames = {
        name: {guest: fmean(getattr(one, name) for one in case.guests[guest]) for guest in numbers}
        for name in ("sent", "received")
    }
    return {
        "count": len(case.guests),
        "numbers": numbers,
        **{name: [_short(found.get(guest)) for guest in numbers] for name, found in (frames | figures).items()},
        "ranges": {name: [_short(min(found.values())), _short(max(found.values()))] for name, found in figures.items() if found},
    }


def _figures(found: Estimate | None) -> list[float | None] | None:
    """Mean, confidence interval, pooled."""
    return None if found is None else [_short(value) for value in (found.mean, found.low, found.high, found.pooled)]


def _row(trial: Trial, case: Case, number: int) -> dict[str, Any]:
    values = [_short(metric.of(trial.figures)) if trial.figures else None for metric in METRICS.values()]
    return {
        "case": number,
        "repetition": trial.name.repetition,
        "verdict": str(trial.verdict),
        "reason": trial.reason,
        "used": any(trial is one for one in case.used),
        "accepted": trial.accepted,
        "figures": values,
        "started": trial.started,
    }


def _short(value: float | None) -> float | None:
    """With as many digits as anybody reads; None for what is not a number."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.7g}")
    return int(short) if short.is_integer() else short


def _span(cases: Sequence[_Shown]) -> list[str]:
    """When the first and the last trial started; empty where no record says."""
    times = sorted(trial.started for shown_case in cases for trial in shown_case.case.trials if trial.started)
    return [times[0], times[-1]] if times else []


def _environment(cases: Sequence[_Shown], records: Sequence[str | None]) -> dict[str, Any]:
    environments = [None if record is None else environment(_parsed(record)) for record in records]
    numbers = [number for number, shown_case in enumerate(cases) for _ in shown_case.case.trials]
    return {
        "common": list(in_common(environments).items()),
        "differences": [
            {"key": found.key, "values": found.values, "chosen": found.chosen, "withinCase": found.within_case}
            for found in differences(environments, numbers)
        ],
        "withoutRecord": sum(record is None for record in records),
    }


def _parsed(record: str) -> object:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None  # the reader of the directory has complained about it


# -- the chunks --------------------------------------------------------------------------------------------


def _record(trial: Trial) -> str | None:
    """The trial's JSON as it is on disk; None for the older tool."""
    try:
        return trial.path(TRIAL).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def _packed_logs(trials: Sequence[Trial], room: int) -> tuple[list[str], int]:
    """Chunks of the logs, in at most so many bytes, and how many had to be shortened for that.

    However little room there is, 500 characters of each log remain.
    """
    logs = [trial.output() for trial in trials]
    lengths = [len(log) for log in logs]
    limit = min(max(lengths), _LONGEST_LOG) if room > 0 else _SHORTEST_LOG
    while True:
        chunks = _packed_chunks([_cut(log, limit, trial) for log, trial in zip(logs, trials, strict=True)])
        size = sum(map(len, chunks))
        if size <= room or limit <= _SHORTEST_LOG:
            return chunks, sum(length > limit for length in lengths)
        limit = max(_SHORTEST_LOG, min(int(limit * 0.9), _limit_for(lengths, 0.9 * room / size)))


def _limit_for(lengths: Sequence[int], share: float) -> int:
    """The length to which texts must be cut so that about this share of all remains."""
    aim = share * sum(lengths)
    low, high = 0, max(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(length, middle) for length in lengths) <= aim else (low, middle - 1)
    return low


def _packed_chunks(items: Sequence[object]) -> list[str]:
    return [
        _packed(json.dumps(items[first : first + _TRIALS_A_CHUNK], ensure_ascii=False, separators=(",", ":")))
        for first in range(0, len(items), _TRIALS_A_CHUNK)
    ]


def _scripts(name: str, chunks: Sequence[str]) -> str:
    return "\n".join(f'<script type="text/plain" id="{name}-{number}">{chunk}</script>' for number, chunk in enumerate(chunks))


def _cut(log: str, limit: int, trial: Trial) -> str:
    if len(log) <= limit:
        return log
    half = limit // 2
    left_out = f"\n[... {len(log) - 2 * half} characters left out here; all of it is in {trial.path(OUTPUT).name} ...]\n"
    return log[:half] + left_out + log[-half:]


def _quantiles(trial: Trial) -> list[float | None] | None:
    """Microseconds at each percentile of the grid; None where the histogram cannot be read."""
    if not trial.path(HISTOGRAM).is_file():
        return None
    try:
        found = trial.histogram().percentiles(_GRID)
    except ResultsError:
        return None  # its verdict says so
    return [None if value is None else _short(value / 1000) for value in found]
