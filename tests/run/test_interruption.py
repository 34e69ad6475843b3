"""Real processes that are asked to end: once, twice, and while they undo already."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.run.journal import Left
from autotest.run.recovery import journal_folder, left_journals, undo_left

REPOSITORY = Path(__file__).resolve().parents[2]

# A run with changes in nested contexts. Its session does not heed its signal, so that undoing it takes a while.
_RUN = """
import logging, sys, time
from pathlib import Path

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.run import interruption
from autotest.run.recovery import journaled_servers

netns, socket, ends = sys.argv[1:]
host, loadgen = (kind(fqdn="localhost", netns=netns, tmux_socket=socket) for kind in (HostConfig, LoadGenConfig))
testbed = Testbed(Path("a.conf"), host, GuestConfig(fqdn="nobody.invalid"), loadgen)
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("autotest.run.journal").setLevel(logging.DEBUG)


def run(servers):
    journal, links = servers.journal, servers.host.links
    with journal.scope():
        links.add_bridge("br")
        with journal.scope():
            links.add_tap("tap", "br")
            with journal.scope():
                session = servers.host.session("stubborn", grace=30)
                session.start(["sh", "-c", "trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done"])
                session.wait_for_output("ready", 5)
                with journal.scope():
                    links.up("nic")
                    print("ready", session.pid(), flush=True)
                    if ends == "never":
                        time.sleep(60)
    print("left in order", flush=True)


interruption.handle_signals()
try:
    with journaled_servers(testbed) as servers:
        run(servers)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


@pytest.fixture
def testbed(netns: str, tmux_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    subprocess.run(["ip", "-n", netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer"], check=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    socket = f"{tmux_socket}-{os.getpid()}"
    host = HostConfig(fqdn="localhost", netns=netns, tmux_socket=socket)
    loadgen = LoadGenConfig(fqdn="localhost", netns=netns, tmux_socket=socket)
    yield Testbed(Path("a.conf"), host, GuestConfig(fqdn="nobody.invalid"), loadgen)
    subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)
    shutil.rmtree(Path("/run/autotest", os.path.basename(socket)), ignore_errors=True)


def as_from_a_terminal() -> None:
    """What runs in the background of a shell inherits that SIGINT is ignored, and under nohup SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def as_under_nohup() -> None:
    as_from_a_terminal()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class Run:
    """A run that has made all its changes."""

    def __init__(self, testbed: Testbed, ends: str = "never", prepare: Callable[[], None] = as_from_a_terminal) -> None:
        command = [sys.executable, "-c", _RUN, str(testbed.host.netns), testbed.host.tmux_socket, ends]
        self.process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=prepare
        )
        assert self.process.stdout
        self.output = self.process.stdout
        word, pid = self.output.readline().split()
        assert word == "ready"
        self.session = Path("/proc", pid)

    def end(self, timeout: float) -> tuple[int, list[str], str]:
        """Exit code, what it printed, what it wrote to stderr."""
        try:
            printed, error = self.process.communicate(timeout=timeout)
        finally:
            self.process.kill()
            self.process.wait()
        return self.process.returncode, printed.splitlines(), error


UNDONE = ["host: up nic: taken down again", "host: session stubborn: ended", "host: link tap: deleted", "host: link br: deleted"]


def links(testbed: Testbed) -> set[str]:
    command = ["ip", "-n", str(testbed.host.netns), "-json", "link", "show"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert not [link for link in shown if link["ifname"] == "nic" and "UP" in link["flags"]]
    return {link["ifname"] for link in shown}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_undoes_all_in_reverse_order_in_a_hurry(testbed: Testbed, number: signal.Signals) -> None:
    run = Run(testbed)
    assert left_journals(testbed) == [] and list(journal_folder(testbed).glob("*.journal"))
    start = time.monotonic()
    run.process.send_signal(number)
    code, printed, error = run.end(8)
    assert (code, error) == (130, "") and time.monotonic() - start < 8
    assert printed == [*UNDONE, "interrupted"]
    assert links(testbed) == {"lo", "nic", "peer"} and not run.session.exists()
    assert not journal_folder(testbed).exists()


def test_the_second_signal_ends_it_at_once_and_the_journal_knows_the_rest(testbed: Testbed) -> None:
    run = Run(testbed)
    run.process.send_signal(signal.SIGINT)
    assert run.output.readline().strip() == UNDONE[0]
    run.process.send_signal(signal.SIGINT)  # at once: of the same key, or of the shell's for the same reason
    run.process.send_signal(signal.SIGHUP)
    time.sleep(0.6)
    start = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    code, printed, error = run.end(5)
    assert code == 130 and time.monotonic() - start < 2
    assert printed == [] and "stands in the journal; autotest recover undoes it" in error
    assert run.session.exists()
    left = left_by_the_run(testbed)
    assert [str(change) for change in left.changes] == ["host: link br", "host: link tap", "host: session stubborn"]
    assert undo_left(testbed, left) == UNDONE[1:]
    assert links(testbed) == {"lo", "nic", "peer"} and not run.session.exists()
    assert left_journals(testbed) == [] and not journal_folder(testbed).exists()


def left_by_the_run(testbed: Testbed) -> Left:
    """Its journal, but with less patience with its session."""
    (left,) = left_journals(testbed)
    left.changes = [
        replace(change, details={**change.details, "grace": "0.1"}) if change.kind == "session" else change
        for change in left.changes
    ]
    return left


def test_what_several_send_for_one_reason_and_the_end_of_the_terminal_are_not_the_second_signal(testbed: Testbed) -> None:
    run = Run(testbed)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        run.process.send_signal(number)
        time.sleep(0.02)
    time.sleep(0.7)
    run.process.send_signal(signal.SIGHUP)
    code, printed, error = run.end(8)
    assert (code, error, printed) == (130, "", [*UNDONE, "interrupted"])
    assert links(testbed) == {"lo", "nic", "peer"} and not run.session.exists()


def test_a_signal_while_all_is_undone_in_order_is_heard_when_all_is_undone(testbed: Testbed) -> None:
    run = Run(testbed, ends="at once")
    assert run.output.readline().strip() == UNDONE[0]
    time.sleep(0.3)
    run.process.send_signal(signal.SIGINT)
    code, printed, error = run.end(8)
    assert (code, error) == (130, "")
    assert printed == [*UNDONE[1:], "interrupted"]
    assert links(testbed) == {"lo", "nic", "peer"} and not run.session.exists()
    assert not journal_folder(testbed).exists()


def test_under_nohup_the_end_of_the_terminal_is_not_the_end_of_the_run(testbed: Testbed) -> None:
    run = Run(testbed, prepare=as_under_nohup)
    run.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(0.5)
    assert run.session.exists()
    run.process.send_signal(signal.SIGTERM)
    code, printed, error = run.end(8)
    assert (code, error, printed) == (130, "", [*UNDONE, "interrupted"])
    assert links(testbed) == {"lo", "nic", "peer"}


def test_a_run_that_is_killed_at_once_leaves_all_to_the_recovery(testbed: Testbed) -> None:
    run = Run(testbed)
    run.process.kill()
    assert run.end(5)[0] == -signal.SIGKILL
    assert undo_left(testbed, left_by_the_run(testbed)) == UNDONE
    assert links(testbed) == {"lo", "nic", "peer"} and not run.session.exists()
    assert left_journals(testbed) == []
