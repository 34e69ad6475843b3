"""Who wants to know what a run does while it does it: a display, a notification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotest.plan.parameters import Case

if TYPE_CHECKING:
    from autotest.run.runner import Failure, Job, Outcome, Summary


class Observer:
    """Told of what a run does, in the thread that does it: an observer takes no time and raises nothing.

    This one wants to know nothing. Nothing here knows what is measured.
    """

    def begins(self, total: int) -> None:
        """A run of so many trials begins."""

    def enters(self, stage: str, case: Case) -> None:
        """A stage is being set up, for the beginning of a case; also one that is mended or changed.

        Where that does not work, no :meth:`entered` follows.
        """

    def entered(self, stage: str, case: Case) -> None:
        """That stage is set up."""

    def leaves(self, stage: str) -> None:
        """A stage is being undone."""

    def tries(self, job: Job, number: int, attempt: int) -> None:
        """It is the turn of a trial, the ``number``-th of the run, from 1: what it needs is set up now. ``attempt`` counts from 0."""

    def measures(self, job: Job) -> None:
        """What that trial needs is set up, and it is measured now."""

    def phase(self, name: str, seconds: float) -> None:
        """The trial is in this phase now, like warm-up, for so many seconds as far as is known."""

    def reads(self, text: str) -> None:
        """What the trial measures at the moment, in the user's words, like ``19.98 kpps``."""

    def fails(self, failure: Failure) -> None:
        """Something failed for good."""

    def ends(self, outcome: Outcome) -> None:
        """The turn of a trial is over: it is done, or will not be in this run."""

    def ended(self, summary: Summary, problem: str) -> None:
        """The run is over, and all stages are left; ``problem`` is what ended it early, like an interruption."""


class Observers(Observer):
    """Several, told one after the other."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def begins(self, total: int) -> None:
        for observer in self._observers:
            observer.begins(total)

    def enters(self, stage: str, case: Case) -> None:
        for observer in self._observers:
            observer.enters(stage, case)

    def entered(self, stage: str, case: Case) -> None:
        for observer in self._observers:
            observer.entered(stage, case)

    def leaves(self, stage: str) -> None:
        for observer in self._observers:
            observer.leaves(stage)

    def tries(self, job: Job, number: int, attempt: int) -> None:
        for observer in self._observers:
            observer.tries(job, number, attempt)

    def measures(self, job: Job) -> None:
        for observer in self._observers:
            observer.measures(job)

    def phase(self, name: str, seconds: float) -> None:
        for observer in self._observers:
            observer.phase(name, seconds)

    def reads(self, text: str) -> None:
        for observer in self._observers:
            observer.reads(text)

    def fails(self, failure: Failure) -> None:
        for observer in self._observers:
            observer.fails(failure)

    def ends(self, outcome: Outcome) -> None:
        for observer in self._observers:
            observer.ends(outcome)

    def ended(self, summary: Summary, problem: str) -> None:
        for observer in self._observers:
            observer.ended(summary, problem)
