"""The command line: an argument parser and thin commands. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from autotest import __version__, campaigns, checking, commands, reporting
from autotest.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    AutotestError,
    printable,
)
from autotest.report import plots
from autotest.run import interruption

log = logging.getLogger(__name__)

EXIT_CODES = "exit codes: 0 all done, 1 something failed, 2 wrong usage or configuration, 3 testbed unusable, 130 interrupted"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Only this function and its commands print."""
    options = build_parser().parse_args(arguments)
    if not hasattr(options, "command"):
        build_parser().print_help()
        return EXIT_USAGE
    _set_up_logging(verbosity(options))
    for stream in (sys.stdout, sys.stderr):  # a terminal without UTF-8 shows what it can
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    interruption.handle_signals()
    try:
        return options.command(options)
    except AutotestError as error:
        for line in str(error).splitlines():
            log.error(line)
        return error.exit_code
    except KeyboardInterrupt:
        log.error("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output, like head, has gone
        sys.stderr.close()
        return 0
    except OSError as error:  # a file here or on a server, or no space left: the message names it
        log.error(error)
        return EXIT_FAILED


def program() -> int:
    """:func:`main` as a process of its own."""
    code = main()
    interruption.ignore_signals()
    return code


def verbosity(options: argparse.Namespace) -> int:
    """How often -v was given, before and after the command together."""
    return options.verbose + options.more_verbose


def _set_up_logging(verbosity: int) -> None:
    """0: what happens; 1: every command too; 2 and 3: the libraries' information and details as well."""
    import colorlog

    handler = colorlog.StreamHandler(sys.stderr)
    handler.setFormatter(
        colorlog.ColoredFormatter("%(log_color)s%(asctime)s %(levelname)-7s%(reset)s %(message)s", stream=sys.stderr)
    )
    handler.addFilter(_make_printable)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel((logging.WARNING, logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 3)])
    logging.getLogger("autotest").setLevel(logging.DEBUG if verbosity else logging.INFO)


