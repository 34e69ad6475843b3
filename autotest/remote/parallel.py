"""The same for several machines at once: a thread for each, and an end to all of them when one fails or Ctrl-C comes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue

from autotest.remote.wait import give_up_if_told, stopping

log = logging.getLogger(__name__)

_LOOK = 0.2  # seconds: a signal that comes just before a wait for good would be noticed only after it
_STOP_TIMEOUT = 10.0  # seconds in which tasks that were told to stop do so; no command in one takes longer as a rule

CALLS_AT_ONCE = 16
"""Machines that are asked for something at once, where that costs them next to nothing."""

Task = Callable[[], object]


def in_parallel(tasks: Mapping[str, Task], limit: int, *, keep_going: bool = False) -> dict[str, Exception]:
    """Do all tasks, at most ``limit`` at once, in their order; returns what those that failed raised, by their names.

    After a failure no other is begun, unless ``keep_going`` says so, and what those under way wait for is given up. One task
    alone is done in this thread.
    """
    if len(tasks) == 1:  # Ctrl-C reaches it at once
        return _alone(*next(iter(tasks.items())))
    crew = _Crew(tasks, limit)
    try:
        return crew.work(keep_going)
    except BaseException:  # Ctrl-C: what is undone next must not be under way any more
        crew.stop()
        raise


def require_all(tasks: Mapping[str, Task]) -> None:
    """Do all tasks at once; raises what the first one raised that failed."""
    for error in in_parallel(tasks, CALLS_AT_ONCE).values():
        raise error


def _alone(name: str, task: Task) -> dict[str, Exception]:
    try:
        task()
    except Exception as error:  # noqa: BLE001  # handed to the caller
        return {name: error}
    return {}


class _Crew:
    def __init__(self, tasks: Mapping[str, Task], limit: int) -> None:
        self._waiting = list(tasks.items())
        self._limit = max(1, limit)
        self._begun: dict[str, threading.Event] = {}  # by their names, set when they have ended
        self._ended: SimpleQueue[tuple[str, Exception | None]] = SimpleQueue()
        self._stop = threading.Event()

    def work(self, keep_going: bool) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        running = 0
        while running or self._waiting:
            while self._waiting and running < self._limit:
                self._begin(*self._waiting.pop(0))
                running += 1
            name, error = self._next_end()
            running -= 1
            if error is None:
                continue
            if not self._stop.is_set():  # what fails because it was told to stop tells nothing
                failed[name] = error
            if not keep_going:
                self._waiting.clear()
                self._stop.set()
        return failed

    def _next_end(self) -> tuple[str, Exception | None]:
        while True:
            with suppress(Empty):
                return self._ended.get(timeout=_LOOK)

    def stop(self) -> None:
        self._stop.set()
        deadline = time.monotonic() + _STOP_TIMEOUT
        for name, is_over in self._begun.items():
            if not is_over.wait(max(0.0, deadline - time.monotonic())):
                log.warning("%s does not stop: what it still changes stands in the journal", name)

    def _begin(self, name: str, task: Task) -> None:
        is_over = self._begun[name] = threading.Event()

        def run() -> None:
            error: Exception | None = None
            try:
                with stopping(self._stop):
                    give_up_if_told(name)
                    task()
            except Exception as raised:  # noqa: BLE001  # handed to the caller's thread
                error = raised
            self._ended.put((name, error))
            is_over.set()

        threading.Thread(target=run, name=name, daemon=True).start()
