"""The command line: an argument parser and thin commands. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence

from autotest.cli import completion
from autotest.cli.arguments import build_parser, verbosity
from autotest.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    AutotestError,
    printable,
)
from autotest.run import interruption

log = logging.getLogger(__name__)

_LINE = "%(log_color)s%(asctime)s%(level)s%(reset)s %(message)s"
_DATE = "%m-%d %H:%M:%S"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Only this function and its commands print."""
    options = build_parser().parse_args(arguments)
    if not hasattr(options, "command"):
        build_parser().print_help()
        return EXIT_USAGE
    _set_up_logging(verbosity(options), options.quiet)
    for stream in (sys.stdout, sys.stderr):  # a terminal without UTF-8 shows what it can
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    interruption.handle_signals()
    try:
        return int(options.command(options))
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
    """:func:`main` as a process of its own; started by a shell on a Tab it only says how the line may go on."""
    _open_standard_streams()
    if completion.is_requested():
        completion.complete(build_parser())
    code = main()
    interruption.ignore_signals()
    return code


def _open_standard_streams() -> None:
    """What was closed reads nothing and leads nowhere: else the next file that is opened would take its place, and its output."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115  # open as long as the program runs


def _set_up_logging(verbosity: int, quiet: bool) -> None:
    """0: what happens, quiet only what went wrong; 1: every command too; 2 and 3: the libraries' information and details as well."""
    import colorlog

    handler = colorlog.StreamHandler(sys.stderr)
    colours = colorlog.default_log_colors | {"DEBUG": "thin"}  # white is not seen on white
    no_color = bool(os.environ.get("CI"))  # its log is a file, even where it has a terminal
    handler.setFormatter(colorlog.ColoredFormatter(_LINE, _DATE, log_colors=colours, stream=sys.stderr, no_color=no_color))
    handler.addFilter(_make_printable)
    handler.addFilter(_name_level)
    root = logging.getLogger()
    root.handlers = [handler]
    logging.captureWarnings(True)  # a library's would be written into the live view
    root.setLevel((logging.WARNING, logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 3)])
    usual = logging.WARNING if quiet else logging.INFO
    logging.getLogger("autotest").setLevel(logging.DEBUG if verbosity else usual)
    logging.getLogger("autotest.cli.progress.summary").setLevel(logging.INFO)


def _make_printable(record: logging.LogRecord) -> bool:
    """What a machine answered and what a file holds may be in any message: none of it gives orders to the terminal."""
    record.msg, record.args = printable(record.getMessage()), None
    return True


def _name_level(record: logging.LogRecord) -> bool:
    """The level is said where it says something: most lines are information."""
    record.level = "" if record.levelno == logging.INFO else f" {record.levelname}"
    return True
