"""Done trials whose result was determined by something else than what would be run now: another QEMU, another image."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.errors import UsageError
from autotest.plan.parameters import Case
from autotest.results.identity import Identity, Plain, differences
from autotest.results.names import TrialName
from autotest.run.recording import identity
from autotest.servers.inspection import Inspection

if TYPE_CHECKING:
    from autotest.run.campaign import Campaign, Planned
    from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)

Stored = tuple[Path, TrialName]


class OnStale(StrEnum):
    """What to do about stale trials."""

    FAIL = "fail"
    KEEP = "keep"
    RERUN = "rerun"


@dataclass
class Comparison:
    """Done trials against what would be run now.

    Attributes:
        stale: by their differences in words, the trials that have them.
        unknown: done trials that have no identity in their record.
    """

    stale: dict[tuple[str, ...], dict[Stored, None]] = field(default_factory=dict)
    unknown: set[Stored] = field(default_factory=set)

    def lines(self) -> list[str]:
        """One for each group of trials with the same differences."""
        return [_line(found, differing) for differing, found in self.stale.items()]

    def trials(self) -> set[Stored]:
        """All that are stale."""
        return {stored for found in self.stale.values() for stored in found}


def _line(found: Iterable[Stored], differing: tuple[str, ...]) -> str:
    names = [str(name) for _, name in found]
    example = names[0] if len(names) == 1 else f"{len(names)} done trials, e.g. {names[0]}"
    return f"{example}: {'; '.join(differing)}"


class _Comparer:
    """Asks the machines once for each set-up, and reads the record of one trial of all that share a hash."""

    def __init__(self, campaign: Campaign, inspection: Inspection) -> None:
        self._campaign = campaign
        self._inspection = inspection
        self._determines: dict[Case, dict[str, Plain]] = {}
        self._now: tuple[object, Identity] | None = None
        self._differences: dict[tuple[str, str], tuple[str, ...]] = {}  # of a recorded hash and the one now

    def differences(self, planned: Planned) -> tuple[str, ...] | None:
        """How the trial differs from what would be run now; None where its record does not say what determined it."""
        store = self._campaign.store(planned.section)
        recorded = store.identity(planned.name)
        if recorded is None:
            return None
        now = self._identity(planned)
        if recorded == now.hash:
            return ()
        if (recorded, now.hash) not in self._differences:
            then = Identity.of(store.load(planned.name).trial)
            self._differences[recorded, now.hash] = tuple(differences(then, now)) if then else ()
        return self._differences[recorded, now.hash]

    def _identity(self, planned: Planned) -> Identity:
        depth = self._campaign.set_up_depth
        key = (planned.section, planned.case.values_[:depth])
        if self._now is None or self._now[0] != key:  # neighbours share their set-up
            prefix, kind = planned.case.prefix(depth), self._campaign.kind
            if prefix not in self._determines:
                self._determines[prefix] = dict(kind.determines(self._inspection, prefix))
            self._now = key, identity(kind, self._determines[prefix], planned.section)
        return self._now[1]


def compare(campaign: Campaign, servers: Servers) -> Comparison:
    """Compare all done trials; their machines are asked for what they are, and nothing is changed on them."""
    comparison = Comparison()
    comparer = _Comparer(campaign, Inspection(servers))
    for planned in campaign.trials():
        if planned.done:
            stored = campaign.store(planned.section).outputdir, planned.name
            found = comparer.differences(planned)
            if found is None:
                comparison.unknown.add(stored)
            elif found:
                comparison.stale.setdefault(found, {})[stored] = None
    return comparison


def can_be_compared(campaign: Campaign) -> bool:
    """Whether any done trial has an identity; asks no machine."""
    return any(planned.done and campaign.store(planned.section).identity(planned.name) for planned in campaign.trials())


def settle(campaign: Campaign, servers: Servers, on_stale: OnStale) -> None:
    """Find stale trials, and do with them what was asked for: from then on the campaign counts those to be rerun as not done.

    Raises:
        UsageError: there are some, and nothing was asked for.
    """
    comparison = compare(campaign, servers)
    if comparison.unknown:
        tell_unknown(len(comparison.unknown))
    if not comparison.stale:
        return
    what = "\n".join(comparison.lines())
    if on_stale is OnStale.FAIL:
        raise UsageError(
            f"results are there that would not be measured the same way now:\n{what}\n"
            "--stale rerun measures them again, --stale keep leaves them; or name another outputdir"
        )
    if on_stale is OnStale.KEEP:
        log.warning("kept, though they would not be measured the same way now: %s", what)
        return
    log.warning("measured again, because what determines the result has changed: %s", what)
    campaign.rerun(comparison.trials())


def tell_unknown(count: int) -> None:
    """Say once that done trials cannot be compared."""
    log.info("%d done trials do not say what determined their result, an older autotest measured them: they are kept", count)
