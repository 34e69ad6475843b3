"""Products of lists without parts of them, never by looking at each combination: there may be a million."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import prod
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A part of a product: what has one of these values in each of these lists, which are named by their index."""

    reason: str
    values: Mapping[int, frozenset[Any]]


class Block(NamedTuple):
    """A smaller product: of the first lists one value each, and what there is of the others."""

    first: tuple[Any, ...]
    rest: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Remainder:
    """What is left of a product, and how many combinations each reason took away.

    Either the product of ``lists``, or for each combination of them what is left of the others, in ``inner``.
    """

    lists: Sequence[Sequence[Any]]
    taken: Mapping[str, int]
    inner: Sequence[Remainder] = ()

    def blocks(self) -> Iterator[Block]:
        """All of it in the order of the product; lazily."""
        if not self.inner:
            yield Block((), self.lists)
            return
        for first in product(*self.lists):
            for remainder in self.inner:
                for block in remainder.blocks():
                    yield Block(first + block.first, block.rest)


def without(lists: Sequence[Sequence[Any]], parts: Iterable[Part]) -> Remainder:
    """A product of lists without these parts. What is in several of them counts for one.

    Values next to each other that are in the same parts share a block.

    >>> left = without([[1, 2, 3], "ab"], [Part("odd b", {0: frozenset([1, 3]), 1: frozenset("b")})])
    >>> [tuple(block.rest) for block in left.blocks()], dict(left.taken)
    ([([1], ['a']), ([2], ['a', 'b']), ([3], ['a'])], {'odd b': 2})
    """
    there = [list(values) for values in lists]
    taken: Counter[str] = Counter()
    joint: list[Part] = []
    for part in parts:
        if len(part.values) > 1:
            joint.append(part)
        for at, values in part.values.items() if len(part.values) == 1 else ():
            kept = [value for value in there[at] if value not in values]
            taken[part.reason] += (len(there[at]) - len(kept)) * _combinations(there[:at], there[at + 1 :])
            there[at] = kept
    if not joint:
        return Remainder(there, taken)
    split = min(min(part.values) for part in joint)
    inner = []
    for _, group in groupby(there[split], lambda value: [value in part.values.get(split, ()) for part in joint]):
        same = list(group)
        inner.append(without([same, *there[split + 1 :]], _of_group(joint, split, same[0])))
        for reason, count in inner[-1].taken.items():
            taken[reason] += count * _combinations(there[:split])
    return Remainder(there[:split], taken, inner) if inner else Remainder(there, taken)


def _of_group(parts: Iterable[Part], split: int, value: Any) -> Iterator[Part]:
    """The parts where the lists before ``split`` do not matter, and the one there has only values like this one."""
    for part in parts:
        if value in part.values.get(split, (value,)):
            yield Part(part.reason, {at - split: values for at, values in part.values.items() if at != split})


def _combinations(*many: Iterable[Sequence[Any]]) -> int:
    return prod(len(values) for lists in many for values in lists)
