"""A preflight as text: a table for the user, a line for the log, the checks of a build server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, Generic, TypeVar

from autotest.errors import printable
from autotest.preflight.preflight import Preflight
from autotest.preflight.requirement import Finding, Requirement, Status
from autotest.report.junit import Check, State
from autotest.report.status import trials

Key = TypeVar("Key")

NARROWEST: Final = 80
WIDEST: Final = 120
_COLOURS: Final = {Status.PASS: "\033[32m", Status.WARN: "\033[33m", Status.FAIL: "\033[31m"}
_PLAIN: Final = "\033[0m"
_STATES: Final[Mapping[Status, State]] = {Status.PASS: "passed", Status.WARN: "passed", Status.FAIL: "failed"}
_LONGEST_SUBJECT = 30


@dataclass(frozen=True)
class Plan(Generic[Key]):
    """What the preflight is for, as far as its text tells of it.

    Attributes:
        trials: how many there are on each set-up.
        labels: a set-up's parameters, for the user.
    """

    trials: Mapping[Key, int]
    labels: Callable[[Key], Iterable[str]]

    @property
    def total(self) -> int:
        """All trials."""
        return sum(self.trials.values())

    def effect(self, blocked: Sequence[Key]) -> str:
        """What it means that nothing can be measured on these set-ups: how many trials, and what they have in common."""
        count = sum(self.trials.get(key, 0) for key in blocked)
        if count == self.total:
            return f"blocks all {trials(count)}"
        common = _common(self.labels(key) for key in blocked)
        everywhere = _common(self.labels(key) for key in self.trials)
        telling = ", ".join(label for label in common if label not in everywhere)
        return f"blocks {count} of {trials(self.total)}" + (f": {telling}" if telling else "")


def _common(sets: Iterable[Iterable[str]]) -> list[str]:
    first, *others = (list(labels) for labels in sets)
    return [label for label in first if all(label in other for other in others)]


def table(preflight: Preflight[Key], plan: Plan[Key] | None, width: int, colours: bool) -> Iterator[str]:
    """Lines of a table, the worst last: status, server, what, and what was found; below it the remedy, and what that blocks.

    ``width`` is in characters. What machines answered cannot give orders to the terminal.
    """
    rows = _rows(preflight)
    subject_width = min(_LONGEST_SUBJECT, max((len(requirement.subject) for requirement, _ in rows), default=0))
    effects = effects_of(preflight, plan)
    for requirement, finding in rows:
        head = f"{finding.status:<4}  {requirement.server:<7}  {requirement.subject:<{subject_width}}  "
        if colours:
            head = head.replace(finding.status, f"{_COLOURS[finding.status]}{finding.status}{_PLAIN}", 1)
        indent = " " * (4 + 2 + 7 + 2 + subject_width + 2)
        texts = [*finding.detail.splitlines(), *([f"-> {finding.remedy}"] if finding.remedy else [])]
        texts += [effects[requirement]] if requirement in effects else []
        lines = [part for text in texts for part in _wrapped(printable(text), width - len(indent))]
        yield head + (lines[0] if lines else "")
        yield from (indent + line for line in lines[1:])


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False) or [""]


def _rows(preflight: Preflight[Key]) -> list[tuple[Requirement, Finding]]:
    """What was found, the worst last; what passed about one thing in one row."""
    good: dict[tuple[str, str], tuple[Requirement, list[str]]] = {}
    for requirement, finding in preflight.found(Status.PASS):
        _, details = good.setdefault((requirement.server, requirement.subject), (requirement, []))
        if finding.detail not in details:
            details.append(finding.detail)
    rows = [(requirement, Finding(Status.PASS, ", ".join(details))) for requirement, details in good.values()]
    rows += [*preflight.found(Status.WARN), *preflight.found(Status.FAIL)]
    # Stable: of one server as they were looked at.
    return sorted(rows, key=lambda row: (list(Status).index(row[1].status), row[0].server))


def effects_of(preflight: Preflight[Key], plan: Plan[Key] | None) -> dict[Requirement, str]:
    """What each failed requirement blocks, in words; nothing where there is no plan."""
    if plan is None:
        return {}
    blocked: dict[Requirement, list[Key]] = {}
    for key, blocking in preflight.blocked().items():
        for requirement in blocking:
            blocked.setdefault(requirement, []).append(key)
    return {requirement: plan.effect(keys) for requirement, keys in blocked.items()}


def counts(preflight: Preflight[Key]) -> str:
    """How many checks came out how.

    >>> counts(Preflight({}, {}))
    'preflight: 0 checks passed, 0 warnings, 0 failed'
    """
    good, warnings, bad = (preflight.count(status) for status in Status)
    return f"preflight: {good} checks passed, {warnings} warning{'s' * (warnings != 1)}, {bad} failed"


def sentence(requirement: Requirement, finding: Finding, effect: str = "") -> str:
    """One finding for the log: what, what was found, the remedy, and what it blocks."""
    end = f"; {effect}" if effect else ""
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    first, *rest = finding.detail.splitlines() or [""]
    return "\n".join([f"{requirement.server}: {requirement.subject}: {first}{remedy}{end}", *rest])


def checks(preflight: Preflight[Key]) -> list[Check]:
    """For a build server: one check for each thing on each server; a warning passes, and says what it is."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for requirement, finding in preflight.findings.items():
        found.setdefault((requirement.server, requirement.subject), []).append(finding)
    return [_check(server, subject, findings) for (server, subject), findings in found.items()]


def _check(server: str, subject: str, findings: Sequence[Finding]) -> Check:
    worst = max((finding.status for finding in findings), key=list(Status).index)
    shown = findings if worst is Status.PASS else [finding for finding in findings if finding.status is worst]
    message = "; ".join(finding.in_words for finding in shown)
    details = "\n".join(f"{finding.status}: {finding.detail}\n{finding.remedy}".strip() for finding in findings)
    return Check(server, subject, _STATES[worst], f"warning: {message}" if worst is Status.WARN else message, details)
