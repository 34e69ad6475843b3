"""The command line: an argument parser and thin commands. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from autotest import __version__, commands
from autotest.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    AutotestError,
    printable,
)
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
        "Set the networks up, start a guest and wait until it takes logins.",
        "autotest run-guest -m microvm -i macvtap -M 512",
    )
    parser.add_argument("-i", "--interface", default="bridge", help="interface to test (default bridge)")
    parser.add_argument("-m", "--machine", default="pcvm", help="pcvm or microvm (default pcvm)")
    parser.add_argument("-C", "--cpus", type=_positive, metavar="N", help="vCPUs (default: vcpus of [guest])")
    parser.add_argument("-M", "--memory", type=_positive, metavar="MIB", help="memory (default: memory of [guest])")
    parser.add_argument("-D", "--disk", metavar="FILE", help="root disk (default: root_disk_file of [host])")
    parser.add_argument("-d", "--debug", action="store_true", help="with a GDB server for the guest's kernel")
    parser.add_argument("-I", "--ioregionfd", action="store_true", help="use-ioregionfd: needs a patched QEMU")
    parser.add_argument("-V", "--vhost", action="store_true", help="vhost in the kernel")
    parser.add_argument("-r", "--rx-queue-size", type=_positive, metavar="N", help="descriptors of a receive queue")
    parser.add_argument("-t", "--tx-queue-size", type=_positive, metavar="N", help="descriptors of a transmit queue")
    parser.add_argument("-q", "--qemu-path", default="", metavar="PATH", help="QEMU: the program or its folder")
    add("kill-guest", commands.kill_guest, "End the guest.", "autotest kill-guest")
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
        commands.test_load_latency,
        "Run the load-latency tests that are not done yet.",
        "autotest test-load-lat-file --dry-run tests.conf",
    )
    _add_test_files(parser)
    parser.add_argument(
        "-d", "--dry-run", action="store_true", help="only show the tree, its counts and what was left out"
    )
    parser = add(
        "acc-load-lat-file",
        commands.accumulate_load_latency,
        "Sum the histograms over repetitions.",
        "autotest acc-load-lat-file tests.conf",
    )
    _add_test_files(parser)
    parser = add("summary", commands.summary, "Show a table of the results.", "autotest summary tests.conf")
    _add_test_files(parser)
    parser = add(
        "plot",
        commands.plot,
        "Draw load latency and packet loss, as PNG and PDF in the output directory.",
        "autotest plot tests.conf",
    )
    _add_test_files(parser)


def _add_test_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="tests (default ./tests.conf)")
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
