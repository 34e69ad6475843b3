"""The summary of an output directory in Markdown: what is wrong on top, then the figures of every test case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from autotest.report.cases import LOAD, Case, differing, group_cases, shown
from autotest.report.markdown import escape, folded, table_folded_where_long
from autotest.report.metrics import METRICS
from autotest.report.summary import (
    COLUMNS,
    FURTHER,
    GUESTS_NOTE,
    NOTE,
    OF_MIXES,
    accepted_note,
    column,
    failures_note,
    reasons,
    with_mixes,
)
from autotest.report.trials import Trial
from autotest.results.verdicts import Verdict


def summarise_in_markdown(trials: Iterable[Trial], accept: Collection[Verdict] = (), open_failures: int = 0) -> str:
    """What :func:`autotest.report.summary.summarise` tells, for a build server's page; ends with a newline."""
    cases = group_cases(trials, accept)
    if not cases:
        return "\n\n".join(filter(None, ("No load latency trials.", escape(failures_note(open_failures))))) + "\n"
    varying = differing(case.parameters for case in cases)
    constant = [key for key in cases[0].parameters if key not in (*varying, LOAD)]
    lines = [f"**{_counted(cases)}**"]
    lines += ["", f"**{escape(failures_note(open_failures))}**"] if open_failures else []
    lines += ["", f"Everywhere: {escape(shown(cases[0].parameters, constant))}"] if constant else []
    lines += _not_valid(cases, varying)
    lines += _figures(cases, varying)
    several = [case for case in cases if case.guests]
    for title, found, metrics in (("Guests", several, FURTHER), ("Mixes of frame sizes", with_mixes(cases), OF_MIXES)):
        lines += _further(title, found, metrics, varying)
    notes = [NOTE, *([GUESTS_NOTE] if several else []), accepted_note(cases, accept)]
    return "\n".join([*lines, "", *folded("How to read this", "\n\n".join(map(escape, filter(None, notes))).split("\n"))]) + "\n"


def _counted(cases: Sequence[Case]) -> str:
    counts = Counter(trial.verdict for case in cases for trial in case.trials)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    return escape(f"{_number(len(cases), 'test case')}, {_number(counts.total(), 'trial')}: {verdicts}")


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _set_up(case: Case, varying: Collection[str]) -> str:
    own = [key for key in case.parameters if key in varying]  # in its own order: not every parameter applies to every case
    return shown(case.parameters, [*own, *(key for key in varying if key not in own)]) or "all"


def _not_valid(cases: Iterable[Case], varying: Collection[str]) -> list[str]:
    """A table of the test cases of which not every trial is valid, with the reasons."""
    rows = [
        (_set_up(case, varying), str(case.load), case.verdicts(), "; ".join(reasons(case.trials)))
        for case in cases
        if any(trial.verdict is not Verdict.VALID for trial in case.trials)
    ]
    rows.sort(key=lambda row: row[2] == str(Verdict.UNDER_SENT))  # that is a finding and no failure: below the others
    return table_folded_where_long(
        f"Not valid: {_number(len(rows), 'test case')}", ("set-up", "kpps", "verdicts", "why"), rows, align="lrll"
    )


def _figures(cases: Sequence[Case], varying: Collection[str]) -> list[str]:
    figures = [column([case.estimate(METRICS[name]) for case in cases]) for name in ("achieved", "loss", "p50", "p99")]
    columns = [
        [_set_up(case, varying) for case in cases],
        [str(case.load) for case in cases],
        *figures,
        [str(case.samples) if case.used else "-" for case in cases],
        [f"{len(case.used)}/{len(case.trials)}" for case in cases],
        [case.verdicts() for case in cases],
    ]
    header = ["set-up", *(f"{title} [{unit}]" for title, unit in COLUMNS.items()), "samples", "rep.", "verdict"]
    return table_folded_where_long(
        f"Figures of {_number(len(cases), 'test case')}", header, list(zip(*columns, strict=True)), align="lrrrrrrrl"
    )


def _further(title: str, cases: Sequence[Case], titles: Mapping[str, str], varying: Collection[str]) -> list[str]:
    """A table of these metrics of some test cases."""
    if not cases:
        return []
    columns = [column([case.estimate(METRICS[name]) for case in cases]) for name in titles]
    header = ["set-up", f"{LOAD} [kpps]"]
    header += [f"{name_of} [{METRICS[name].unit}]" if METRICS[name].unit else name_of for name, name_of in titles.items()]
    rows = list(zip([_set_up(case, varying) for case in cases], [str(case.load) for case in cases], *columns, strict=True))
    return table_folded_where_long(title, header, rows, align="lr" + "r" * len(titles))
