"""What a run would do: the tree with its counts, and why combinations were left out. Touches no machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from autotest.report.status import ending, trials
from autotest.run.campaign import Campaign
from autotest.run.estimate import estimate

_SHOWN_BRANCHES: Final = 10  # that are left out for one reason


@dataclass
class _Node:
    """One value of a parameter: the trials below it."""

    total: int = 0
    done: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def counts(self) -> str:
        return f"{trials(self.total)}, {self.done} done, {self.total - self.done} to do"


def describe(campaign: Campaign) -> Iterator[str]:
    """The lines of the dry run. Only set-ups are kept in memory, never single cases."""
    depth = campaign.set_up_depth
    roots: dict[str, _Node] = {}
    shared: Counter[str] = Counter()
    total = _Node()
    path: list[_Node] = []
    last: tuple[object, ...] = ()
    for planned in campaign.planned():
        group = f"[{planned.section.name}]"
        if planned.shared:
            shared[group] += 1
            roots.setdefault(group, _Node())
            continue
        set_up = (planned.section, planned.case.values_[:depth])
        if set_up != last:  # neighbours share their set-up: the labels are made once for all of them
            path = [roots.setdefault(group, _Node())]
            for label in campaign.kind.labels(planned.case.prefix(depth), planned.section):
                path.append(path[-1].children.setdefault(label, _Node()))
            last = set_up
        for node in (total, *path):
            node.total += 1
            node.done += planned.done
    for label, node in roots.items():
        yield f"{label}: {node.counts()}{f'; {shared[label]} more counted with a section above' * (label in shared)}"
        yield from _draw(node, "")
    yield from _left_out(campaign)
    now = campaign.within_limit(total.total - total.done)
    yield f"all: {total.counts()}{'' if campaign.limit is None else f', {now} of them in this run'}"
    yield from ending(total.done, estimate(campaign), datetime.now().astimezone())


@dataclass
class _LeftOut:
    """What is left out for one reason: the first branches, and how many there are with how many trials.

    Where that was asked for, the reason says it all.
    """

    shown: list[tuple[str, int]] = field(default_factory=list)
    branches: int = 0
    trials: int = 0
    asked_for: bool = False

    def lines(self, reason: str) -> Iterator[str]:
        if self.asked_for:
            yield f"  {trials(self.trials)}: {reason}"
        elif self.branches > len(self.shown):
            yield f"  {self.trials} trials in {self.branches} places, like {self.shown[0][0]}: {reason}"
        else:
            yield from (f"  {place}: {trials(count)}: {reason}" for place, count in self.shown)


def _left_out(campaign: Campaign) -> Iterator[str]:
    """Each branch with its reason; one line for a reason with very many."""
    found: dict[str, _LeftOut] = {}
    is_one = len(campaign.sections) + len(campaign.left_out) == 1
    for section, exclusion in campaign.exclusions():
        group = found.setdefault(exclusion.reason, _LeftOut(asked_for=exclusion.asked_for))
        group.branches += 1
        group.trials += exclusion.trials
        if group.branches <= _SHOWN_BRANCHES:
            place = " ".join(campaign.kind.labels(exclusion.prefix, section))
            group.shown.append((place if is_one else f"[{section.name}] {place}", exclusion.trials))
    if found:
        yield "left out:"
    for reason, group in found.items():
        yield from group.lines(reason)


def _draw(node: _Node, indent: str) -> Iterator[str]:
    children = list(node.children.items())
    for number, (label, child) in enumerate(children, 1):
        last = number == len(children)
        yield f"{indent}{'└─' if last else '├─'} {label}: {child.counts()}"
        yield from _draw(child, indent + ("   " if last else "│  "))
