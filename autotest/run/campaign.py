"""A campaign: the sections of ``tests.conf``, what of them is done, and what is still to do."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from autotest.config.testbed import Testbed
from autotest.errors import ConfigError, Problem, ResultsError, UsageError
from autotest.measurements.kind import MeasurementKind
from autotest.plan.parameters import Case, Section
from autotest.plan.shuffle import shuffled
from autotest.plan.tree import Exclusion, Tree
from autotest.preflight.preflight import Preflight, look
from autotest.results.names import TrialName
from autotest.results.records import acceptance
from autotest.results.store import ResultStore
from autotest.results.timing import Timing
from autotest.results.verdicts import Verdict
from autotest.run.name_lengths import too_long
from autotest.run.observer import Observer, Observers
from autotest.run.recording import Recorder, recorded
from autotest.run.runner import (
    DEFAULT_RETRIES,
    Failure,
    Job,
    Outcome,
    Runner,
    Summary,
    TrialInvalid,
)
from autotest.servers.testbed import Servers

log = logging.getLogger(__name__)


class _Outcomes(Observer):
    """Keeps how the trials ended."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self._outcomes = outcomes

    def ends(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)


class Planned(NamedTuple):
    """One trial of the plan; it is ``shared`` where a section before, with the same output directory, has it too."""

    section: Section
    case: Case
    infix: str
    repetition: int
    done: bool
    shared: bool = False

    @property
    def name(self) -> TrialName:
        """The name of its files."""
        return TrialName(self.infix, self.repetition)


