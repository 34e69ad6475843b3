"""What determines the result of a trial, as a flat mapping, its hash, and how two of them differ.

The mapping holds what is known before a test case is set up, so that a done trial can be compared with what would be run
now without running it. Its keys are ``subject.aspect``; what a trial's name already tells (rate, interface, ...) is not
among them. What is not there, or is not told by a machine, is None.

In it, because another value gives another result: the programs and images by checksum, the guest's vCPUs and memory, CPU
and kernel of host and loadgen, governor, turbo, mitigations, the NIC and its NUMA node, and of the settings those with
which the load is sent, like ``warmup`` and ``cooldown``. And where threads are placed, if that is configured. The models of
the NICs that only further guests have stand under ``guests.``.

Not in it, though recorded: ``repetitions``, ``retries``, ``accumulate`` and ``outputdir``, because they only say how often
and where to; tolerances, because they judge a result that is there; the numbers of free hugepages, which change by
themselves; names of links and addresses; the autotest version and its git revision, because what of autotest reaches the
frames are the MoonGen programs, and those have checksums of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

Plain = str | int | float | bool | None

#: Between the items of a value that is a list.
SEPARATOR: Final = " | "
_SHOWN_DIGITS: Final = 12  # of a checksum
_ASPECTS: Final = ("version", "file", "sha256")  # of one subject, shown together
_LABELS: Final = {"qemu": "QEMU"}
# Keys that begin so are there only where something is configured: without one it was not.
_ONLY_WHERE_SET: Final = ("placement.", "host.virtual function", "guest.hugepages", "guests.", "settings.threads")


@dataclass(frozen=True)
class Identity:
    """What determines a result."""

    determines: Mapping[str, Plain]

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the mapping as JSON with sorted keys and no white space, in hexadecimal digits."""
        return checksum(self.determines)

    def record(self) -> dict[str, Any]:
        """As ``identity`` of ``trial_*.json`` has it."""
        return {"hash": self.hash, "determines": dict(self.determines)}

    @classmethod
    def of(cls, trial: Mapping[str, Any] | None) -> Identity | None:
        """The one that a trial's JSON holds; None where it holds none: an older format, or the older tool."""
        recorded = (trial or {}).get("identity")
        determines = recorded.get("determines") if isinstance(recorded, dict) else None
        if not isinstance(determines, dict):
            return None
        return cls({str(key): value for key, value in determines.items() if isinstance(value, Plain)})


def checksum(mapping: Mapping[str, Plain]) -> str:
    """SHA-256 of a flat mapping, whatever the order of its keys."""
    text = json.dumps(mapping, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def several(items: Iterable[str]) -> str:
    """One value out of several, of which :func:`differences` shows only those that differ."""
    return SEPARATOR.join(items)


def differences(recorded: Identity, now: Identity, names: tuple[str, str] = ("then", "now")) -> list[str]:
    """How they differ, each difference in words: ``QEMU: 7.2.1 (sha256 ab12...) then, 8.0.0 (sha256 cd34...) now``.

    A key that only one of them has is not compared: the autotest that wrote the other did not know of it yet. But one of
    placement that is not there was not configured, whatever autotest wrote it.
    """
    subjects: dict[str, bool] = {}  # in order; whether it differs
    for key in dict.fromkeys([*now.determines, *recorded.determines]):
        if key.startswith(_ONLY_WHERE_SET) or (key in recorded.determines and key in now.determines):
            differs = _differ(recorded.determines.get(key), now.determines.get(key))
            subjects[_subject(key)] = subjects.get(_subject(key), False) or differs
    return [_in_words(subject, recorded, now, names) for subject, differs in subjects.items() if differs]


def _differ(one: Plain, other: Plain) -> bool:
    """Whether they are different values; to Python True is 1, but no setting turns from the one into the other."""
    return one != other or isinstance(one, bool) != isinstance(other, bool)


def _subject(key: str) -> str:
    subject, _, aspect = key.rpartition(".")
    return subject if subject and aspect in _ASPECTS else key


def _in_words(subject: str, recorded: Identity, now: Identity, names: tuple[str, str]) -> str:
    label = _LABELS.get(subject, subject.removeprefix("settings.").replace(".", " "))
    then_shown, now_shown = _shown(subject, recorded), _shown(subject, now)
    if SEPARATOR in then_shown + now_shown:
        then_items, now_items = then_shown.split(SEPARATOR), now_shown.split(SEPARATOR)
        then_shown = several(item for item in then_items if item not in now_items) or "none of it"
        now_shown = several(item for item in now_items if item not in then_items) or "none of it"
    return f"{label}: {then_shown} {names[0]}, {now_shown} {names[1]}"


def _shown(subject: str, identity: Identity) -> str:
    found = identity.determines
    if subject in found:
        return _plain(found[subject])
    parts = [_plain(found[key]) for aspect in _ASPECTS[:-1] if found.get(key := f"{subject}.{aspect}") is not None]
    digits = found.get(f"{subject}.sha256")
    if digits is not None:
        digest = f"sha256 {str(digits)[:_SHOWN_DIGITS]}..."
        parts = [f"{' '.join(parts)} ({digest})" if parts else digest]
    return " ".join(parts) or "none"


def _plain(value: Plain) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in (None, "") else str(value)
