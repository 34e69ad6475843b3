"""The parsers of the commands on campaigns."""

from __future__ import annotations

from pathlib import Path

from autotest.cli import campaigns, checking
from autotest.cli.options import (
    Adder,
    add_accept,
    add_selection,
    add_test_files,
    positive,
    whole_number,
)


def add_campaign_commands(add: Adder) -> None:
    _add_run_command(add)
    parser = add(
        "check",
        checking.check,
        "Look whether the testbed has what the tests need, and whether something spoils the numbers; without tests, what all need.",
        "autotest check tests.conf",
    )
    add_test_files(parser, "tests (default: what every test needs)")
    add_selection(parser)
    parser.add_argument("--junit", type=Path, metavar="FILE.xml", help="also write what was found as JUnit tests")
    parser = add(
        "acc-load-lat-file",
        campaigns.accumulate_load_latency,
        "Sum the histograms over repetitions.",
        "autotest acc-load-lat-file tests.conf",
    )
    add_test_files(parser)
    add_selection(parser)
    parser = add(
        "status",
        campaigns.status,
        "What is done, to do, invalid and failed, and how long the rest takes. Needs no testbed.",
        "autotest status tests.conf",
    )
    add_test_files(parser)
    add_selection(parser)
    add_accept(parser, "count trials of this verdict as done, as a run with the same option would; may be repeated")


def _add_run_command(add: Adder) -> None:
    parser = add(
        "test-load-lat-file",
        campaigns.test_load_latency,
        "Run the load-latency tests that are not done yet.",
        "autotest test-load-lat-file --dry-run tests.conf",
    )
    add_test_files(parser)
    parser.add_argument(
        "-d",
        "--dry-run",
        action="store_true",
        help="only show the tree, its counts and what was left out; asks no machine, so it cannot tell what is stale",
    )
    parser.add_argument(
        "--stale",
        choices=("fail", "keep", "rerun"),
        default="fail",
        help="what to do when done trials would not be measured the same way now, with another QEMU or image for instance: "
        "end and name the difference (the default), keep them, or measure them again and keep the earlier ones in invalid/",
    )
    add_selection(parser)
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="measure at most so many trials, then end; the next run goes on"
    )
    parser.add_argument(
        "--shuffle",
        type=whole_number,
        metavar="SEED",
        help="measure the trials of each set-up in random order, the same one for the same number",
    )
    add_accept(parser, "count trials of this verdict as done, and note that in their records; may be repeated")
    parser.add_argument(
        "--allow-missing-guests",
        action="store_true",
        help="of several guests, go on without those that do not boot: their trials say so, and count",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write one JUnit test case for each trial")
    parser.add_argument(
        "--notify",
        metavar="COMMAND",
        help="run this command on failure and at the end, with a JSON summary on its input (default: notify_command of [local]; "
        "'' for none)",
    )
