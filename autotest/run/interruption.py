"""Being asked to end: the first time all is undone, in a hurry; the second time the process ends at once."""

from __future__ import annotations

import os
import signal
import sys

from autotest.errors import EXIT_INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; asked to end; the terminal is gone
_LAST_WORDS = b"\ninterrupted again: what is not undone yet stands in the journal; autotest recover undoes it\n"

_requested = False


def handle_signals() -> None:
    """From now on the first of these signals raises KeyboardInterrupt, and the next ends the process."""
    global _requested
    _requested = False
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def requested() -> bool:
    """Whether the process was asked to end: nothing is waited for longer than it must be."""
    return _requested


def _interrupt(number: int, frame: object) -> None:
    global _requested
    if _requested:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _LAST_WORDS)
        os._exit(EXIT_INTERRUPTED)
    _requested = True
    raise KeyboardInterrupt
