"""From one value of a parameter to another without leaving a stage, and a broken stage that is mended when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from autotest.errors import AutotestError
from autotest.plan.parameters import Case
from autotest.run.observer import Observer
from autotest.run.runner import Job, Runner, Summary
from autotest.run.stages import EnteredStages, Stage, StageFailed

NAMES = ("network", "guests", "reflector", "rate")
CHANGES_TO_NONE = 9  # a number of guests to which nothing can be changed


class Bench:
    """A network, guests that can be changed and mended, and a reflector; they write down what happens to them."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fail: dict[str, list[BaseException]] = {}
        self.broken: set[str] = set()
        self.reported: list[str] = []

    def _happens(self, event: str) -> None:
        self.events.append(event)
        if errors := self.fail.get(event):
            raise errors.pop(0)

    def _step(self, name: str) -> Callable[[None, Case], object]:
        @contextmanager
        def step(_: None, case: Case) -> Iterator[None]:
            label = name + "".join(map(str, case.values_))
            self._happens(f"+{label}")
            try:
                yield
            finally:
                self._happens(f"-{label}")

        return step  # type: ignore[return-value]

    def _change(self, _: None, before: Case, case: Case) -> bool:
        self._happens(f"~{before['guests']}>{case['guests']}")
        return CHANGES_TO_NONE not in (before["guests"], case["guests"])

    def _mend(self, _: None, case: Case) -> None:
        self._happens(f"mend{case['guests']}")
        self.broken.discard("guests")

    def _end(self, _: None, case: Case) -> None:
        self._happens(f"end{case['guests']}")

    def _check(self, name: str) -> Callable[[None, Case], None]:
        def check(_: None, case: Case) -> None:
            if name in self.broken:
                raise AutotestError(f"{name} broke")

        return check

    def stages(self) -> list[Stage[None]]:
        return [
            Stage("network", "network", self._step("n"), self._check("network")),  # type: ignore[arg-type]
            Stage(
                "guests",
                "guests",
                self._step("g"),
                self._check("guests"),
                self._end,
                self._change,  # type: ignore[arg-type]
                self._mend,
            ),
            Stage("reflector", "reflector", self._step("r"), self._check("reflector")),  # type: ignore[arg-type]
        ]

    def entered(self) -> EnteredStages[None]:
        return EnteredStages(self.stages(), None, lambda name, error: self.reported.append(f"{name}: {error}"))

    def run(self, *cases: tuple[int, ...], retries: int = 0) -> Summary:
        jobs = [Job(case(*each), "".join(map(str, each)), partial(self._measure, each), retries=retries) for each in cases]
        return Runner(self.stages(), None, pause=0).run(jobs, len(jobs))

    def _measure(self, values: tuple[int, ...]) -> str:
        self._happens("".join(map(str, values)))
        return "figures"

    def since(self, events: int) -> str:
        return " ".join(self.events[events:])

    @property
    def all(self) -> str:
        return " ".join(self.events)


def case(*values: int) -> Case:
    return Case(NAMES, values)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- change ------------------------------------------------------------------------------------------------


def test_a_stage_is_changed_where_only_its_own_parameter_differs_and_those_after_it_are_left_first(bench: Bench) -> None:
    summary = bench.run((1, 1, 1, 1), (1, 2, 1, 1), (1, 4, 1, 1))
    assert bench.all == "+n1 +g11 +r111 1111 -r111 ~1>2 +r121 1211 -r121 ~2>4 +r141 1411 -r141 -g11 -n1"
    assert summary.done == 3 and not summary.failures


def test_a_stage_that_was_changed_has_the_new_value(bench: Bench) -> None:
    bench.run((1, 1, 1, 1), (1, 2, 1, 1), (1, 2, 2, 1), (1, 1, 1, 1))
    assert bench.all == "+n1 +g11 +r111 1111 -r111 ~1>2 +r121 1211 -r121 +r122 1221 -r122 ~2>1 +r111 1111 -r111 -g11 -n1"


def test_a_stage_is_left_where_a_value_before_its_own_differs_even_if_its_own_differs_too(bench: Bench) -> None:
    bench.run((1, 1, 1, 1), (2, 1, 1, 1), (3, 2, 1, 1))
    assert not [event for event in bench.events if event.startswith("~")]
    assert bench.all.count("+g") == bench.all.count("-g") == 3


def test_a_value_that_stands_between_two_stages_is_one_before(bench: Bench) -> None:
    """A stage may depend on several values that no other stage depends on: all but the last count as before."""
    network, _, reflector = bench.stages()
    changed: list[tuple[int, int]] = []

    def change(_: None, before: Case, after: Case) -> bool:
        changed.append((before["reflector"], after["reflector"]))
        return True

    stage = Stage("both", "reflector", reflector.enter, change=change)
    entered: EnteredStages[None] = EnteredStages([network, stage], None, lambda name, error: None)
    entered.move_to(case(1, 1, 1, 1))
    entered.move_to(case(1, 1, 2, 1))
    entered.move_to(case(1, 2, 3, 1))
    assert changed == [(1, 2)] and bench.all == "+n1 +r111 -r111 +r123"
    entered.leave()


