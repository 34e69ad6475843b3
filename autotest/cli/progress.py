"""What a run does at the moment and how far it is: kept for a live view, told in lines, summed up at the end."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TextIO

from autotest.plan.parameters import Case
from autotest.report.status import duration, trials
from autotest.run import interruption
from autotest.run.observer import Observer, Observers
from autotest.run.runner import End, Job, Outcome

log = logging.getLogger(__name__)
summary_log = logging.getLogger(f"{__name__}.summary")
"""For the one line at the end that ``--quiet`` leaves."""

INTERRUPTED = "interrupted: all is undone now; Ctrl-C once more leaves that to autotest recover"
_SHOWN_STEP = 0.5  # seconds from which on a step of a set-up is worth to be told


class Step(NamedTuple):
    """What is done at the moment; in ``seconds`` it is over, as far as that is known."""

    name: str
    since: float
    seconds: float | None = None


class RunningEstimate(Protocol):
    """How many seconds the rest takes, kept up to date by what is over."""

    seconds: float

    def over(self, case: Case) -> None: ...


class Progress(Observer):
    """Keeps what the run tells; times are on the monotonic clock.

    Attributes:
        begin: when the command began.
        before: how many trials were done before this run.
        total: these, and what this run is to do.
        counts: how many trials of this run ended in which way.
        step: what is done at the moment.
        job, attempt: the trial whose turn it is, and how often it was tried already.
        reading: what it measures at the moment.
    """

    def __init__(
        self, labels: Callable[[Case], Sequence[str]], set_up_depth: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._labels = labels
        self._depth = set_up_depth
        self.now = now
        self.begin = now()
        self.before = self.total = 0
        self.counts: Counter[End] = Counter()
        self.step = Step("", self.begin)
        self.job: Job | None = None
        self.attempt = 0
        self.reading = ""
        self.changed: Callable[[], None] = lambda: None
        """Called whenever something of it has changed."""
        self._estimate: RunningEstimate | None = None
        self._estimated = (0.0, self.begin)

    # -- told by the command -------------------------------------------------------------------------------

    def plans(self, before: int, to_do: int) -> None:
        """So many trials were done before, and so many are to be done by this run."""
        self.before, self.total = before, before + to_do

    def estimates(self, estimate: RunningEstimate) -> None:
        """From now on what remains is known."""
        self._estimate = estimate
        self._estimated = estimate.seconds, self.now()

    def does(self, what: str) -> None:
        """Something that takes time besides the run itself."""
        log.info("%s", what)
        self._begins(what)

    # -- told by the run -----------------------------------------------------------------------------------

    def enters(self, stage: str, case: Case) -> None:
        self._begins(f"setting up {stage}")

    def leaves(self, stage: str) -> None:
        self._begins(f"undoing {stage}")

    def tries(self, job: Job, number: int, attempt: int) -> None:
        self.job, self.attempt = job, attempt

    def measures(self, job: Job) -> None:
        self._begins("measuring")

    def phase(self, name: str, seconds: float) -> None:
        self._begins(name, seconds)

    def reads(self, text: str) -> None:
        self.reading = text
        self.changed()

    def ends(self, outcome: Outcome) -> None:
        self.counts[outcome.end] += 1
        if self._estimate:
            self._estimate.over(outcome.case)
            self._estimated = self._estimate.seconds, self.now()
        self.changed()

    def _begins(self, what: str, seconds: float | None = None) -> None:
        self.reading = ""
        self.step = Step(what, self.now(), seconds)
        self.changed()

    # -- what follows from it ------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """Trials that are done, those of before included."""
        return self.before + self.counts[End.DONE]

    @property
    def position(self) -> int:
        """Trials whose turn is over, those of before included."""
        return self.before + self.counts.total()

    @property
    def left(self) -> int:
        """Trials whose turn is still to come, with the one at the moment."""
        return max(0, self.total - self.position)

    @property
    def remaining(self) -> float | None:
        """How many seconds the rest takes; None while that is not known."""
        if self._estimate is None:
            return None
        seconds, when = self._estimated
        return max(0.0, seconds - (self.now() - when))

    @property
    def set_up(self) -> Sequence[str]:
        """The parameters of the set-up at the moment, for the user."""
        return self._labels(self.job.case.prefix(self._depth)) if self.job else ()

    @property
    def trial(self) -> Sequence[str]:
        """The parameters of the trial at the moment beside those of its set-up."""
        if self.job is None:
            return ()
        shown = list(self._labels(self.job.case))[len(self.set_up) :]
        repetition = self.job.case.get("repetition")
        return shown if repetition is None else [*shown, f"repetition {repetition}"]

    def summary(self) -> str:
        """What this run came to, in one line."""
        failed = self.counts.total() - self.counts[End.DONE]
        kinds = [f"{self.counts[end]} {end.value}" for end in (End.INVALID, End.NOT_TRIED) if self.counts[end]]
        which = f" ({', '.join(kinds)})" if kinds else ""
        left = f", {self.left} left" if self.left else ""
        return f"{trials(self.counts[End.DONE])} done, {failed} failed{which}{left}, in {duration(self.now() - self.begin)}"


class Lines(Observer):
    """Tells of a run in lines of the log, one for each event. The figures come first: a trial's name is long."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._entering = 0.0
        self._steps: dict[str, float] = {}
        self._is_interrupted = False

    def enters(self, stage: str, case: Case) -> None:
        self._entering = self._progress.now()

    def entered(self, stage: str, case: Case) -> None:
        self._steps[stage] = self._progress.now() - self._entering

    def measures(self, job: Job) -> None:
        if self._steps:
            long = [f"{stage} {seconds:.1f} s" for stage, seconds in self._steps.items() if seconds >= _SHOWN_STEP]
            steps = f" ({', '.join(long)})" if long else ""
            log.info("set up in %.1f s%s: %s", sum(self._steps.values()), steps, ", ".join(self._progress.set_up))
            self._steps.clear()

    def leaves(self, stage: str) -> None:
        if interruption.requested() and not self._is_interrupted:
            self._is_interrupted = True
            log.warning(INTERRUPTED)

    def ends(self, outcome: Outcome) -> None:
        if outcome.end is End.NOT_TRIED:  # there may be thousands of them; why was told
            return
        progress, how = self._progress, outcome.figures or outcome.end.value
        remaining = "" if progress.remaining is None or not progress.left else f", {duration(progress.remaining)} left"
        took = f"({outcome.seconds:.1f} s)"
        log.info("%d/%d %s %s%s: %s", progress.position, progress.total, how, took, remaining, outcome.name)


def is_live(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether there is somebody who watches the stream, on a terminal that can move its cursor."""
    return stream.isatty() and not environment.get("CI") and environment.get("TERM", "") not in ("", "dumb", "unknown")


@contextmanager
def shown(progress: Progress) -> Iterator[Observer]:
    """Who tells the user of a run, in lines and, on a terminal, in a view below them; with ``--quiet`` both say nothing."""
    observers = Observers([progress, Lines(progress)])
    if not log.isEnabledFor(logging.INFO) or not is_live(sys.stderr):
        yield observers
        return
    from autotest.cli.live_view import LiveView
    from autotest.cli.screen import Screen

    screen = Screen(sys.stderr.fileno(), LiveView(progress, sys.stderr).frame, sys.stderr.encoding)
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
    ]
    progress.changed = screen.draw
    try:
        screen.start()
        for handler in handlers:
            handler.setStream(screen)
        yield observers
    finally:
        progress.changed = lambda: None
        for handler in handlers:
            handler.setStream(sys.stderr)
        screen.stop()
