"""One autotest at a time works on a testbed: two would end each other's guests and count each other's frames.

The lock is on the host, so it holds for all who use that host, from whatever machine.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from autotest.errors import AutotestError, TestbedError
from autotest.remote.local import LocalTransport
from autotest.remote.processes import Process, boot_id
from autotest.remote.transport import Transport
from autotest.run import holder
from autotest.run.interruption import requested
from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)

_FOLDER = "/run/autotest/held"


def this_process() -> dict[str, Any]:
    """Who this is, for the lock and for the journal."""
    here = LocalTransport("here")
    return {
        "user": _user(),
        "hostname": socket.gethostname(),
        "machine": (here.read("/etc/machine-id") or socket.gethostname()).strip(),
        "machine_boot": boot_id(here),
        **asdict(Process.of_this()),
        "command": " ".join(["autotest", *sys.argv[1:]]),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def is_dead(who: dict[str, Any]) -> bool | None:
    """Whether that process has ended, as :func:`this_process` described it; None where this machine cannot tell."""
    here = LocalTransport("here")
    if who.get("machine") != this_process()["machine"]:
        return None
    return who.get("machine_boot") != boot_id(here) or Process(who["pid"], who["start"]).state(here) is None


def describe(who: dict[str, Any]) -> str:
    """One line for the user."""
    return "{user}@{hostname}, process {pid} ({command}) since {since}".format_map(who)


class TestbedLock:
    """The lock of a testbed. ``take_over`` takes it even from a holder of which nobody knows whether it lives."""

    __test__ = False  # the name begins like a test class; pytest must not collect it

    def __init__(self, servers: Servers, take_over: bool = False) -> None:
        testbed = servers.testbed
        self._take_over = take_over
        self._journal = servers.journal
        # The lab's host is a namespace of this machine, reached over SSH or not.
        self._host: Transport = LocalTransport("host") if testbed.lab else servers.host.transport.outside
        here = self._host.is_local
        self._record = this_process() | {
            "id": os.urandom(8).hex(),
            "witness": asdict(Process.of_this()) if here else None,
            "file": str(testbed.file.absolute()),
            "journal": str(self._journal.path or ""),
        }
        netns = testbed.lab.host_netns if testbed.lab else testbed.host.netns
        place = f"@{netns}" if netns else ""
        host = testbed.host
        named = {"tmux socket": host.tmux_socket, "interface": host.test_iface, "bridge": host.admin_bridge}
        self._things = [f"{what} {name}{place}" for what, name in named.items() if name]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the testbed as long as the context lasts; a dead holder's lock is taken over.

        Raises:
            TestbedError: another process holds it; who that is, and since when.
        """
        self._take()
        self._host.after_connect = self._renew
        try:
            yield
        finally:
            self._host.after_connect = None
            if not (requested() and self._journal.is_unreachable("host")):
                with suppress(AutotestError):  # it is known to be a dead process's as soon as this one has ended
                    self._ask("give back")

    def _take(self) -> None:
        dead: list[str] = []
        answer = self._ask("take", force=self._take_over)
        while (who := answer.get("held")) and "pid" in who and who["id"] not in dead and is_dead(who):
            self._require_recovered(who)
            dead.append(who["id"])
            answer = self._ask("take", dead=dead)
        if who:
            raise TestbedError(_refusal(who))
        for who in answer["replaced"]:
            if "pid" in who:
                how = "it is taken over" if self._take_over else "it has ended without giving it back"
                log.warning("the testbed was held by %s: %s", describe(who), how)
                if (who["machine"], who["user"]) != (self._record["machine"], self._record["user"]):
                    log.warning("what it left is undone by autotest recover, as %s on %s", who["user"], who["hostname"])

    def _renew(self) -> None:
        """The connection that showed that this process lives was cut; there is a new one."""
        if who := self._ask("take").get("held"):
            self._host.close()  # else the next command would reach it over this connection, unasked
            taker = describe(who) if "pid" in who else "another process"
            raise TestbedError(f"the testbed was taken over by {taker} while the host could not be reached")

    def _require_recovered(self, who: dict[str, Any]) -> None:
        """Raises TestbedError where a dead holder left a journal that the recovery of this testbed will not find."""
        journal, own = Path(str(who.get("journal", ""))), self._journal.path
        if own and journal.is_file() and journal.parent != own.parent:
            raise TestbedError(
                f"the testbed was held by {describe(who)}, which has ended and left changes under another configuration: "
                f"autotest -c {shlex.quote(str(who.get('file')))} recover"
            )

    def _ask(self, action: str, force: bool = False, dead: Sequence[str] = ()) -> dict[str, Any]:
        asked: dict[str, Any] = {"action": action, "folder": _FOLDER, "things": self._things, "record": self._record}
        asked |= {"force": force, "dead": list(dead)}
        script = Path(holder.__file__).read_text()
        # -I: the folder in which it runs may hold a file with the name of a module.
        answer = self._host.run(["python3", "-I", "-", json.dumps(asked)], input=script, sudo=True)
        return _understood(self._host.name, answer.stdout)


def _understood(machine: str, text: str) -> dict[str, Any]:
    """The host's answer; a record of a holder that is not whole says so.

    Raises:
        TestbedError: it is no answer of :mod:`autotest.run.holder`.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("replaced", []), list):
        raise TestbedError(f"{machine}: asked who holds the testbed, it answers {text[:200]!r}")
    held = {"held": _whole(answer["held"])} if answer.get("held") else {}
    return held | {"replaced": [_whole(who) for who in answer.get("replaced", [])]}


def _whole(who: Any) -> dict[str, Any]:
    return who if is_whole(who) and isinstance(who.get("id"), str) else {"id": "damaged"}


def is_whole(who: Any) -> bool:
    """Whether it is what :func:`this_process` gives."""
    numbers, texts = ("pid", "start"), ("user", "hostname", "machine", "machine_boot", "command", "since")
    good = isinstance(who, dict) and all(isinstance(who.get(key), int) for key in numbers)
    return good and all(isinstance(who.get(key), str) for key in texts)


def _refusal(who: dict[str, Any]) -> str:
    if "pid" not in who:
        return (
            f"the host's record of who holds the testbed is damaged: look into {_FOLDER} there, or autotest recover --take-over"
        )
    refusal = f"the testbed is in use by {describe(who)}: wait for its end, or end it"
    if is_dead(who) is None:
        refusal += "; if that machine is gone: autotest recover --take-over"
    return refusal


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in the password file
        return str(os.getuid())