def test_a_stage_that_cannot_be_changed_is_left_and_entered_anew(bench: Bench) -> None:
    bench.run((1, 1, 1, 1), (1, CHANGES_TO_NONE, 1, 1))
    assert bench.all == "+n1 +g11 +r111 1111 -r111 ~1>9 -g11 +g19 +r191 1911 -r191 -g19 -n1"


def test_a_stage_without_a_change_is_left_and_entered_anew(bench: Bench) -> None:
    bench.run((1, 1, 1, 1), (1, 1, 2, 1))
    assert bench.all == "+n1 +g11 +r111 1111 -r111 +r112 1121 -r112 -g11 -n1"


def test_a_change_that_fails_leaves_the_stage_and_fails_as_a_stage_that_cannot_be_set_up(bench: Bench) -> None:
    entered = bench.entered()
    entered.move_to(case(1, 1, 1, 1))
    bench.fail["~1>2"] = [AutotestError("guest2: no login")]
    with pytest.raises(StageFailed, match="^guests: guest2: no login$") as raised:
        entered.move_to(case(1, 2, 1, 1))
    assert raised.value.index == 1 and raised.value.prefix == case(1, 2, 1, 1).prefix(2)
    assert bench.all == "+n1 +g11 +r111 -r111 ~1>2 -g11" and len(entered) == 1
    entered.leave()


def test_after_a_change_that_failed_the_next_try_enters_the_stage_with_the_new_value(bench: Bench) -> None:
    bench.fail["~1>2"] = [AutotestError("guest2: no login")]
    summary = bench.run((1, 1, 1, 1), (1, 2, 1, 1), retries=1)
    assert bench.all == "+n1 +g11 +r111 1111 -r111 ~1>2 -g11 +g12 +r121 1211 -r121 -g12 -n1"
    assert summary.done == 2 and not summary.failures


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interruption_during_a_change_leaves_all_stages(bench: Bench, error: BaseException) -> None:
    bench.fail["~1>2"] = [error]
    with pytest.raises(type(error)):
        bench.run((1, 1, 1, 1), (1, 2, 1, 1), retries=2)
    assert bench.all == "+n1 +g11 +r111 1111 -r111 ~1>2 -g11 -n1"


# -- mend --------------------------------------------------------------------------------------------------


def test_a_broken_stage_is_ended_first_and_mended_when_the_next_case_needs_it(bench: Bench) -> None:
    bench.fail["1111"] = [AutotestError("lost")]
    bench.broken = {"guests"}
    summary = bench.run((1, 1, 1, 1), retries=1)
    assert bench.all == "+n1 +g11 +r111 1111 end1 -r111 mend1 +r111 1111 -r111 -g11 -n1"
    assert summary.done == 1 and not summary.failures


def test_a_broken_stage_stays_as_it_is_until_a_case_needs_it(bench: Bench) -> None:
    entered = bench.entered()
    entered.move_to(case(1, 1, 1, 1))
    entered.leave_broken(1, mend=True)
    assert bench.all == "+n1 +g11 +r111 end1 -r111" and len(entered) == 2
    entered.move_to(case(1, 1, 2, 1))
    assert bench.since(5) == "mend1 +r112"
    entered.move_to(case(1, 1, 3, 1))
    assert bench.since(7) == "-r112 +r113", "it is mended once"
    entered.leave()


@pytest.mark.parametrize("guests", [1, 2])
def test_a_broken_stage_that_no_case_needs_any_more_is_left_and_neither_mended_nor_changed(bench: Bench, guests: int) -> None:
    entered = bench.entered()
    entered.move_to(case(1, 1, 1, 1))
    entered.leave_broken(1, mend=True)
    entered.move_to(case(2 if guests == 1 else 1, guests, 1, 1))
    assert "mend" not in bench.all and "~" not in bench.all
    assert bench.since(5) == ("-g11 -n1 +n2 +g21 +r211" if guests == 1 else "-g11 +g12 +r121")
    entered.leave()


def test_a_broken_stage_is_left_at_the_end_of_the_run(bench: Bench) -> None:
    bench.fail["1111"] = [AutotestError("lost")]
    bench.broken = {"guests"}
    bench.run((1, 1, 1, 1))
    assert bench.all == "+n1 +g11 +r111 1111 end1 -r111 -g11 -n1"


