"""A process between wire and guest, started once without a guest: one that dies at start is known before the first boot."""

from __future__ import annotations

from dataclasses import dataclass

from autotest.errors import AutotestError, TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.interfaces.kind import InterfaceOptions
from autotest.preflight.requirement import Finding, Requirement, failed, passed, warned
from autotest.preflight.survey import Survey
from autotest.run.journal import UndoFailed
from autotest.traffic.dpdk import nic_ready


@dataclass(frozen=True)
class Rehearsal(Requirement):
    """The process of an interface kind starts, and runs."""

    interface: str
    options: InterfaceOptions

    @property
    def subject(self) -> str:
        return f"process of {self.interface}"

    def look(self, survey: Survey) -> Finding:
        """Raises UndoFailed where something stays set up after it: what is measured on that would be something else."""
        host, kind = survey.servers.host, INTERFACE_KINDS[self.interface]
        if host.guest_is_running():
            return warned("not tried: a guest is running that it may belong to", "autotest kill-guest ends it")
        before, machine = host.journal.standing, host.machine(1)
        # Without its other end the wire has no carrier.
        other_end = nic_ready(survey.servers.loadgen)
        try:
            with other_end, host.test_network(kind, guest=True):
                kind.attach(machine, self.options)
                kind.check(machine)
        except UndoFailed:
            raise
        except AutotestError as error:
            if left := [change for change in host.journal.standing if change not in before]:  # why, the journal has logged
                raise UndoFailed([(change, TestbedError(f"it is left of what failed: {error}")) for change in left]) from error
            return failed(str(error).removeprefix(f"{self.server}: "), "run its command line, which -v shows, by hand")
        finally:
            machine.placed, machine.switch_facts = [], {}  # of a process that is no more
        return passed("starts, and is ended again")
