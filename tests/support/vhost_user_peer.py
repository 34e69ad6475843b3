"""The other end of QEMU's vhost-user: it agrees to all that QEMU asks for while it makes the device, and moves no frames.

https://qemu-project.gitlab.io/qemu/interop/vhost-user.html: a message is request, flags and size, each in 4 bytes, and that
many bytes more.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_GET_FEATURES, _GET_PROTOCOL_FEATURES, _GET_QUEUE_NUM = 1, 15, 17
_ANSWERS = {
    # VIRTIO_NET_F_MQ, VHOST_USER_F_PROTOCOL_FEATURES, VIRTIO_F_VERSION_1
    _GET_FEATURES: 1 << 22 | 1 << 30 | 1 << 32,
    _GET_PROTOCOL_FEATURES: 1 << 0,  # VHOST_USER_PROTOCOL_F_MQ
    _GET_QUEUE_NUM: 8,
}
_VERSION, _REPLY = 1, 4
_HEADER = struct.Struct("<III")


@contextmanager
def connected(path: str) -> Iterator[None]:
    """Connect to QEMU's socket as soon as it is there, and answer there, as long as the context lasts."""
    ended = threading.Event()
    thread = threading.Thread(target=_serve, args=(path, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _serve(path: str, ended: threading.Event) -> None:
    while not ended.is_set():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(0.1)
            try:
                connection.connect(path)
            except OSError:
                time.sleep(0.01)
                continue
            _answer(connection, ended)
            return


def _answer(connection: socket.socket, ended: threading.Event) -> None:
    waiting = b""
    while not ended.is_set():
        try:
            received = connection.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            return
        if not received:
            return
        waiting += received
        while len(waiting) >= _HEADER.size:
            request, _, size = _HEADER.unpack_from(waiting)
            if len(waiting) < _HEADER.size + size:
                break
            waiting = waiting[_HEADER.size + size :]
            if request in _ANSWERS:
                connection.sendall(_HEADER.pack(request, _VERSION | _REPLY, 8) + struct.pack("<Q", _ANSWERS[request]))
