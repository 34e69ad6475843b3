"""The tree of test cases of one section: walked lazily, in the order that needs the fewest set-ups.

Parameters stand in the order of what it costs to change them, values in the order in which the user wrote
them, so that neighbouring leaves share the longest possible prefix. No case is kept: a million cost no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from autotest.plan.parameters import Case, Exclude, Parameter, Rule, Section
from autotest.plan.products import Block, Part, without

REPETITION = "repetition"


@dataclass(frozen=True)
class Exclusion:
    """A branch of the matrix that is left out: its prefix, why, and how many trials it would have held.

    In the prefix, parameters that come in between and do not matter are None. What is ``asked_for``, excluded by users,
    would have been valid.
    """

    prefix: Case
    reason: str
    trials: int
    asked_for: bool = False


class Tree:
    """All test cases of a section that are valid and that nobody excluded, with their repetitions as the last parameter."""

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
        self._excludes: dict[int, list[Exclude]] = {}
        for exclude in section.excludes:
            depth = max(map(self.names.index, exclude.tests))
            self._excludes.setdefault(min(depth, self._free_depth), []).append(exclude)
        self._valid = Tree(parameters, rules, replace(section, excludes=())) if section.excludes else self

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
            first = branch.first
            for rest in product(*branch.rest):
                yield Case(names, first + rest)

    def prefixes(self, depth: int) -> Iterator[Case]:
        """Every valid case up to its first ``depth`` parameters, each once."""
        last: tuple[Any, ...] | None = None
        for branch in self._branches():
            for rest in product(*branch.rest[: max(depth - len(branch.first), 0)]):
                values = (branch.first + rest)[:depth]
                if values != last:
                    yield Case(self.names, values)
                last = values

    def exclusions(self) -> Iterator[Exclusion]:
        """Every branch that a rule left out, in the order of the tree."""
        for found in self._walk(()):
            if isinstance(found, Exclusion):
                yield found

    def count_below(self, values: tuple[Any, ...]) -> int:
        """How many trials begin with these values."""
        cases = sum(prod(map(len, branch.rest)) for branch in self._walk(values) if isinstance(branch, Block))
        return cases * len(self._lists[-1])

    def _branches(self) -> Iterator[Block]:
        """Products that together are all cases; none of them is empty."""
        for found in self._walk(()):
            if isinstance(found, Block) and all(found.rest):
                yield found

    def _walk(self, values: tuple[Any, ...]) -> Iterator[Block | Exclusion]:
        """The branches down to the depth from which on only single values are excluded."""
        depth = len(values)
        if depth >= self._free_depth:
            yield from self._rest(values)
            return
        for value in self._values_at(depth, values):
            branch = (*values, value)
            if reason := self._excluded(branch):
                yield Exclusion(Case(self.names, branch), reason, prod(map(len, self._lists[depth + 1 :])))
            elif reason := self._excluded_by_user(branch):
                if trials := self._valid.count_below(branch):
                    yield Exclusion(Case(self.names, branch), reason, trials, asked_for=True)
            else:
                yield from self._walk(branch)

    def _rest(self, values: tuple[Any, ...]) -> Iterator[Block | Exclusion]:
        """The branches at the free depth, behind what is left out of the lists below it.

        First what is not valid, then what users exclude: so of that the valid trials are counted.
        """
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
        left = without(lists[:-1], self._parts(values, lists))
        for reason, cases in left.taken.items():
            if cases:
                yield Exclusion(Case(self.names, values), reason, cases * len(lists[-1]), asked_for=True)
        for block in left.blocks():
            yield Block(values + block.first, block.rest)

    def _parts(self, values: tuple[Any, ...], lists: Sequence[Sequence[Any]]) -> Iterator[Part]:
        """What users exclude below the free depth: which values of these lists, where the values before them are these."""
        for exclude in self._excludes.get(self._free_depth, ()):
            found: dict[int, frozenset[Any]] = {}
            is_met = True
            for name, test in exclude.tests.items():
                number = self.names.index(name) - len(values)
                if number < 0:
                    is_met = is_met and test(Case(self.names, values))
                else:
                    nothing = (None,) * number
                    found[number] = frozenset(
                        value for value in lists[number] if test(Case(self.names, (*values, *nothing, value)))
                    )
            if is_met:
                yield Part(exclude.reason, found)

    def _values_at(self, depth: int, values: tuple[Any, ...]) -> Sequence[Any]:
        applies = self._parameters[depth].applies
        if applies and not applies(Case(self.names, values)):
            return (None,)
        return self._lists[depth]

    def _excluded(self, values: tuple[Any, ...]) -> str | None:
        """Why what begins with these values is not valid."""
        prefix = Case(self.names, values)
        for rule in self._rules.get(len(values) - 1, ()):
            if rule.excludes(*(prefix[name] for name in rule.parameters)):
                return rule.reason
        return None

    def _excluded_by_user(self, values: tuple[Any, ...]) -> str | None:
        prefix = Case(self.names, values)
        for exclude in self._excludes.get(len(values) - 1, ()):
            if all(test(prefix) for test in exclude.tests.values()):
                return exclude.reason
        return None
