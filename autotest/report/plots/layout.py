"""Which test cases make one line of a plot, and which lines share a panel.

A line is one set-up and never more: where test cases differ in what the lines are not told apart by, they go into
panels of their own. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from autotest.errors import UsageError
from autotest.report.cases import LOAD, Case, differing, plain, shown
from autotest.report.parameters import (
    UNSAID,
    Parameters,
    Value,
    names_of,
    value_of,
)

MAX_PANELS: Final = 12
_IN_A_ROW: Final = 3
"""Panels in a row where nobody says which stand side by side."""

_Key = tuple[Value | None, ...]


@dataclass(frozen=True)
class Series:
    """One line of one panel.

    Attributes:
        number: its place in :attr:`Layout.labels`; the same in all panels.
        cases: the same but for what goes along the x axis, by that, also those that have no usable trial; a single one
            where no parameter goes along it.
    """

    number: int
    label: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Panel:
    """Lines that share axes; the title says what they have in common and other panels do not."""

    title: str
    row: int
    column: int
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Layout:
    """All panels of a figure.

    Attributes:
        labels: of the lines, by number.
        axis: the parameter that goes along the x axis; empty where none does.
        constants: the parameters that are the same everywhere, the axis apart.
        differ: the names of the others, the axis apart.
        missing: how many test cases are not drawn, for want of a usable trial.
    """

    panels: tuple[Panel, ...]
    labels: tuple[str, ...]
    axis: str
    constants: Parameters
    differ: tuple[str, ...]
    missing: int

    @property
    def rows(self) -> int:
        return 1 + max(panel.row for panel in self.panels)

    @property
    def columns(self) -> int:
        return 1 + max(panel.column for panel in self.panels)

    @property
    def most_series(self) -> int:
        """Lines in the fullest panel."""
        return max(len(panel.series) for panel in self.panels)

    @property
    def cases(self) -> list[Case]:
        """What is drawn, each test case once."""
        return [case for panel in self.panels for series in panel.series for case in series.cases if case.used]


class _Names(NamedTuple):
    """Parameters by what they are told apart by; together all that differ."""

    rows: list[str]
    columns: list[str]
    lines: list[str]


def arrange(cases: Sequence[Case], by: Sequence[str] = (), beside: str = "", *, axis: str = LOAD) -> Layout:
    """Put test cases into panels and lines.

    Args:
        cases: at least one of them with a usable trial.
        by: parameters that tell the lines apart; without, all that differ.
        beside: the parameter whose values stand side by side, one column of panels each.
        axis: the parameter along the x axis; empty where there is none. The offered rate is a parameter like the others
            where it is not this one.

    Raises:
        UsageError: there is no such parameter, or there would be too many panels.
    """
    drawn = [case for case in cases if case.used]
    check_names(cases, [*by, *([beside] if beside else [])])
    differ = parameters_that_differ(drawn, axis)
    names = _divide(drawn, differ, by, beside)
    same = {name: value for name, value in drawn[0].parameters.items() if name not in (*differ, axis)}
    lines = _sorted_groups(drawn, names.lines)
    labels = tuple(_title(group[0], names.lines) or shown(same) for group in lines.values())
    numbers = {key: number for number, key in enumerate(lines)}
    along = [name for name in _known(cases) if name != axis]
    gaps: dict[_Key, list[Case]] = {}
    for case in cases:
        if not case.used and axis:
            gaps.setdefault(_key(case, along), []).append(case)
    panels = []
    for group, row, column in _grid(drawn, names):
        title = _title(group[0], [name for name in _known(drawn) if name in (*names.columns, *names.rows)])
        series = []
        for key, members in _sorted_groups(group, names.lines).items():
            whole = [*members, *gaps.get(_key(members[0], along), [])]
            if axis:
                whole.sort(key=lambda case: int(value_of(case.parameters, axis) or 0))
            series.append(Series(numbers[key], labels[numbers[key]], tuple(whole)))
        panels.append(Panel(title, row, column, tuple(sorted(series, key=lambda one: one.number))))
    return Layout(tuple(panels), labels, axis, same, tuple(differ), len(cases) - len(drawn))


def parameters_that_differ(cases: Iterable[Case], axis: str = "") -> list[str]:
    """Their names in the order of the tree, without the one along the x axis."""
    cases = list(cases)
    names = set(differing(case.parameters for case in cases))
    if len({case.load for case in cases}) > 1:
        names.add(LOAD)
    return [name for name in _known(cases) if name in names and name != axis]


def listed(cases: Sequence[Case], names: Iterable[str]) -> str:
    """Parameters with their values, for a message: ``interface (bridge, macvtap), size (60, 1514)``."""
    return ", ".join(f"{name} ({', '.join(map(_plain, _ranks(cases, name)))})" for name in names)


def check_names(cases: Sequence[Case], names: Sequence[str]) -> None:
    """UsageError for a parameter that there is not, and for one named twice; with those that differ."""
    known = _known(cases)
    for name in names:
        if name not in known:
            differ = parameters_that_differ(cases)
            hint = f"what differs here: {listed(cases, differ)}" if differ else f"there are {', '.join(known)}"
            raise UsageError(f"no parameter {name!r}; {hint}")
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice: lines and panels are each told apart by parameters of their own")


def _divide(cases: Sequence[Case], differ: Sequence[str], by: Sequence[str], beside: str) -> _Names:
    columns = [beside] if beside else []
    columns += [name for name in differ if name not in (*columns, *by) and columns and _follows(cases, columns, name)]
    rest = [name for name in differ if name not in columns]
    if not by:
        return _Names([], columns, rest)
    lines = [*by, *(name for name in rest if name not in by and _follows(cases, by, name))]
    return _Names([name for name in rest if name not in lines], columns, lines)


def _follows(cases: Iterable[Case], names: Sequence[str], other: str) -> bool:
    """Whether the values of these parameters leave only one for the other, as machine ``host`` does for its interface."""
    found: dict[_Key, Value | None] = {}
    pairs = ((_key(case, names), value_of(case.parameters, other)) for case in cases)
    return all(found.setdefault(key, value) == value for key, value in pairs)


def _grid(cases: Sequence[Case], names: _Names) -> list[tuple[list[Case], int, int]]:
    """The test cases of each panel, with its row and its column."""
    groups = _sorted_groups(cases, [*names.rows, *names.columns])
    if len(groups) > MAX_PANELS:
        others = [*names.rows, *names.columns]
        raise UsageError(
            f"{len(groups)} panels are more than can be read (at most {MAX_PANELS}); told apart by panels: "
            f"{listed(cases, others)}. Limit them with --select, like "
            f"--select {others[0]}={_plain(_ranks(cases, others[0])[0])}, or name them in --by"
        )
    if not names.columns:
        wrap = len(groups) if len(groups) <= _IN_A_ROW else 2 if len(groups) == 4 else _IN_A_ROW
        return [(group, *divmod(number, wrap)) for number, group in enumerate(groups.values())]
    rows = {key: number for number, key in enumerate(_sorted_groups(cases, names.rows))}
    columns = {key: number for number, key in enumerate(_sorted_groups(cases, names.columns))}
    return [(group, rows[_key(group[0], names.rows)], columns[_key(group[0], names.columns)]) for group in groups.values()]


def _sorted_groups(cases: Iterable[Case], names: Sequence[str]) -> dict[_Key, list[Case]]:
    """Test cases by the values of these parameters: numbers ascend, off is before on, names as they come and after numbers."""
    cases = list(cases)
    groups: dict[_Key, list[Case]] = {}
    for case in cases:
        groups.setdefault(_key(case, names), []).append(case)
    ranks = [_ranks(cases, name) for name in names]
    ordered = sorted(groups, key=lambda key: [rank.index(value) for rank, value in zip(ranks, key, strict=True)])
    return {key: groups[key] for key in ordered}


def _ranks(cases: Iterable[Case], name: str) -> list[Value | None]:
    """The values of a parameter in their order; None where it does not apply."""
    found = dict.fromkeys(value_of(case.parameters, name) for case in cases)
    numbers = sorted((value for value in found if isinstance(value, int)), key=int)
    if not numbers and name not in UNSAID:
        return list(found)
    first = [value for value in dict.fromkeys((None, UNSAID.get(name))) if value in found and not isinstance(value, int)]
    return [*first, *numbers, *(value for value in found if isinstance(value, str) and value not in first)]


def _key(case: Case, names: Iterable[str]) -> _Key:
    return tuple(value_of(case.parameters, name) for name in names)


def _known(cases: Iterable[Case]) -> list[str]:
    return names_of(case.parameters for case in cases)


def _title(case: Case, names: Sequence[str]) -> str:
    """Those parameters of a test case; said, too, where it has none of them."""
    return shown(case.parameters, names) or ("without " + " and ".join(names) if names else "")


def _plain(value: Value | None) -> str:
    return "none" if value is None else plain(value)
