"""What trials were measured with, from their records: what all have in common, and what differs between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Environment = Mapping[str, str]
"""Facts by dotted key, as text."""

#: Parts of a record that are no result; the older format has ``guest`` where the newer one has ``identity``.
_PARTS: Final = ("identity", "versions", "testbed", "machines", "settings", "guest")
#: Levels that only group; without them the keys of both formats are the same.
_GROUPS: Final = ("identity.determines.", "testbed.configuration.")
_IDENTITY_HASH: Final = "identity.hash"  # differs where something else does
_DEPTH: Final = 6


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that is not the same for all trials.

    Attributes:
        values: the different ones, in the order in which they first appear; None where a record does not have the key.
        chosen: for each trial the number of its value; None for a trial without a record.
        within_case: whether repetitions of one test case differ in it, so that no parameter explains it.
    """

    key: str
    values: tuple[str | None, ...]
    chosen: tuple[int | None, ...]
    within_case: bool


def environment(record: object) -> Environment:
    """The facts in a trial's JSON, whichever version; empty for what is no such document.

    >>> environment({"verdict": "valid", "testbed": {"configuration": {"host": {"fqdn": "a"}}}, "versions": {"qemu": None}})
    {'versions.qemu': 'null', 'testbed.host.fqdn': 'a'}
    """
    if not isinstance(record, dict):
        return {}
    facts: dict[str, str] = {}
    for part in _PARTS:
        for key, value in _flat(part, record.get(part, {}), _DEPTH):
            facts[_without_group(key)] = value
    facts.pop(_IDENTITY_HASH, None)
    return facts


def _without_group(key: str) -> str:
    for group in _GROUPS:
        if key.startswith(group):
            key = f"{group.partition('.')[0]}.{key.removeprefix(group)}"
    return key


def _flat(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and depth:
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner, depth - 1)
    elif value != {}:
        yield key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def in_common(environments: Sequence[Environment | None]) -> dict[str, str]:
    """The facts that are the same in all records; None stands for a trial without a record."""
    known = [facts for facts in environments if facts is not None]
    if not known:
        return {}
    shared = set(known[0].items()).intersection(*(facts.items() for facts in _distinct(known)))
    return {key: value for key, value in known[0].items() if (key, value) in shared}


def differences(environments: Sequence[Environment | None], cases: Sequence[int]) -> list[Difference]:
    """The facts that differ, those that differ within a test case first; the rest follows from the parameters.

    Args:
        environments: of each trial; None without a record.
        cases: for each trial the number of its test case.
    """
    known = [facts for facts in environments if facts is not None]
    common = in_common(environments)
    keys = dict.fromkeys(key for facts in _distinct(known) for key in facts if key not in common)
    found = [_difference(key, environments, cases) for key in keys]
    return sorted(found, key=lambda difference: (not difference.within_case, difference.key))


def _distinct(known: Sequence[Environment]) -> list[Environment]:
    return list({tuple(facts.items()): facts for facts in known}.values())


def _difference(key: str, environments: Sequence[Environment | None], cases: Sequence[int]) -> Difference:
    numbers: dict[str | None, int] = {}
    chosen = [None if facts is None else numbers.setdefault(facts.get(key), len(numbers)) for facts in environments]
    known = {(case, number) for case, number in zip(cases, chosen, strict=True) if number is not None}
    return Difference(key, tuple(numbers), tuple(chosen), len(known) > len({case for case, _ in known}))
