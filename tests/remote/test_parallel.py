"""Tasks of several machines at once: how many, in which order, and how all of them end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from autotest.errors import TestbedError, WaitTimeout
from autotest.remote import parallel
from autotest.remote.parallel import in_parallel, require_all
from autotest.remote.wait import wait_for

_LONG = 20.0  # seconds, which no test that passes waits


def waits(event: threading.Event) -> None:
    assert event.wait(_LONG), "nobody set the event"


def never(started: threading.Event | None = None) -> Callable[[], object]:
    """A task that waits for what never comes, and ends only when it is told to."""

    def task() -> None:
        if started:
            started.set()
        wait_for(lambda: False, "what never comes", _LONG, 0.01)

    return task


def fails(reason: str) -> Callable[[], object]:
    def task() -> None:
        raise TestbedError(reason)

    return task


@contextmanager
def interrupted_once(condition: threading.Event) -> Iterator[None]:
    """Ctrl-C for this process, just after the event is set."""

    def press() -> None:
        waits(condition)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press, daemon=True)
    presser.start()
    try:
        yield
    finally:
        presser.join(_LONG)
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_as_many_tasks_as_the_limit_are_under_way_and_no_more(limit: int) -> None:
    lock, running, most = threading.Lock(), 0, 0
    together = threading.Barrier(limit)

    def task() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(_LONG)  # goes on only when so many have come: less at once would never end
        with lock:
            running -= 1

    assert in_parallel({f"{number}": task for number in range(3 * limit)}, limit) == {}
    assert most == limit


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_who_waits_for_the_first_to_end_has_begun_just_as_many_as_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    begun: list[int] = []
    may_end = threading.Event()
    tasks = {f"task {number}": partial(waits, may_end) for number in range(2 * limit)}

    class Watched(SimpleQueue):  # type: ignore[type-arg]
        def get(self, *arguments: Any, **more: Any) -> Any:
            begun.append(sum(thread.name in tasks for thread in threading.enumerate()))
            may_end.set()
            return super().get(*arguments, **more)

    monkeypatch.setattr(parallel, "SimpleQueue", Watched)
    assert in_parallel(tasks, limit) == {}
    assert begun[0] == limit


def test_a_task_begins_when_one_before_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    third, first_may_end = threading.Event(), threading.Event()

    def first() -> None:
        waits(first_may_end)

    def last() -> None:
        third.set()
        first_may_end.set()

    assert in_parallel({"first": first, "second": lambda: None, "third": last}, 2) == {}
    assert third.is_set()


def test_tasks_are_begun_in_their_order() -> None:
    begun: list[int] = []
    tasks = {f"guest{number}": partial(begun.append, number) for number in range(20)}
    assert in_parallel(tasks, 1) == {}
    assert begun == list(range(20))


def test_without_tasks_nothing_is_done() -> None:
    assert in_parallel({}, 4) == {}


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_below_one_does_one_after_the_other(limit: int) -> None:
    done: list[str] = []
    assert in_parallel({name: partial(done.append, name) for name in "abc"}, limit) == {}
    assert done == list("abc")


def test_errors_are_returned_by_the_names_of_the_tasks_and_the_others_are_done() -> None:
    done: list[str] = []
    tasks: dict[str, Callable[[], object]] = {"one": fails("no tap"), "three": fails("no disk")}
    tasks |= {name: partial(done.append, name) for name in ("two", "four")}
    found = in_parallel(tasks, 2, keep_going=True)
    assert {name: str(error) for name, error in found.items()} == {"one": "no tap", "three": "no disk"}
    assert sorted(done) == ["four", "two"]


def test_after_a_failure_no_other_task_is_begun_and_those_under_way_give_up_what_they_wait_for() -> None:
    waiting, begun = threading.Event(), []

    def failing() -> None:
        waits(waiting)
        raise TestbedError("no disk")

    start = time.monotonic()
    found = in_parallel({"one": never(waiting), "two": failing, "three": lambda: begun.append("three")}, 2)
    assert list(map(str, found.values())) == ["no disk"], "the one that was told to stop tells nothing"
    assert begun == [] and time.monotonic() - start < _LONG / 2


def test_with_keep_going_a_failure_stops_nobody() -> None:
    failed, done = threading.Event(), []

    def failing() -> None:
        failed.set()
        raise TestbedError("no disk")

    def patient() -> None:
        wait_for(failed.is_set, "the failure", _LONG, 0.01)
        for _ in range(3):  # another wait begins after the failure
            wait_for(iter((False, True)).__next__, "a moment", _LONG, 0.01)
        done.append("patient")

    found = in_parallel({"one": patient, "two": failing, "three": lambda: done.append("three")}, 2, keep_going=True)
    assert list(found) == ["two"] and sorted(done) == ["patient", "three"]


def test_what_a_wait_was_for_is_in_the_error_that_gives_it_up() -> None:
    seen: list[str] = []
    waiting = threading.Event()

    def task() -> None:
        try:
            never(waiting)()
        except WaitTimeout as error:
            seen.append(str(error))
            raise

    def failing() -> None:
        waits(waiting)
        raise TestbedError("no disk")

    in_parallel({"one": task, "two": failing}, 2)
    assert seen == ["what never comes: given up"]


def test_what_is_true_already_is_not_given_up() -> None:
    answers: list[str] = []
    waiting, failed = threading.Event(), threading.Event()

    def task() -> None:
        waiting.set()
        wait_for(lambda: failed.wait(_LONG), "the failure", _LONG)
        answers.append(wait_for(lambda: "there", "what is there", _LONG))

    def failing() -> None:
        waits(waiting)
        failed.set()
        raise TestbedError("no disk")

    in_parallel({"one": task, "two": failing}, 2)
    assert answers == ["there"]


def test_who_waits_in_the_main_thread_is_not_stopped_by_what_happened_to_a_crew() -> None:
    in_parallel({"one": fails("no disk"), "two": never()}, 2)
    assert wait_for(iter((False, True)).__next__, "a moment", _LONG, 0.01)


def test_after_ctrl_c_no_task_is_under_way_any_more() -> None:
    started, ended, begun = [threading.Event(), threading.Event()], [], []
    both = threading.Event()

    def task(number: int) -> None:
        started[number].set()
        if all(event.is_set() for event in started):
            both.set()
        try:
            never()()
        finally:
            time.sleep(0.2)  # what it does when it is told to stop takes a moment
            ended.append(number)

    tasks = {"one": lambda: task(0), "two": lambda: task(1), "three": lambda: begun.append("three")}
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_once(both):
        in_parallel(tasks, 2)
    assert sorted(ended) == [0, 1] and begun == []
    assert time.monotonic() - start < _LONG / 2


def test_a_signal_that_does_not_wake_who_waits_for_the_first_to_end_is_noticed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come just before the wait begins, or to another thread: then only its handler's turn is noted."""
    started = threading.Event()
    presser: list[threading.Thread] = []

    def press() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        waits(started)
        os.kill(os.getpid(), signal.SIGINT)

    class Asleep(SimpleQueue):  # type: ignore[type-arg]
        def get(self, *arguments: Any, **more: Any) -> Any:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            if not presser:  # in that thread the signal is not blocked
                presser.append(threading.Thread(target=press))
                presser[0].start()
            try:
                return super().get(*arguments, **more)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    monkeypatch.setattr(parallel, "SimpleQueue", Asleep)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            in_parallel({"one": never(started), "two": never()}, 2)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it may have come just when it was blocked
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < _LONG / 2


