"""The language in which users say which trials they mean: of a plan, of results, and in ``exclude`` of ``tests.conf``.

A text is one or more conditions with white space between them, all of which must hold::

    machine=pcvm,microvm        one of these values; != is none of them
    rate<=20                    also <, > and >=; numbers may have a unit: rate<=1.5M
    rate=10..40                 a range, both ends included; either may be left out; 10-40 is the same
    interface=vmux-*            a pattern: * is any text, ? any character
    vhost=on                    a switch: on/off, yes/no, true/false, 1/0
    testbed="a name"            in quotes what holds white space or a comma

Values are compared as they are shown to the user, numbers by what they are. What has not got a parameter (the host, a guest's
vhost) has none of its values: ``!=`` holds there, and nothing else. A mix of frame sizes is a text: it is neither below nor
above any number, nor within a range.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeGuard

from autotest.config.values import FALSE, TRUE, nearest, quoted

Plain = bool | int | float | str
"""A value as conditions see it."""
Read = Callable[[str], Fraction]
"""A number as the user writes it; raises ValueError with what would be right."""
Test = Callable[[Plain | None], bool]

_EQUAL, _UNEQUAL = "=", "!="
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_BEGINNING = re.compile(r"([A-Za-z_]\w*)\s*(==|!=|<=|>=|=|<|>)\s*", re.ASCII)
_VALUE = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^\s,"'=<>!][^\s,"']*))""")
_COMMAS = re.compile(r"\s*(?:,\s*)+")
_SIMPLE = re.compile(r"""[^\s,"'=<>!][^\s,"']*""")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(?:\.[0-9]{0,20})?")
_DASHED = re.compile(r"([0-9.]+[A-Za-z]*)-([0-9.]+[A-Za-z]*)")
_EXAMPLE = "expected parameter=value, like interface=bridge,macvtap, rate=10..40 or rate<=20"
_MOST_SHOWN = 40  # values of one parameter in a message


def plain_number(text: str) -> Fraction:
    """A decimal number without a unit. Raises ValueError for anything else."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{quoted(text)} is not a number")
    return Fraction(text)


@dataclass(frozen=True)
class Condition:
    """What a parameter has to be: ``texts`` are the values, one for ``<`` and the like."""

    key: str
    operator: str
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{','.join(map(_written, self.texts))}"

    def test(self, read: Read = plain_number) -> Test:
        """The condition on a value, None where there is none. Raises ValueError for ``<`` and what is no number."""
        if comparison := _COMPARISONS.get(self.operator):
            bound = _plain(read(self.texts[0]))
            return lambda value: _is_number(value) and comparison(value, bound)
        tests = [_equal(text, read) for text in self.texts]
        if self.operator == _EQUAL:
            return lambda value: value is not None and any(test(value) for test in tests)
        return lambda value: value is None or not any(test(value) for test in tests)

    def problem(self, there: Mapping[str, Sequence[Plain]], read: Read = plain_number, known: Iterable[str] | None = None) -> str:
        """What is wrong with it where there are these values of each parameter; empty where nothing is.

        ``known`` are the parameters to name, where not all are.
        """
        if self.key not in there:
            return f"no parameter {self.key!r}{nearest(self.key, list(there if known is None else known))}"
        values = there[self.key]
        if self.operator in _COMPARISONS:
            try:
                self.test(read)
            except ValueError as error:
                return f"{self}: {error}"
            return "" if any(map(_is_number, values)) else f"{self}: {self.key} is no number"
        for text in self.texts:
            test = _equal(text, read)
            if not any(map(test, values)):
                return f"{self.key} is nowhere {text}{nearest(text, list(map(shown, values)))}"
        return ""


Conditions = tuple[Condition, ...]
"""All of them must hold."""


def written(conditions: Iterable[Condition]) -> str:
    """As :func:`parse_conditions` takes it."""
    return " ".join(map(str, conditions))


def parse_conditions(text: str) -> Conditions:
    """The conditions in a text. Raises ValueError with what is wrong.

    >>> written(parse_conditions("machine=pcvm , host rate <= 20"))
    'machine=pcvm,host rate<=20'
    """
    found: list[Condition] = []
    rest = text.strip()
    while rest or not found:
        condition, behind = _first(rest)
        if condition is None:
            raise ValueError(f"{quoted(rest)} selects nothing: {_EXAMPLE}")
        found.append(condition)
        rest = behind
    return tuple(found)


def _first(text: str) -> tuple[Condition | None, str]:
    """The condition that a text begins with, None where it does not, and what is behind it."""
    beginning = _BEGINNING.match(text)
    if not beginning:
        return None, text
    at, texts = beginning.end(), []
    if commas := _COMMAS.match(text, at):
        at = commas.end()
    while value := _VALUE.match(text, at):
        texts.append(next(group for group in value.groups() if group is not None))
        at = value.end()
        if not (commas := _COMMAS.match(text, at)):
            break
        at = commas.end()
    sign = _EQUAL if beginning[2] == "==" else beginning[2]
    if not texts or (text[at : at + 1].strip() and not text[at - 1].isspace()):
        return None, text
    if sign in _COMPARISONS and len(texts) > 1:
        raise ValueError(f"{quoted(text[:at].strip())} has several values: expected one number behind {sign}")
    return Condition(beginning[1], sign, tuple(texts)), text[at:].strip()


def shown(value: Plain) -> str:
    """A value as the user writes it."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def listed(there: Mapping[str, Sequence[Plain]]) -> str:
    """Every parameter with its values, on a line each; of very many the first and the last."""
    return "\n".join(f"  {key}: {listed_values(values)}" for key, values in there.items())


