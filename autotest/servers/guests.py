"""The guests that run on the host at the same time: they boot together, and are looked after one by one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from autotest.errors import AutotestError, TestbedError
from autotest.remote.parallel import CALLS_AT_ONCE, in_parallel
from autotest.servers.guest import GuestSettings
from autotest.servers.virtual_machine import VirtualMachine

if TYPE_CHECKING:
    from autotest.servers.host import Host

log = logging.getLogger(__name__)


class Guests:
    """All guests of a set-up.

    Attributes:
        allow_missing: whether a set-up may do without those that do not boot, as long as one does.
        missing: names of those that it does without, and why.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.allow_missing = False
        self.missing: dict[str, str] = {}
        self._count = 0
        self._dead: list[VirtualMachine] = []
        self._settings: GuestSettings | None = None

    @property
    def present(self) -> list[VirtualMachine]:
        """Those that have booted, in the order of their numbers."""
        machines = map(self._host.machine, range(1, self._count + 1))
        return [machine for machine in machines if machine.name not in self.missing]

    @contextmanager
    def running(self, settings: GuestSettings, count: int) -> Iterator[None]:
        """So many guests that take logins, as long as the context lasts.

        Raises:
            AutotestError: one does not boot and none may be missing, or none boots; the message names it.
        """
        for machine in self._host.running_machines():
            if machine.kill():
                log.warning("%s: ended the %s that was running", self._host.name, machine.name)
        with self._host.journal.scope():
            try:
                self._settings = settings
                self._grow(count)
                yield
            finally:
                for number in range(1, self._count + 1):
                    machine = self._host.machine(number)
                    machine.guest.nic = None
                    machine.guest.close()
                self._count, self.missing, self._dead, self._settings = 0, {}, [], None

    def change(self, count: int) -> bool:
        """Boot or end the guests that make the difference; returns whether that is possible.

        Raises:
            AutotestError: as for :meth:`running`.
        """
        settings = self._settings
        assert settings
        disk_is_shared = self._host.config.root_disk_snapshot or 1 not in (self._count, count)
        if self.missing or not settings.interface.grows or not disk_is_shared:
            return False
        for number in range(self._count, count, -1):
            self._host.machine(number).end(settings)
            self._count -= 1
        self._grow(count)
        return True

    def check(self) -> None:
        """Raises AutotestError when one does not work any more; with the reason for each."""
        assert self._settings
        checks = {machine.name: partial(machine.check, self._settings) for machine in self.present}
        failed = in_parallel(checks, CALLS_AT_ONCE, keep_going=True)
        problems = {name: _expected(error) for name, error in failed.items()}
        self._dead = [machine for machine in self.present if machine.name in problems]
        if problems:
            raise next(iter(problems.values())) if len(problems) == 1 else TestbedError("\n".join(map(str, problems.values())))

    def end_broken(self) -> None:
        """End those that did not work any more when they were last looked after; the others stay."""
        assert self._settings
        for machine in self._dead:
            machine.end(self._settings)

    def mend(self) -> None:
        """Boot those again that :meth:`end_broken` has ended.

        Raises:
            AutotestError: as for :meth:`running`.
        """
        dead, self._dead = self._dead, []
        self._boot(dead)

    def _grow(self, count: int) -> None:
        several = count > 1
        new = [self._host.machine(number) for number in range(self._count + 1, count + 1)]
        self._count = count
        for machine in map(self._host.machine, range(1, count + 1)):
            machine.one_of_several = several
        self._boot(new)

    def _boot(self, machines: Iterable[VirtualMachine]) -> None:
        assert self._settings
        boots = {machine.name: partial(machine.boot, self._settings) for machine in machines}
        if not boots:
            return
        failed = in_parallel(boots, self._at_once(), keep_going=self.allow_missing)
        problems = {name: _expected(error) for name, error in failed.items()}
        if problems and (not self.allow_missing or len(self.missing | problems) == self._count):
            raise next(iter(problems.values()))
        for name, problem in problems.items():
            log.warning("going on without %s: %s", name, problem)
            self.missing[name] = str(problem).partition("\n")[0]
            self._host.named_machine(name).end(self._settings)

    def _at_once(self) -> int:
        """How many are busy at a time: each keeps its CPUs busy while it boots."""
        return max(1, len(self._host.cpus) // self._host.testbed.guest.vcpus)


def _expected(error: Exception) -> AutotestError:
    """A bug of our own must not look like a guest that does not boot."""
    if isinstance(error, AutotestError):
        return error
    if isinstance(error, OSError):
        return TestbedError(str(error))
    raise error
