"""What of a run's time the records of its trials tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotest.errors import TestbedError as StageProblem
from autotest.plan.parameters import Case
from autotest.results.timing import CHANGED, ENTERED, LEFT, Step, Timing
from autotest.run.clock import Clock
from autotest.run.stages import EnteredStages, Stage, StageFailed

NAMES = ("machine", "guests")


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.problems: list[Exception | None] = []

    def stage(self, name: str, parameter: str, enter: float, leave: float, change: float | None = None) -> Stage[None]:
        @contextmanager
        def entered(context: None, case: Case) -> Iterator[None]:
            self.now += enter
            if self.problems and (problem := self.problems.pop(0)):
                raise problem
            yield
            self.now += leave

        def changed(context: None, before: Case, case: Case) -> bool:
            self.now += change or 0.0
            return case["guests"] < 4

        return Stage(name, parameter, entered, change=changed if change else None)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def clock(time: Time) -> Clock:
    return Clock(lambda: time.now)


def entered(clock: Clock, *stages: Stage[None]) -> EnteredStages[None]:
    return EnteredStages([clock.timed(stage) for stage in stages], None, lambda stage, error: None)


def case(machine: str, guests: int) -> Case:
    return Case(NAMES, (machine, guests))


def test_each_trial_tells_the_steps_since_the_one_before_and_the_first_how_the_run_started(time: Time, clock: Clock) -> None:
    stages = entered(clock, time.stage("host", "machine", 2, 1), time.stage("guest", "guests", 5, 3))
    time.now += 7
    stages.move_to(case("pcvm", 1))
    assert clock.take(30, 20) == Timing(30, 20, (Step("host", ENTERED, 2), Step("guest", ENTERED, 5)), start=7)
    stages.move_to(case("pcvm", 1))
    assert clock.take(30, 20) == Timing(30, 20)
    stages.move_to(case("pcvm", 2))
    assert clock.take(30, 20).steps == (Step("guest", LEFT, 3), Step("guest", ENTERED, 5))


def test_a_stage_that_is_changed_is_neither_left_nor_entered_unless_it_cannot_be(time: Time, clock: Clock) -> None:
    stages = entered(clock, time.stage("guest", "guests", 5, 3, change=1))
    stages.move_to(case("pcvm", 1))
    clock.take(30, 20)
    stages.move_to(case("pcvm", 2))
    assert clock.take(30, 20).steps == (Step("guest", CHANGED, 1),)
    stages.move_to(case("pcvm", 4))
    assert clock.take(30, 20).steps == (Step("guest", LEFT, 3), Step("guest", ENTERED, 5))


def test_what_failed_and_the_pause_after_it_count_for_nothing(time: Time, clock: Clock) -> None:
    stages = entered(clock, time.stage("host", "machine", 2, 1), time.stage("guest", "guests", 5, 3))
    time.problems = [None, StageProblem("no boot")]
    with pytest.raises(StageFailed):
        stages.move_to(case("pcvm", 1))
    time.now += 600
    stages.move_to(case("pcvm", 1))
    assert clock.take(30, 20).steps == (Step("host", ENTERED, 2), Step("guest", ENTERED, 5))


def test_of_what_was_repeated_the_last_time_counts(time: Time, clock: Clock) -> None:
    stages = entered(clock, time.stage("guest", "guests", 5, 3))
    stages.move_to(case("pcvm", 1))
    time.now += 50
    stages.leave()
    stages.move_to(case("pcvm", 1))
    assert clock.take(30, 20).steps == (Step("guest", LEFT, 3), Step("guest", ENTERED, 5))


def test_a_stage_without_a_change_is_not_given_one(time: Time, clock: Clock) -> None:
    assert clock.timed(time.stage("guest", "guests", 5, 3)).change is None


def test_what_is_written_is_read_again() -> None:
    timing = Timing(30.1234, 20.0, (Step("guest", LEFT, 3.0), Step("guest", ENTERED, 5.0)), start=7.0)
    assert Timing.of({"timing": timing.record(), "ended": "2026-03-01"}) == timing._replace(seconds=30.123)


@pytest.mark.parametrize(
    "timing",
    [
        None,
        7,
        [],
        {},
        {"seconds": -1.0, "least": 0},
        {"seconds": True, "least": 0},
        {"seconds": float("inf"), "least": 0},
        {"seconds": 3.0},
    ],
)
def test_a_record_that_does_not_tell_how_long_its_trial_took_tells_when_it_ended(timing: object) -> None:
    assert Timing.of({"timing": timing, "ended": "2026-03-01"}) == Timing(ended="2026-03-01")


def test_steps_that_cannot_be_are_left_out() -> None:
    steps = [3, {}, {"stage": "a", "way": "flown", "seconds": 1}, {"stage": "a", "way": LEFT, "seconds": None}]
    good = {"stage": "a", "way": LEFT, "seconds": 1}
    assert Timing.of({"timing": {"seconds": 3, "least": 2, "set_up": [*steps, good]}}).steps == (Step("a", LEFT, 1.0),)
