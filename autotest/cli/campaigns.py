"""What each command on campaigns does: run them, sum them up, say how far they are."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.cli.commands import load_configuration
from autotest.errors import (
    EXIT_FAILED,
    EXIT_OK,
    AutotestError,
    ConfigError,
    Problem,
    UsageError,
)
from autotest.resources import PROJECT_DIRECTORY

if TYPE_CHECKING:
    from autotest.cli.progress import Progress
    from autotest.config.testbed import Testbed
    from autotest.plan.narrowing import Narrowing
    from autotest.results.verdicts import Verdict
    from autotest.run.campaign import Campaign
    from autotest.run.observer import Observer
    from autotest.run.runner import Summary
    from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)


def load_campaign(files: list[Path], accept: frozenset[Verdict] = frozenset(), narrowing: Narrowing | None = None) -> Campaign:
    """What these tests.conf describe, or a part of it; trials with a verdict of ``accept`` count as done.

    Raises:
        ConfigError: a file is wrong.
        UsageError: the part is none: it names what there is not, or nothing is left.
    """
    from autotest.config.tests import load_all
    from autotest.measurements.load_latency import KIND
    from autotest.plan.narrowing import Narrowing, narrow
    from autotest.run.campaign import Campaign

    sections = load_all(files, PROJECT_DIRECTORY, KIND.parameters, KIND.settings)
    narrowed = narrow(sections, KIND.parameters, KIND.rules, narrowing or Narrowing())
    return Campaign(KIND, narrowed.sections, accept, narrowed.left_out)


def _files(options: argparse.Namespace) -> list[Path]:
    return [*options.files, *options.tests] or [Path("tests.conf")]


def _campaign(options: argparse.Namespace, accept: frozenset[Verdict] = frozenset()) -> tuple[Campaign, list[Path]]:
    from autotest.plan.narrowing import Narrowing

    files = _files(options)
    return load_campaign(files, accept, Narrowing(tuple(options.section), tuple(options.select), tuple(options.exclude))), files


def _accepted_on_a_run(options: argparse.Namespace) -> frozenset[Verdict]:
    from autotest.cli.reporting import accepted
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
    from autotest.cli.notification import notified, notify_command
    from autotest.run.dry_run import describe

    if options.dry_run:
        for line in describe(_ready(options)[1]):
            print(line)
        return EXIT_OK
    try:
        testbed, campaign = _ready(options)
        command = notify_command(options.notify, testbed)
        campaign.require_cases()
        campaign.record_accepted()
    except AutotestError as error:
        _tell_of_no_start(options, error)
        raise
    return notified(command, testbed, campaign, partial(_run_to_its_end, options, testbed, campaign))


def _ready(options: argparse.Namespace) -> tuple[Testbed, Campaign]:
    """What a run with these options needs; raises as :func:`load_plan`, and UsageError."""
    from autotest.report.junit import require_junit_path

    accept = _accepted_on_a_run(options)
    if options.junit:
        require_junit_path(options.junit)
    testbed, campaign = load_plan(options, accept)
    campaign.limit, campaign.seed = options.limit, options.shuffle
    return testbed, campaign


def _tell_of_no_start(options: argparse.Namespace, error: AutotestError) -> None:
    """Nobody may watch where it was to start: a command that can be read nevertheless is told."""
    from autotest.cli.notification import notified_of_no_start, notify_command
    from autotest.measurements.load_latency import KIND

    try:
        command = notify_command(options.notify, load_configuration(options) if options.notify is None else None)
    except AutotestError:  # which is the error, or stands beside it
        return
    notified_of_no_start(command, KIND.name, options.config, _files(options), error)


def _run_to_its_end(options: argparse.Namespace, testbed: Testbed, campaign: Campaign, observer: Observer) -> int:
    """The run, and what is made of it; returns the exit code."""
    try:
        code = _run(testbed, campaign, options.stale, options.allow_missing_guests, observer)
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


def _run(testbed: Testbed, campaign: Campaign, stale: str, allow_missing: bool, observer: Observer) -> int:
    """Compare what is done with what would be run now, and measure the rest; returns the exit code."""
    from autotest.report.status import trials
    from autotest.run.campaign import count
    from autotest.run.opening import recover_if_needed
    from autotest.run.stale import can_be_compared, tell_unknown

    total, done = count(campaign.trials())
    log.info("%s, %d done, %d to do", trials(total), done, total - done)
    if done == total:
        campaign.clean()
        recover_if_needed(testbed)
        if not can_be_compared(campaign):
            tell_unknown(done)
            return EXIT_OK
    return _measure(testbed, campaign, stale, allow_missing, observer, total, done)


def _measure(
    testbed: Testbed, campaign: Campaign, stale: str, allow_missing: bool, observer: Observer, total: int, done: int
) -> int:
    from autotest.cli.checking import preflight_of_run
    from autotest.cli.progress import Progress, shown
    from autotest.run.campaign import count
    from autotest.run.estimate import estimate
    from autotest.run.journal import UndoFailed
    from autotest.run.observer import Observers
    from autotest.run.opening import undo_what_is_left
    from autotest.run.runner import Failure
    from autotest.run.stale import OnStale, settle

    all_done = done == total
    progress = Progress(campaign.kind.labels, campaign.set_up_depth)
    progress.plans(done, campaign.within_limit(total - done))
    summary, code, left = None, EXIT_OK, 0
    try:
        with shown(progress) as display, ExitStack() as opened:
            try:
                servers = _opened(opened, testbed, progress)
                servers.host.guests.allow_missing = allow_missing
                if done:
                    progress.does("looking whether what is done would be measured the same way now")
                settle(campaign, servers, OnStale(stale))
            except AutotestError as error:
                if not all_done or isinstance(error, UsageError):
                    raise
                log.warning("whether what is done would be measured the same way now could not be checked: %s", error)
                return EXIT_OK
            total, done = count(campaign.trials())
            if done == total:
                return EXIT_OK
            now = campaign.within_limit(total - done)
            left = total - done - now
            progress.plans(done, now)
            undo_what_is_left(testbed, kept=True)
            progress.does("preflight: looking whether the testbed has what is needed")
            code = preflight_of_run(campaign, servers)
            progress.estimates(estimate(campaign, begun=True))
            summary = campaign.run(servers, now, observer=Observers([display, observer]))
    except KeyboardInterrupt:
        log.error("%s; the same command goes on with the first trial that is not done", progress.summary())
        raise
    except UndoFailed as error:
        log.error("%s\nit stays in the journal: autotest recover tries again", error)
        observer.fails(Failure("undoing what was set up", str(error), 0))
        code = max(code, EXIT_FAILED)
        if summary is None:  # it was not even begun
            return code
    return max(code, _report(summary, progress, left))


def _opened(opened: ExitStack, testbed: Testbed, progress: Progress) -> Servers:
    """The testbed, for a run; it is undone with the stack."""
    from autotest.run.opening import open_testbed

    progress.does("bringing the lab up" if testbed.lab else "opening the testbed")
    servers = opened.enter_context(open_testbed(testbed, exclusive=True, temporary=True))
    opened.callback(progress.does, "undoing what was set up")
    return servers


def _report(summary: Summary, progress: Progress, left: int) -> int:
    """Say how the run ended; because of its limit it left so many trials to others, and those that it could not try."""
    from autotest.cli.progress import summary_log
    from autotest.report.status import trials

    summary_log.info("%s", progress.summary())
    if left := left + progress.left:
        log.info("%s left: the same command goes on", trials(left))
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

    from autotest.cli.reporting import accepted
    from autotest.errors import printable
    from autotest.report.status import status_lines
    from autotest.run.status import read_status

    campaign, _ = _campaign(options, accepted(options))
    for line in status_lines(read_status(campaign), datetime.now().astimezone()):
        print(printable(line))
    return EXIT_OK
