"""The tree of test cases of one section: walked lazily, in the order that needs the fewest set-ups.

Parameters stand in the order of what it costs to change them, values in the order in which the user wrote
them, so that neighbouring leaves share the longest possible prefix. No case is kept: a million cost no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from autotest.plan.parameters import Case, Parameter, Rule, Section

REPETITION = "repetition"


@dataclass(frozen=True)
class Exclusion:
    """A branch of the matrix that is left out: its prefix, why, and how many trials it would have held.

    In the prefix, parameters that come in between and do not matter are None.
    """

    prefix: Case
    reason: str
    trials: int


class _Branch(NamedTuple):
    """A prefix below which nothing but single values are left out: what there is of each of the remaining lists."""

    values: tuple[Any, ...]
    rest: Sequence[Sequence[Any]]


class Tree:
    """All valid test cases of a section, with their repetitions as the last parameter."""

    def __init__(self, parameters: Sequence[Parameter], rules: Sequence[Rule], section: Section) -> None:
        self.section = section
        self.names = (*(parameter.name for parameter in parameters), REPETITION)
        self._parameters = tuple(parameters)
        self._lists = [section.lists[parameter.name] for parameter in parameters]
        self._lists.append(tuple(range(section.settings["repetitions"])))
        depths = [sorted(self.names.index(name) for name in rule.parameters) for rule in rules]
        applying = [depth for depth, parameter in enumerate(parameters) if parameter.applies]
        # Below this depth a rule excludes single values of one list, whatever the other values below it are.
        self._free_depth = max([*applying, *(others[-1] for *others, _ in depths if others)], default=-1) + 1
        self._rules: dict[int, list[Rule]] = {}
        for rule, (*_, depth) in zip(rules, depths, strict=True):
            self._rules.setdefault(depth, []).append(rule)

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
        names = self.names
        for branch in self._branches():
            values = branch.values
            for rest in product(*branch.rest):
                yield Case(names, values + rest)

    def prefixes(self, depth: int) -> Iterator[Case]:
        """Every valid case up to its first ``depth`` parameters, each once."""
        last: tuple[Any, ...] | None = None
        for branch in self._branches():
            for rest in product(*branch.rest[: max(depth - self._free_depth, 0)]):
                values = (branch.values + rest)[:depth]
                if values != last:
                    yield Case(self.names, values)
                last = values

    def exclusions(self) -> Iterator[Exclusion]:
        """Every branch that a rule left out, in the order of the tree."""
        for found in self._walk(()):
            if isinstance(found, Exclusion):
                yield found

    def _branches(self) -> Iterator[_Branch]:
        """Those below which there is a case."""
        for found in self._walk(()):
            if isinstance(found, _Branch) and all(found.rest):
                yield found

    def _walk(self, values: tuple[Any, ...]) -> Iterator[_Branch | Exclusion]:
        """The branches down to the depth from which on only single values are excluded."""
        depth = len(values)
        if depth == self._free_depth:
            yield from self._rest(values)
            return
        for value in self._values_at(depth, values):
            branch = (*values, value)
            reason = self._excluded(branch)
            if reason:
                yield Exclusion(Case(self.names, branch), reason, prod(map(len, self._lists[depth + 1 :])))
            else:
                yield from self._walk(branch)

    def _rest(self, values: tuple[Any, ...]) -> Iterator[_Branch | Exclusion]:
        """The branch at the free depth, behind what is left out of the lists below it."""
        lists: list[Sequence[Any]] = list(self._lists[len(values) :])
        for number, there in enumerate(lists[:-1]):
            depth = len(values) + number
            if depth in self._rules:
                kept = []
                for value in there:
                    prefix = (*values, *(None for _ in range(number)), value)
                    if reason := self._excluded(prefix):
                        trials = prod(map(len, lists[:number])) * prod(map(len, lists[number + 1 :]))
                        yield Exclusion(Case(self.names, prefix), reason, trials)
                    else:
                        kept.append(value)
                lists[number] = kept
        yield _Branch(values, lists[:-1])

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
