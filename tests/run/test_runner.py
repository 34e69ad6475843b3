"""The runner: fewest set-ups, teardown in reverse whatever happens, and failures that stay where they belong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import AutotestError
from autotest.plan.parameters import Case
from autotest.run.observer import Observer, Observers
from autotest.run.runner import (
    BLOCKED,
    End,
    Failure,
    Job,
    Outcome,
    Runner,
    Summary,
    TrialInvalid,
)
from autotest.run.stages import Stage

NAMES = ("a", "b", "c", "d")


class Recorder:
    """Stages that write down what happens to them, and fail where they are told to."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fail_to_enter: dict[str, list[BaseException]] = {}
        self.fail_to_leave: dict[str, BaseException] = {}
        self.fail_to_measure: dict[str, list[BaseException]] = {}
        self.broken: dict[str, list[BaseException]] = {}
        self.fail_to_end: dict[str, BaseException] = {}
        self.recorded: list[Failure] = []

    def stages(self, *parameters: str) -> list[Stage[None]]:
        return [Stage(each, each, self._stage(each), partial(self._check, each), partial(self._end, each)) for each in parameters]

    def _end(self, name: str, _: None, case: Case) -> None:
        self.events.append(f"x{name}" + "".join(map(str, case.values_)))
        if name in self.fail_to_end:
            raise self.fail_to_end[name]

    def _check(self, name: str, _: None, case: Case) -> None:
        if errors := self.broken.get(name + "".join(map(str, case.values_))):
            raise errors.pop()

    def _stage(self, name: str) -> Callable[[None, Case], object]:
        @contextmanager
        def stage(_: None, case: Case) -> Iterator[None]:
            label = name + "".join(map(str, case.values_))
            if self.fail_to_enter.get(label):
                self.events.append(f"!{label}")
                raise self.fail_to_enter[label].pop()
            self.events.append(f"+{label}")
            try:
                yield
            finally:
                self.events.append(f"-{label}")
                if label in self.fail_to_leave:
                    raise self.fail_to_leave[label]

        return stage  # type: ignore[return-value]

    def job(self, *values: object, retries: int = 0) -> Job:
        label = "".join(map(str, values))

        def measure() -> str:
            if self.fail_to_measure.get(label):
                self.events.append(f"?{label}")
                raise self.fail_to_measure[label].pop()
            self.events.append(label)
            return "figures"

        return Job(Case(NAMES, values), label, measure, self.recorded.append, retries)

    def run(self, values: list[tuple[object, ...]], *parameters: str, retries: int = 0) -> Summary:
        jobs = [self.job(*each, retries=retries) for each in values]
        return Runner(self.stages(*parameters), None, pause=0).run(jobs, len(jobs))


