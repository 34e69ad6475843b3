"""One SSH connection that several threads use at once, as the guests of one host do."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from paramiko import ChannelException, Transport

from autotest.errors import ConnectError
from autotest.remote import ssh_channel
from autotest.remote.parallel import in_parallel
from autotest.remote.ssh import SshTransport

if TYPE_CHECKING:
    from conftest import SshServer

_THREADS, _ROUNDS = 6, 8


def at_once(work: Callable[[int], None]) -> dict[str, Exception]:
    return in_parallel({str(number): partial(work, number) for number in range(_THREADS)}, _THREADS, keep_going=True)


def works(transport: SshTransport, folder: Path, number: int, round_: int) -> None:
    """Each way to ask the machine gives this thread its own answer."""
    text = f"{number} {round_} " * 1000
    path = str(folder / f"file-{number}")
    assert transport.run(["echo", text]).stdout == f"{text}\n"
    transport.write(path, text)
    assert transport.read(path) == text


def test_each_thread_gets_its_own_answers_over_one_connection(sshd: SshServer, tmp_path: Path) -> None:
    transport = sshd.transport()

    def work(number: int) -> None:
        for round_ in range(_ROUNDS):
            works(transport, tmp_path, number, round_)

    assert at_once(work) == {}
    assert len(sshd.sessions()) == 1


def test_a_connection_that_is_closed_or_cut_meanwhile_is_opened_again_or_the_error_says_so(
    sshd: SshServer, tmp_path: Path
) -> None:
    transport = sshd.transport()
    over = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for round_ in range(2 * _ROUNDS):
                if round_ % 2:
                    transport.close()
                else:
                    for pid in sshd.sessions():
                        os.kill(pid, signal.SIGKILL)
                over.wait(0.05)
            return
        for round_ in range(_ROUNDS):
            with suppress(ConnectError, OSError):
                works(transport, tmp_path, number, round_)

    assert {name: repr(error) for name, error in at_once(work).items()} == {}
    works(transport, tmp_path, 0, 0)


def test_nobody_closes_the_connection_just_before_another_opens_a_channel_on_it(
    sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = sshd.transport()
    connect, closers = transport.connect, list[threading.Thread]()

    def connect_while_another_closes(timeout: float | None = None) -> None:
        connect(timeout)
        closers.append(threading.Thread(target=transport.close))
        closers[-1].start()
        closers[-1].join(0.2)  # it waits for its turn, which comes once there is a channel

    monkeypatch.setattr(transport, "connect", connect_while_another_closes)
    with suppress(ConnectError):  # what is closed under a command
        transport.run(["true"])
    for closer in closers:
        closer.join(20)
    assert closers and not any(closer.is_alive() for closer in closers)


def test_more_threads_than_the_server_takes_channels_wait_for_each_other_and_cut_nothing(sshd: SshServer) -> None:
    """``MaxSessions`` of sshd_config(5) is 10: guests of a host with many CPUs boot in more threads than that."""
    transport = sshd.transport()

    def work() -> None:
        for _ in range(2):
            transport.run(["sleep", "0.3"])

    assert in_parallel({str(number): work for number in range(16)}, 16, keep_going=True) == {}
    assert len(sshd.sessions()) == 1


def test_a_server_that_takes_no_channel_at_all_is_an_error_after_a_while(
    sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = sshd.transport()
    transport.connect()

    def refused(*_: object, **__: object) -> None:
        raise ChannelException(1, "Administratively prohibited")

    monkeypatch.setattr(ssh_channel, "DEFAULT_TIMEOUT", 0.3)
    monkeypatch.setattr(Transport, "open_session", refused)
    with pytest.raises(ConnectError, match=r"a channel of the connection: not within 0.3 s: .*Administratively prohibited"):
        transport.run(["true"], timeout=5)
