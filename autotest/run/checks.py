"""A run as a build server sees it: one check for each trial."""

from __future__ import annotations

from autotest.report.junit import Check
from autotest.run.campaign import Campaign, Planned
from autotest.run.runner import Outcome


def checks(campaign: Campaign, problem: str = "") -> list[Check]:
    """Passed, failed, or skipped because it was done already or is beyond the limit of the run; ``problem`` is what ended the
    run before the others.
    """
    outcomes = {(outcome.group, outcome.name): outcome for outcome in campaign.outcomes}
    is_limited = campaign.limit is not None
    return [
        _check(planned, outcomes.get((planned.section.name, str(planned.name))), problem, is_limited)
        for planned in campaign.trials()
    ]


def _check(planned: Planned, outcome: Outcome | None, problem: str, is_limited: bool) -> Check:
    group, name = planned.section.name, str(planned.name)
    if outcome is None:
        if planned.done:
            return Check(group, name, "skipped", "done already")
        if is_limited and not problem:
            return Check(group, name, "skipped", "left for another run by --limit")
        return Check(group, name, "error", f"not measured: {problem.partition(chr(10))[0]}", problem)
    if not outcome.problem:
        return Check(group, name, "passed", seconds=outcome.seconds)
    return Check(group, name, "failed", outcome.problem.partition("\n")[0], outcome.problem, outcome.seconds)
