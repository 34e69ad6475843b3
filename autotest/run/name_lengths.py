"""Whether the names of result files fit into a directory, which is known before anything is measured."""

from __future__ import annotations

from dataclasses import replace

from autotest.config.values import quoted
from autotest.errors import Problem
from autotest.measurements.kind import MeasurementKind
from autotest.plan.parameters import Case, Parameter, Section
from autotest.plan.tree import Tree
from autotest.results.names import MAX_INFIX_BYTES


def too_long(kind: MeasurementKind, section: Section) -> list[Problem]:
    """The longest value of the test case with the longest names, where they would be too long; empty where all fit."""
    if _longest(kind, _with_longest_names(kind, replace(section, excludes=())))[1] <= MAX_INFIX_BYTES:
        return []  # also where the user leaves some out
    case, length = _longest(kind, section if section.excludes else _with_longest_names(kind, section))
    if case is None or (excess := length - MAX_INFIX_BYTES) <= 0:
        return []
    key, shown = max(((parameter.key, _shown(parameter, case)) for parameter in kind.parameters), key=lambda item: len(item[1]))
    has = f"{quoted(shown)} has {len(shown)} characters, which makes result names too long"
    fit = f"at most {max(len(shown) - excess, 0)} fit beside the other parameters"
    return [Problem(section.file, section.name, key, f"{has}: {fit}")]


def _longest(kind: MeasurementKind, section: Section) -> tuple[Case | None, int]:
    """The test case with the longest names, and how long they are."""
    cases = Tree(kind.parameters, kind.rules, section).cases()
    return max(((case, len(kind.infix(case))) for case in cases), key=lambda found: found[1], default=(None, 0))


def _with_longest_names(kind: MeasurementKind, section: Section) -> Section:
    """The section with only the longest value of each parameter that has no say in which others it comes with."""
    applying = [number for number, parameter in enumerate(kind.parameters) if parameter.applies]
    ruled = {name for rule in kind.rules for name in rule.parameters}
    lists = dict(section.lists)
    for parameter in kind.parameters[max(applying, default=-1) + 1 :]:
        if parameter.name not in ruled:
            by_length = {len(parameter.show(value)): value for value in lists[parameter.name]}
            lists[parameter.name] = (by_length[max(by_length)],)
    return replace(section, lists=lists)


def _shown(parameter: Parameter, case: Case) -> str:
    value = case[parameter.name]
    return "" if value is None else parameter.show(value)
