"""``autotest check``, and the preflight of a run: what was found is shown, or logged."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotest.errors import EXIT_FAILED, EXIT_OK, EXIT_TESTBED, ConnectError, UsageError

if TYPE_CHECKING:
    from autotest.config.testbed import Testbed
    from autotest.plan.parameters import Case
    from autotest.preflight.preflight import Preflight
    from autotest.preflight.text import Plan
    from autotest.run.campaign import Campaign
    from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)


def check(options: argparse.Namespace) -> int:
    """Look at the testbed for what the tests need; without tests, for what every test needs."""
    from autotest.cli.campaigns import load_plan
    from autotest.config.testbed import load_testbed
    from autotest.preflight.text import checks, counts, table
    from autotest.report.junit import require_junit_path, write_junit
    from autotest.resources import PROJECT_DIRECTORY

    if options.junit:
        require_junit_path(options.junit)
    if (options.select or options.exclude or options.section) and not (options.files or options.tests):
        raise UsageError("--select, --exclude and --section are about tests: name their file, like autotest check tests.conf")
    campaign, plan = None, None
    if options.files or options.tests:
        testbed, campaign = load_plan(options)
        campaign.require_cases()
        plan = _plan(campaign, only_to_do=False)
    else:
        testbed = load_testbed(options.config, PROJECT_DIRECTORY)
    preflight = _looked_at(testbed, campaign, plan)
    for line in table(preflight, plan, _width(), _has_colours()):
        print(line)
    for line in _left_out(campaign):
        print(line)
    print(counts(preflight), _outcome(preflight, plan), sep="")
    if options.junit:
        write_junit(options.junit, "autotest check", checks(preflight))
    return _exit_code(preflight)


def _looked_at(testbed: Testbed, campaign: Campaign | None, plan: Plan[Case] | None) -> Preflight[Case]:
    """The testbed is held meanwhile: processes of interfaces are tried on it. Where its host is not reached, nothing is."""
    from autotest.run.opening import open_testbed

    opened = False
    try:
        with open_testbed(testbed, exclusive=True, temporary=True) as servers:
            opened = True
            return _look(servers, campaign, plan)
    except ConnectError as error:
        if opened:
            raise
        log.debug("the testbed is not held: %s", error)
    with open_testbed(testbed) as servers:
        return _look(servers, campaign, plan)


def _look(servers: Servers, campaign: Campaign | None, plan: Plan[Case] | None) -> Preflight[Case]:
    from autotest.measurements.load_latency import KIND
    from autotest.preflight.preflight import look

    if campaign is None or plan is None:
        return look(servers, {_every_case(): KIND.requirements(servers.testbed, None)})
    return campaign.preflight(servers, plan.trials)


def _every_case() -> Case:
    from autotest.plan.parameters import Case

    return Case((), ())


def _plan(campaign: Campaign, only_to_do: bool) -> Plan[Case]:
    from autotest.preflight.text import Plan

    counted = campaign.by_set_up(campaign.left() if only_to_do else campaign.trials())
    return Plan(counted, campaign.kind.labels)


def _left_out(campaign: Campaign | None) -> Iterator[str]:
    """What the matrix holds and no set-up can be: a line for each reason, as there may be many combinations."""
    from autotest.report.status import trials

    found: Counter[tuple[str, bool]] = Counter()
    for _, exclusion in campaign.exclusions() if campaign else ():
        found[exclusion.reason, exclusion.asked_for] += exclusion.trials
    for (reason, asked_for), count in found.items():
        yield f"left out: {trials(count)}: {reason}{'' if asked_for else ' (--dry-run shows which)'}"


def _outcome(preflight: Preflight[Case], plan: Plan[Case] | None) -> str:
    from autotest.report.status import trials

    if plan is None:
        return ""
    blocked = sum(plan.trials[set_up] for set_up in preflight.blocked())
    if not blocked:
        return f"; {trials(plan.total)} can be measured"
    return f"; {blocked} of {trials(plan.total)} cannot be measured"


def _exit_code(preflight: Preflight[Case]) -> int:
    """As that of a run, if it measured all that it can."""
    blocked = len(preflight.blocked())
    if blocked == len(preflight.needs) > 0:
        return EXIT_TESTBED
    return EXIT_FAILED if blocked else EXIT_OK


def _width() -> int:
    from autotest.preflight.text import NARROWEST, WIDEST

    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((100, 24)).columns))


def _has_colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and not os.environ.get("CI")


def preflight_of_run(campaign: Campaign, servers: Servers) -> int:
    """Look at the servers before a run; returns its exit code as far as that tells it: other than 0 where trials are blocked.

    What the matrix leaves out is named, too: who asked for it must not find out from plots that lack it.
    """
    from autotest.preflight.requirement import Status
    from autotest.preflight.text import counts, effects_of, sentence

    for line in _left_out(campaign):
        log.info("%s", line)
    plan = _plan(campaign, only_to_do=True)
    preflight = campaign.preflight(servers, plan.trials)
    effects = effects_of(preflight, plan)
    for requirement, finding in preflight.found(Status.WARN):
        log.warning("preflight: %s", sentence(requirement, finding))
    for requirement, finding in preflight.found(Status.FAIL):
        log.error("preflight: %s", sentence(requirement, finding, effects.get(requirement, "")))
    log.info("%s%s", counts(preflight), _outcome(preflight, plan) if preflight.blocked() else "")
    return _exit_code(preflight)
