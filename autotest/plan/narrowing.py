"""A part of a plan: what users leave out of it, each with its reason. The language is :mod:`autotest.plan.selection`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from autotest.config.values import nearest
from autotest.errors import UsageError
from autotest.plan import selection
from autotest.plan.parameters import Case, Exclude, Parameter, Rule, Section
from autotest.plan.selection import Condition, Conditions, Plain, Read, Test
from autotest.plan.tree import Tree


@dataclass(frozen=True)
class Narrowing:
    """What the command line asks for: names of sections, empty for all, and texts of conditions."""

    sections: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __str__(self) -> str:
        options = (("--section", self.sections), ("--select", self.select), ("--exclude", self.exclude))
        return " ".join(f"{option} {text!r}" for option, texts in options for text in texts)


class Narrowed(NamedTuple):
    """The sections of which something is left, and those of which nothing is; both know what was left out, and why."""

    sections: tuple[Section, ...]
    left_out: tuple[Section, ...]


def narrow(sections: Sequence[Section], parameters: Sequence[Parameter], rules: Sequence[Rule], narrowing: Narrowing) -> Narrowed:
    """The part of the sections that is asked for; ``rules`` are those of the measurement kind.

    Raises:
        UsageError: a section, a parameter or a value that there is not, or nothing is left; with what there is.
    """

    def has_cases(section: Section) -> bool:
        return any(True for _ in Tree(parameters, rules, section).cases())

    chosen = _named(sections, narrowing.sections)
    vocabulary = Vocabulary(parameters, [section for section in sections if section.name in chosen])
    excludes = tuple(vocabulary.excludes(narrowing))
    if not excludes and not narrowing.sections:
        return Narrowed(tuple(sections), ())
    everything = Exclude({parameters[0].name: lambda prefix: True}, f"--section {', '.join(narrowing.sections)}")
    narrowed = [
        replace(section, excludes=(*section.excludes, *(excludes if section.name in chosen else [everything])))
        for section in sections
    ]
    kept = [section for section in narrowed if has_cases(section)]
    if not kept and any(map(has_cases, sections)):
        raise UsageError(vocabulary.nothing_meets(narrowing))
    return Narrowed(tuple(kept), tuple(section for section in narrowed if not any(section is one for one in kept)))


def _named(sections: Sequence[Section], names: Sequence[str]) -> Sequence[str]:
    """These names, or all there are."""
    known = list(dict.fromkeys(section.name for section in sections))
    for name in names:
        if name not in known:
            raise UsageError(f"--section {name or repr(name)}: there is none{nearest(name, known)}; there are {', '.join(known)}")
    return names or known


class Vocabulary:
    """What conditions on some sections can name.

    Attributes:
        there: every parameter, and its values in these sections, in their order.
    """

    def __init__(self, parameters: Sequence[Parameter], sections: Iterable[Section]) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters}
        found: dict[str, dict[Plain, None]] = {name: {} for name in self._parameters}
        for section in sections:
            for name, parameter in self._parameters.items():
                found[name].update((_plain(parameter, value), None) for value in section.lists[name])
        self.there = {name: list(values) for name, values in found.items()}

    def excludes(self, narrowing: Narrowing) -> Iterator[Exclude]:
        """What the command line leaves out. UsageError for what there is not, with what there is."""
        for text in narrowing.select:
            for condition in self._parsed("--select", text):
                yield Exclude({condition.key: _Not(self._meets([condition]))}, f"--select {str(condition)!r}")
        for text in narrowing.exclude:
            conditions = self._parsed("--exclude", text)
            yield self._exclude(conditions, f"--exclude {selection.written(conditions)!r}")

    def exclude(self, text: str, reason: str) -> Exclude:
        """What meets all conditions of a text. Raises ValueError with what is wrong with it, on one line."""
        conditions = selection.parse_conditions(text)
        for condition in conditions:
            if problem := self._problem(condition):
                known = selection.listed_values(self.there.get(condition.key, list(self.there)))
                raise ValueError(f"{problem}; there are {known}")
        return self._exclude(conditions, reason)

    def nothing_meets(self, narrowing: Narrowing) -> str:
        """Nothing is left: what was asked for, and what there is."""
        wanted, unwanted = (
            [condition for text in texts for condition in selection.parse_conditions(text)]
            for texts in (narrowing.select, narrowing.exclude)
        )
        hint = selection.why_nothing(wanted, self.there, lambda key: _read(self._parameters[key]))
        listed = self._listed(condition.key for condition in wanted + unwanted)
        return f"no trial meets {narrowing}; there are\n{listed}\n{hint}".rstrip()

    def _parsed(self, option: str, text: str) -> Conditions:
        try:
            conditions = selection.parse_conditions(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
        for condition in conditions:
            if problem := self._problem(condition):
                raise UsageError(f"{option}: {problem}; there are\n{self._listed([condition.key])}")
        return conditions

    def _problem(self, condition: Condition) -> str:
        parameter = self._parameters.get(condition.key)
        return condition.problem(self.there, _read(parameter) if parameter else selection.plain_number)

    def _listed(self, named: Iterable[str]) -> str:
        """What there is, without parameters that nobody has named, neither here nor in any section."""
        names = {*named}
        for name, parameter in self._parameters.items():
            if self.there[name] != [_plain(parameter, value) for value in parameter.default or ()]:
                names.add(name)
        return selection.listed({name: values for name, values in self.there.items() if name in names})

    def _exclude(self, conditions: Conditions, reason: str) -> Exclude:
        keys = dict.fromkeys(condition.key for condition in conditions)
        return Exclude({key: self._meets(one for one in conditions if one.key == key) for key in keys}, reason)

    def _meets(self, conditions: Iterable[Condition]) -> _Meets:
        """Whether a case meets all of these conditions on one parameter."""
        found = list(conditions)
        parameter = self._parameters[found[0].key]
        return _Meets(parameter, tuple(condition.test(_read(parameter)) for condition in found))


@dataclass(frozen=True)
class _Meets:
    """Whether a case meets conditions on a parameter."""

    parameter: Parameter
    tests: tuple[Test, ...]

    def __call__(self, case: Case) -> bool:
        parameter, value = self.parameter, case[self.parameter.name]
        is_there = value is not None or not parameter.applies or parameter.applies(case)
        if not is_there and parameter.implied:
            value = parameter.implied(case)
            is_there = value is not None
        seen = _plain(parameter, value) if is_there else None
        return all(test(seen) for test in self.tests)


@dataclass(frozen=True)
class _Not:
    meets: _Meets

    def __call__(self, case: Case) -> bool:
        return not self.meets(case)


def _plain(parameter: Parameter, value: Any) -> Plain:
    """A value as conditions see it: numbers and switches as they are, everything else as the user sees it."""
    return value if isinstance(value, bool | int | float) else parameter.show(value)


def _read(parameter: Parameter) -> Read:
    return parameter.quantity.read if parameter.quantity else selection.plain_number
