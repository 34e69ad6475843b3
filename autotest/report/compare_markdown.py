"""A comparison in Markdown: what is worse on top, for a build server's page. docs/statistics.md explains what is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from autotest.report.cases import shown
from autotest.report.compare import Compared, Comparison, Outcome, findings
from autotest.report.compare_text import (
    HEADER,
    closing,
    counted,
    row,
    unmatched,
    varying_parameters,
    what_is_compared,
)
from autotest.report.markdown import escape, folded, table, table_folded_where_long

_TITLES = ("test case", "figure", *(title.replace("\n", " ") for title in HEADER[1:]))
_ALIGN = "llrrrrrrrrrl"


def describe_in_markdown(compared: Compared, a: str, b: str) -> str:
    """What :func:`autotest.report.compare_text.describe` tells; ends with a newline.

    Args:
        a, b: what the two sides are called.
    """
    varying = varying_parameters(compared.matching.pairs)
    worse = [found for found in compared.comparisons if found.is_worse]
    better = [found for found in compared.comparisons if found.outcome is Outcome.IMPROVEMENT]
    unknown = compared.count(Outcome.TOO_FEW) + compared.count(Outcome.NOT_COMPARABLE) - sum(each.is_lost for each in worse)
    conclusion = f"Worse: {counted(len(worse), 'figure')}." if worse else "Nothing is worse."
    if unknown > 0:
        conclusion = f"{conclusion[:-1]}, but {counted(unknown, 'figure')} could not be compared."
    *notes, counts = closing(compared)
    lines = [f"**{conclusion}** {escape(counts)}", ""]
    lines += [f"- {escape(line)}" for line in (f"A: {a}", f"B: {b}", *what_is_compared(compared.matching))]
    lines += _table(f"Worse: {counted(len(worse), 'figure')}", worse, varying)
    found = [(shown(pair.parameters, varying), finding) for pair in compared.matching.pairs for finding in findings(pair)]
    lines += table_folded_where_long("Not the same verdicts, or not all valid", ("test case", "finding"), found, align="ll")
    lines += _table(f"Better: {counted(len(better), 'figure')}", better, varying)
    every = table(_TITLES, _rows(compared.comparisons, varying), align=_ALIGN)
    lines += ["", *folded(f"All: {counted(len(compared.comparisons), 'figure')}", every)]
    for title, *cases in _unmatched(compared):
        lines += ["", *folded(title, [f"- {escape(case)}" for case in cases])]
    return "\n".join([*lines, "", *folded("How to read this", _paragraphs(notes))]) + "\n"


def _table(title: str, comparisons: Iterable[Comparison], varying: Collection[str]) -> list[str]:
    return table_folded_where_long(title, _TITLES, _rows(comparisons, varying), align=_ALIGN)


def _rows(comparisons: Iterable[Comparison], varying: Collection[str]) -> list[tuple[str, ...]]:
    rows = []
    for found in comparisons:
        *cells, outcome = row(found)
        rows.append((shown(found.pair.parameters, varying), *cells, "nothing usable in B" if found.is_lost else outcome))
    return rows


def _unmatched(compared: Compared) -> list[list[str]]:
    """For each kind of test cases that were not compared the title and the cases."""
    blocks: list[list[str]] = [[]]
    for line in unmatched(compared.matching):
        if line:
            blocks[-1].append(line.strip())
        else:
            blocks.append([])
    return [block for block in blocks if block]


def _paragraphs(notes: Sequence[str]) -> list[str]:
    return "\n\n".join(map(escape, notes)).split("\n")
