"""What a build server is told of a run: every trial once, with how it ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autotest.results.names import TrialName
from autotest.run.campaign import Planned
from autotest.run.checks import checks
from autotest.run.runner import Outcome


class Campaign:
    """A campaign of four repetitions of one test case, of which the first two were done before."""

    def __init__(self, *outcomes: Outcome, outputdirs: tuple[str, ...] = ("results",), blocked: str = "") -> None:
        self.outcomes = list(outcomes)
        self.limit: int | None = None
        self.blocked = lambda planned: blocked
        self._outputdirs = outputdirs

    def trials(self) -> list[Any]:
        sections: list[Any] = [SimpleNamespace(name="lat", outputdir=Path(outputdir)) for outputdir in self._outputdirs]
        return [
            Planned(section, SimpleNamespace(), "infix", number, number < 2)  # type: ignore[arg-type]
            for section in sections
            for number in range(4)
        ]

    def store(self, section: Any) -> Any:
        return section


def outcome(repetition: int, seconds: float, problem: str = "", outputdir: str = "results") -> Outcome:
    name = TrialName("infix", repetition)
    return Outcome(str(name), "lat", seconds, problem, key=(Path(outputdir), name))


def told(campaign: Any, problem: str = "") -> dict[str, tuple[str, str]]:
    found = checks(campaign, problem)
    assert {check.group for check in found} == {"lat"}
    return {check.name: (check.state, check.message) for check in found}


def test_a_trial_passed_failed_with_its_reason_or_was_skipped_because_it_was_done() -> None:
    campaign = Campaign(outcome(2, 1.5), outcome(3, 2.5, "no-reflection: nothing\nmore"))
    assert told(campaign) == {
        "infix_rep0": ("skipped", "done already"),
        "infix_rep1": ("skipped", "done already"),
        "infix_rep2": ("passed", ""),
        "infix_rep3": ("failed", "no-reflection: nothing"),
    }
    *_, passed, failed = checks(campaign)  # type: ignore[arg-type]
    assert (passed.seconds, failed.seconds, failed.details) == (1.5, 2.5, "no-reflection: nothing\nmore")


def test_what_was_never_begun_is_an_error_with_what_ended_the_run() -> None:
    found = told(Campaign(outcome(2, 1.5)), "interrupted")
    assert found["infix_rep3"] == ("error", "not measured: interrupted") and found["infix_rep2"][0] == "passed"


def test_a_trial_that_was_done_and_is_measured_again_is_told_as_what_it_became() -> None:
    assert told(Campaign(outcome(0, 1.0)))["infix_rep0"] == ("passed", "")


def test_trials_of_one_name_in_two_output_directories_are_told_apart() -> None:
    campaign = Campaign(outcome(2, 1.0, "hangs", "a"), outcome(2, 1.0, "", "b"), outputdirs=("a", "b"))
    assert [check.state for check in checks(campaign, "x")] == [  # type: ignore[arg-type]
        "skipped", "skipped", "failed", "error", "skipped", "skipped", "passed", "error",
    ]  # fmt: skip


def test_what_the_preflight_blocks_has_failed_also_where_a_limit_leaves_the_rest_for_another_run() -> None:
    campaign = Campaign(blocked="no vhost\nload it")
    campaign.limit = 1
    assert told(campaign)["infix_rep2"] == ("failed", "blocked by preflight: no vhost")
