"""Whether campaigns take as long as was expected before: the lab's ``tests.conf`` half by half, and records taken apart.

Run from the repository: ``python -m benchmarks estimate``. With files of tests that were measured in one run, only their
records are taken apart: ``python -m benchmarks.estimate tests.conf``.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotest.cli.campaigns import load_campaign
from autotest.resources import PROJECT_DIRECTORY
from autotest.results.timing import Timing
from autotest.run.campaign import Campaign, Planned
from autotest.run.estimate import estimate

sys.path.insert(0, str(PROJECT_DIRECTORY / "tests" / "support"))
from labtest import LabCommand, lab_command, own_lab

from benchmarks.scale import full_or_tiny

_TINY_TESTS = """\
[tiny]
machines = host
interfaces = pnic, bridge
reflectors = xdp
rates = 1, 2
sizes = 60
runtimes = 1
repetitions = 1
outputdir = results
"""
GOAL_PERCENT = 15.0
PATIENCE_S = 1200.0
#: What another machine takes nobody can know before it was measured once: that is shown, and no goal.
TAKEN_APART_BY = {"interface": GOAL_PERCENT, "machine": None}


def measure() -> list[dict]:
    """Figures as dicts of name, value, unit, goal and ratio (None: there is no peer for them)."""
    with tempfile.TemporaryDirectory() as folder:
        config = own_lab(PROJECT_DIRECTORY / "autotest.conf", Path(folder, "autotest.conf"))
        with contextmanager(lab_command)(config) as lab:
            lab.run("lab", "up", timeout=PATIENCE_S)  # the guest's image is made once on a machine
            lab.run("lab", "down")
            return _in_the_lab(lab, Path(folder))


def _in_the_lab(lab: LabCommand, folder: Path) -> list[dict]:
    def tests(repetitions: int) -> Path:
        text = full_or_tiny((PROJECT_DIRECTORY / "tests.conf").read_text(), _TINY_TESTS)
        file = folder / f"{repetitions}.conf"
        file.write_text(re.sub(r"^repetitions = .*", f"repetitions = {repetitions}", text, flags=re.MULTILINE))
        return file

    half = sum(1 for _ in load_campaign([tests(2)]).trials()) // 2
    return [
        _figure("nothing known, the first half", *_run(lab, tests(2), half), goal=None),
        _figure("the other half after the first", *_run(lab, tests(2))),
        *taken_apart(tests(2)),
        _figure("a third repetition after two", *_run(lab, tests(3))),
    ]


def _run(lab: LabCommand, tests: Path, limit: int | None = None) -> tuple[float, float]:
    """How long a run was expected to take, and how long it took, in seconds."""
    campaign = load_campaign([tests])
    campaign.limit = limit
    expected = estimate(campaign).seconds
    begin = time.monotonic()
    limited = [] if limit is None else ["--limit", str(limit)]
    lab.run("test-load-lat-file", *limited, str(tests), timeout=PATIENCE_S)
    return expected, time.monotonic() - begin


def taken_apart(tests: Path) -> Iterator[dict]:
    """Hides what was measured with one value of a parameter, and compares what is expected of it with what records say."""
    campaign = load_campaign([tests])
    for name, goal in TAKEN_APART_BY.items():
        for value in dict.fromkeys(planned.case[name] for planned in campaign.trials() if planned.done):
            expected, took = _hidden(campaign, name, value)
            if expected and took:
                yield _figure(f"records: {name} {value} after the others", expected, took, goal)


def _hidden(campaign: Campaign, parameter: str, value: object) -> tuple[float, float]:
    """How long the trials with that value are expected to take after the others, and took, in seconds; 0 without others."""

    def is_hidden(planned: Planned) -> bool:
        return planned.case[parameter] == value

    took, others = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        sections = {section.name: _elsewhere(section, Path(folder, str(n))) for n, section in enumerate(campaign.sections)}
        for planned in campaign.trials():
            if not planned.done:
                continue
            store = campaign.store(planned.section)
            if is_hidden(planned):
                timing = Timing.of(store.record(planned.name))
                took += (timing.seconds or 0.0) + sum(step.seconds for step in timing.steps)
            else:
                others += 1
                elsewhere = Path(sections[planned.section.name].settings["outputdir"])
                for path in map(store.path, [planned.name] * 3, ("output", "histogram", "trial")):
                    shutil.copy(path, elsewhere)
        return (estimate(_Part(campaign, list(sections.values()), is_hidden), begun=True).seconds if others else 0.0), took


def _elsewhere(section: Any, folder: Path) -> Any:
    """The section with its results in another folder, which is made."""
    folder.mkdir()
    return replace(section, settings={**section.settings, "outputdir": folder})


class _Part(Campaign):
    """Of what is to do in a campaign, a part."""

    def __init__(self, campaign: Campaign, sections: list[Any], is_part: Callable[[Planned], bool]) -> None:
        super().__init__(campaign.kind, sections)
        self._is_part = is_part

    def to_do(self) -> Iterator[Planned]:
        return filter(self._is_part, super().to_do())


def _figure(what: str, expected: float, took: float, goal: float | None = GOAL_PERCENT) -> dict:
    name = f"{what}: {expected:.0f} s expected, {took:.0f} s taken ({expected / took:.2f})"
    return {"name": name, "value": abs(expected / took - 1) * 100, "unit": "%", "goal": goal, "ratio": None}


if __name__ == "__main__":
    for figure in [row for name in sys.argv[1:] for row in taken_apart(Path(name))]:
        print(figure)
