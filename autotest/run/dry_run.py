"""What a run would do: the tree with its counts, and why combinations were left out. Touches no machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from autotest.run.campaign import Campaign


@dataclass
class _Node:
    """One value of a parameter: the trials below it."""

    total: int = 0
    done: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def counts(self) -> str:
        return f"{self.total} trials, {self.done} done, {self.total - self.done} to do"


def describe(campaign: Campaign) -> Iterator[str]:
    """The lines of the dry run. Only set-ups are kept in memory, never single cases."""
    depth = campaign.set_up_depth
    roots: dict[str, _Node] = {}
    total = _Node()
    path: list[_Node] = []
    last: tuple[object, ...] = ()
    for planned in campaign.trials():
        set_up = (planned.section, planned.case.values_[:depth])
        if set_up != last:  # neighbours share their set-up: the labels are made once for all of them
            path = [roots.setdefault(f"[{planned.section.name}]", _Node())]
            for label in campaign.kind.labels(planned.case.prefix(depth), planned.section):
                path.append(path[-1].children.setdefault(label, _Node()))
            last = set_up
        for node in (total, *path):
            node.total += 1
            node.done += planned.done
    for label, node in roots.items():
        yield f"{label}: {node.counts()}"
        yield from _draw(node, "")
    excluded = [
        f"  {' '.join(campaign.kind.labels(exclusion.prefix, section))}: {exclusion.trials} trials: {exclusion.reason}"
        for section, exclusion in campaign.exclusions()
    ]
    if excluded:
        yield "left out:"
        yield from excluded
    yield f"all: {total.counts()}"


def _draw(node: _Node, indent: str) -> Iterator[str]:
    children = list(node.children.items())
    for number, (label, child) in enumerate(children, 1):
        last = number == len(children)
        yield f"{indent}{'└─' if last else '├─'} {label}: {child.counts()}"
        yield from _draw(child, indent + ("   " if last else "│  "))
