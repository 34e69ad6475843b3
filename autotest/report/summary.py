"""The summary of an output directory: one row per test case, as a plain-text table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from textwrap import shorten, wrap
from typing import Final

from autotest.report.cases import Case, group_cases, plain, shown
from autotest.report.metrics import METRICS
from autotest.report.tables import render_table
from autotest.report.trials import Results, Trial
from autotest.results.failures import Measured, parse_time, read_failures, still_open
from autotest.results.statistics import Estimate
from autotest.results.store import FAILURES_FILE, ResultStore
from autotest.results.verdicts import Verdict

WIDTH: Final = 100
COLUMNS: Final = {"offered": "kpps", "achieved": "kpps", "loss": "%", "median": "µs", "p99": "µs"}
_HEADER: Final = (*(f"{title}\n[{unit}]" for title, unit in COLUMNS.items()), "samples", "rep.", "verdict")
_ALIGN: Final = "rllllrrl"
FURTHER: Final = {"fairness": "fairness", "loss_spread": "loss spread", "p50_spread": "median spread"}
OF_MIXES: Final = {"mean_size": "mean size", "bit_rate": "bit rate"}
"""Metrics that are shown only of several guests, and only of mixes of frame sizes, with their titles."""
_LEAST_VERDICT_WIDTH: Final = 20
_REASONS: Final = 3
NOTE: Final = """\
Mean over the repetitions ± half the 95 % confidence interval (Student's t); loss: all frames lost
over all sent. Percentiles: nearest rank, of each repetition. rep.: repetitions used/there. A case
without a valid repetition shows its under-sent ones, if any."""
GUESTS_NOTE: Final = """\
Fairness: Jain's index of the frames that the guests returned, relative to their weights; 1 where
each had its share. Spread: the largest figure of a guest less the smallest."""


def summarise(trials: Iterable[Trial], accept: Collection[Verdict] = (), open_failures: int = 0) -> str:
    """The table of the test cases as text, one block of rows per set-up; ends with a newline.

    A case of which no repetition is used has its reasons below it; ``open_failures`` is how many the last line tells of.
    """
    cases = group_cases(trials, accept)
    notes = [note for note in (accepted_note(cases, accept), failures_note(open_failures)) if note]
    if not cases:
        return "\n".join(["no load latency trials", *notes]) + "\n"
    blocks, rows = _table(cases)
    for set_up, members in groupby(zip(cases, rows, strict=True), key=lambda row: row[0].set_up):
        blocks += ["", *wrap(shown(dict(set_up)), WIDTH, break_long_words=False)]
        for case, lines in members:
            blocks += [*lines, *_reasons(case)]
    several = [case for case in cases if case.guests]
    blocks += _further(several, FURTHER) + _further(with_mixes(cases), OF_MIXES)
    return "\n".join([*blocks, "", NOTE, *([GUESTS_NOTE] if several else []), *notes]) + "\n"


def with_mixes(cases: Iterable[Case]) -> list[Case]:
    """Those with frames of several sizes, and figures."""
    return [case for case in cases if case.used and isinstance(case.parameters.get("size"), str)]


def _further(cases: Sequence[Case], titles: Mapping[str, str]) -> list[str]:
    """A table of these metrics under the first one, with the same blocks; nothing without cases."""
    if not cases:
        return []
    columns = [column([case.estimate(METRICS[name]) for case in cases]) for name in titles]
    units = [f"\n[{METRICS[name].unit}]" if METRICS[name].unit else "" for name in titles]
    header = ["offered\n[kpps]", *map("".join, zip(titles.values(), units, strict=True))]
    cells = list(zip([str(case.load) for case in cases], *columns, strict=True))
    head, rows = _split(render_table(header, cells, align="r" + "l" * len(titles)))
    lines = ["", "", *head]
    for set_up, members in groupby(zip(cases, rows, strict=True), key=lambda row: row[0].set_up):
        lines += ["", *wrap(shown(dict(set_up)), WIDTH, break_long_words=False), *(row for _, row in members)]
    return lines


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """The head of a table and its rows."""
    return lines[:2], lines[2:]


def _table(cases: list[Case]) -> tuple[list[str], list[list[str]]]:
    """The header's lines, and those of each case: more than one where its verdicts need them."""
    figures = [column([case.estimate(METRICS[name]) for case in cases]) for name in ("achieved", "loss", "p50", "p99")]
    columns = [
        [str(case.load) for case in cases],
        *figures,
        [str(case.samples) if case.used else "-" for case in cases],
        [f"{len(case.used)}/{len(case.trials)}" for case in cases],
    ]
    taken = sum(2 + max(map(len, (*title.split("\n"), *cells))) for title, cells in zip(_HEADER[:-1], columns, strict=True))
    width = max(_LEAST_VERDICT_WIDTH, WIDTH - taken)
    verdicts = [_verdicts(case, width) for case in cases]
    rows: list[Sequence[str]] = []
    for cells, (first, *more) in zip(zip(*columns, strict=True), verdicts, strict=True):
        rows.append((*cells, first))
        rows += [("",) * len(cells) + (line,) for line in more]
    head, lines = _split(render_table(_HEADER, rows, align=_ALIGN))
    rest = iter(lines)
    return head, [list(islice(rest, len(found))) for found in verdicts]


def _verdicts(case: Case, width: int) -> list[str]:
    """Lines of that width at most, broken after a comma."""
    unbroken = case.verdicts().replace(", ", ",\n").replace(" ", "\xa0").replace("\n", " ")
    return [line.replace("\xa0", " ") for line in wrap(unbroken, width, break_on_hyphens=False, break_long_words=False)]


def _reasons(case: Case) -> list[str]:
    """Why no repetition is used."""
    if case.used:
        return []
    return [f"{'':9}{line}" for line in reasons(case.trials)]


def reasons(trials: Iterable[Trial]) -> list[str]:
    """Why they have their verdicts, each reason once and no longer than a line; of more than three how many more."""
    found = list(dict.fromkeys(f"{trial.verdict}: {trial.reason}" for trial in trials if trial.reason))
    lines = [shorten(reason, WIDTH - 9, placeholder=" ...") for reason in found[:_REASONS]]
    more = len(found) - _REASONS
    return [*lines, *([f"and {more} more"] if more > 0 else ())]


def accepted_note(cases: Iterable[Case], accept: Collection[Verdict]) -> str:
    said_then = [trial for case in cases for trial in case.used if trial.accepted and not trial.verdict.is_mergeable]
    recorded = sum(trial.verdict not in accept for trial in said_then)
    said = [f"Accepted like valid: {', '.join(sorted(accept))}."] if accept else []
    said += [f"{recorded} of the trials count because their records say that they are accepted."] if recorded else []
    return "\n".join(said)


def failures_note(number: int) -> str:
    if not number:
        return ""
    what = "1 failure is" if number == 1 else f"{number} failures are"
    return f"{what} noted in {FAILURES_FILE} and not made up for; autotest status shows what is missing."


def count_open_failures(results: Results) -> int:
    """How many of the failures noted in an output directory nothing made up for since.

    Raises ResultsError where the notes cannot be read.
    """
    store = ResultStore(results.directory)
    latest: dict[frozenset[str], datetime] = {}
    for trial in results.trials:
        if started := parse_time(trial.started):
            labels = frozenset(f"{key} {plain(value)}" for key, value in trial.parameters.items())
            latest[labels] = max(started, latest.get(labels, started))
    measured = [Measured(labels, last) for labels, last in latest.items()]
    return len(still_open(read_failures(results.directory), store.is_done, measured))


def column(estimates: Sequence[Estimate | None]) -> list[str]:
    """Cells of a column: the values right-aligned, then the interval where it shows."""
    cells = [_cell(found) for found in estimates]
    width = max(len(value) for value, _ in cells)
    return [f"{value.rjust(width)} {between}".rstrip() for value, between in cells]


def _cell(found: Estimate | None) -> tuple[str, str]:
    if found is None:
        return "-", ""
    value = found.mean if found.pooled is None else found.pooled
    reach = 0.0 if found.high is None else found.high - found.mean
    decimals = _decimals(value or reach)
    if 0 < value < 0.0001:
        return "<0.0001", ""
    between = f"{reach:.{decimals}f}"
    return f"{value:.{decimals}f}" if value else "0", f"±{between}" if float(between) else ""


def _decimals(value: float) -> int:
    """How many decimals give three digits that count; none from 100 on, at most four."""
    return next((places for least, places in ((100, 0), (10, 1), (1, 2), (0.1, 3)) if value >= least), 4)