def test_a_broken_stage_without_mending_is_left_at_once(bench: Bench) -> None:
    bench.fail["1111"] = [AutotestError("lost")]
    bench.broken = {"network"}

    happens = bench._happens

    def works_again(event: str) -> None:
        if event == "-n1":
            bench.broken.clear()
        happens(event)

    bench._happens = works_again  # type: ignore[method-assign]
    bench.run((1, 1, 1, 1), retries=1)
    assert bench.all == "+n1 +g11 +r111 1111 -r111 -g11 -n1 +n1 +g11 +r111 1111 -r111 -g11 -n1"


def test_a_mending_that_fails_leaves_the_stage_and_fails_as_a_stage_that_cannot_be_set_up(bench: Bench) -> None:
    entered = bench.entered()
    entered.move_to(case(1, 1, 1, 1))
    entered.leave_broken(1, mend=True)
    bench.fail["mend1"] = [AutotestError("guest2: no login")]
    with pytest.raises(StageFailed, match="^guests: guest2: no login$"):
        entered.move_to(case(1, 1, 1, 1))
    assert bench.since(5) == "mend1 -g11" and len(entered) == 1
    entered.leave()


def test_after_a_mending_that_failed_the_stage_is_entered_anew(bench: Bench) -> None:
    bench.fail = {"1111": [AutotestError("lost")], "mend1": [AutotestError("guest2: no login")]}
    bench.broken = {"guests"}
    summary = bench.run((1, 1, 1, 1), retries=3)
    assert bench.all == "+n1 +g11 +r111 1111 end1 -r111 mend1 -g11 -n1 +n1 +g11 +r111 1111 -r111 -g11 -n1"
    assert summary.done == 1


def test_what_fails_a_second_time_gets_everything_made_anew_though_the_stage_could_be_mended(bench: Bench) -> None:
    bench.fail["1111"] = [AutotestError("lost"), AutotestError("lost")]
    bench.broken = {"guests"}
    mended = bench._mend

    def in_vain(_: None, case: Case) -> None:
        mended(_, case)
        bench.broken = {"guests"}

    bench._mend = in_vain  # type: ignore[method-assign]
    summary = bench.run((1, 1, 1, 1), retries=2)
    tries = "+n1 +g11 +r111 1111 end1 -r111", "mend1 +r111 1111 end1 -r111 -g11 -n1", "+n1 +g11 +r111 1111 -r111 -g11 -n1"
    assert bench.all == " ".join(tries) and summary.done == 1


def test_an_end_of_what_is_broken_that_fails_does_not_keep_it_from_being_mended(bench: Bench) -> None:
    bench.fail = {"1111": [AutotestError("lost")], "end1": [AutotestError("no answer")]}
    bench.broken = {"guests"}
    summary = bench.run((1, 1, 1, 1), retries=1)
    assert bench.all == "+n1 +g11 +r111 1111 end1 -r111 mend1 +r111 1111 -r111 -g11 -n1"
    assert summary.done == 1


def test_a_stage_that_was_changed_is_mended_with_its_new_value(bench: Bench) -> None:
    entered = bench.entered()
    entered.move_to(case(1, 1, 1, 1))
    entered.move_to(case(1, 2, 1, 1))
    entered.leave_broken(1, mend=True)
    entered.move_to(case(1, 2, 1, 2))
    assert bench.since(5) == "+r121 end2 -r121 mend2 +r121"
    entered.leave()
    assert bench.events[-2:] == ["-g11", "-n1"]


def test_a_change_and_a_mending_are_told_like_a_set_up(bench: Bench) -> None:
    told: list[str] = []

    class Told(Observer):
        def enters(self, stage: str, case: Case) -> None:
            told.append(f"enters {stage} {case.values_}")

        def entered(self, stage: str, case: Case) -> None:
            told.append(f"entered {stage}")

        def leaves(self, stage: str) -> None:
            told.append(f"leaves {stage}")

    entered = EnteredStages(bench.stages(), None, lambda name, error: None, Told())
    entered.move_to(case(1, 1, 1, 1))
    told.clear()
    entered.move_to(case(1, 2, 1, 1))
    reflector = ["enters reflector (1, 2, 1)", "entered reflector"]
    assert told == ["leaves reflector", "enters guests (1, 2)", "entered guests", *reflector]
    bench.broken.add("guests")
    entered.leave_broken(1, mend=True)
    told.clear()
    entered.move_to(case(1, 2, 1, 1))
    assert "mend2" in bench.events and told == ["enters guests (1, 2)", "entered guests", *reflector]
    told.clear()
    entered.move_to(case(1, CHANGES_TO_NONE, 1, 1))
    assert told[:3] == ["leaves reflector", "enters guests (1, 9)", "leaves guests"] and "entered guests" in told
    entered.leave()
