"""A run as a build server sees it: one check for each trial."""

from __future__ import annotations

from autotest.report.junit import Check
from autotest.run.campaign import Campaign, Planned
from autotest.run.runner import BLOCKED, Outcome


def checks(campaign: Campaign, problem: str = "") -> list[Check]:
    """Passed, failed, or skipped because it was done already or is beyond the limit of the run; ``problem`` is what ended the
    run before the others.
    """
    outcomes = {outcome.key: outcome for outcome in campaign.outcomes}
    return [
        _check(campaign, planned, outcomes.get((campaign.store(planned.section).outputdir, planned.name)), problem)
        for planned in campaign.trials()
    ]


def _check(campaign: Campaign, planned: Planned, outcome: Outcome | None, problem: str) -> Check:
    group, name = planned.section.name, str(planned.name)
    if outcome and not outcome.problem:
        return Check(group, name, "passed", seconds=outcome.seconds)
    if outcome:
        return Check(group, name, "failed", outcome.problem.partition("\n")[0], outcome.problem, outcome.seconds)
    if planned.done:
        return Check(group, name, "skipped", "done already")
    if blocked := campaign.blocked(planned):
        return Check(group, name, "failed", f"{BLOCKED}: {blocked.partition(chr(10))[0]}", blocked)
    if campaign.limit is not None and not problem:
        return Check(group, name, "skipped", "left for another run by --limit")
    return Check(group, name, "error", f"not measured: {problem.partition(chr(10))[0]}", problem)
