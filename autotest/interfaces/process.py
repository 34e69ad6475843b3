"""A process between the wire and the guest: started anew for each guest in a tmux session of the host, and looked after."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from autotest.config.testbed import HostConfig
from autotest.errors import ConnectError, TestbedError, WaitTimeout
from autotest.interfaces.kind import SOCKETS
from autotest.remote.multiplexer import SessionError
from autotest.remote.tmux import Session
from autotest.remote.wait import wait_for
from autotest.servers.placement import place_switch
from autotest.servers.threads import available_cpus, cpu_ranges

if TYPE_CHECKING:
    from autotest.servers.host import Host
    from autotest.servers.virtual_machine import VirtualMachine

log = logging.getLogger(__name__)

# To a pipe the C library writes 4 KiB at once: what a program says would not be seen while it runs, or when it is killed.
_BY_LINES = ("stdbuf", "-oL")


def socket_of(config: HostConfig, key: str) -> str:
    """The socket for the command line of QEMU; its bare name where the host's state folder is not known yet."""
    return getattr(config, key) or SOCKETS[key]


def new_socket(machine: VirtualMachine, key: str) -> str:
    """The path of the socket, where nothing is now; what is there later is removed with all else that was set up.

    Raises:
        TestbedError: something else than a socket is there; that stays.
    """
    host, path = machine.host, machine.socket(key)
    # As root, and at a path that was typed in: only what an earlier process can have left is removed.
    script = 'if [ -L "$1" ] || { [ -e "$1" ] && [ ! -S "$1" ]; }; then echo other; else rm -f -- "$1"; fi'
    if host.transport.outside.run(["sh", "-c", script, "sh", path], sudo=True).stdout:
        raise TestbedError(f"{host.name}: {path} is there and is no socket: correct {key} of [host], or remove it")
    host.note("file", path=path)  # not before: to undo that is to remove it
    return path


def cpus_of(host: Host) -> str:
    """The CPUs that the process may use, as DPDK takes a list of them: those that are configured, else all there are."""
    return cpu_ranges(host.config.cpus_switch or available_cpus(host))


def start(
    machine: VirtualMachine, session: Session, command: Sequence[str], is_ready: Callable[[], bool], what: str, timeout: float
) -> None:
    """Start the process and place it on its CPUs; returns when it is ready.

    Args:
        is_ready: asked until it says so.
        what: it is that is waited for, for the user.
        timeout: in seconds.

    Raises:
        TestbedError: it ended, is not ready in time, or cannot be placed; with its last lines. Then it does not run.
    """
    host = machine.host
    name = f"{host.name}: {session.name}"
    log.debug("%s: %s", name, shlex.join(command))
    machine.switch_facts = {"switch command line": shlex.join(command)}
    session.stop()  # what a run without a journal may have left
    session.start([*_BY_LINES, *command], sudo=True)

    def ready() -> bool:
        require_running(host, session)
        return is_ready()

    try:
        wait_for(ready, f"{name}: {what}", timeout)
        pid = session.pid()
        if pid is None:
            raise TestbedError(f"{name} is ready, but its process is not known")
        machine.placed += place_switch(host, host.config, pid)
    except ConnectError:
        raise
    except (TestbedError, WaitTimeout) as error:
        reason = str(error) if isinstance(error, TestbedError) else _with_last_lines(str(error), session)
        session.stop()
        raise TestbedError(reason) from None


def require_running(host: Host, session: Session) -> None:
    """Raises TestbedError when the process has ended or is stopped; with its last lines."""
    ended = session.exit_code()
    if ended is not None:
        raise TestbedError(_with_last_lines(f"{host.name}: {session.name} ended with exit code {ended}", session))
    try:
        session.require_life()
    except SessionError as error:
        raise TestbedError(str(error)) from None
    if session.state() == "T":
        raise TestbedError(_with_last_lines(f"{host.name}: {session.name} does not work: its process is stopped", session))


def _with_last_lines(reason: str, session: Session) -> str:
    tail = session.tail()
    return f"{reason}:\n{tail}" if tail else reason
