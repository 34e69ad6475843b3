"""The tree of test cases of one section: walked lazily, in the order that needs the fewest set-ups.

Parameters stand in the order of what it costs to change them, values in the order in which the user wrote
them, so that neighbouring leaves share the longest possible prefix. No case is kept: a million cost no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from autotest.plan.parameters import Case, Parameter, Rule, Section

REPETITION = "repetition"


@dataclass(frozen=True)
class Exclusion:
    """A branch of the matrix that is left out: its prefix, why, and how many trials it would have held."""

    prefix: Case
    reason: str
    trials: int


class Tree:
    """All valid test cases of a section, with their repetitions as the last parameter."""

    def __init__(self, parameters: Sequence[Parameter], rules: Sequence[Rule], section: Section) -> None:
        self.section = section
        self.names = (*(parameter.name for parameter in parameters), REPETITION)
        self._parameters = tuple(parameters)
        self._lists = [section.lists[parameter.name] for parameter in parameters]
        self._lists.append(tuple(range(section.settings["repetitions"])))
        self._rules: dict[int, list[Rule]] = {}
        for rule in rules:
            depth = max(self.names.index(name) for name in rule.parameters)
            self._rules.setdefault(depth, []).append(rule)
        applying = [depth for depth, parameter in enumerate(parameters) if parameter.applies]
        self._free_depth = max([*self._rules, *applying], default=-1) + 1

    def leaves(self) -> Iterator[Case]:
        """Every valid case with its repetition, the last parameter."""
        for case in self.cases():
            for repetition in self._lists[-1]:
                yield self.leaf(case, repetition)

    def leaf(self, case: Case, repetition: int) -> Case:
        """The case with a repetition as its last parameter."""
        return Case(self.names, (*case.values_, repetition))

    def cases(self) -> Iterator[Case]:
        """Every valid case, without repetitions."""
        names, rest_of_the_lists = self.names, self._lists[self._free_depth : -1]
        for branch in self._walk(()):
            if not isinstance(branch, Exclusion):
                for rest in product(*rest_of_the_lists):
                    yield Case(names, branch + rest)

    def prefixes(self, depth: int) -> Iterator[Case]:
        """Every valid case up to its first ``depth`` parameters, each once."""
        last: tuple[Any, ...] | None = None
        for branch in self._walk(()):
            if not isinstance(branch, Exclusion):
                for rest in product(*self._lists[len(branch) : depth]):
                    values = (branch + rest)[:depth]
                    if values != last:
                        yield Case(self.names, values)
                    last = values

    def exclusions(self) -> Iterator[Exclusion]:
        """Every branch that a rule left out, in the order of the tree."""
        for branch in self._walk(()):
            if isinstance(branch, Exclusion):
                yield branch

    def _walk(self, values: tuple[Any, ...]) -> Iterator[tuple[Any, ...] | Exclusion]:
        """The branches down to the depth from which on nothing is excluded any more."""
        depth = len(values)
        if depth == self._free_depth:
            yield values
            return
        for value in self._values_at(depth, values):
            branch = (*values, value)
            reason = self._excluded(branch)
            if reason:
                yield Exclusion(Case(self.names, branch), reason, prod(map(len, self._lists[depth + 1 :])))
            else:
                yield from self._walk(branch)

    def _values_at(self, depth: int, values: tuple[Any, ...]) -> Sequence[Any]:
        applies = self._parameters[depth].applies
        if applies and not applies(Case(self.names, values)):
            return (None,)
        return self._lists[depth]

    def _excluded(self, values: tuple[Any, ...]) -> str | None:
        prefix = Case(self.names, values)
        for rule in self._rules.get(len(values) - 1, ()):
            if rule.excludes(*(prefix[name] for name in rule.parameters)):
                return rule.reason
        return None
