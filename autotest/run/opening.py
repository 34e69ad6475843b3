"""A testbed opened for a command: locked, recovered from what a dead run left, and with the lab up where it is the lab."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from autotest.config.testbed import Testbed
from autotest.errors import TestbedError
from autotest.interfaces import InterfaceKind
from autotest.lab.lab import Lab
from autotest.run.journal import UndoFailed
from autotest.run.lock import TestbedLock
from autotest.run.recovery import journaled_servers, left_journals, undo_left, whose
from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)


@contextmanager
def open_testbed(testbed: Testbed, *, exclusive: bool = False, temporary: bool = False) -> Iterator[Servers]:
    """The servers; where the testbed is the lab, the lab is brought up for them first.

    ``exclusive`` is for what changes the testbed: no other autotest may work on it meanwhile, and what one that was
    killed left is undone first. ``temporary``: at the end all is undone, the lab included.
    """
    lab = Lab(testbed) if testbed.lab else None
    with journaled_servers(testbed, lab.undo if lab else None) as servers:
        if exclusive:
            servers.journal.begin()
        with TestbedLock(servers).held() if exclusive else nullcontext():
            if exclusive:
                undo_what_is_left(testbed, kept=False)
            with servers.journal.scope() if temporary else nullcontext():
                if lab:
                    _bring_up(lab, servers, temporary)
                yield servers


def _bring_up(lab: Lab, servers: Servers, temporary: bool) -> None:
    """Bring the lab up; it stays up afterwards, unless that was for something temporary."""
    with nullcontext() if temporary else servers.journal.scope():
        lab.up_within(servers.journal)
        if not temporary:
            servers.journal.forget()


def undo_what_is_left(testbed: Testbed, *, kept: bool, interface: InterfaceKind | None = None, forget: bool = False) -> list[str]:
    """Undo what earlier processes left; returns what was done.

    With ``kept``, also what was meant to stay; that only of one interface where one is given.
    """
    lab = Lab(testbed) if testbed.lab else None
    done: list[str] = []
    problems = []
    for left in left_journals(testbed):
        if left.kept and not (kept and (interface is None or left.kept.endswith(f"-i {interface.name}"))):
            continue
        if left.kept:
            log.info("undoing what autotest %s set up", left.kept)
        else:
            log.warning("recovering: %s ended before it undid its changes", whose(left))
        try:
            lines = undo_left(testbed, left, lab.undo if lab else None, lab.transports() if lab else None, forget)
        except UndoFailed as error:  # the others are undone all the same
            problems.append(str(error))
            continue
        for line in lines:
            log.info("undone: %s", line)
        done += lines
    if problems and not forget:
        raise TestbedError("\n".join([*problems, "mend that by hand; autotest recover --forget then drops it"]))
    for problem in problems:
        log.warning("%s\nit is forgotten now", problem)
    return done


@contextmanager
def open_as_it_is(testbed: Testbed, take_over: bool = False) -> Iterator[Servers]:
    """The servers of a locked testbed, without bringing the lab up and without recovery."""
    ways = Lab(testbed).transports() if testbed.lab else None
    with journaled_servers(testbed, transports=ways) as servers:
        servers.journal.begin()
        with TestbedLock(servers, take_over).held():
            yield servers


def recover_if_needed(testbed: Testbed) -> None:
    """Undo what dead runs left, if they left anything; else nothing is opened."""
    if any(not left.kept for left in left_journals(testbed)):
        with open_as_it_is(testbed):
            undo_what_is_left(testbed, kept=False)
