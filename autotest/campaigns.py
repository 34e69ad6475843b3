"""What each command on campaigns does: run them, sum them up, say how far they are."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.commands import load_configuration, project_directory
from autotest.errors import (
    EXIT_FAILED,
    EXIT_OK,
    AutotestError,
    ConfigError,
    Problem,
    UsageError,
)

if TYPE_CHECKING:
    from autotest.config.testbed import Testbed
    from autotest.results.verdicts import Verdict
    from autotest.run.campaign import Campaign
    from autotest.run.runner import Summary

log = logging.getLogger(__name__)


def load_campaign(files: list[Path], accept: frozenset[Verdict] = frozenset()) -> Campaign:
    """What these tests.conf describe; trials with a verdict of ``accept`` count as done."""
    from autotest.config.tests import load_all
    from autotest.measurements.load_latency import KIND
    from autotest.run.campaign import Campaign

    return Campaign(KIND, load_all(files, project_directory(), KIND.parameters, KIND.settings), accept)


def _campaign(options: argparse.Namespace, accept: frozenset[Verdict] = frozenset()) -> tuple[Campaign, list[Path]]:
    files = [*options.files, *options.tests] or [Path("tests.conf")]
    return load_campaign(files, accept), files


def _accepted_on_a_run(options: argparse.Namespace) -> frozenset[Verdict]:
    from autotest.reporting import accepted
    from autotest.results.verdicts import Verdict

    allowed = {Verdict.MISSING_GUESTS} if options.allow_missing_guests else set()
    return accepted(options) - {Verdict.VALID} | allowed


def load_plan(options: argparse.Namespace, accept: frozenset[Verdict] = frozenset()) -> tuple[Testbed, Campaign]:
    """The testbed and the tests, checked together.

    Raises:
        ConfigError: with what is wrong in any of the files.
    """
    problems: list[Problem] = []
    testbed, campaign = None, None
    try:
        testbed = load_configuration(options)
    except ConfigError as error:
        problems += error.problems
    try:
        campaign, _ = _campaign(options, accept)
    except ConfigError as error:
        problems += error.problems
    if testbed is None or campaign is None:
        raise ConfigError([*problems, *(campaign.unwritable() if campaign else ())])
    campaign.check(testbed)
    return testbed, campaign


def test_load_latency(options: argparse.Namespace) -> int:
    from autotest.report.junit import require_junit_path
    from autotest.run.dry_run import describe

    accept = _accepted_on_a_run(options)
    if options.junit:
        require_junit_path(options.junit)
    testbed, campaign = load_plan(options, accept)
    if options.dry_run:
        for line in describe(campaign):
            print(line)
        return EXIT_OK
    campaign.require_cases()
    campaign.record_accepted()
    try:
        code = _run(testbed, campaign, options.stale, options.allow_missing_guests)
    except BaseException as error:
        try:
            _write_junit(options.junit, campaign, str(error) or "interrupted")
        except (AutotestError, OSError) as unwritten:
            log.error(unwritten)
        raise
    _accumulate(campaign, all_sections=False)
    _write_junit(options.junit, campaign)
    return code


def _write_junit(path: Path | None, campaign: Campaign, problem: str = "") -> None:
    if path is None:
        return
    from autotest.report.junit import write_junit
    from autotest.run.checks import checks

    write_junit(path, f"autotest {campaign.kind.name}", checks(campaign, problem))


def _run(testbed: Testbed, campaign: Campaign, stale: str, allow_missing: bool) -> int:
    """Compare what is done with what would be run now, and measure the rest; returns the exit code."""
    from autotest.run.campaign import count
    from autotest.run.opening import recover_if_needed
    from autotest.run.stale import can_be_compared, tell_unknown

    total, done = count(campaign.trials())
    log.info("%d trials, %d done, %d to do", total, done, total - done)
    if done == total:
        campaign.clean()
        recover_if_needed(testbed)
        if not can_be_compared(campaign):
            tell_unknown(done)
            return EXIT_OK
    return _measure(testbed, campaign, stale, allow_missing, all_done=done == total)


def _measure(testbed: Testbed, campaign: Campaign, stale: str, allow_missing: bool, all_done: bool) -> int:
    from autotest.checking import preflight_of_run
    from autotest.run.campaign import count
    from autotest.run.journal import UndoFailed
    from autotest.run.opening import open_testbed, undo_what_is_left
    from autotest.run.stale import OnStale, settle

    summary, code = None, EXIT_OK
    try:
        with ExitStack() as opened:
            try:
                servers = opened.enter_context(open_testbed(testbed, exclusive=True, temporary=True))
                servers.host.guests.allow_missing = allow_missing
                settle(campaign, servers, OnStale(stale))
            except AutotestError as error:
                if not all_done or isinstance(error, UsageError):
                    raise
                log.warning("whether what is done would be measured the same way now could not be checked: %s", error)
                return EXIT_OK
            total, done = count(campaign.trials())
            if done == total:
                return EXIT_OK
            undo_what_is_left(testbed, kept=True)
            code = preflight_of_run(campaign, servers)
            summary = campaign.run(servers, total - done)
    except KeyboardInterrupt:
        log.error("the same command goes on with the first trial that is not done")
        raise
    except UndoFailed as error:
        log.error("%s\nit stays in the journal: autotest recover tries again", error)
        code = max(code, EXIT_FAILED)
        if summary is None:  # it was not even begun
            return code
    return max(code, _report(summary))


def _report(summary: Summary) -> int:
    log.info("%d trials done, %d failed", summary.done, summary.failed)
    for failure in summary.failures:
        log.error("failed: %s: %s%s", failure.name, failure.reason, f" ({failure.trials} trials)" * (failure.trials > 1))
    return EXIT_FAILED if summary.failures else EXIT_OK


def accumulate_load_latency(options: argparse.Namespace) -> int:
    campaign, _ = _campaign(options)
    changed, total = _accumulate(campaign, all_sections=True)
    print(f"the sums over repetitions of {total} test cases are up to date, {changed} of them had to be written")
    return EXIT_OK


def _accumulate(campaign: Campaign, all_sections: bool) -> tuple[int, int]:
    """Bring the sums over repetitions up to date; returns how many changed, and how many there are."""
    from autotest.results.accumulate import accumulate

    changed = total = 0
    for section in campaign.sections:
        outputdir = Path(section.settings["outputdir"])
        if (all_sections or section.settings["accumulate"]) and outputdir.is_dir():
            accumulated = accumulate(outputdir, campaign.infixes(section))
            changed += sum(case.changed for case in accumulated)
            total += sum(bool(case.repetitions) for case in accumulated)
    return changed, total


def status(options: argparse.Namespace) -> int:
    from datetime import datetime

    from autotest.errors import printable
    from autotest.report.status import status_lines
    from autotest.reporting import accepted
    from autotest.run.status import read_status

    campaign, _ = _campaign(options, accepted(options))
    for line in status_lines(read_status(campaign), datetime.now()):
        print(printable(line))
    return EXIT_OK
