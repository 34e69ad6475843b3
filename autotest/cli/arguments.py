"""The parser of all commands: their options, help and examples."""

from __future__ import annotations

import argparse
from pathlib import Path

from autotest import __version__
from autotest.cli import completion
from autotest.cli.campaign_arguments import add_campaign_commands
from autotest.cli.options import Adder, add_global_options
from autotest.cli.parser import Parser
from autotest.cli.report_arguments import (
    add_compare_command,
    add_export_command,
    add_report_commands,
)
from autotest.cli.testbed_arguments import (
    add_guest_commands,
    add_init_command,
    add_testbed_commands,
)

EXIT_CODES = """\
exit codes: 0 all done, 1 something failed, 2 wrong usage or configuration,
3 testbed unusable, 130 interrupted"""


def verbosity(options: argparse.Namespace) -> int:
    """How often -v was given, before and after the command together."""
    return int(options.verbose + options.more_verbose)


def build_parser() -> Parser:
    """The parser of all commands; each sets ``command`` to the function that runs it."""
    parser = Parser(
        prog="autotest",
        description="Measures virtual network interfaces: load, latency and loss over a matrix of set-ups.",
        epilog=f"{EXIT_CODES}\nexample: autotest test-load-lat-file tests.conf",
    )
    parser.general.add_argument("--version", action="version", version=f"autotest {__version__}")
    add_global_options(parser, Path("autotest.conf"), "verbose", quiet=False)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    add = Adder(subparsers)
    add_init_command(add)
    add_guest_commands(add)
    add_campaign_commands(add)
    add_report_commands(add)
    add_export_command(add)
    add_compare_command(add)
    add_testbed_commands(add)
    _add_completion_command(add)
    return parser


def _add_completion_command(add: Adder) -> None:
    parser = add(
        "completion",
        completion.completion,
        "Print the code that completes autotest's commands in a shell.",
        "autotest completion bash",
    )
    parser.add_argument("shell", choices=completion.SHELLS, help="the shell that is to source it")
    parser.epilog = f"where it goes:\n{completion.WHERE}\n\n{parser.epilog}"