class Told(Observer):
    """Keeps the outcomes that it is told of."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes

    def ends(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_stages_are_entered_from_the_root_and_left_in_reverse(recorder: Recorder) -> None:
    summary = recorder.run([(1, 1), (1, 2), (2, 1)], "a", "b")
    assert recorder.events == "+a1 +b11 11 -b11 +b12 12 -b12 -a1 +a2 +b21 21 -b21 -a2".split()
    assert summary.done == 3 and not summary.failures


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 3), min_size=4, max_size=4), st.sets(st.sampled_from(range(81))))
def test_a_stage_is_entered_as_often_as_there_are_distinct_prefixes(sizes: list[int], gaps: set[int]) -> None:
    recorder = Recorder()
    cases = [values for number, values in enumerate(product(*map(range, sizes))) if number not in gaps]
    recorder.run(cases, "a", "b", "d")
    for depth, name in ((1, "a"), (2, "b"), (4, "d")):
        entered = [event for event in recorder.events if event.startswith(f"+{name}")]
        left = [event for event in recorder.events if event.startswith(f"-{name}")]
        assert len(entered) == len({values[:depth] for values in cases}) == len(left)


def test_two_stages_may_stand_at_the_same_parameter(recorder: Recorder) -> None:
    stages = [*recorder.stages("a"), Stage("b", "a", recorder.stages("b")[0].enter)]
    Runner(stages, None, pause=0).run([recorder.job(1, 1), recorder.job(1, 2)], 2)
    assert recorder.events == "+a1 +b1 11 12 -b1 -a1".split()


def test_without_jobs_nothing_is_set_up(recorder: Recorder) -> None:
    assert recorder.run([], "a", "b").done == 0
    assert recorder.events == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ZeroDivisionError()])
def test_everything_is_torn_down_when_a_trial_is_interrupted_or_has_a_bug(recorder: Recorder, error: BaseException) -> None:
    recorder.fail_to_measure["11"] = [error]
    with pytest.raises(type(error)):
        recorder.run([(1, 1), (1, 2)], "a", "b", retries=2)
    assert recorder.events == "+a1 +b11 ?11 -b11 -a1".split()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_everything_is_torn_down_when_entering_a_stage_is_interrupted_or_has_a_bug(
    recorder: Recorder, error: BaseException
) -> None:
    recorder.fail_to_enter["b11"] = [error]
    with pytest.raises(type(error)):
        recorder.run([(1, 1), (1, 2)], "a", "b", retries=2)
    assert recorder.events == "+a1 !b11 -a1".split()


def test_a_stage_that_fails_breaks_only_its_subtree_and_counts_its_trials(recorder: Recorder) -> None:
    recorder.fail_to_enter["b11"] = [AutotestError("no tap")] * 3
    cases = [(1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (2, 1, 1)]
    summary = recorder.run(cases, "a", "b", "c", retries=2)
    assert recorder.events[:7] == "+a1 !b11 !b11 -a1 +a1 !b11 +b12".split()
    assert summary.done == 2 and summary.failed == 3
    (failure,) = summary.failures
    assert failure.trials == 3 and failure.reason == "no tap"


def test_a_stage_that_fails_once_is_entered_again(recorder: Recorder) -> None:
    recorder.fail_to_enter["b11"] = [AutotestError("flaky")]
    summary = recorder.run([(1, 1), (1, 2)], "a", "b", retries=1)
    assert recorder.events == "+a1 !b11 +b11 11 -b11 +b12 12 -b12 -a1".split()
    assert summary.done == 2 and not summary.failures


def test_where_nothing_is_found_broken_the_last_stage_is_made_anew_and_then_all(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [AutotestError("lost")] * 2
    summary = recorder.run([(1, 1)], "a", "b", retries=2)
    assert recorder.events == "+a1 +b11 ?11 -b11 +b11 ?11 -b11 -a1 +a1 +b11 11 -b11 -a1".split()
    assert summary.done == 1 and not summary.failures and not recorder.recorded


def test_the_set_up_is_rebuilt_from_the_stage_that_broke(recorder: Recorder) -> None:
    recorder.fail_to_measure["111"] = [AutotestError("lost")]
    recorder.broken["b11"] = [AutotestError("panic")]
    recorder.run([(1, 1, 1)], "a", "b", "c", retries=1)
    assert recorder.events == "+a1 +b11 +c111 ?111 xb11 -c111 -b11 +b11 +c111 111 -c111 -b11 -a1".split()


def test_a_stage_that_fails_because_one_before_it_broke_is_entered_on_a_rebuilt_one(recorder: Recorder) -> None:
    recorder.fail_to_enter["c111"] = [AutotestError("no connection")]
    recorder.broken["b11"] = [AutotestError("panic")]
    summary = recorder.run([(1, 1, 1)], "a", "b", "c", retries=1)
    assert recorder.events == "+a1 +b11 !c111 xb11 -b11 +b11 +c111 111 -c111 -b11 -a1".split()
    assert summary.done == 1


def test_a_broken_stage_that_cannot_be_ended_is_left_as_any_other(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [AutotestError("lost")]
    recorder.broken["a1"] = [AutotestError("panic")]
    recorder.fail_to_end["a"] = AutotestError("no answer")
    summary = recorder.run([(1, 1)], "a", "b", retries=1)
    assert recorder.events == "+a1 +b11 ?11 xa1 -b11 -a1 +a1 +b11 11 -b11 -a1".split()
    assert summary.done == 1 and not summary.failures


def test_the_reason_of_a_failure_is_what_is_found_broken(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [AutotestError("nothing came back")]
    recorder.broken["a1"] = [AutotestError("panic")]
    (failure,) = recorder.run([(1, 1)], "a", "b").failures
    assert failure.reason == "a: panic\nseen as: nothing came back"
    assert recorder.recorded == [failure]


def test_a_bug_in_a_check_is_not_a_broken_testbed(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [AutotestError("lost")]
    recorder.broken["a1"] = [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        recorder.run([(1, 1)], "a", "b", retries=2)
    assert recorder.events[-2:] == ["-b11", "-a1"]


def test_a_set_up_whose_trials_fail_the_same_way_is_given_up_and_its_siblings_go_on(recorder: Recorder) -> None:
    for number in range(1, 9):
        recorder.fail_to_measure[f"1{number}"] = [AutotestError(f"QEMU ended after {number} s\nlog {number}")]
    summary = recorder.run([*((1, number) for number in range(1, 9)), (2, 1)], "a")
    assert [event for event in recorder.events if event.startswith("?")] == ["?11", "?12", "?13"]
    assert summary.done == 1 and summary.failed == 8 and summary.failures[-1].trials == 5
    assert "3 test cases before failed the same way" in summary.failures[-1].reason
    assert [failure.name for failure in recorder.recorded] == [failure.name for failure in summary.failures]


class LoadTooHigh(AutotestError):
    blames_set_up = False


def test_a_set_up_is_not_given_up_for_what_its_load_may_have_caused(recorder: Recorder) -> None:
    for number in range(1, 9):
        recorder.fail_to_measure[f"1{number}"] = [LoadTooHigh("too few samples")]
    summary = recorder.run([(1, number) for number in range(1, 10)], "a")
    assert summary.done == 1 and summary.failed == 8


def test_repetitions_of_one_test_case_do_not_give_up_the_others(recorder: Recorder) -> None:
    recorder.fail_to_measure["1"] = [AutotestError("lost")] * 5
    job = dataclasses.replace(recorder.job(1), test_case="one")
    jobs = [*(dataclasses.replace(job, name=f"rep{number}") for number in range(5)), recorder.job(2)]
    summary = Runner(recorder.stages("a"), None, pause=0).run(jobs, 6)
    assert summary.done == 1 and summary.failed == 5


def test_a_set_up_is_not_given_up_when_its_trials_fail_in_different_ways_or_not_all(recorder: Recorder) -> None:
    for number, reason in enumerate(["x", "x", "y", "x", "x", "", "x", "x"], 1):
        recorder.fail_to_measure[f"1{number}"] = [AutotestError(reason)] if reason else []
    summary = recorder.run([(1, number) for number in range(1, 9)], "a")
    assert summary.done == 1 and summary.failed == 7 and all(failure.trials == 1 for failure in summary.failures)


def test_a_trial_that_keeps_failing_is_recorded_and_the_next_one_goes_on(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [OSError("broken pipe"), AutotestError("lost")]
    summary = recorder.run([(1, 1), (1, 2)], "a", "b", retries=1)
    assert [(failure.name, failure.reason) for failure in summary.failures] == [("11", "broken pipe")]
    assert summary.done == 1 and summary.failed == 1
    assert "12" in recorder.events


def test_a_failure_without_a_text_has_a_reason_all_the_same(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [TimeoutError()]
    told: list[Outcome] = []
    summary = Runner(recorder.stages("a"), None, pause=0, observer=Told(told)).run([recorder.job(1, 1)], 1)
    assert [failure.reason for failure in summary.failures] == [told[0].problem] == ["TimeoutError"]


def test_an_error_of_one_teardown_does_not_stop_the_others(recorder: Recorder) -> None:
    recorder.fail_to_leave["b11"] = AutotestError("busy")
    summary = recorder.run([(1, 1), (1, 2)], "a", "b")
    assert recorder.events == "+a1 +b11 11 -b11 +b12 12 -b12 -a1".split()
    assert summary.done == 2
    assert [(failure.name, failure.trials) for failure in summary.failures] == [("undoing b", 0)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_an_interruption_or_bug_in_a_teardown_comes_out_after_the_others(recorder: Recorder, error: BaseException) -> None:
    recorder.fail_to_leave["c111"] = error
    with pytest.raises(type(error)):
        recorder.run([(1, 1, 1)], "a", "b", "c")
    assert recorder.events == "+a1 +b11 +c111 111 -c111 -b11 -a1".split()


def test_a_bug_in_a_teardown_between_cases_leaves_nothing_set_up(recorder: Recorder) -> None:
    recorder.fail_to_leave["b11"] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        recorder.run([(1, 1), (1, 2)], "a", "b", retries=2)
    assert recorder.events == "+a1 +b11 11 -b11 -a1".split()


def test_a_stage_whose_function_itself_raises_fails_as_a_stage(recorder: Recorder) -> None:
    def broken(_: None, case: Case) -> object:
        raise AutotestError("no way")

    stages = [*recorder.stages("a"), Stage("b", "b", broken)]  # type: ignore[arg-type]
    summary = Runner(stages, None, pause=0).run([recorder.job(1, 1), recorder.job(1, 1)], 2)
    assert summary.failures[0].name.startswith("b (") and summary.failed == 2
    assert recorder.events == "+a1 -a1".split()


def test_each_job_that_came_to_an_end_is_told_with_its_problem_also_of_a_run_that_is_interrupted(recorder: Recorder) -> None:
    told: list[Outcome] = []
    jobs = [recorder.job(a, 1, retries=0) for a in (1, 2, 3, 4)] + [recorder.job(2, 2, retries=0)]
    jobs = sorted(jobs, key=lambda job: job.case.values_)
    recorder.fail_to_measure = {"11": [AutotestError("hangs")], "41": [KeyboardInterrupt()]}
    recorder.fail_to_enter = {"a2": [AutotestError("no such thing")]}
    with pytest.raises(KeyboardInterrupt):
        Runner(recorder.stages("a"), None, pause=0, observer=Told(told)).run(jobs, 5)
    problems = [outcome.problem.partition("\n")[0] for outcome in told]
    assert [outcome.name for outcome in told] == [job.name for job in jobs[:4]]
    assert "hangs" in problems[0] and "no such thing" in problems[1] and "no such thing" in problems[2]
    assert problems[3] == "" and all(outcome.seconds >= 0 for outcome in told)


def test_blocked_jobs_are_not_tried_and_are_one_failure_for_each_reason(recorder: Recorder) -> None:
    ended: list[Outcome] = []
    jobs = [recorder.job(number, 1) for number in range(4)]
    jobs = [dataclasses.replace(job, blocked=why) for job, why in zip(jobs, ("no KVM", "", "no KVM", "no NIC"), strict=True)]
    summary = Runner(recorder.stages("a", "b"), None, pause=0, observer=Told(ended)).run(jobs, 4)
    assert recorder.events == "+a1 +b11 11 -b11 -a1".split() and recorder.recorded == []
    assert summary.done == 1 and summary.failures == [Failure(BLOCKED, "no KVM", 2), Failure(BLOCKED, "no NIC", 1)]
    assert [outcome.problem for outcome in ended] == [f"{BLOCKED}: no KVM", "", f"{BLOCKED}: no KVM", f"{BLOCKED}: no NIC"]


# -- who wants to know -------------------------------------------------------------------------------------


class Scribe(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begins(self, total: int) -> None:
        self.told.append(f"begins {total}")

    def enters(self, stage: str, case: Case) -> None:
        self.told.append(f"enters {stage}{''.join(map(str, case.values_))}")

    def entered(self, stage: str, case: Case) -> None:
        self.told.append(f"entered {stage}{''.join(map(str, case.values_))}")

    def leaves(self, stage: str) -> None:
        self.told.append(f"leaves {stage}")

    def tries(self, job: Job, number: int, attempt: int) -> None:
        self.told.append(f"tries {job.name} {number} {attempt}")

    def measures(self, job: Job) -> None:
        self.told.append(f"measures {job.name}")

    def fails(self, failure: Failure) -> None:
        self.told.append(f"fails {failure.name}: {failure.reason}")

    def ends(self, outcome: Outcome) -> None:
        self.told.append(f"ends {outcome.name} {outcome.end.value} {outcome.figures or outcome.problem}")

    def ended(self, summary: Summary, problem: str) -> None:
        self.told.append(f"ended {summary.done} {problem}")


def test_an_observer_is_told_of_all_in_the_order_in_which_it_happens(recorder: Recorder) -> None:
    recorder.fail_to_measure["11"] = [AutotestError("lost")]
    recorder.fail_to_enter["b12"] = [AutotestError("no way")]
    scribe, jobs = Scribe(), [recorder.job(1, 1, retries=1), recorder.job(1, 2)]
    Runner(recorder.stages("a", "b"), None, pause=0, observer=Observers([Observer(), scribe])).run(jobs, 2)
    assert scribe.told == [
        "begins 2", "tries 11 1 0", "enters a1", "entered a1", "enters b11", "entered b11", "measures 11", "leaves b",
        "tries 11 1 1", "enters b11", "entered b11", "measures 11", "ends 11 done figures",
        "tries 12 2 0", "leaves b", "enters b12", "fails b (Case(a=1, b=2)): no way", "ends 12 failed no way", "leaves a", "ended 1 ",
    ]  # fmt: skip


@pytest.mark.parametrize(("error", "problem"), [(KeyboardInterrupt(), "interrupted"), (ZeroDivisionError("a bug"), "a bug")])
def test_the_end_is_told_of_whatever_ends_the_run_when_all_is_left(
    recorder: Recorder, error: BaseException, problem: str
) -> None:
    scribe = Scribe()
    recorder.fail_to_measure["11"] = [error]
    with pytest.raises(type(error)):
        Runner(recorder.stages("a"), None, pause=0, observer=scribe).run([recorder.job(1, 1)], 1)
    assert scribe.told[-2:] == ["leaves a", f"ended 0 {problem}"]


def test_it_is_told_apart_how_a_trial_ended(recorder: Recorder) -> None:
    told: list[Outcome] = []
    jobs = [recorder.job(1, number, retries=1) for number in range(4)]
    jobs[3] = dataclasses.replace(jobs[3], blocked="no KVM")
    recorder.fail_to_measure["11"] = [AutotestError("hangs"), TrialInvalid("lost it all", True)]
    recorder.fail_to_measure["12"] = [TrialInvalid("lost it all", True), AutotestError("hangs")]
    summary = Runner(recorder.stages("a"), None, pause=0, observer=Told(told)).run(jobs, 4)
    assert {outcome.name: outcome.end for outcome in told} == {
        "10": End.DONE, "11": End.FAILED, "12": End.INVALID, "13": End.NOT_TRIED,
    }  # fmt: skip
    assert summary.failed == 3 and told[0].figures == "figures" and told[0].case == jobs[0].case


def test_what_is_not_tried_because_its_set_up_was_given_up_is_no_failed_trial(recorder: Recorder) -> None:
    told: list[Outcome] = []
    recorder.fail_to_enter["a1"] = [AutotestError("no such thing")]
    jobs = [recorder.job(1, 1), recorder.job(1, 2)]
    Runner(recorder.stages("a"), None, pause=0, observer=Told(told)).run(jobs, 2)
    assert [outcome.end for outcome in told] == [End.FAILED, End.NOT_TRIED]


def test_each_failed_attempt_is_a_warning_that_says_which_of_how_many(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.fail_to_measure["11"] = [AutotestError("lost"), AutotestError("hangs")]
    recorder.fail_to_measure["12"] = [AutotestError("gone")]
    Runner(recorder.stages("a"), None, pause=0).run([recorder.job(1, 1, retries=2), recorder.job(1, 2)], 2)
    assert caplog.messages == ["11: attempt 1 of 3: hangs", "11: attempt 2 of 3: lost", "12: gone"]
