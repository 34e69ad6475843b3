"""Selections: which of the trials in an output directory a report is about, as the user writes it.

``key=value[,value...]`` for each parameter that is to be limited; a number may be a range, ``10..40``, either end of
which may be left out. What is not named is not limited. ``testbed`` is a key like a parameter, though it is none: naming
one is the only way to the trials of a testbed that measured fewer of them than another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from autotest.config.values import nearest
from autotest.errors import UsageError
from autotest.report.cases import plain
from autotest.report.parameters import UNSAID, Parameters, Value, value_of
from autotest.report.trials import Results, Trial, parameters_of

TESTBED = "testbed"
UNRECORDED = "unrecorded"
"""How the testbed of a trial is selected that does not say where it was measured."""

_RANGE = re.compile(r"(?P<low>[0-9]{0,9})\.\.(?P<high>[0-9]{0,9})").fullmatch
_SWITCHES = {"on": True, "off": False, "yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Selection:
    """What is to be used: by parameter, the texts of which a value must match one. Empty: everything."""

    wanted: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __str__(self) -> str:
        return " ".join(f"{key}={','.join(texts)}" for key, texts in self.wanted)

    def matches(self, parameters: Parameters) -> bool:
        """Whether every limited parameter has one of its values; a parameter that is not there has none."""
        return all(
            (value := value_of(parameters, key)) is not None and any(_matches(text, value) for text in texts)
            for key, texts in self.wanted
        )

    def apply(self, results: Results) -> list[Trial]:
        """The selected trials.

        Raises:
            UsageError: there is no such parameter, or nothing matches; with what there is.
        """
        trials = results.trials
        if any(key == TESTBED for key, _ in self.wanted):
            trials += results.elsewhere
        there = _there_is(results, trials)
        listed = "\n".join(f"  {key}: {', '.join(map(plain, values))}" for key, values in there.items())
        known = _unsaid(trials) | there
        for key, texts in self.wanted if trials else ():
            if key not in known:
                raise UsageError(f"{results.directory}: no parameter {key!r}{nearest(key, list(there))}; there are\n{listed}")
            for text in texts:
                if not any(_matches(text, value) for value in known[key]):
                    like = nearest(text, [plain(value) for value in known[key]])
                    raise UsageError(f"{results.directory}: {key} is nowhere {text}{like}; there are\n{listed}")
        chosen = [trial for trial in trials if self.matches({**trial.parameters, TESTBED: trial.testbed or UNRECORDED})]
        if not chosen and trials:
            raise UsageError(
                f"{results.directory}: no trial has {self} together; there are\n{listed}\nbut not in every combination"
            )
        return chosen


def parse_selection(texts: Iterable[str]) -> Selection:
    """From ``key=value,value`` texts. UsageError for anything else, and for a parameter named twice."""
    wanted: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        chosen = tuple(value.strip() for value in values.split(",") if value.strip())
        if not equals or not key.strip() or not chosen:
            raise UsageError(f"{text!r} selects nothing: expected parameter=value, like interface=bridge,macvtap or rate=10..40")
        if key.strip() in wanted:
            raise UsageError(f"{text!r}: {key.strip()} is selected twice; write its values in one, separated by commas")
        wanted[key.strip()] = chosen
    return Selection(tuple(wanted.items()))


def split_source(text: str) -> tuple[Path, list[str]]:
    """``PATH`` or ``PATH:key=value,value:key=value``: the path, and the texts for :func:`parse_selection`."""
    path, *texts = re.split(r":(?=[A-Za-z_]+=)", text)
    for number in range(len(texts), 0, -1):  # such a text may be part of a name: the longest one that is there
        if (longer := Path(":".join([path, *texts[:number]]))).exists():
            return longer, texts[number:]
    return Path(path), texts


def _matches(text: str, value: Value) -> bool:
    if isinstance(value, bool):
        return _SWITCHES.get(text.lower()) is value
    if isinstance(value, int):
        if found := _RANGE(text):
            return int(found["low"] or 0) <= value <= int(found["high"] or 10**9)
        return text.isascii() and text.isdigit() and int(text) == value
    return text == value


def _unsaid(trials: Iterable[Trial]) -> dict[str, list[Value]]:
    """What the names of some trials do not say, with what it is there, also where none says it and nobody is told of it."""
    own = {name for trial in trials for name, unsaid in UNSAID.items() if value_of(trial.parameters, name) == unsaid}
    return {name: [unsaid] for name, unsaid in UNSAID.items() if name in own}


def _there_is(results: Results, trials: Collection[Trial]) -> dict[str, list[Value]]:
    """Every parameter of these trials and its values; and all testbeds, where any trial says where it was measured."""
    testbeds = sorted({trial.testbed for trial in (*results.trials, *results.elsewhere)})
    recorded: list[Value] = [testbed or UNRECORDED for testbed in testbeds]
    return parameters_of(trials) | ({TESTBED: recorded} if any(testbeds) else {})
