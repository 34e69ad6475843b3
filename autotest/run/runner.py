"""The runner: takes the trials that are to be done one by one, whatever is measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from autotest.errors import AutotestError
from autotest.plan.parameters import Case
from autotest.run.stages import EnteredStages, Stage, StageFailed

log = logging.getLogger(__name__)

DEFAULT_RETRIES = 2

Context = TypeVar("Context")


@dataclass(frozen=True)
class Job:
    """One trial to be done: its case, its name for the user, and what measures and commits it."""

    case: Case
    name: str
    measure: Callable[[], str]
    """Does it all; returns a short line of figures for the log."""


@dataclass(frozen=True)
class Failure:
    """What could not be done, and why. ``trials`` is how many are missing because of it."""

    name: str
    reason: str
    trials: int = 1


@dataclass
class Summary:
    """How a run ended."""

    done: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(failure.trials for failure in self.failures)


class Runner(Generic[Context]):
    """Runs jobs over stages.

    Args:
        stages: from the root of the tree to its leaves.
        context: what the stages work on.
        retries: how often a stage or trial that failed is tried again.
        describe: a case, or the beginning of one, for the user.
    """

    def __init__(
        self,
        stages: Sequence[Stage[Context]],
        context: Context,
        retries: int = DEFAULT_RETRIES,
        describe: Callable[[Case], str] = str,
    ) -> None:
        self._describe = describe
        self._retries = retries
        self._summary = Summary()
        self._entered = EnteredStages(stages, context, self._teardown_failed)
        self._broken: dict[tuple[int, Case], int] = {}  # a failed stage's prefix -> index into failures

    def run(self, jobs: Iterable[Job], total: int) -> Summary:
        """Do all jobs; ``total`` is how many there are. However it ends, all stages are left."""
        try:
            for number, job in enumerate(jobs, 1):
                self._do(job, f"{number}/{total}")
        finally:
            self._entered.leave()
        return self._summary

    def _do(self, job: Job, position: str) -> None:
        if self._below_broken_stage(job.case):
            return
        for attempt in range(self._retries + 1):
            start = time.monotonic()
            try:
                self._entered.move_to(job.case)
                figures = job.measure()
            except StageFailed as failure:
                reason: Exception = failure.reason
                self._expected(reason)
                log.warning("%s %s: %s cannot be set up: %s", position, job.name, failure.stage, reason)
                if attempt == self._retries:
                    self._stage_broken(failure)
            except Exception as error:
                self._expected(error)
                log.warning("%s %s: %s", position, job.name, error)
                if attempt == self._retries:
                    self._summary.failures.append(Failure(job.name, str(error)))
                self._entered.leave()  # what broke is not known: all of the set-up is made anew
            else:
                self._summary.done += 1
                log.info("%s %s: %s (%.1f s)", position, job.name, figures, time.monotonic() - start)
                return

    @staticmethod
    def _expected(error: Exception) -> None:
        """A bug of our own must not look like a failing testbed."""
        if not isinstance(error, (AutotestError, OSError)):
            raise error

    def _below_broken_stage(self, case: Case) -> bool:
        for (index, prefix), failure in self._broken.items():
            if self._entered.prefix(index, case) == prefix:
                known = self._summary.failures[failure]
                self._summary.failures[failure] = Failure(known.name, known.reason, known.trials + 1)
                return True
        return False

    def _stage_broken(self, failure: StageFailed) -> None:
        self._broken[failure.index, failure.prefix] = len(self._summary.failures)
        where = self._describe(failure.prefix)
        self._summary.failures.append(Failure(f"{failure.stage} ({where})", str(failure.reason)))

    def _teardown_failed(self, stage: str, error: Exception) -> None:
        self._expected(error)
        log.error("%s cannot be undone: %s", stage, error)
        self._summary.failures.append(Failure(f"undoing {stage}", str(error), 0))
