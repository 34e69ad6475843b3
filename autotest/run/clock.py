"""What takes the time of a run: the steps of its set-ups and its trials, for the records of the trials."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from autotest.plan.parameters import Case
from autotest.results.timing import CHANGED, ENTERED, LEFT, Step, Timing
from autotest.run.stages import Stage

Context = TypeVar("Context")


class Clock:
    """Times what succeeds: a step that fails, and the pause before it is tried again, say nothing about the next.

    A run begins when its clock is made.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begin = now()
        self._start: float | None = None
        self._is_told = False
        self._steps: dict[tuple[str, str], float] = {}

    def timed(self, stage: Stage[Context]) -> Stage[Context]:
        """A stage that does the same and is timed."""
        to = stage.change

        @contextmanager
        def enter(context: Context, case: Case) -> Iterator[None]:
            with ExitStack() as entered:
                begin = self._begins()
                entered.enter_context(stage.enter(context, case))
                self._ends(stage.name, ENTERED, begin)
                yield
                begin = self._begins()
            self._ends(stage.name, LEFT, begin)

        def change(context: Context, before: Case, case: Case) -> bool:
            begin = self._begins()
            is_changed = to is not None and to(context, before, case)
            if is_changed:
                self._ends(stage.name, CHANGED, begin)
            return is_changed

        return dataclasses.replace(stage, enter=enter, change=change if to else None)

    def take(self, seconds: float, least: float) -> Timing:
        """What a trial of so many seconds has in its record: also the steps since the last time, which are told once."""
        steps = tuple(Step(stage, way, took) for (stage, way), took in self._steps.items())
        self._steps.clear()
        start, self._is_told = None if self._is_told else self._start, True
        return Timing(seconds, least, steps, start)

    def _begins(self) -> float:
        now = self._now()
        if self._start is None:
            self._start = now - self._begin
        return now

    def _ends(self, stage: str, way: str, begin: float) -> None:
        self._steps.pop((stage, way), None)  # what is repeated comes last
        self._steps[stage, way] = self._now() - begin
