"""Waiting is a condition and a deadline on the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from autotest.errors import WaitTimeout

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, timeout: float, interval: float = 0.05) -> T:
    """Ask the condition every ``interval`` seconds until it gives something true, and return that.

    Raises:
        WaitTimeout: naming ``what``, after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"{what}: not within {timeout:g} s")
        time.sleep(min(interval, max(0.0, deadline - time.monotonic())))
