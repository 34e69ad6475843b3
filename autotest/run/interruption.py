"""Being asked to end: the first time all is undone, in a hurry; the second time the process ends at once."""

from __future__ import annotations

import math
import os
import signal
import sys
import time

from autotest.errors import EXIT_INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C; asked to end; the terminal is gone
_LAST_WORDS = b"\ninterrupted again: what is not undone yet stands in the journal; autotest recover undoes it\n"

_SAME_REQUEST = 0.5  # seconds: kernel, shell and service managers may each send a signal for one and the same reason

_requested = False
_requested_at = -math.inf


class Interrupted(KeyboardInterrupt):
    """Python ends by SIGINT, whatever the exit code, when a KeyboardInterrupt itself came while it ran code from a string.

    That is what dataclasses do when a module of theirs is imported.
    """


def handle_signals() -> None:
    """From now on the first of these signals raises KeyboardInterrupt, and the next ends the process.

    The terminal is gone only once: SIGHUP never is the next.
    """
    global _requested, _requested_at
    _requested, _requested_at = False, -math.inf
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # it is ignored under nohup
            signal.signal(number, _interrupt)


def ignore_signals() -> None:
    """Nothing is left to interrupt: while Python itself ends, these signals would only change the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def request() -> None:
    """Take this process for asked to end, by whatever handled the signal; the next signal ends it at once."""
    global _requested, _requested_at
    handle_signals()
    _requested, _requested_at = True, time.monotonic()


def undone() -> None:
    """All is undone: the next of these signals ends what still goes on, as the first one does."""
    global _requested
    _requested = False


def requested() -> bool:
    """Whether the process was asked to end: nothing is waited for longer than it must be."""
    return _requested


def _interrupt(number: int, frame: object) -> None:
    global _requested, _requested_at
    now = time.monotonic()
    if now - _requested_at < _SAME_REQUEST or (_requested and number == signal.SIGHUP):
        return
    if _requested:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _LAST_WORDS)
        os._exit(EXIT_INTERRUPTED)
    _requested, _requested_at = True, now
    raise Interrupted
