"""The runner: takes the trials that are to be done one by one, whatever is measured."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from autotest.errors import AutotestError, ResultsError
from autotest.plan.parameters import Case
from autotest.run.journal import UndoFailed
from autotest.run.observer import Observer
from autotest.run.stages import EnteredStages, Stage, StageFailed

log = logging.getLogger(__name__)

DEFAULT_RETRIES = 2
BLOCKED = "blocked by preflight"
SAME_FAILURES = 3  # test cases in a row that fail the same way, after which the rest of their set-up is not tried
_NUMBER = re.compile(r"\d+")

Context = TypeVar("Context")


@dataclass(frozen=True)
class Failure:
    """What could not be done, and why. ``trials`` is how many are missing because of it."""

    name: str
    reason: str
    trials: int = 1


@dataclass(frozen=True)
class Job:
    """One trial to be done.

    Attributes:
        case: its test case, and the repetition.
        name: for the user.
        measure: measures and commits it; returns a short line of figures for the log.
        record: told of what failed for good while this job was to be done.
        retries: how often it, or a stage that it needs, is tried again.
        test_case: what it is a repetition of; empty: it is the only one.
        group: where it belongs to, for the user.
        blocked: why it is known to be impossible on the testbed as it is, so that it is not tried; empty where it is not.
        key: what tells it from all others, which may have its name.
    """

    case: Case
    name: str
    measure: Callable[[], str]
    record: Callable[[Failure], None] = lambda failure: None
    retries: int = DEFAULT_RETRIES
    test_case: str = ""
    group: str = ""
    blocked: str = ""
    key: Hashable = None


class End(Enum):
    """How a job ended. Invalid is what was measured but counts for nothing; not tried is what is known to be in vain."""

    DONE = "done"
    FAILED = "failed"
    INVALID = "invalid"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes:
        name, group, case, key: the job's.
        seconds: how long it took, all tries together.
        problem: what went wrong; empty where it is done.
        figures: in a few words, where it is done.
    """

    name: str
    group: str
    seconds: float
    problem: str = ""
    end: End = End.DONE
    figures: str = ""
    case: Case = Case((), ())
    key: Hashable = None


class TrialInvalid(ResultsError):
    """A trial was measured but counts for nothing; ``blames_set_up`` as :class:`autotest.measurements.kind.Trial` has it."""

    def __init__(self, problem: str, blames_set_up: bool) -> None:
        super().__init__(problem)
        self.blames_set_up = blames_set_up


class _Ended(NamedTuple):
    """How a job ended, and why or with what figures."""

    end: End
    problem: str = ""
    figures: str = ""


@dataclass
class Summary:
    """How a run ended."""

    done: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(failure.trials for failure in self.failures)


@dataclass
class _Streak:
    """Test cases in a row whose trials failed for good on one set-up."""

    set_up: Case
    way: str
    test_cases: set[str] = field(default_factory=set)


