"""Selections: which of the trials in an output directory a report is about, as the user writes it.

The language is that of :mod:`autotest.plan.selection`, on the parameters that names of results say. ``testbed`` is a key like a
parameter, though it is none: naming one is the only way to the trials of a testbed that measured fewer of them than another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from autotest.config.quantities import RATE, seconds
from autotest.errors import UsageError
from autotest.plan.selection import (
    Conditions,
    Read,
    Test,
    listed,
    parse_conditions,
    plain_number,
    why_nothing,
    written,
)
from autotest.report.parameters import UNSAID, Parameters, Value, value_of
from autotest.report.trials import Results, Trial, parameters_of

TESTBED: Final = "testbed"
UNRECORDED: Final = "unrecorded"
"""How the testbed of a trial is selected that does not say where it was measured."""

#: How numbers are read where they can have a unit: as in ``tests.conf``.
_READ: Final[Mapping[str, Read]] = {"rate": RATE.read, "runtime": seconds(1, 86_400).read}


@dataclass(frozen=True)
class Selection:
    """What is to be used: what meets all conditions ``wanted``, and not all of any of ``excluded``. Empty: everything."""

    wanted: Conditions = ()
    excluded: tuple[Conditions, ...] = ()

    def __str__(self) -> str:
        return " without ".join(filter(None, [written(self.wanted) or "all" * bool(self.excluded), *map(written, self.excluded)]))

    @cached_property
    def _tests(self) -> tuple[list[tuple[str, Test]], list[list[tuple[str, Test]]]]:
        return _tests(self.wanted), list(map(_tests, self.excluded))

    def matches(self, parameters: Parameters) -> bool:
        """Whether a trial with these parameters is meant."""
        wanted, excluded = self._tests
        return _meets(parameters, wanted) and not any(_meets(parameters, tests) for tests in excluded)

    def apply(self, results: Results) -> list[Trial]:
        """The selected trials.

        Raises:
            UsageError: there is no such parameter, or nothing matches; with what there is.
        """
        trials = results.trials
        if any(condition.key == TESTBED for condition in self.wanted):
            trials += results.elsewhere
        if not trials:
            return []
        there = _there_is(results, trials)
        known = _unsaid(trials) | there
        for condition in (*self.wanted, *(condition for conditions in self.excluded for condition in conditions)):
            if problem := condition.problem(known, _READ.get(condition.key, plain_number), there):
                raise UsageError(f"{results.directory}: {problem}; there are\n{listed(there)}")
        chosen = [trial for trial in trials if self.matches({**trial.parameters, TESTBED: trial.testbed or UNRECORDED})]
        if not chosen:
            hint = why_nothing(self.wanted, known, lambda key: _READ.get(key, plain_number))
            together = " together" if len(self.wanted) + len(self.excluded) > 1 else ""
            raise UsageError(f"{results.directory}: no trial has {self}{together}; there are\n{listed(there)}\n{hint}".rstrip())
        return chosen


def parse_selection(texts: Iterable[str], excluded: Iterable[str] = ()) -> Selection:
    """From texts of conditions: of these all are wanted, and of the others each says what is not. UsageError for other texts."""
    try:
        wanted = tuple(condition for text in texts for condition in parse_conditions(text))
        return Selection(wanted, tuple(map(parse_conditions, excluded)))
    except ValueError as error:
        raise UsageError(str(error)) from None


def split_source(text: str) -> tuple[Path, list[str]]:
    """``PATH`` or ``PATH:key=value,value:key<=value``: the path, and the texts for :func:`parse_selection`."""
    path, *texts = re.split(r":(?=[A-Za-z_]+\s*(?:=|!=|<|>))", text)
    for number in range(len(texts), 0, -1):  # such a text may be part of a name: the longest one that is there
        if (longer := Path(":".join([path, *texts[:number]]))).exists():
            return longer, texts[number:]
    return Path(path), texts


def _tests(conditions: Conditions) -> list[tuple[str, Test]]:
    return [(condition.key, condition.test(_READ.get(condition.key, plain_number))) for condition in conditions]


def _meets(parameters: Parameters, tests: Iterable[tuple[str, Test]]) -> bool:
    return all(test(value_of(parameters, key)) for key, test in tests)


def _unsaid(trials: Iterable[Trial]) -> dict[str, list[Value]]:
    """What the names of some trials do not say, with what it is there, also where none says it and nobody is told of it."""
    own = {name for trial in trials for name, unsaid in UNSAID.items() if value_of(trial.parameters, name) == unsaid}
    return {name: [unsaid] for name, unsaid in UNSAID.items() if name in own}


def _there_is(results: Results, trials: Collection[Trial]) -> dict[str, list[Value]]:
    """Every parameter of these trials and its values; and all testbeds, where any trial says where it was measured."""
    testbeds = sorted({trial.testbed for trial in (*results.trials, *results.elsewhere)})
    recorded: list[Value] = [testbed or UNRECORDED for testbed in testbeds]
    return parameters_of(trials) | ({TESTBED: recorded} if any(testbeds) else {})
