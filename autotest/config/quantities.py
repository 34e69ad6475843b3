"""Numbers with units, and ranges of them: what ``1.5M``, ``90s``, ``2G`` and ``10-150/10`` stand for.

A parameter whose values are numbers has a :class:`Quantity` (``Parameter.quantity``), which reads them wherever a user writes
them: in ``tests.conf``, on the command line, in a selection like ``rate<=1.5M``. Arithmetic is exact: 1.1M is 1100 kpps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from autotest.config.values import FALSE, TRUE, nearest, quoted

MOST_NUMBERS: Final = 10_000
"""What one range may hold: more is a slip of the pen."""

_LONGEST_NUMBER = 20  # characters; far beyond every bound
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NUMBER = re.compile(rf"([+-]?{_DIGITS})\s*([A-Za-z]*)")
_ONE = rf"({_DIGITS}\s*[A-Za-z]*)"
_RANGE = re.compile(rf"{_ONE}\s*-\s*{_ONE}\s*(/\s*{_ONE}|\*\s*({_DIGITS}))?")
_LIKE_A_RANGE = re.compile(r"[0-9.][^:|]*[-/*][^:|]*")
_FORMS = "FIRST-LAST, FIRST-LAST/STEP or FIRST-LAST*FACTOR, like 10-150/10"


@dataclass(frozen=True)
class Quantity:
    """How numbers of one kind are written, and between which bounds they lie.

    Attributes:
        low, high: both included, in the plain unit.
        unit: that of a number that is written without one.
        units: those that can be written, with how many plain ones each is; the plain one among them, where there is any.
    """

    low: int
    high: int
    unit: str = ""
    units: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))

    def read(self, text: str) -> Fraction:
        """The number in the plain unit, exact, whole or not, within the bounds or not.

        Raises ValueError with what would be right.
        """
        match = _NUMBER.fullmatch(text)
        if not match or (match[2] and not self.units):
            raise ValueError(f"{quoted(text)} is not a {self._number}{self._with_units()}")
        digits, unit = match.groups()
        if unit and unit not in self.units:
            raise ValueError(self._unknown(text, unit))
        if len(digits) > _LONGEST_NUMBER:
            raise ValueError(self._out_of_range(text))
        return Fraction(digits.rstrip(".")) * self.units.get(unit, 1)

    def parse(self, text: str) -> int:
        """The number in the plain unit.

        Raises ValueError with what would be right, also where it is not whole or not within the bounds.

        >>> RATE.parse("500"), RATE.parse("20k"), RATE.parse("1.5M"), RATE.parse("1.5Mpps")
        (500, 20, 1500, 1500)
        """
        number = self.read(text)
        if not self.low <= number <= self.high:
            raise ValueError(self._out_of_range(text))
        if not _is_whole(number):
            raise ValueError(f"{quoted(text)} is not a {self._number}")
        return int(number)

    def range(self, text: str) -> Sequence[int] | None:
        """The numbers of ``FIRST-LAST``, ``FIRST-LAST/STEP`` or ``FIRST-LAST*FACTOR``; None where the text is no range.

        Raises ValueError with what would be right: both ends belong to a range, so the steps have to meet the last one.

        >>> list(RATE.range("10-50/20")), list(RATE.range("10-80*2")), list(RATE.range("0.5M-1.5M/0.5M")), RATE.range("10")
        ([10, 30, 50], [10, 20, 40, 80], [500, 1000, 1500], None)
        """
        match = _RANGE.fullmatch(text)
        if not match:
            if _LIKE_A_RANGE.fullmatch(text):
                raise ValueError(f"{quoted(text)} is not a range: expected {_FORMS}")
            return None
        first_text, last_text, steps, step, factor = match.groups()
        first, last = self.parse(first_text), self.parse(last_text)
        _check_units(text, match)
        if first > last:
            raise ValueError(f"{quoted(text)} runs backwards: expected {last_text}-{first_text}{steps or ''}")
        if factor:
            return self._geometric(text, match, first, last)
        return self._arithmetic(text, match, first, last, self._step(text, step) if step else 1)

    def _step(self, text: str, step_text: str) -> int:
        step = self.read(step_text)
        if not step or not _is_whole(step):
            raise ValueError(f"{quoted(text)}: the step {step_text} is not a {self._number} above 0")
        return int(step)

    def _arithmetic(self, text: str, match: re.Match[str], first: int, last: int, step: int) -> Sequence[int]:
        count, missed = divmod(last - first, step)
        if count >= MOST_NUMBERS:
            raise ValueError(f"{quoted(text)} is {count + 1} numbers: expected a larger step, for at most {MOST_NUMBERS}")
        if missed:
            raise ValueError(self._missed(text, match, first, last - missed, last - missed + step))
        return range(first, last + 1, step)

    def _geometric(self, text: str, match: re.Match[str], first: int, last: int) -> Sequence[int]:
        if len(match[5]) > _LONGEST_NUMBER:
            raise ValueError(self._out_of_range(text))
        factor = Fraction(match[5].rstrip("."))
        if factor <= 1:
            raise ValueError(f"{quoted(text)}: the factor {match[5]} is not above 1")
        numbers = [first]
        while numbers[-1] < last:
            number = numbers[-1] * factor
            if not _is_whole(number):
                raise ValueError(f"{quoted(text)}: {numbers[-1]} times {match[5]} is not a {self._number}")
            numbers.append(int(number))
        if numbers[-1] != last:
            raise ValueError(self._missed(text, match, first, *numbers[-2:]))
        return numbers

    def _missed(self, text: str, match: re.Match[str], first: int, below: int, above: int) -> str:
        """Where else it could end: a range whose last number is silently another one is not what was asked for."""
        first_text, last_text, steps = match.group(1, 2, 3)
        ends = [end for end in (below, above) if first < end <= self.high]
        ranges = [f"{first_text}-{self._in_unit_of(last_text, end)}{steps}" for end in ends]
        expected = " or ".join([first_text] * (below == first) + ranges)
        return f"the steps of {quoted(text)} miss its end: expected {expected}"

    def _in_unit_of(self, text: str, number: int) -> str:
        """The number as the user wrote another one; in the plain unit where that would take many digits."""
        if not (unit := _unit(text)):
            return str(number)
        count = number / self.units[unit]
        return f"{float(count):g}{unit}" if _is_whole(count * 100) and count < 1000 else f"{number}{self.unit}"

    @property
    def _number(self) -> str:
        return f"whole number of {self.unit}" if self.unit else "whole number"

    def _with_units(self) -> str:
        return f": expected one, or one with a unit: {', '.join(self.units)}" if self.units else ""

    def _unknown(self, text: str, unit: str) -> str:
        alike = [known for known in self.units if known.lower() == unit.lower()]
        suggestion = f" (did you mean {alike[0]!r}?)" if alike else nearest(unit, list(self.units))
        return f"{quoted(text)} has the unknown unit {quoted(unit)}{suggestion}: expected one of {', '.join(self.units)}"

    def _out_of_range(self, text: str) -> str:
        return f"{quoted(text)} is out of range: expected {self.low} to {self.high} {self.unit}".rstrip()


def _is_whole(number: Fraction) -> bool:
    return number.denominator == 1


def _unit(text: str) -> str:
    return text.lstrip("0123456789. \t")


def _check_units(text: str, match: re.Match[str]) -> None:
    """1-4M could be 1 to 4 million, or 1000 to 4 million: nobody guesses."""
    units = [bool(_unit(number)) for number in match.group(1, 2, 4) if number]
    if any(units) and not all(units):
        raise ValueError(f"{quoted(text)}: expected a unit at each number, or at none of them")
    if any(units) and not match[3]:
        like = f"{match[1]}-{match[2]}/{match[1]}"
        raise ValueError(f"{quoted(text)} has no step: expected one like {like}; only without units it is 1")


def _units(**units: int | Fraction) -> Mapping[str, Fraction]:
    return MappingProxyType({name: Fraction(plain_ones) for name, plain_ones in units.items()})


RATE: Final = Quantity(1, 200_000, "kpps", _units(k=1, M=1000, pps=Fraction(1, 1000), kpps=1, Mpps=1000))
"""Frames per second, in kpps where nothing else is said."""


def seconds(low: int, high: int) -> Quantity:
    """Times, in seconds where nothing else is said."""
    return Quantity(low, high, "s", _units(s=1, m=60, h=3600))


def mebibytes(low: int, high: int) -> Quantity:
    """Memory, in MiB where nothing else is said; M and G are binary here, as for QEMU."""
    return Quantity(low, high, "MiB", _units(M=1, G=1024, T=1024**2, MiB=1, GiB=1024, TiB=1024**2))


def seconds_or_switch(switched_on: float) -> Callable[[str], float]:
    """A parser for up to an hour, in seconds, where older files say true (``switched_on`` seconds) or false (0)."""
    quantity = seconds(0, 3600)

    def parse(value: str) -> float:
        if value.lower() in TRUE - {"1"}:
            return switched_on
        if value.lower() in FALSE - {"0"}:
            return 0.0
        try:
            number = quantity.read(value)
        except ValueError:
            raise ValueError(f"{quoted(value)} is neither seconds, like 90, 1.5 or 2m, nor true or false") from None
        if not quantity.low <= number <= quantity.high:
            raise ValueError(f"{quoted(value)} is out of range: expected 0 to 3600 s")
        return float(number)

    return parse
