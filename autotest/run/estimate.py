"""How long what is to do of a campaign takes: its trials and the set-ups that must be entered for them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autotest.plan.parameters import Case, Section
from autotest.results.names import TrialName
from autotest.results.store import ResultStore
from autotest.results.timing import Timing
from autotest.run.campaign import Campaign, Planned
from autotest.run.samples import Values, typical
from autotest.run.times import STEP_SECONDS, TRIAL_SECONDS, Times

_LATEST: Final = 100  # of what is learnt while a run lasts
_MOST_OF_OTHERS: Final = 1000  # trials in a directory that are not of the plan, and yet learnt from
_TRIAL: Final = (-1, "")  # a trial, where a step is told by its stage and way

Part = tuple[int, str]


@dataclass
class _SetUp:
    """The trials to do of a section on one set-up, and the steps to it from the one before it."""

    section: Section
    trials: int = 0
    moves: list[tuple[Part, float]] = field(default_factory=list)


class Estimate:
    """What the trials to do still take; while a run lasts, :meth:`over` keeps it up to date.

    Attributes:
        seconds: of all that is left, the undoing at the end included. It does not run down by itself.
        trials, set_ups: how many are left; a set-up is left until a trial on it is over.
        assumed: seconds by what they are for, of what nothing was measured yet.
    """

    def __init__(self, campaign: Campaign, times: Times, begun: bool = False) -> None:
        self._campaign = campaign
        self._times = times
        self._depth = campaign.set_up_depth
        self._set_ups: dict[Values, deque[_SetUp]] = {}
        self._last: Values | None = None
        self._start = 0.0 if begun else times.start
        self._known = campaign.timing
        self._left = 0.0
        self._counts: Counter[Part] = Counter()
        self._drifts: dict[Part, deque[float]] = {}
        self.seconds = 0.0
        self.trials = 0
        self.set_ups = 0
        self.assumed: Mapping[str, float] = {}

    def over(self, case: Case) -> None:
        """A trial of that case is over: done, failed for good, or not tried. What it took is learnt from where it was measured."""
        values = self._times.values_of(case)
        waiting = self._set_ups.get(values[: self._depth])
        if not waiting:
            return
        set_up = waiting[0]
        self._learn(values, set_up, case)
        self._left -= self._start
        self._start = 0.0
        if set_up.moves:
            self._enter(set_up)
        self._left -= self._trial_seconds(values, set_up.section, case)
        self._counts[_TRIAL] -= 1
        self.trials -= 1
        set_up.trials -= 1
        if not set_up.trials:
            waiting.popleft()
        self._sum_up()

    # -- before the run ------------------------------------------------------------------------------------

    def add(self, planned: Planned) -> None:
        """Another trial that is to be done, after those before."""
        values = self._times.values_of(planned.case)
        key = values[: self._depth]
        waiting = self._set_ups.setdefault(key, deque())
        if not waiting or waiting[-1].section is not planned.section:
            waiting.append(_SetUp(planned.section))
        set_up = waiting[-1]
        if key != self._last:
            set_up.moves += self._moves(self._last, key)
            self._last = key
            self.set_ups += 1
        set_up.trials += 1
        self.trials += 1
        self._counts[_TRIAL] += 1
        self._left += self._trial_seconds(values, planned.section, planned.case)

    def complete(self) -> None:
        """All trials are added."""
        if self.trials:
            self._left += self._start
            self._moves(self._last, None)
        self._sum_up()

    def _moves(self, before: Values | None, after: Values | None) -> list[tuple[Part, float]]:
        """The steps from one set-up to another, each with its seconds, which are added."""
        moves = self._times.moves(before, after)
        found = []
        for move, seconds in zip(moves, self._times.set_up(moves), strict=True):
            if seconds is None:
                self.assumed = {**self.assumed, "step of a set-up": STEP_SECONDS}
            found.append((move[:2], STEP_SECONDS if seconds is None else seconds))
        for part, seconds in found:
            self._left += seconds
            self._counts[part] += 1
        return found

    # -- while it runs -------------------------------------------------------------------------------------

    def _learn(self, values: Values, set_up: _SetUp, case: Case) -> None:
        """How much more or less than expected the trial and the steps before it took, where it was measured."""
        timing = self._campaign.timing
        if timing is self._known or timing.seconds is None:
            return
        self._known = timing
        self._drift(_TRIAL, timing.seconds - self._trial_seconds(values, set_up.section, case))
        expected = dict(set_up.moves)
        for move, seconds in self._times.moves_of(timing, values):
            if move[:2] in expected:
                self._drift(move[:2], seconds - expected[move[:2]])

    def _drift(self, part: Part, seconds: float) -> None:
        self._drifts.setdefault(part, deque(maxlen=_LATEST)).append(seconds)

    def _enter(self, set_up: _SetUp) -> None:
        for part, seconds in set_up.moves:
            self._left -= seconds
            self._counts[part] -= 1
        set_up.moves = []
        self.set_ups -= 1

    # -- both ----------------------------------------------------------------------------------------------

    def _trial_seconds(self, values: Values, section: Section, case: Case) -> float:
        beyond = self._times.trial(values)
        if beyond is None:
            self.assumed = {"trial": TRIAL_SECONDS, **self.assumed}
            beyond = TRIAL_SECONDS
        return self._campaign.kind.seconds(case, section) + beyond

    def _sum_up(self) -> None:
        drifted = sum(self._counts[part] * _weighed(found, self.assumed) for part, found in self._drifts.items())
        self.seconds = max(0.0, self._left + drifted)


def _weighed(differences: deque[float], assumed: Mapping[str, float]) -> float:
    """What is to be added to each expected time. A few differences may be chance, unless what was expected was assumed."""
    count = len(differences)
    return typical(list(differences)) * count / (count if assumed else count + 2)


def estimate(campaign: Campaign, begun: bool = False) -> Estimate:
    """What the trials to do of a campaign take, from the records in its output directories.

    They are read once; of what is to do nothing is kept but its set-ups. With ``begun`` the testbed is open already.

    Raises:
        ResultsError: an output directory cannot be read, or a newer autotest wrote into it.
    """
    times = Times(campaign.kind, campaign.set_up_depth)
    stores = {store.outputdir: store for store in map(campaign.store, campaign.sections)}
    others = {directory: store.present() for directory, store in stores.items()}
    for planned in campaign.trials():
        if planned.done:
            store = campaign.store(planned.section)
            least = campaign.kind.seconds(planned.case, planned.section)
            times.learn(store.outputdir, times.values_of(planned.case), store.timing(planned.name), least)
            others[store.outputdir].discard((planned.infix, planned.repetition))
    for directory, names in others.items():
        _learn_from_others(times, stores[directory], sorted(names))
    found = Estimate(campaign, times, begun)
    for planned in campaign.to_do():
        found.add(planned)
    found.complete()
    return found


def _learn_from_others(times: Times, store: ResultStore, names: Sequence[tuple[str, int]]) -> None:
    """What is there of other plans, or counts for nothing, took its time, too; of very much, some is read."""
    for infix, repetition in names[:: -(-len(names) // _MOST_OF_OTHERS) or 1]:
        record = store.record(TrialName(infix, repetition))
        timing, values = Timing.of(record), times.values_in(record)
        if values is not None and timing.seconds is not None:
            times.learn(store.outputdir, values, timing, timing.least)
