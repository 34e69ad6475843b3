"""Looks at requirements: each once, and none of which nothing can be told because another one failed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from autotest.errors import AutotestError, TestbedError
from autotest.preflight.noise import noise
from autotest.preflight.reached import Reached
from autotest.preflight.requirement import Finding, Requirement, Status, failed
from autotest.preflight.survey import Survey
from autotest.run.journal import UndoFailed
from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Preflight(Generic[Key]):
    """What was found.

    Attributes:
        findings: of all requirements that were looked at, in the order of that.
        needs: what each set-up needs; a set-up may be anything that tells them apart.
    """

    findings: Mapping[Requirement, Finding]
    needs: Mapping[Key, tuple[Requirement, ...]]

    def count(self, status: Status) -> int:
        """How many came out so."""
        return sum(finding.status is status for finding in self.findings.values())

    def found(self, status: Status) -> list[tuple[Requirement, Finding]]:
        """Those that came out so."""
        return [(requirement, finding) for requirement, finding in self.findings.items() if finding.status is status]

    def blocking(self, key: Key) -> tuple[Requirement, ...]:
        """The failed requirements because of which nothing can be measured on that set-up; usually none."""
        found: dict[Requirement, None] = {}
        for requirement in self.needs[key]:
            found.update(dict.fromkeys(self._failed(requirement)))
        return tuple(found)

    def blocked(self) -> dict[Key, tuple[Requirement, ...]]:
        """The set-ups on which nothing can be measured, and why."""
        return {key: blocking for key in self.needs if (blocking := self.blocking(key))}

    def words(self, blocking: Iterable[Requirement]) -> str:
        """What failed and what to do about it, in a line for each, behind which is what a program wrote."""
        found = ((each, self.findings[each]) for each in blocking)
        return "\n".join(
            "\n".join([f"{each.server}: {each.subject}: {finding.in_words}", *finding.detail.splitlines()[1:]])
            for each, finding in found
        )

    def _failed(self, requirement: Requirement) -> Iterable[Requirement]:
        finding = self.findings.get(requirement)
        if finding is None:  # something before it failed
            for before in _before(requirement):
                yield from self._failed(before)
        elif finding.status is Status.FAIL:
            yield requirement


def look(servers: Servers, needs: Mapping[Key, Iterable[Requirement]]) -> Preflight[Key]:
    """Look at what the set-ups need, and at what may spoil the numbers of any on the servers that they use.

    Raises:
        UndoFailed: something was set up for a look and cannot be undone.
    """
    found = {key: tuple(dict.fromkeys(required)) for key, required in needs.items()}
    required = dict.fromkeys(requirement for each in found.values() for requirement in each)
    named = {requirement.server for requirement in required}
    used = [server.name for server in servers.all() if server.name in named]
    machines = {_machine(servers, server): server for server in reversed(used)}
    warnings = (warning for server in reversed(machines.values()) for warning in noise(server))
    everything = [*required, *warnings]
    return Preflight(_look_at(servers, everything), found)


def require(servers: Servers, requirements: Iterable[Requirement]) -> None:
    """Look at requirements; what may spoil numbers is logged.

    Raises:
        TestbedError: one failed, or several; each with its remedy. Or, as for :func:`look`, UndoFailed.
    """
    preflight: Preflight[Hashable] = Preflight(_look_at(servers, tuple(requirements)), {})
    for requirement, finding in preflight.found(Status.WARN):
        log.warning("%s: %s: %s", requirement.server, requirement.subject, finding.in_words)
    if bad := [requirement for requirement, _ in preflight.found(Status.FAIL)]:
        raise TestbedError(preflight.words(bad))


def _look_at(servers: Servers, requirements: Collection[Requirement]) -> dict[Requirement, Finding]:
    return _Looking(Survey(servers, requirements)).at(requirements)


def _machine(servers: Servers, name: str) -> object:
    """What tells machines apart: servers in namespaces of this machine are one."""
    try:
        server = next(server for server in servers.all() if server.name == name)
        return server.transport.is_local or name
    except AutotestError:  # there is no way to it
        return name


class _Looking:
    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._findings: dict[Requirement, Finding | None] = {}

    def at(self, requirements: Iterable[Requirement]) -> dict[Requirement, Finding]:
        for requirement in requirements:
            self._visit(requirement)
        return {requirement: finding for requirement, finding in self._findings.items() if finding}

    def _visit(self, requirement: Requirement) -> bool:
        """Whether what stands on it can be looked at, too."""
        if requirement not in self._findings:
            before = [self._visit(each) for each in _before(requirement)]
            self._findings[requirement] = self._finding(requirement) if all(before) else None
        finding = self._findings[requirement]
        return finding is not None and finding.status is not Status.FAIL

    def _finding(self, requirement: Requirement) -> Finding:
        try:
            return requirement.look(self._survey)
        except UndoFailed:  # whatever is looked at next, or measured, would find what is left
            raise
        except (AutotestError, OSError) as error:
            return failed(str(error).removeprefix(f"{requirement.server}: "), "")
        except Exception as error:  # a bug of one must not keep the others, and a campaign, from anything
            log.debug("looking at %s failed", requirement, exc_info=error)
            return failed(
                f"could not be looked at: {type(error).__name__}: {error}", "autotest -vv shows where; tell its authors"
            )


def _before(requirement: Requirement) -> tuple[Requirement, ...]:
    reached = Reached(requirement.server)
    return requirement.after if requirement == reached else (reached, *requirement.after)
