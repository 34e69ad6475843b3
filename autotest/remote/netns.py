"""A socket that lives in another network namespace of this machine."""

from __future__ import annotations

import ctypes
import os
import socket
import threading

from autotest.errors import ConnectError

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def create_connection(address: tuple[str, int], timeout: float, netns: str | None) -> socket.socket:
    """Connect over TCP, from inside the namespace where one is named.

    A socket stays in the namespace in which it was made. Only a thread of its own enters it, so that nothing
    else of this process is moved (os.setns exists only from Python 3.12).

    Raises:
        OSError: as socket.create_connection does.
        ConnectError: the namespace does not exist or cannot be entered.
    """
    if netns is None:
        return _connect(address, timeout)
    outcome: list[socket.socket | BaseException] = []

    def connect() -> None:
        try:
            _enter(netns)
            outcome.append(_connect(address, timeout))
        except BaseException as error:  # noqa: BLE001  # handed to the caller's thread below
            outcome.append(error)

    thread = threading.Thread(target=connect, name=f"connect from {netns}")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _connect(address: tuple[str, int], timeout: float) -> socket.socket:
    connection = socket.create_connection(address, timeout)
    # Short commands go back and forth: waiting to fill a segment costs 40 ms each time.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _enter(netns: str) -> None:
    if "/" in netns or "\0" in netns or netns in ("", ".", ".."):
        raise ConnectError(f"{netns!r} is not the name of a network namespace")
    try:
        descriptor = os.open(f"/run/netns/{netns}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConnectError(f"network namespace {netns}: {error.strerror}; `autotest lab up` makes the lab's") from None
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
            error_number = ctypes.get_errno()
            raise ConnectError(f"network namespace {netns} cannot be entered: {os.strerror(error_number)}; root may")
    finally:
        os.close(descriptor)