def listed_values(values: Sequence[Plain]) -> str:
    """On one line; of very many the first and the last."""
    texts = list(map(shown, values))
    if len(texts) > _MOST_SHOWN:
        half = _MOST_SHOWN // 2
        texts = [*texts[:half], f"... ({len(texts)} in all)", *texts[-half:]]
    return ", ".join(texts)


def twice(conditions: Iterable[Condition]) -> str:
    """What to say of a parameter that has to be two things at once, which one condition would allow; empty where none is."""
    first: dict[str, Condition] = {}
    for condition in conditions:
        if condition.operator == _EQUAL and (before := first.setdefault(condition.key, condition)) is not condition:
            either = Condition(condition.key, _EQUAL, (*before.texts, *condition.texts))
            return f"{before} and {condition} must both hold: what may be either is written {either}"
    return ""


def why_nothing(wanted: Sequence[Condition], there: Mapping[str, Sequence[Plain]], read: Callable[[str], Read]) -> str:
    """What to say where nothing meets all of these conditions; ``read`` gives how the numbers of a parameter are read."""
    if hint := twice(wanted):
        return hint
    for condition in wanted:
        if not any(map(condition.test(read(condition.key)), there[condition.key])):
            return f"{condition} holds for none of them"
    return "but not in every combination" if wanted else ""


def _written(text: str) -> str:
    if _SIMPLE.fullmatch(text):
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'


def _is_number(value: Plain | None) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(number: Fraction) -> int | float:
    """As values are: 0.1 is that float, whose exact value is another number."""
    return int(number) if number.denominator == 1 else float(number)


def _equal(text: str, read: Read) -> Callable[[Plain], bool]:
    """Whether a value is what the text says."""
    switch = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}.get(text.lower())
    pattern = _pattern(text)
    bounds = _bounds(text, read)

    def test(value: Plain) -> bool:
        if isinstance(value, bool):
            is_meant = value is switch
        elif isinstance(value, str):
            is_meant = value == text
        else:
            is_meant = bounds is not None and bounds[0] <= value <= bounds[1]
        return is_meant or (pattern is not None and bool(pattern.fullmatch(shown(value))))

    return test


def _pattern(text: str) -> re.Pattern[str] | None:
    if "*" not in text and "?" not in text:
        return None
    return re.compile(fnmatch.translate(text.replace("[", "[[]")))  # a bracket is only itself


def _bounds(text: str, read: Read) -> tuple[float, float] | None:
    """Between which numbers a text is, both included; None where it is none."""
    low, dots, high = text.partition("..")
    if not dots:
        dashed = _DASHED.fullmatch(text)
        low, high = dashed.groups() if dashed else (text, text)
    try:
        first = _plain(read(low)) if low or not dots else -float("inf")
        last = _plain(read(high)) if high or not dots else float("inf")
    except ValueError:
        return None
    return first, last
