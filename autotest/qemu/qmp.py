"""QMP: ask a running QEMU, and end it in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from qemu.qmp import QMPClient, QMPError, Runstate

from autotest.errors import ConnectError, QemuError
from autotest.remote.transport import Transport

logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)  # what it has to say reaches the user as our errors

_TIMEOUT = 5.0  # seconds for one answer

# From ValueError on: what the library lets through when the other side sends no JSON, or JSON that is no QMP, or goes away
# in the middle of the greeting.
_ERRORS = (QMPError, OSError, EOFError, TimeoutError, ValueError, TypeError, LookupError, RecursionError, AssertionError)


class Qmp:
    """An open QMP connection."""

    def __init__(self, client: QMPClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def command(self, name: str, **arguments: Any) -> Any:
        """Run a QMP command and return what it returns.

        Raises:
            QemuError: QEMU refuses it, is gone, or does not answer.
        """
        try:
            return _within_time(self._runner, self._client.execute(name, arguments))
        except _ERRORS as error:
            raise QemuError(f"QMP {name}: {error or type(error).__name__}") from None

    def status(self) -> str:
        """``running``, ``paused``, ``guest-panicked``, ... as in QMP's RunState."""
        answer = self.command("query-status")
        if not isinstance(answer, dict) or not isinstance(answer.get("status"), str):
            raise QemuError(f"QMP query-status: no answer that QEMU gives: {str(answer)[:100]!r}")
        return str(answer["status"])


def _within_time(runner: asyncio.Runner, work: Coroutine[Any, Any, Any]) -> Any:
    """A QEMU that hangs, or talks to somebody else, answers never: nothing is waited for without a limit."""
    return runner.run(asyncio.wait_for(work, _TIMEOUT))


@contextmanager
def connect(transport: Transport, socket_path: str) -> Iterator[Qmp]:
    """A connection to the QEMU that listens on the socket.

    Raises:
        ConnectError: nobody listens there.
        QemuError: whoever listens does not speak QMP, or not with us.
    """
    with transport.connect_unix(socket_path, _TIMEOUT) as connection, asyncio.Runner() as runner:
        client = QMPClient("autotest")
        try:
            try:
                _within_time(runner, client.connect(connection))
            except _ERRORS as error:
                reason = str(error) or type(error).__name__
                raise QemuError(f"{transport.name}: QMP {socket_path}: {reason}") from None
            yield Qmp(client, runner)
        finally:
            if client.runstate != Runstate.IDLE:
                with suppress(*_ERRORS):  # QEMU may be the first to go: after quit that is the aim
                    _within_time(runner, client.disconnect())


def is_listening(transport: Transport, socket_path: str) -> bool:
    """Whether a QEMU answers on the socket."""
    try:
        with connect(transport, socket_path) as qmp:
            qmp.status()
            return True
    except (ConnectError, QemuError):
        return False
