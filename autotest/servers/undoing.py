"""How each kind of change that the journal knows is undone. To undo what is undone already does no harm."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from autotest.errors import TestbedError
from autotest.run.interruption import requested
from autotest.run.journal import Change

if TYPE_CHECKING:
    from autotest.servers.server import Server

_HURRIED_TIMEOUT = 2.0  # seconds to reach a server when the process was asked to end


def undo(server: Server, change: Change) -> str | None:
    """Undo a change of that server; says what was done, None where nothing was left to do.

    Raises:
        TestbedError: the journal names a change that this autotest does not know, or not all that it must.
    """
    if requested():
        server.transport.outside.connect(_HURRIED_TIMEOUT)
        server.transport.outside.run(["true"], timeout=_HURRIED_TIMEOUT)  # a connection may be cut without a word
    if change.kind != "file" and change.boot and change.boot != server.boot:
        return None  # the machine was booted since: nothing of what is noted outlives that, but for files
    if change.kind in _OF_ITS_NETWORK and not server.transport.has_network():
        return None
    undoing = _UNDOINGS.get(change.kind)
    if undoing is None:
        raise TestbedError(f"this autotest cannot undo a change of kind {change.kind!r}")
    try:
        inspect.signature(undoing).bind(server, **change.details)
    except TypeError as error:
        raise TestbedError(f"the journal does not tell how to undo {change}: {error}") from None
    done = undoing(server, **change.details)
    return f"{change}: {done}" if done else None


def _said(done: bool, what: str) -> str:
    return what if done else ""


def _link(server: Server, name: str, type: str) -> str:
    return _said(server.links.delete(name, type), "deleted")


def _up(server: Server, name: str) -> str:
    return _said(server.links.down(name), "taken down again")


def _port(server: Server, bridge: str, name: str) -> str:
    return _said(server.links.release_port(bridge, name), "released")


def _address(server: Server, name: str, address: str) -> str:
    return _said(server.links.remove_address(name, address), "removed")


def _neighbour(server: Server, name: str, address: str, mac: str, before: str) -> str:
    return _said(server.links.restore_neighbour(name, address, mac, before), "restored" if before else "removed")


def _xdp(server: Server, name: str, mode: str) -> str:
    return _said(server.links.detach_xdp(name, mode), "detached")


def _forwarding(server: Server, name: str, mac: str) -> str:
    return _said(server.links.remove_forwarding(name, mac), "removed")


def _promiscuous(server: Server, name: str) -> str:
    return _said(server.links.end_promiscuous(name), "takes only its own frames again")


def _driver(server: Server, name: str, driver: str, before: str, override: str, interfaces: str) -> str:
    restored = server.pci.restore(name, driver, before, override, interfaces)
    return _said(restored, f"bound to {before} again" if before else "without a driver again")


def _autoprobe(server: Server, name: str) -> str:
    return _said(server.pci.let_drivers_probe(), "drivers take devices by themselves again")


def _virtual_functions(server: Server, name: str, count: str, autoprobe: str) -> str:
    return _said(server.pci.remove_virtual_functions(name, _whole(count), autoprobe), "removed")


def _function_mac(server: Server, name: str, number: str, mac: str, before: str) -> str:
    return _said(server.pci.restore_function_mac(name, _whole(number), mac, before), "restored")


def _hugepages(server: Server, path: str, before: str, wanted: str) -> str:
    return _said(server.hugepages.restore(path, _whole(before), _whole(wanted)), "given back")


def _whole(number: str) -> int:
    if not number.isdecimal():
        raise TestbedError(f"the journal has {number[:100]!r} for a number")
    return int(number)


def _session(server: Server, name: str, end_signal: str, grace: str) -> str:
    try:
        session = server.session(name, signal.Signals[end_signal], float(grace))
    except (KeyError, ValueError):
        raise TestbedError(f"the journal does not tell how to end the session {name}") from None
    return _said(session.stop(hurry=requested()), "ended")


def _guest(server: Server, name: str = "guest", **_: str) -> str:
    from autotest.servers.host import Host  # the one kind of server that has guests

    assert isinstance(server, Host)
    return _said(server.named_machine(name).kill(hurry=requested()), "ended")


def _placement(server: Server, name: str, before: str) -> str:
    from autotest.servers.threads import restore  # which needs servers itself

    changed = restore(server, before)
    return _said(bool(changed), f"{changed} threads placed as before")


def _file(server: Server, path: str) -> str:
    script = 'if [ -e "$1" ] || [ -L "$1" ]; then rm -f -- "$1" && echo removed; fi'
    return server.transport.outside.run(["sh", "-c", script, "sh", path], sudo=True).stdout.strip()


_UNDOINGS: dict[str, Callable[..., str]] = {
    "link": _link,
    "up": _up,
    "port": _port,
    "address": _address,
    "neighbour": _neighbour,
    "xdp": _xdp,
    "promiscuous": _promiscuous,
    "forwarding": _forwarding,
    "driver": _driver,
    "autoprobe": _autoprobe,
    "virtual-functions": _virtual_functions,
    "function-mac": _function_mac,
    "hugepages": _hugepages,
    "session": _session,
    "guest": _guest,
    "placement": _placement,
    "file": _file,
}
_OF_ITS_NETWORK = ("link", "up", "port", "address", "neighbour", "xdp", "promiscuous", "forwarding")
