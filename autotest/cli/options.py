"""What the parsers of several commands share."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from autotest.cli import commands
from autotest.cli.parser import Parser


def add_global_options(parser: Parser, config: object, verbose: str, quiet: object = argparse.SUPPRESS) -> None:
    group = parser.general
    group.add_argument("-c", "--config", type=Path, default=config, metavar="FILE", help="the testbed (default ./autotest.conf)")
    group.add_argument(
        "-v", "--verbose", dest=verbose, action="count", default=0, help="-v shows commands, -vv and -vvv libraries too"
    )
    group.add_argument("--quiet", action="store_true", default=quiet, help="only warnings, errors and what was asked for")


class Adder:
    """Adds a command with its help, its example, and the options that every command has."""

    def __init__(self, subparsers: argparse._SubParsersAction[Parser]) -> None:
        self._subparsers = subparsers

    def __call__(self, name: str, command: commands.Command, text: str, example: str) -> Parser:
        parser = self._subparsers.add_parser(
            name,
            help=text[0].lower() + text[1:].rstrip("."),
            description=text,
            epilog=f"example: {example}",
        )
        add_global_options(parser, argparse.SUPPRESS, "more_verbose")
        parser.set_defaults(command=command)
        return parser


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which trials of those that there are: of a plan, or of results."""
    group = parser.add_argument_group("selection")
    group.add_argument(
        "-s",
        "--select",
        action="append",
        default=[],
        metavar="CONDITIONS",
        help="only trials with these values, like 'machine=pcvm rate<=20', interface=bridge,macvtap or rate=10..40; all of several",
    )
    group.add_argument(
        "-x",
        "--exclude",
        action="append",
        default=[],
        metavar="CONDITIONS",
        help="without the trials that meet all of these, like 'interface=macvtap rate>40'; may be repeated",
    )
    group.add_argument(
        "-S",
        "--section",
        action="append",
        default=[],
        metavar="NAME",
        help="only this section of tests.conf; may be repeated",
    )


def add_accept(
    parser: argparse.ArgumentParser, text: str = "count trials of this verdict like valid ones; may be repeated"
) -> None:
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="VERDICT,...",
        help=text,
    )


def add_test_files(parser: argparse.ArgumentParser, text: str = "tests (default ./tests.conf)") -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=text)
    parser.add_argument("-t", "--tests", nargs="+", type=Path, default=[], metavar="FILE", help="the same")


def add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="an output directory or a tests.conf (default ./tests.conf), with :key=value,... behind it a part of it",
    )
    add_selection(parser)
    add_accept(parser)


def positive(text: str) -> int:
    number = whole_number(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    if number > sys.maxsize:  # Python itself counts no further
        raise argparse.ArgumentTypeError(f"{text} is above {sys.maxsize}")
    return number


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def memory(text: str) -> int:
    """MiB, or with a unit."""
    from autotest.config.testbed import MEMORY

    try:
        return MEMORY.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return number
