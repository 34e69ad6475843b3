"""A random order of the trials of each set-up, so that what changes slowly does not look like an effect of the load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import groupby
from typing import TypeVar

Trial = TypeVar("Trial")


def shuffled(
    trials: Iterable[Trial], set_up: Callable[[Trial], object], name: Callable[[Trial], str], seed: int
) -> Iterator[Trial]:
    """The trials, with those of each set-up, which are neighbours, in an order of chance; lazily, set-up by set-up.

    Which of two trials comes first depends on nothing but the seed and their names: neither on what is done already nor on
    which others are selected.
    """

    def place(trial: Trial) -> bytes:
        return blake2b(f"{seed} {name(trial)}".encode(), digest_size=16).digest()

    for _, found in groupby(trials, set_up):
        yield from sorted(found, key=place)
