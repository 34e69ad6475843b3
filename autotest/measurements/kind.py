"""What the engine knows of a measurement kind: nothing but this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotest.config.testbed import Testbed
from autotest.errors import Problem
from autotest.plan.parameters import Case, Parameter, Rule, Section, Setting
from autotest.preflight.requirement import Requirement
from autotest.results.identity import Plain
from autotest.run.observer import Observer
from autotest.run.stages import Stage
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers


@dataclass(frozen=True)
class Trial:
    """What one repetition produced, ready to be committed.

    Attributes:
        files: kind of result file to the file itself.
        record: what goes into ``trial_*.json`` beside what the store adds; holds figures and verdict.
        line: the figures in a few words, for the log.
        problem: why the trial counts for nothing and is to be tried again; None when it counts.
        blames_set_up: whether that problem is to be expected with any load on the same set-up.
    """

    files: Mapping[str, Path]
    record: Mapping[str, Any]
    line: str
    problem: str | None = None
    blames_set_up: bool = False


@dataclass(frozen=True)
class MeasurementKind:
    """A kind of measurement.

    Attributes:
        name: for the user and the record.
        parameters: the axes of the matrix, from the root of the tree to its leaves.
        settings: the single values of a section; ``repetitions`` and ``outputdir`` must be among them.
        rules: which combinations are left out.
        stages: the set-up, from the root of the tree to its leaves.
        infix: what the names of a case's result files have in common.
        missing: from the testbed and cases that differ in their set-up, the configuration that they lack.
        measure: runs one trial of a case that is set up; its files go into the given folder. It tells the observer in which
            phase the trial is, and what it reads meanwhile.
        seconds: how long one trial of a case takes at least, all pauses of its section included.
        determines: from a look at the machines and a case up to its last stage, what determines the result beside the
            values of the case: all that is known before it is set up. See :mod:`autotest.results.identity`.
        determining: names of the settings that do so too.
        determining_where_set: of these, those that earlier versions had not, so that their default says nothing.
        found: once the case is set up, what could not be known before, for ``versions`` of the record.
        unfitting: the values in a section's lists that fit no value of its other lists.
        requirements: what a case up to its last stage needs of the servers, and of None what every case does; asks nothing.
        needs_of_load: what a section needs beside, because of values that change no set-up.
    """

    name: str
    parameters: tuple[Parameter, ...]
    settings: tuple[Setting, ...]
    rules: tuple[Rule, ...]
    stages: tuple[Stage[Servers], ...]
    infix: Callable[[Case], str]
    missing: Callable[[Testbed, Iterable[Case]], list[Problem]]
    measure: Callable[[Servers, Case, Section, Path, Observer], Trial]
    seconds: Callable[[Case, Section], float] = lambda case, section: 0.0
    determines: Callable[[Inspection, Case], Mapping[str, Plain]] = lambda inspection, case: {}
    determining: tuple[str, ...] = ()
    determining_where_set: tuple[str, ...] = ()
    found: Callable[[Inspection, Case], Mapping[str, str | None]] = lambda inspection, case: {}
    requirements: Callable[[Testbed, Case | None], Iterable[Requirement]] = lambda testbed, case: ()
    needs_of_load: Callable[[Testbed, Section], Iterable[Requirement]] = lambda testbed, section: ()
    unfitting: Callable[[Section], list[Problem]] = lambda section: []

    def labels(self, case: Case, section: Section | None = None) -> list[str]:
        """The parameters of a case, or of the beginning of one, for the user; those that it has not are left out.

        So are those with their usual value, unless the section has other values of them, too.
        """
        return [
            f"{parameter.name} {parameter.show(value)}"
            for parameter in self.parameters[: len(case)]
            if (value := case[parameter.name]) not in (None, parameter.usual) or (section and _varies(parameter, case, section))
        ]


def _varies(parameter: Parameter, case: Case, section: Section) -> bool:
    """Whether a case has the usual value where there are others, too; None can also say that it has no such parameter."""
    if case[parameter.name] != parameter.usual or not (parameter.applies is None or parameter.applies(case)):
        return False
    there = section.lists[parameter.name]
    return parameter.usual in there and len(there) > 1
