"""What goes over a channel of an SSH connection, each step with its limit."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import paramiko

from autotest.errors import ConnectError
from autotest.remote.transport import DEFAULT_TIMEOUT
from autotest.run import interruption

_CHANNEL_TIMEOUT = 5.0  # seconds in which the far side opens a channel, or takes a request, over a connection that works
_HURRIED_ANSWER = 1.5  # the same when the process was asked to end


class BoundedChannel:
    """The channel of an SFTP client. Each packet has its limit, since the library sends without any.

    The first one that is late cuts the connection: to close a file, or remove it, does not wait once more.
    """

    def __init__(
        self, channel: paramiko.Channel, watched: Callable[[paramiko.Channel, float], AbstractContextManager[None]]
    ) -> None:
        self._channel = channel
        self._watched = watched

    def __getattr__(self, name: str) -> object:
        return getattr(self._channel, name)

    def send(self, data: bytes) -> int:
        # What cannot be sent is told to who reads the answer: a thread that only sends would write to the terminal.
        with suppress(ConnectError, paramiko.SSHException, EOFError, OSError, ValueError):  # ValueError: closed meanwhile
            with nullcontext() if self._has_room(data) else self._watched(self._channel, file_limit()):
                return self._channel.send(data) or len(data)
        return len(data)

    def _has_room(self, data: bytes) -> bool:
        """Whether it goes out without waiting, as most requests do: to watch one takes longer than its answer."""
        sock = self._channel.get_transport().sock
        return len(data) < 512 and isinstance(sock, socket.socket) and bool(select.select([], [sock], [], 0)[1])

    def recv(self, size: int) -> bytes:
        self._channel.settimeout(limit := file_limit())
        try:
            return self._channel.recv(size)
        except TimeoutError:
            self._channel.get_transport().close()
            raise TimeoutError(f"no answer within {limit:g} s") from None


def hurried(seconds: float, at_most: float) -> float:
    """So many seconds; less when the process was asked to end: somebody waits for it."""
    return min(seconds, at_most) if interruption.requested() else seconds


def answer_limit() -> float:
    """Seconds in which the far side opens a channel, or takes a request."""
    return hurried(_CHANNEL_TIMEOUT, _HURRIED_ANSWER)


def file_limit() -> float:
    """Seconds for one step of a file transfer, or until there is room for another channel."""
    return hurried(DEFAULT_TIMEOUT, _HURRIED_ANSWER)


def send(channel: paramiko.Channel, data: bytes | None) -> threading.Thread | None:
    """Give the command its input. A thread feeds it while the output is read: neither side can block the other."""

    def feed() -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):  # the command may end without reading all of it
            channel.sendall(data or b"")
            channel.shutdown_write()

    if not data:
        channel.shutdown_write()
        return None
    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    return thread


def receive(channel: paramiko.Channel, deadline: float) -> tuple[str, str, int | None]:
    """Everything that the command writes, and its exit code: None after the deadline, -1 when there was none."""
    stdout, stderr = bytearray(), bytearray()
    while True:
        while channel.recv_ready():
            stdout += channel.recv(1 << 16)
        while channel.recv_stderr_ready():
            stderr += channel.recv_stderr(1 << 16)
        if channel.eof_received or channel.closed:
            if not channel.recv_ready() and not channel.recv_stderr_ready():
                break
            continue
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        select.select([channel], [], [], min(remaining, 1.0))
    code: int | None = None
    if channel.status_event.wait(max(0.0, deadline - time.monotonic())):
        code = channel.recv_exit_status()
    return stdout.decode(errors="replace"), stderr.decode(errors="replace"), code


def hand_on(receive: object, send: object, end: socket.socket | paramiko.Channel) -> None:
    """Hand on from one end to the other until there is no more."""
    with suppress(OSError, EOFError, paramiko.SSHException):
        while data := receive(1 << 16):  # type: ignore[operator]
            send(data)  # type: ignore[operator]
        end.shutdown(socket.SHUT_WR)
