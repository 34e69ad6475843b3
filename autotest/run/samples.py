"""What is typical of times that were measured, and which of them tell most of what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq
from statistics import fmean
from typing import Any, Final, NamedTuple

_MOST_COMPARED: Final = 200
_MOST_ALIKE: Final = 8

Values = tuple[Any, ...]
"""Those of parameters, from the one on that costs most to change."""


def typical(samples: Sequence[float]) -> float:
    """The interquartile mean: the mean of the middle half, the median of three; what went wrong once does not count.

    >>> typical([2.0, 1.0, 90.0]), typical([1.0, 1.0, 2.0, 2.0])
    (2.0, 1.5)
    """
    cut = (len(samples) + 1) // 4
    return fmean(sorted(samples)[cut : len(samples) - cut])


def nearest(wanted: Values, known: Sequence[Values]) -> list[Values]:
    """Those of the known that have most values in common with the wanted; of these, those that differ latest.

    Of very many, some are compared, and a few of those that are as near are enough.
    """
    best: tuple[int, tuple[bool, ...]] = (-1, ())
    found: list[Values] = []
    for values in known[:: -(-len(known) // _MOST_COMPARED) or 1]:
        agreeing = tuple(map(eq, values, wanted))
        rank = (sum(agreeing), agreeing)
        if rank > best:
            best, found = rank, []
        if rank == best:
            found.append(values)
    return found[:_MOST_ALIKE]


class _Others(NamedTuple):
    """What loads take on other set-ups, and how much longer than there they take on this one."""

    loads: Mapping[Values, float]
    more: float


class TrialTimes:
    """Seconds of trials by set-up and load, also of loads that were not tried on their set-up.

    Such a load takes what it took on the set-ups nearest to that one, else on any, and what trials take longer on that one.
    All is learnt before anything is asked.
    """

    def __init__(self) -> None:
        self._of: dict[Values, dict[Values, list[float]]] = {}
        self._anywhere: Mapping[Values, float] | None = None
        self._asked: tuple[Values, tuple[_Others, ...]] | None = None

    def learn(self, set_up: Values, load: Values, seconds: float) -> None:
        self._of.setdefault(set_up, {}).setdefault(load, []).append(seconds)

    def seconds(self, set_up: Values, load: Values) -> float | None:
        """Of a trial; None where nothing was learnt."""
        if not self._of:
            return None
        measured = self._of.get(set_up, {})
        if load in measured:
            return typical(measured[load])
        if self._asked is None or self._asked[0] != set_up:  # neighbours have the same
            self._asked = set_up, self._others(set_up)
        others = self._asked[1]
        for loads, more in others:
            if load in loads:
                return max(0.0, loads[load] + more)
        return fmean(self._loads([set_up]).values() if measured else others[0].loads.values())

    def _others(self, set_up: Values) -> tuple[_Others, ...]:
        akin = self._loads(nearest(set_up, [known for known in self._of if known != set_up]))
        if self._anywhere is None:
            self._anywhere = self._loads(list(self._of))
        measured = self._of.get(set_up, {})
        return tuple(_Others(loads, _more(measured, loads)) for loads in (akin, self._anywhere))

    def _loads(self, set_ups: Sequence[Values]) -> dict[Values, float]:
        """What the loads take on these set-ups."""
        found: dict[Values, list[float]] = {}
        for set_up in set_ups:
            for load, samples in self._of[set_up].items():
                found.setdefault(load, []).append(typical(samples))
        return {load: fmean(means) for load, means in found.items()}


def _more(measured: Mapping[Values, Sequence[float]], others: Mapping[Values, float]) -> float:
    """How many seconds longer the loads take that both have."""
    differences = [typical(samples) - others[load] for load, samples in measured.items() if load in others]
    return typical(differences) if differences else 0.0