class Campaign:
    """All sections that are to be measured, of one measurement kind; trials with a verdict of ``accept`` count as done.

    Of the sections ``left_out`` there is nothing to measure but what is said of why.
    """

    def __init__(
        self,
        kind: MeasurementKind,
        sections: Sequence[Section],
        accept: frozenset[Verdict] = frozenset(),
        left_out: Sequence[Section] = (),
    ) -> None:
        self.kind = kind
        self.sections = tuple(sections)
        self.accept = accept
        self.left_out = tuple(left_out)
        self.limit: int | None = None
        """How many trials are to be measured at most; None: all."""
        self.seed: int | None = None
        """Of the order of chance in which the trials of each set-up are measured; None: that of the plan."""
        self.outcomes: list[Outcome] = []
        """How the trials ended that were measured so far; also what there is of a run that was interrupted."""
        self._stores: dict[Path, ResultStore] = {}
        self._rerun: set[tuple[Path, TrialName]] = set()
        self._blocked: dict[Case, str] = {}
        self._recorder = Recorder(kind)

    def __repr__(self) -> str:
        """For who works with it by hand: the output directories are read for it."""
        found = Counter((id(planned.section), planned.done) for planned in self.planned())
        lines = [f"<campaign of {self.kind.name}>"]
        for section in self.sections:
            done, to_do = found[id(section), True], found[id(section), False]
            lines.append(
                f"[{section.name}] in {section.settings['outputdir']}: {done + to_do} trials, {done} done, {to_do} to do"
            )
        return "\n".join(lines)

    def store(self, section: Section) -> ResultStore:
        """Where the results of a section are; sections with one output directory share it."""
        outputdir = Path(section.settings["outputdir"])
        if outputdir not in self._stores:
            self._stores[outputdir] = ResultStore(outputdir)
        return self._stores[outputdir]

    def tree(self, section: Section) -> Tree:
        return Tree(self.kind.parameters, self.kind.rules, section)

    def trials(self) -> Iterator[Planned]:
        """Every trial once, lazily, in the order in which they are measured. Raises as :meth:`planned`."""
        return (planned for planned in self.planned() if not planned.shared)

    def planned(self) -> Iterator[Planned]:
        """What each section plans, lazily: a trial that several share comes with each of them.

        Raises:
            ResultsError: the output directory cannot be read, or a newer autotest wrote into it.
        """
        depth = self.set_up_depth
        directories = Counter(self.store(section).outputdir for section in self.sections)
        seen: set[tuple[Path, str, int]] = set()
        for section in self.sections:
            trials = self._trials_of(section)
            if self.seed is not None:
                trials = shuffled(trials, lambda one: one.case.values_[:depth], lambda one: str(one.name), self.seed)
            directory = self.store(section).outputdir
            if directories[directory] == 1:  # a million names need not be kept
                yield from trials
                continue
            for planned in trials:
                key = directory, planned.infix, planned.repetition
                yield planned._replace(shared=key in seen)
                seen.add(key)

    def to_do(self) -> Iterator[Planned]:
        """The trials that a run measures now, lazily: those that are not done, up to the limit. Raises as :meth:`trials`.

        What the preflight found blocked is none of them: a limited run would come to its end with nothing else each time.
        """
        return itertools.islice((one for one in self.left() if not self.blocked(one)), self.limit)

    def blocked(self, planned: Planned) -> str:
        """Why the preflight found that a trial cannot be measured; empty where it did not."""
        return self._blocked.get(planned.case.prefix(self.set_up_depth), "") if self._blocked else ""

    def left(self) -> Iterator[Planned]:
        """The trials that are not done, whatever the limit. Raises as :meth:`trials`."""
        return (planned for planned in self.trials() if not planned.done)

    def within_limit(self, to_do: int) -> int:
        """How many of so many trials to do a run measures."""
        return to_do if self.limit is None else min(to_do, self.limit)

    def _trials_of(self, section: Section) -> Iterator[Planned]:
        store, tree = self.store(section), self.tree(section)
        present = store.present()
        for case in tree.cases():
            infix = self.kind.infix(case)
            for repetition in range(section.settings["repetitions"]):
                done = (infix, repetition) in present and self._is_done(store, TrialName(infix, repetition))
                yield Planned(section, tree.leaf(case, repetition), infix, repetition, done)

    def _is_done(self, store: ResultStore, name: TrialName) -> bool:
        return store.is_done(name, self.accept) and (store.outputdir, name) not in self._rerun

    def rerun(self, trials: Iterable[tuple[Path, TrialName]]) -> None:
        """Count these as not done, though they are: the next time that they are measured, they are kept in ``invalid/``."""
        self._rerun.update(trials)

    def exclusions(self) -> Iterator[tuple[Section, Exclusion]]:
        for section in (*self.sections, *self.left_out):
            for exclusion in self.tree(section).exclusions():
                yield section, exclusion

    def infixes(self, section: Section) -> Iterator[str]:
        """The test cases of a section, each once."""
        return map(self.kind.infix, self.tree(section).cases())

    def set_ups(self) -> Iterator[Case]:
        """The cases up to the last stage, each once: what differs in more than the load."""
        for section in self.sections:
            yield from self.tree(section).prefixes(self.set_up_depth)

    @cached_property
    def set_up_depth(self) -> int:
        """How many parameters the set-up depends on."""
        names = [parameter.name for parameter in self.kind.parameters]
        return max(names.index(stage.parameter) for stage in self.kind.stages) + 1

    def by_set_up(self, trials: Iterable[Planned]) -> Counter[Case]:
        """How many of these trials each set-up has, in their order."""
        depth = self.set_up_depth
        return Counter(planned.case.prefix(depth) for planned in trials)

    @property
    def timing(self) -> Timing:
        """How long the trial took that was measured last; nothing of it is there before any was."""
        return self._recorder.timing

    # -- checks before anything is touched -----------------------------------------------------------------

    def check(self, testbed: Testbed) -> None:
        """Everything that can be found wrong without touching a machine.

        Raises:
            ConfigError: keys that the plan needs are missing, values fit no others or make names too long, or an output
                directory cannot be written.
        """
        problems = self.kind.missing(testbed, self.set_ups()) + self.unwritable() + self._ambiguous() + self._contradictory()
        for section in self.sections:
            problems += self.kind.unfitting(section) + too_long(self.kind, section)
        if problems:
            raise ConfigError(problems)

    def unwritable(self) -> list[Problem]:
        """The output directories that cannot be written."""
        problems = []
        for section in self.sections:
            try:
                self.store(section).check_writable()
            except ResultsError as error:
                problems.append(Problem(section.file, section.name, "outputdir", str(error)))
        return problems

    def _ambiguous(self) -> list[Problem]:
        """Values of different sections that are shown alike, and so would share result names, but are not alike."""
        problems = []
        known: dict[tuple[str, str], tuple[object, str]] = {}
        for section in self.sections:
            for parameter in self.kind.parameters:
                for value in section.lists[parameter.name]:
                    shown = parameter.show(value)
                    before, where = known.setdefault((parameter.name, shown), (value, section.name))
                    if before != value:
                        message = f"{shown!r} is something else in [{where}]: their results would have one name"
                        problems.append(Problem(section.file, section.name, parameter.key, message))
        return problems

    def _contradictory(self) -> list[Problem]:
        """Test cases that two sections measure in different ways, though their results would have one name."""
        problems = []
        for one, other in itertools.combinations(self.sections, 2):
            if one.settings["outputdir"] == other.settings["outputdir"]:
                differing = [name for name in self.kind.determining if one.settings[name] != other.settings[name]]
                common = set(self.infixes(one)).intersection(self.infixes(other)) if differing else set()
                for name in differing if common else ():
                    message = f"is {one.settings[name]} in [{one.name}], which measures {min(common)} too: one outputdir for each"
                    problems.append(Problem(other.file, other.name, name, message))
        return problems

    def require_cases(self) -> None:
        """Raises UsageError when there is nothing to measure."""
        if next(iter(self.set_ups()), None) is None:
            files = ", ".join(dict.fromkeys(str(section.file) for section in self.sections))
            raise UsageError(f"{files}: no valid combination of parameters; --dry-run says why each was left out")

    def preflight(self, servers: Servers, set_ups: Iterable[Case]) -> Preflight[Case]:
        """Look at the servers for what these set-ups need. Those that lack it are not tried by :meth:`run`."""
        needs = {set_up: list(self.kind.requirements(servers.testbed, set_up)) for set_up in set_ups}
        for section in self.sections:
            of_load = tuple(self.kind.needs_of_load(servers.testbed, section))
            for set_up in self.tree(section).prefixes(self.set_up_depth) if of_load else ():
                needs.get(set_up, []).extend(of_load)
        found = look(servers, needs)
        self._blocked = {set_up: found.words(blocking) for set_up, blocking in found.blocked().items()}
        return found

    # -- the run -------------------------------------------------------------------------------------------

    def run(self, servers: Servers, to_do: int, pause: float = 1.0, observer: Observer = Observer()) -> Summary:
        """Measure what is not done; ``to_do`` is how many trials that are, ``pause`` is for :class:`Runner`."""
        self.clean()
        observers = Observers([_Outcomes(self.outcomes), observer])
        runner = Runner(self._recorder.stages(), servers, self._describe, pause, observers)
        return runner.run(self._jobs(servers, observers), to_do, self.limit)

    def record_accepted(self) -> None:
        """Note in the records of the trials that are there already that their verdict is accepted."""
        if self.accept:
            for planned in self.trials():
                if planned.done:
                    self.store(planned.section).accept(planned.name, self.accept)

    def clean(self) -> None:
        """Remove temporary files that dead runs left in the output directories."""
        for section in self.sections:
            self.store(section).clean()

    def _describe(self, case: Case) -> str:
        return ", ".join(self.kind.labels(case))

    def _jobs(self, servers: Servers, observer: Observer) -> Iterator[Job]:
        noted: set[tuple[Path, Case]] = set()
        for planned in self.left():
            set_up, blocked = planned.case.prefix(self.set_up_depth), self.blocked(planned)
            outputdir = self.store(planned.section).outputdir
            if blocked and (outputdir, set_up) not in noted:
                noted.add((outputdir, set_up))
                self._record_failure(planned.section, Failure(f"preflight ({self._describe(set_up)})", blocked))
            yield Job(
                planned.case,
                str(planned.name),
                partial(self._measure, servers, planned, observer),
                partial(self._record_failure, planned.section),
                planned.section.settings.get("retries", DEFAULT_RETRIES),
                planned.infix,
                planned.section.name,
                blocked,
                (outputdir, planned.name),
            )

    def _record_failure(self, section: Section, failure: Failure) -> None:
        try:
            self.store(section).note_failure(failure.name, failure.reason)
        except ResultsError as error:  # a full disk may be the failure itself
            log.error("the failure is not recorded: %s", error)

    def _measure(self, servers: Servers, planned: Planned, observer: Observer) -> str:
        store = self.store(planned.section)
        with store.naming_itself(), store.working_directory() as folder:
            begin = time.monotonic()
            trial = self.kind.measure(servers, planned.case, planned.section, folder, observer)
            record = {
                "measurement": self.kind.name,
                "parameters": self._recorded(planned.case),
                "settings": {key: _plain(value) for key, value in planned.section.settings.items()},
                **({} if self.seed is None else {"shuffle": self.seed}),
                **trial.record,
                **self._recorder.record(planned.case, planned.section, time.monotonic() - begin),
                "accepted": acceptance() if trial.record["verdict"] in self.accept else None,
            }
            place = store.outputdir, planned.name
            stored = store.commit(planned.name, trial.files, record, replace=place in self._rerun)
            self._rerun.discard(place)
        if trial.problem and not stored.is_accepted:
            raise TrialInvalid(trial.problem, trial.blames_set_up)
        return trial.line

    def _recorded(self, case: Case) -> dict[str, object]:
        """The parameters for the record, without those that the case has not."""
        found = {parameter.name: recorded(parameter, case[parameter.name]) for parameter in self.kind.parameters}
        return {name: value for name, value in found.items() if value is not None}


def _plain(value: object) -> object:
    """A value as JSON has it."""
    return value if isinstance(value, int | float | str | None) else str(value)


def count(trials: Iterable[Planned]) -> tuple[int, int]:
    """How many trials there are, and how many of them are done."""
    total = done = 0
    for planned in trials:
        total += 1
        done += planned.done
    return total, done
