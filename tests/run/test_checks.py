"""What a build server is told of a run: every trial once, with how it ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from autotest.run.campaign import Planned
from autotest.run.checks import checks
from autotest.run.runner import Outcome


class Campaign:
    """A campaign of four repetitions of one test case, of which the first two were done before."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.limit: int | None = None

    def trials(self) -> list[Any]:
        section: Any = SimpleNamespace(name="lat")
        return [Planned(section, SimpleNamespace(), "infix", number, number < 2) for number in range(4)]  # type: ignore[arg-type]


def told(campaign: Any, problem: str = "") -> dict[str, tuple[str, str]]:
    found = checks(campaign, problem)
    assert {check.group for check in found} == {"lat"}
    return {check.name: (check.state, check.message) for check in found}


def test_a_trial_passed_failed_with_its_reason_or_was_skipped_because_it_was_done() -> None:
    campaign = Campaign(Outcome("infix_rep2", "lat", 1.5), Outcome("infix_rep3", "lat", 2.5, "no-reflection: nothing\nmore"))
    assert told(campaign) == {
        "infix_rep0": ("skipped", "done already"),
        "infix_rep1": ("skipped", "done already"),
        "infix_rep2": ("passed", ""),
        "infix_rep3": ("failed", "no-reflection: nothing"),
    }
    *_, passed, failed = checks(campaign)  # type: ignore[arg-type]
    assert (passed.seconds, failed.seconds, failed.details) == (1.5, 2.5, "no-reflection: nothing\nmore")


def test_what_was_never_begun_is_an_error_with_what_ended_the_run() -> None:
    found = told(Campaign(Outcome("infix_rep2", "lat", 1.5)), "interrupted")
    assert found["infix_rep3"] == ("error", "not measured: interrupted") and found["infix_rep2"][0] == "passed"


def test_a_trial_that_was_done_and_is_measured_again_is_told_as_what_it_became() -> None:
    assert told(Campaign(Outcome("infix_rep0", "lat", 1.0)))["infix_rep0"] == ("passed", "")


