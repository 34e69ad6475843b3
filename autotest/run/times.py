"""What the records of a campaign's trials tell of how long its trials and the steps of its set-ups take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from autotest.measurements.kind import MeasurementKind
from autotest.plan.parameters import Case
from autotest.results.failures import parse_time
from autotest.results.timing import CHANGED, ENTERED, LEFT, Timing
from autotest.run.recording import recorded
from autotest.run.samples import TrialTimes, Values, nearest, typical

#: What is taken for a trial, beyond the load and the pauses that were asked for, and for a stage that is entered, in seconds,
#: as long as none was measured. In the lab, where 90 trials of tests.conf were run, it was 0.7 and 2.1 on average.
TRIAL_SECONDS: Final = 1.0
STEP_SECONDS: Final = 2.0
#: What took longer was not waited for: nothing ran in between.
PAUSE_SECONDS: Final = 900.0
_ENOUGH: Final = 3


class Move(NamedTuple):
    """A step from one set-up to another: the index of the stage, how, and for which values of the parameters."""

    stage: int
    way: str
    values: Values


class _Trial(NamedTuple):
    """One whose record tells only when it ended."""

    ended: datetime
    values: Values
    least: float


class Times:
    """Learns from trials one by one, then answers for any of the plan. Values are those of parameters, as records have them.

    What was not measured yet takes what the nearest did that was: see :func:`autotest.run.samples.nearest`.
    """

    def __init__(self, kind: MeasurementKind, depth: int) -> None:
        names = [parameter.name for parameter in kind.parameters]
        self._kind = kind
        self._depth = depth
        self._of_load = kind.parameters[depth:]
        self._last: tuple[Values, Values] = ((None,), ())
        self._lengths = [names.index(stage.parameter) + 1 for stage in kind.stages]
        self._indices = {stage.name: index for index, stage in enumerate(kind.stages)}
        self._trials = TrialTimes()
        self._steps: dict[tuple[int, str], dict[Values, list[float]]] = {}
        self._starts: list[float] = []
        self._older: dict[Path, list[_Trial]] = {}
        self._pooled: _Pooled | None = None

    # -- learning ------------------------------------------------------------------------------------------

    def learn(self, directory: Path, values: Values, timing: Timing, least: float) -> None:
        """What the record of a trial with these values tells; ``least`` is for those that do not say what was asked for."""
        if timing.seconds is not None:
            self._trials.learn(values[: self._depth], values[self._depth :], max(0.0, timing.seconds - timing.least))
        elif ended := parse_time(timing.ended):
            self._older.setdefault(directory, []).append(_Trial(ended, values, least))
        for move, seconds in self.moves_of(timing, values):
            of = move.values if move.way != LEFT else ()  # it was left for another set-up than this
            self._steps.setdefault((move.stage, move.way), {}).setdefault(of, []).append(seconds)
        if timing.start is not None and timing.start <= PAUSE_SECONDS:
            self._starts.append(timing.start)

    def values_of(self, case: Case) -> Values:
        """The values of a test case as records have them. Neighbours share those of their set-up, which are made once."""
        raw = case.values_[: len(self._kind.parameters)]
        set_up = raw[: self._depth]
        if set_up != self._last[0]:
            self._last = set_up, tuple(map(recorded, self._kind.parameters, set_up))
        return self._last[1] + tuple(map(recorded, self._of_load, raw[self._depth :]))

    def values_in(self, record: Mapping[str, Any]) -> Values | None:
        """The values of the test case in the record of a trial; None where they cannot be read."""
        found = record.get("parameters")
        if not isinstance(found, dict):
            return None
        values = tuple(found.get(parameter.name) for parameter in self._kind.parameters)
        return values if all(value is None or isinstance(value, int | str) for value in values) else None

    def moves_of(self, timing: Timing, values: Values) -> Iterator[tuple[Move, float]]:
        """The steps that the record of a trial with these values tells of, with their seconds."""
        for step in timing.steps:
            index = self._indices.get(step.stage)
            if index is not None:
                yield Move(index, step.way, values[: self._lengths[index]]), step.seconds

    # -- answering -----------------------------------------------------------------------------------------

    def trial(self, values: Values) -> float | None:
        """Seconds of a trial beyond what was asked for; None where no trial is known."""
        known = self._trials.seconds(values[: self._depth], values[self._depth :])
        return self._older_times().trial if known is None else known

    def step(self, move: Move) -> float | None:
        """Seconds of a step of a set-up; None where no such step is known."""
        known = self._steps.get(move[:2])
        if move.way == LEFT:
            return typical(known[()]) if known else 0.0
        if not known and move.way == CHANGED:
            return self.step(move._replace(way=ENTERED))
        if not known:
            return None
        if move.values in known:
            return typical(known[move.values])
        return fmean(typical(known[values]) for values in nearest(move.values, list(known)))

    def set_up(self, moves: Sequence[Move]) -> list[float | None]:
        """Seconds of each step from one set-up to another; None for those of which nothing is known."""
        found = [self.step(move) for move in moves]
        whole = self._older_times().set_up(min((move.stage for move in moves), default=0))
        if whole is None or None not in found:
            return found
        unknown = found.count(None)
        rest = max(0.0, whole - sum(filter(None, found)))
        return [rest / unknown if seconds is None else seconds for seconds in found]

    @property
    def start(self) -> float:
        """Seconds of a run before its first set-up."""
        return typical(self._starts) if self._starts else 0.0

    def moves(self, before: Values | None, after: Values | None) -> list[Move]:
        """The steps from one set-up to another; None: none is set up."""
        common = self._common(before, after)
        moves = []
        stages = range(common, len(self._lengths))
        if before is not None:
            moves = [Move(index, LEFT, before[: self._lengths[index]]) for index in reversed(stages)]
        if after is not None:
            moves += [Move(index, ENTERED, after[: self._lengths[index]]) for index in stages]
        if before is not None and after is not None and common < len(self._lengths) and self._is_changed(common, before, after):
            changed = Move(common, CHANGED, after[: self._lengths[common]])
            moves = [changed if move[:2] == (common, ENTERED) else move for move in moves if move[:2] != (common, LEFT)]
        return moves

    def _common(self, before: Values | None, after: Values | None) -> int:
        """How many stages two set-ups share."""
        if before is None or after is None:
            return 0
        shared = (index for index, length in enumerate(self._lengths) if before[:length] != after[:length])
        return next(shared, len(self._lengths))

    def _is_changed(self, index: int, before: Values, after: Values) -> bool:
        """Whether that stage goes from one value to the other without being left."""
        last = self._lengths[index] - 1
        return self._kind.stages[index].change is not None and before[:last] == after[:last]

    def _older_times(self) -> _Pooled:
        """All is learnt before anything is asked."""
        if self._pooled is None:
            self._pooled = _Pooled.of(self._older.values(), self._depth, self._common)
        return self._pooled


class _Pooled(NamedTuple):
    """What records tell that say only when a trial ended: gaps between the trials of a directory.

    Attributes:
        trial: seconds beyond what was asked for; None: not known.
        set_ups: seconds by the first stage that differs, where there were enough of them; those of any are at -1.
    """

    trial: float | None
    set_ups: Mapping[int, float]

    @classmethod
    def of(cls, directories: Iterable[list[_Trial]], depth: int, common: Callable[[Values, Values], int]) -> _Pooled:
        """``common`` says how many stages two set-ups share."""
        within: list[float] = []
        across: dict[int, list[float]] = {}
        for trials in directories:
            for before, trial in pairwise(sorted(trials, key=lambda trial: trial.ended)):
                seconds = (trial.ended - before.ended).total_seconds() - trial.least
                if 0 <= seconds <= PAUSE_SECONDS:
                    is_new = before.values[:depth] != trial.values[:depth]
                    (across.setdefault(common(before.values, trial.values), []) if is_new else within).append(seconds)
        usual = typical(within) if within else None
        enough = {stage: gaps for stage, gaps in across.items() if len(gaps) >= _ENOUGH}
        enough[-1] = [gap for gaps in across.values() for gap in gaps]
        return cls(usual, {stage: max(0.0, typical(gaps) - (usual or 0.0)) for stage, gaps in enough.items() if gaps})

    def set_up(self, first: int) -> float | None:
        """Seconds of a set-up from that stage on; None where none is known."""
        return self.set_ups.get(first, self.set_ups.get(-1))