def test_after_ctrl_c_a_task_that_does_not_stop_is_not_waited_for_forever_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parallel, "_STOP_TIMEOUT", 0.2)
    started, end = threading.Event(), threading.Event()

    def stubborn() -> None:
        started.set()
        end.wait(_LONG)

    with pytest.raises(KeyboardInterrupt), interrupted_once(started):
        in_parallel({"one": stubborn, "two": stubborn}, 2)
    end.set()
    assert "one does not stop: what it still changes stands in the journal" in caplog.text


def test_one_task_alone_is_done_in_the_thread_that_asks() -> None:
    threads: list[threading.Thread] = []
    assert in_parallel({"one": lambda: threads.append(threading.current_thread())}, 4) == {}
    assert threads == [threading.current_thread()]
    (error,) = in_parallel({"one": fails("no disk")}, 4).values()
    assert str(error) == "no disk"


def test_ctrl_c_reaches_one_task_alone() -> None:
    started = threading.Event()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_once(started):
        in_parallel({"one": never(started)}, 4)
    assert time.monotonic() - start < _LONG / 2


def test_several_tasks_are_done_in_threads_of_their_names() -> None:
    names: list[str] = []
    in_parallel({name: (lambda: names.append(threading.current_thread().name)) for name in ("guest", "guest2")}, 1)
    assert names == ["guest", "guest2"]


def test_what_all_need_is_done_at_once_and_the_first_failure_is_raised() -> None:
    together = threading.Barrier(3)
    require_all({name: lambda: together.wait(_LONG) for name in "abc"})
    with pytest.raises(TestbedError, match="^guest2: no reflector$"):
        require_all({"guest": lambda: None, "guest2": fails("guest2: no reflector")})