def _make_printable(record: logging.LogRecord) -> bool:
    """What a machine answered and what a file holds may be in any message: none of it gives orders to the terminal."""
    record.msg, record.args = printable(record.getMessage()), None
    return True


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets ``command`` to the function that runs it."""
    parser = argparse.ArgumentParser(
        prog="autotest",
        description="Measures virtual network interfaces: load, latency and loss over a matrix of set-ups.",
        epilog=f"{EXIT_CODES}\nexample: autotest test-load-lat-file tests.conf",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"autotest {__version__}")
    _add_global_options(parser, Path("autotest.conf"), "verbose")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    add = _Adder(subparsers)
    add("ping", commands.ping, "Reach each server: how long it takes, or why it cannot be reached.", "autotest ping")
    _add_guest_commands(add)
    _add_campaign_commands(add)
    _add_report_commands(add)
    _add_export_command(add)
    _add_compare_command(add)
    _add_testbed_commands(add)
    return parser


def _add_global_options(parser: argparse.ArgumentParser, config: object, verbose: str) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, default=config, metavar="FILE", help="the testbed (default ./autotest.conf)"
    )
    parser.add_argument(
        "-v", "--verbose", dest=verbose, action="count", default=0, help="-v shows commands, -vv and -vvv libraries too"
    )


class _Adder:
    """Adds a command with its help, its example, and the options that every command has."""

    def __init__(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        self._subparsers = subparsers

    def __call__(self, name: str, command: commands.Command, text: str, example: str) -> argparse.ArgumentParser:
        parser = self._subparsers.add_parser(
            name,
            help=text[0].lower() + text[1:].rstrip("."),
            description=text,
            epilog=f"example: {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_global_options(parser, argparse.SUPPRESS, "more_verbose")
        parser.set_defaults(command=command)
        return parser


def _add_guest_commands(add: _Adder) -> None:
    parser = add(
        "run-guest",
        commands.run_guest,
        "Set the networks up, start a guest, or several, and wait until it takes logins.",
        "autotest run-guest -m microvm -i macvtap -M 512",
    )
    parser.add_argument("-i", "--interface", default="bridge", help="interface to test (default bridge)")
    parser.add_argument("-m", "--machine", default="pcvm", help="pcvm or microvm (default pcvm)")
    parser.add_argument("-n", "--guests", type=_positive, default=1, metavar="N", help="how many guests (default 1)")
    parser.add_argument("-C", "--cpus", type=_positive, metavar="N", help="vCPUs (default: vcpus of [guest])")
    parser.add_argument("-M", "--memory", type=_positive, metavar="MIB", help="memory (default: memory of [guest])")
    parser.add_argument("-D", "--disk", metavar="FILE", help="root disk (default: root_disk_file of [host])")
    parser.add_argument("-d", "--debug", action="store_true", help="with a GDB server for the guest's kernel")
    parser.add_argument("-I", "--ioregionfd", action="store_true", help="use-ioregionfd: needs a patched QEMU")
    parser.add_argument("-V", "--vhost", action="store_true", help="vhost in the kernel")
    parser.add_argument("-Q", "--queues", type=_positive, metavar="N", help="pairs of queues")
    parser.add_argument("-r", "--rx-queue-size", type=_positive, metavar="N", help="descriptors of a receive queue")
    parser.add_argument("-t", "--tx-queue-size", type=_positive, metavar="N", help="descriptors of a transmit queue")
    parser.add_argument("-q", "--qemu-path", default="", metavar="PATH", help="QEMU: the program or its folder")
    add("kill-guest", commands.kill_guest, "End the guest, or all of several.", "autotest kill-guest")
    for name, command, text in (
        ("setup-network", commands.setup_network, "Set up the admin network and the links of an interface."),
        ("teardown-network", commands.teardown_network, "Undo setup-network, for one interface or for all."),
    ):
        parser = add(name, command, text, f"autotest {name} -i macvtap")
        default = "bridge" if name == "setup-network" else None
        parser.add_argument("-i", "--interface", default=default, help="interface to test")


def _add_campaign_commands(add: _Adder) -> None:
    parser = add(
        "test-load-lat-file",
        campaigns.test_load_latency,
        "Run the load-latency tests that are not done yet.",
        "autotest test-load-lat-file --dry-run tests.conf",
    )
    _add_test_files(parser)
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
    _add_accept(parser, "count trials of this verdict as done, and note that in their records; may be repeated")
    parser.add_argument(
        "--allow-missing-guests",
        action="store_true",
        help="of several guests, go on without those that do not boot: their trials say so, and count",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write one JUnit test case for each trial")
    parser = add(
        "check",
        checking.check,
        "Look whether the testbed has what the tests need, and whether something spoils the numbers; without tests, what all need.",
        "autotest check tests.conf",
    )
    _add_test_files(parser, "tests (default: what every test needs)")
    parser.add_argument("--junit", type=Path, metavar="FILE.xml", help="also write what was found as JUnit tests")
    parser = add(
        "acc-load-lat-file",
        campaigns.accumulate_load_latency,
        "Sum the histograms over repetitions.",
        "autotest acc-load-lat-file tests.conf",
    )
    _add_test_files(parser)
    parser = add(
        "status",
        campaigns.status,
        "What is done, to do, invalid and failed, and how long the rest takes. Needs no testbed.",
        "autotest status tests.conf",
    )
    _add_test_files(parser)
    _add_accept(parser, "count trials of this verdict as done, as a run with the same option would; may be repeated")


def _add_report_commands(add: _Adder) -> None:
    parser = add("summary", reporting.summary, "Show a table of the results.", "autotest summary results")
    _add_sources(parser)
    _add_plot_command(add)
    parser = add("report", reporting.report, "Write a report: one HTML file, with charts and every trial.", "autotest report results")
    _add_sources(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file (default report.html in the output directory)"
    )


def _add_plot_command(add: _Adder) -> None:
    parser = add(
        "plot",
        reporting.plot,
        "Draw the results.",
        "autotest plot results --by vhost --side-by-side interface --select size=60",
    )
    _add_sources(parser)
    parser.add_argument(
        "-k",
        "--kind",
        action="append",
        default=[],
        metavar="KIND,...",
        help=f"{', '.join(plots.KINDS)} (default {','.join(plots.DEFAULT_KINDS)}, and guests where their number differs); "
        "may be repeated",
    )
    parser.add_argument(
        "-b",
        "--by",
        action="append",
        default=[],
        metavar="PARAM,...",
        help="one line per value of these parameters; others that differ get panels of their own (default: one line per set-up)",
    )
    parser.add_argument(
        "--side-by-side", default="", metavar="PARAM", help="one panel per value of this parameter, next to each other"
    )
    parser.add_argument("--log", action="store_true", help="a logarithmic y axis also for losses and histograms")
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT,...",
        help=f"{', '.join(plots.FORMATS)} (default {','.join(plots.DEFAULT_FORMATS)}); may be repeated",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIRECTORY", help="where the plots go (default: beside the results)"
    )


def _add_export_command(add: _Adder) -> None:
    parser = add(
        "export",
        reporting.export,
        "Write a table with one row per trial: parameters, verdict, figures.",
        "autotest export results -o trials.csv",
    )
    _add_sources(parser)
    parser.add_argument("--per-guest", action="store_true", help="one row per trial and guest, with the figures of that guest")
    parser.add_argument(
        "--format",
        choices=("csv", "json", "parquet"),
        help="default: what the file's name ends in, else csv; docs/export.md describes the columns",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="instead of standard output; an existing file is replaced"
    )


def _add_compare_command(add: _Adder) -> None:
    parser = add(
        "compare",
        reporting.compare,
        "Say whether the figures of B differ from those of A; exit code 1 where any is worse.",
        "autotest compare results:interface=bridge results:interface=macvtap --threshold p50=5%",
    )
    for name in ("a", "b"):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help="an output directory or a tests.conf, with :key=value,... behind it a part of it",
        )
    _add_selection(parser)
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME,...",
        help="what to compare (default achieved,loss,p50,p99); may be repeated",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="smaller differences do not count: p50=5%% is relative to A, loss=0.5 in the unit (%% of the frames); may be repeated",
    )
    parser.add_argument(
        "--alpha",
        type=_share,
        default=0.05,
        metavar="P",
        help="the chance that is taken of finding a difference where there is none, over all comparisons (default 0.05)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE.xml", help="also write the comparisons as JUnit tests")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="an output directory or a tests.conf (default ./tests.conf), with :key=value,... behind it a part of it",
    )
    _add_selection(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s",
        "--select",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="only trials with these values, like interface=bridge,macvtap or rate=10..40; may be repeated",
    )
    _add_accept(parser)


def _add_accept(
    parser: argparse.ArgumentParser, text: str = "count trials of this verdict like valid ones; may be repeated"
) -> None:
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="VERDICT,...",
        help=text,
    )


def _add_test_files(parser: argparse.ArgumentParser, text: str = "tests (default ./tests.conf)") -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=text)
    parser.add_argument("-t", "--tests", nargs="+", type=Path, default=[], metavar="FILE", help="the same")


def _add_testbed_commands(add: _Adder) -> None:
    parser = add(
        "shell",
        commands.shell,
        "A Python shell with host, guest and loadgen as variables.",
        "echo 'print(host.ping())' | autotest shell",
    )
    for short, name in (("-H", "host"), ("-G", "guest"), ("-L", "loadgen")):
        parser.add_argument(short, f"--no-{name}", action="store_true", help=f"without {name}")
    add(
        "upload-moonprogs",
        commands.upload_moonprogs,
        "Copy the MoonGen programs to the moonprogs_dir of host, guest and loadgen.",
        "autotest upload-moonprogs",
    )
    parser = add(
        "recover",
        commands.recover,
        "Undo what a run that was killed left on the servers, and what setup-network and run-guest set up.",
        "autotest recover",
    )
    parser.add_argument(
        "--take-over", action="store_true", help="even if another machine's autotest holds the testbed and may be alive"
    )
    parser.add_argument("--forget", action="store_true", help="forget afterwards what cannot be undone")
    parser = add("lab", commands.lab, "The built-in testbed.", "sudo autotest lab up")
    parser.add_argument("action", choices=("up", "down", "status"))


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return number