class Runner(Generic[Context]):
    """Runs jobs over stages.

    Args:
        stages: from the root of the tree to its leaves.
        context: what the stages work on.
        describe: a case, or the beginning of one, for the user.
        pause: seconds before what failed is tried again, and as many more each further time.
        observer: told of all that the run does.
    """

    def __init__(
        self,
        stages: Sequence[Stage[Context]],
        context: Context,
        describe: Callable[[Case], str] = str,
        pause: float = 1.0,
        observer: Observer = Observer(),
    ) -> None:
        self._describe = describe
        self._pause = pause
        self._observer = observer
        self._summary = Summary()
        self._stages = len(stages)
        self._entered = EnteredStages(stages, context, self._teardown_failed, observer)
        self._given_up: dict[tuple[int, Case], int] = {}  # stage and prefix -> index into failures
        self._blocked: dict[str, int] = {}  # reason -> index into failures
        self._streak: _Streak | None = None

    def run(self, jobs: Iterable[Job], total: int, limit: int | None = None) -> Summary:
        """Do all jobs; ``total`` is how many there are. However it ends, all stages are left.

        With a ``limit`` so many are tried at most. What is known to be in vain is left for another run then: it counts for its
        failure alone.
        """
        problem = ""
        try:
            self._observer.begins(total)
            try:
                number = 0
                for job in jobs:
                    start = time.monotonic()
                    ended = self._do(job, number + 1)
                    if limit is not None and ended.end is End.NOT_TRIED:
                        continue
                    number += 1
                    seconds = time.monotonic() - start
                    how = ended.problem, ended.end, ended.figures
                    self._observer.ends(Outcome(job.name, job.group, seconds, *how, job.case, job.key))
                    if number == limit:
                        break
            finally:
                self._entered.leave()
        except BaseException as error:
            problem = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            raise
        finally:
            self._observer.ended(self._summary, problem)
        return self._summary

    def _do(self, job: Job, number: int) -> _Ended:
        """Do the job of that number."""
        if job.blocked:
            return _Ended(End.NOT_TRIED, self._not_tried(job.blocked))
        if (given_up := self._given_up_for(job.case)) is not None:
            return _Ended(End.NOT_TRIED, self._one_more(given_up))
        reason, end = "", End.FAILED
        for attempt in range(job.retries + 1):
            if attempt:
                time.sleep(self._pause * attempt)  # what failed may need a moment
            self._observer.tries(job, number, attempt)
            attempts = f"attempt {attempt + 1} of {job.retries + 1}: " if job.retries else ""
            end = End.FAILED
            try:
                self._entered.move_to(job.case)
                self._observer.measures(job)
                figures = job.measure()
            except StageFailed as failure:
                self._expected(failure.reason)
                anew = 0 < attempt < job.retries
                reason = self._leave_what_broke(failure.reason, keep=0 if anew else len(self._entered))
                log.warning("%s: %s%s cannot be set up: %s", job.name, attempts, failure.stage, reason)
                if attempt == job.retries:
                    what = f"{failure.stage} ({self._describe(failure.prefix)})"
                    self._give_up(job, failure.index, failure.prefix, Failure(what, reason))
            except Exception as error:  # noqa: BLE001  # whatever a trial raises, the next one goes on
                self._expected(error)
                reason = self._leave_what_broke(error, keep=0 if attempt else max(0, len(self._entered) - 1))
                end = End.INVALID if isinstance(error, TrialInvalid) else End.FAILED
                log.warning("%s: %s%s", job.name, attempts, reason)
                if attempt == job.retries:
                    self._failed(job, reason, getattr(error, "blames_set_up", True))
            else:
                self._summary.done += 1
                self._streak = None
                return _Ended(End.DONE, "", figures)
        return _Ended(end, reason)

    def _not_tried(self, reason: str) -> str:
        """Count a job that is blocked: all for one reason are one failure."""
        if reason not in self._blocked:
            self._blocked[reason] = len(self._summary.failures)
            self._fails(Failure(BLOCKED, reason, 0))
        return self._one_more(self._blocked[reason])

    def _one_more(self, index: int) -> str:
        """Count another job to a failure; returns that in words."""
        known = self._summary.failures[index]
        self._summary.failures[index] = Failure(known.name, known.reason, known.trials + 1)
        return f"{known.name}: {known.reason}"

    def _leave_what_broke(self, error: Exception, keep: int) -> str:
        """Leave the stages from the one that broke on; returns what is known of why a trial or a stage failed.

        At most the first ``keep`` stay; 0 makes all anew. Where no stage is found broken, a trial's last one is made anew, or
        the stage itself tried again; what fails again gets all of them made anew.
        """
        broken = self._entered.broken()
        if broken is None:
            self._entered.leave(keep)
            return str(error) or type(error).__name__  # TimeoutError() has no text
        index, stage, cause = broken
        self._expected(cause)
        self._entered.leave_broken(index, mend=keep > 0)
        self._entered.leave(min(keep, len(self._entered)))
        return f"{stage}: {cause}\nseen as: {error}"

    def _failed(self, job: Job, reason: str, blames_set_up: bool) -> None:
        """A trial failed for good; when several test cases do so the same way, the rest of their set-up is given up.

        A failure that the load may have caused says nothing about the other loads.
        """
        failure = Failure(job.name, reason)
        self._fails(failure)
        job.record(failure)
        if not self._stages or not blames_set_up:
            return
        last = self._stages - 1
        set_up = self._entered.prefix(last, job.case)
        way = _NUMBER.sub("N", reason.partition("\n")[0])
        if self._streak is None or (self._streak.set_up, self._streak.way) != (set_up, way):
            self._streak = _Streak(set_up, way)
        self._streak.test_cases.add(job.test_case or job.name)
        if len(self._streak.test_cases) == SAME_FAILURES:
            why = f"not tried: {SAME_FAILURES} test cases before failed the same way: {reason}"
            others = f"all others with {self._describe(set_up)}"
            log.warning("%s: %s", others, why.partition("\n")[0])
            self._give_up(job, last, set_up, Failure(others, why, 0))

    def _given_up_for(self, case: Case) -> int | None:
        """The failure because of which nothing on the set-up of that case is tried any more, by its index."""
        for (index, prefix), failure in self._given_up.items():
            if self._entered.prefix(index, case) == prefix:
                return failure
        return None

    def _give_up(self, job: Job, index: int, prefix: Case, failure: Failure) -> None:
        """Nothing below that prefix is tried any more."""
        self._given_up[index, prefix] = len(self._summary.failures)
        self._fails(failure)
        job.record(failure)

    def _fails(self, failure: Failure) -> None:
        self._summary.failures.append(failure)
        self._observer.fails(failure)

    @staticmethod
    def _expected(error: Exception) -> None:
        """A bug of our own must not look like a failing testbed."""
        if not isinstance(error, (AutotestError, OSError)):
            raise error

    def _teardown_failed(self, stage: str, error: Exception) -> None:
        self._expected(error)
        log.error("%s cannot be undone: %s", stage, error)
        if not isinstance(error, UndoFailed):  # what the journal knows is tried again, and told of at the end
            self._fails(Failure(f"undoing {stage}", str(error), 0))
