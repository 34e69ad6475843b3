"""Being asked to end: the first time all is undone, in a hurry; the second time the process ends at once."""

from __future__ import annotations

import os
import signal
import sys

from autotest.errors import EXIT_INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; asked to end; the terminal is gone
_LAST_WORDS = b"\ninterrupted again: what is not undone yet stands in the journal; autotest recover undoes it\n"

_requested = False


class Interrupted(KeyboardInterrupt):
    """Python ends by SIGINT, whatever the exit code, when a KeyboardInterrupt itself came while it ran code from a string.

    That is what dataclasses do when a module of theirs is imported.
    """


def handle_signals() -> None:
    """From now on the first of these signals raises KeyboardInterrupt, and the next ends the process."""
    global _requested
    _requested = False
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def ignore_signals() -> None:
    """Nothing is left to interrupt: while Python itself ends, these signals would only change the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def requested() -> bool:
    """Whether the process was asked to end: nothing is waited for longer than it must be."""
    return _requested


def _interrupt(number: int, frame: object) -> None:
    global _requested
    if _requested:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _LAST_WORDS)
        os._exit(EXIT_INTERRUPTED)
    _requested = True
    raise Interrupted
