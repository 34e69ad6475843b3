"""Waiting is a condition and a deadline on the monotonic clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from autotest.errors import WaitTimeout

T = TypeVar("T")

_of_this_thread = threading.local()


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Whatever this thread waits for within the context is given up once the event is set."""
    _of_this_thread.stop = stop
    try:
        yield
    finally:
        del _of_this_thread.stop


def give_up_if_told(what: str) -> None:
    """Raises WaitTimeout naming ``what`` when this thread is to stop; before something is begun that takes long."""
    stop: threading.Event | None = getattr(_of_this_thread, "stop", None)
    if stop and stop.is_set():
        raise WaitTimeout(f"{what}: given up")


def wait_for(condition: Callable[[], T | None], what: str, timeout: float, interval: float = 0.05) -> T:
    """Ask the condition every ``interval`` seconds until it gives something true, and return that.

    Raises:
        WaitTimeout: naming ``what``, after ``timeout`` seconds, or because this thread is to stop.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        give_up_if_told(what)
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"{what}: not within {timeout:g} s")
        time.sleep(min(interval, max(0.0, deadline - time.monotonic())))
