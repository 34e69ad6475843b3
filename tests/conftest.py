"""Fixtures that several folders share. Namespaces and tmux servers have names of their own and are removed in any case."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from examples import FEW
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parents[1]
NEED_MORE = {"browser", "make_netns", "refusal_of_kvm", "session_sshd", "shared_netns", "tmux_socket"}
"""The fixtures that need root or a program beside Python: whoever uses one is a test of the default tier."""
IN_THE_LAB = ("lab", "moonprogs")
"""Folders whose tests send frames, which other work on the machine would delay or lose."""
_numbers = itertools.count()

# The same few examples each time, so that a change alone decides whether a test passes; --all draws many others.
settings.register_profile(
    FEW, max_examples=20, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("many", max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(FEW)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what belongs to the default tier by what it needs, and what runs alone."""
    for item in items:
        if item.path.parent.name in IN_THE_LAB:
            item.add_marker(pytest.mark.default)
            item.add_marker(pytest.mark.alone)
        elif NEED_MORE & {*item.fixturenames}:
            item.add_marker(pytest.mark.default)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Put back what the command line changes when a test calls it in this process: how it logs, and what ends it."""
    root, package = logging.getLogger(), logging.getLogger("autotest")
    handlers, levels = root.handlers[:], (root.level, package.level)
    handled = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    package.setLevel(levels[1])
    for number, handler in handled.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def repository() -> Path:
    return REPOSITORY


@contextmanager
def namespaces() -> Iterator[Callable[[], str]]:
    assert os.geteuid() == 0, "these tests make network namespaces and need root"
    made: list[str] = []

    def make() -> str:
        name = f"at-fast-{os.getpid()}-{next(_numbers)}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        made.append(name)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        return name

    try:
        yield make
    finally:
        for name in made:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture
def make_netns() -> Iterator[Callable[[], str]]:
    """Makes network namespaces; whoever still runs in one at the end is ended with it."""
    with namespaces() as make:
        yield make


@pytest.fixture(scope="module")
def shared_netns() -> Iterator[str]:
    """One network namespace for all tests of a file."""
    with namespaces() as make:
        yield make()


@pytest.fixture
def netns(make_netns: Callable[[], str]) -> str:
    """A network namespace with nothing but its loopback."""
    return make_netns()


@pytest.fixture
def tmux_socket(tmp_path: Path) -> Iterator[str]:
    """The socket of a tmux server of this test's own."""
    socket = str(tmp_path / "tmux.sock")
    yield socket
    subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)
