"""Ends autotest at random moments, starts it again, and compares with a run that nobody disturbed. Needs root.

Run from the repository: ``python -m benchmarks.chaos -n 300``. It ends with 1 when anything is not as it should be.
Lab, output directories and all processes that are ended are its own. ``chaos.txt`` is a recorded run.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

NAME = f"at-chaos-{os.getpid()}"
os.environ["AUTOTEST_TEST_LAB"] = NAME  # read by labtest when it is imported

from autotest.config.testbed import load_testbed
from autotest.errors import ResultsError
from autotest.resources import PROJECT_DIRECTORY
from autotest.results.accumulate import STATE_FILE, accumulate
from autotest.results.files import TEMPORARY_PREFIX
from autotest.results.names import ACC_HISTOGRAM, TRIAL
from autotest.results.store import INVALID_DIRECTORY, ResultStore
from autotest.run.recovery import journal_folder

sys.path.insert(0, str(PROJECT_DIRECTORY / "tests" / "support"))
from labtest import LabCommand, own_lab
from traces import TEMPORARY, left_since, traces

SECTIONS = (
    "[host]\nmachines = host\ninterfaces = pnic\nreflectors = xdp, moongen\nrepetitions = 1\n",
    "[guest]\nmachines = pcvm\ninterfaces = macvtap\nguests = 1, 2\nreflectors = xdp\nrepetitions = 1\n",
)
LOAD = "rates = 1\nsizes = 60\nruntimes = 1\noutputdir = {results}\n"
SIGNALS = {"KILL": 0.6, "TERM": 0.15, "INT": 0.15, "INT twice": 0.1}
MOMENTS = {"early": 0.5, "any": 0.25, "commit": 0.15, "end": 0.1}
EARLY_S, COMMIT_S, END_S, TWICE_S = 3.0, 0.012, 2.5, 1.0  # how long after its beginning a moment may be, at most
GUEST_SHARE = 0.4  # of the campaigns; the others are over in a third of the time
QUICK_S, MISSED_S, STUCK_S, PATIENCE_S = 10.0, 2.0, 120.0, 60.0
MOST_FAULTS = 20  # after which it ends: more say nothing new
LOST, DOUBLED, CORRUPT = "trials lost", "trials doubled", "trials corrupt"
LEFT, UNEXPECTED = "things left behind", "unexpected ends"
_MEASURED = re.compile(r" \d+/\d+ (\S+_rep\d+): achieved ")
_PHASES = {
    "trials, ": "start",
    "recovering: ": "recovery",
    "the lab is up": "set-up, boot, host's trials",
    "QEMU's start": "guest's trials",
}


@dataclass
class Score:
    """What happened, and under ``faults`` what should not have."""

    kills: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    faults: dict[str, list[str]] = field(
        default_factory=lambda: {name: [] for name in (LOST, DOUBLED, CORRUPT, LEFT, UNEXPECTED)}
    )

    def fault(self, kind: str, where: str, things: Iterable[object]) -> None:
        self.faults[kind] += (found := [f"{where}: {thing}" for thing in things])
        for line in found:
            print(f"{kind}: {line}", flush=True)

    @property
    def is_hopeless(self) -> bool:
        return sum(map(len, self.faults.values())) >= MOST_FAULTS

    def render(self, seconds: float) -> str:
        """The table."""

        def counted(counter: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in counter.most_common())

        rows = {"kills": f"{self.kills.total()}: {counted(self.kills)}", "hit": counted(self.phases), **self.counts}
        rows |= {"longest end after TERM or INT": f"{self.longest:.1f} s"}
        rows |= {name: len(those) for name, those in self.faults.items()} | {"seconds": f"{seconds:.0f}"}
        return "\n".join(f"{name:<31} {value}" for name, value in rows.items())


class Campaign:
    """One output directory, and what of it is known to be done."""

    def __init__(self, folder: Path, number: int, sections: Sequence[str]) -> None:
        self.results = folder / f"results-{number}"
        self.file = folder / "tests.conf"
        load = LOAD.format(results=self.results)
        self.file.write_text("".join(section + load for section in sections))
        self.has_guest = any("pcvm" in section for section in sections)
        self.done: dict[str, list[tuple[bytes, int]]] = {}  # name of a trial -> content and time of its files

    def names(self) -> set[str]:
        """All files but the sums, and of earlier attempts only what is hidden and so unfinished."""
        earlier = self.results / INVALID_DIRECTORY
        found = {path.name for path in self.results.glob("*") if path != earlier and not path.name.startswith(ACC_HISTOGRAM)}
        return found | {f"{INVALID_DIRECTORY}/{path.name}" for path in earlier.glob(".*")}

    def is_committing(self) -> bool:
        """Whether there is more than the working directory of the trial that runs."""
        with suppress(FileNotFoundError):  # autotest first tries whether it can make the folder
            return sum(name.startswith(TEMPORARY_PREFIX) for name in os.listdir(self.results)) > 1
        return False

    def check(self, score: Score, log: str, where: str) -> None:
        """Compare what is there with what was there before this start, and with what it said to have measured."""
        store = ResultStore(self.results)
        before, self.done = self.done, {}
        for name in store.trials():
            try:
                stored = store.load(name)
                problem = stored.reason if stored.trial else "files without their JSON"
            except (ResultsError, ValueError) as error:
                problem = str(error)
            if problem:
                score.fault(CORRUPT, where, [f"{name}: {problem}"])
            elif stored.verdict.is_done:
                paths = [store.path(name, kind) for kind in (*stored.files, TRIAL)]
                self.done[str(name)] = [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths]
            else:
                score.counts["commits cut off, not counted"] += "commit" in stored.trial["reason"]
        measured = _MEASURED.findall(log)
        score.fault(LOST, where, {*before, *measured} - {*self.done})
        score.fault(DOUBLED, where, {name for name, files in before.items() if self.done.get(name, files) != files})
        score.fault(DOUBLED, where, before.keys() & {*measured})

    def check_sums(self, score: Score, where: str) -> None:
        """The sums over repetitions are those that a new reading of all trials gives."""
        (self.results / STATE_FILE).unlink(missing_ok=True)
        score.fault(CORRUPT, where, [f"sum of {case.infix}" for case in accumulate(self.results) if case.changed])


class Chaos:
    """A lab of its own, in which campaigns are run and ended."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.score = Score()
        self.before = traces()
        self.lab = LabCommand(own_lab(PROJECT_DIRECTORY / "autotest.conf", folder / "autotest.conf", NAME))
        self.journals = journal_folder(load_testbed(self.lab.config, PROJECT_DIRECTORY))
        self.reference: set[str] = set()
        self.length = 0.0

    def run(self, kills: int) -> Score:
        """First the run that nobody disturbs, then campaigns until there were so many kills."""
        start = time.monotonic()
        self._campaign(0)
        self.length = time.monotonic() - start
        while self.score.kills.total() < kills and not self.score.is_hopeless:
            self._campaign(kills)
        return self.score

    def _campaign(self, kills: int) -> None:
        where = f"campaign {self.score.counts['campaigns completed']}"
        with_guest = not self.reference or self.random.random() < GUEST_SHARE
        sections = self.random.sample(SECTIONS, 2) if with_guest else SECTIONS[:1]
        campaign = Campaign(self.folder, self.score.counts["campaigns completed"], sections)
        while not self._is_completed(campaign, where, strike=self.score.kills.total() < kills):
            if self.score.is_hopeless:
                return
        self.reference = self.reference or campaign.names()
        expected, found = self._expected(campaign), campaign.names()
        self.score.fault(LOST, where, expected - found)
        self.score.fault(LEFT, where, found - expected)
        campaign.check_sums(self.score, where)
        self.score.fault(LEFT, where, self.journals.parent.glob(self.journals.name))
        self._check_traces(where)
        self.score.counts["campaigns completed"] += 1
        shutil.rmtree(campaign.results)
        print(f"{where}: done, {self.score.kills.total()} kills so far", flush=True)

    def _expected(self, campaign: Campaign) -> set[str]:
        """What is there of the run that nobody disturbed, as far as it is of this campaign."""
        return {name for name in self.reference if campaign.has_guest or "pcvm" not in name}

    def _check_traces(self, where: str) -> None:
        """What others on this machine do meanwhile goes away again; what is ours and left does not."""
        left, deadline = set(left_since(self.before)), time.monotonic() + PATIENCE_S
        while left and time.monotonic() < deadline:
            time.sleep(1)
            left &= traces()
        self.score.fault(LEFT, where, left)
        self.before |= left  # told of once

    def _is_completed(self, campaign: Campaign, where: str, strike: bool) -> bool:
        """Whether one start of the command came to its end; if so wanted it is ended at a random moment."""
        self.score.counts["starts"] += 1
        path = self.folder / "log"
        had_journal = any(self.journals.glob("*.journal"))
        chosen, moment = (self.random.choices(list(those), those.values())[0] for those in (SIGNALS, MOMENTS))
        with path.open("w") as log:
            arguments = ("test-load-lat-file", str(campaign.file))
            process = self.lab.start(*arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            hit = strike and self._wait(process, path, self._moment(moment, campaign))
            took = self._strike(process, path, chosen) if hit else 0.0
            self._wait(process, path, lambda: False)
        finally:
            process.kill()
        code, text = process.wait(), path.read_text()
        hit = hit and not (code == 0 and took < MISSED_S)  # else it was at its end already
        recovered = "recovering: " in text
        self.score.counts["recoveries"] += recovered
        allowed = {0}
        if hit:
            where += f", {chosen} ({moment})"
            self.score.kills[chosen] += 1
            self.score.phases[self._phase(text, campaign)] += 1
            self.score.longest = max(self.score.longest, took if chosen in ("TERM", "INT") else 0)
            allowed = {-signal.SIGKILL} if chosen == "KILL" else {130}
            if "trials, " not in text:  # ended before it had begun, as any program is
                allowed |= {-signal.SIGTERM, -signal.SIGINT}
        if code not in allowed or took > QUICK_S or (not hit and had_journal and not recovered):
            self.score.fault(UNEXPECTED, where, [f"exit code {code} after {took:.1f} s:\n{text}"])
        campaign.check(self.score, text, where)
        return code == 0

    def _moment(self, moment: str, campaign: Campaign) -> Callable[[], bool]:
        """Tells when it has come."""
        trials = [name for name in self._expected(campaign) if name.startswith("trial_")]
        begins: Callable[[], bool] = {
            "commit": campaign.is_committing,
            "end": lambda: all((campaign.results / name).exists() for name in trials),
        }.get(moment, lambda: True)
        length = self.length if campaign.has_guest else self.length / 3
        delay = self.random.uniform(0, {"early": EARLY_S, "any": length, "commit": COMMIT_S, "end": END_S}[moment])
        begun: list[float] = []

        def has_come() -> bool:
            if not begun and begins():
                begun.append(time.monotonic())
            return bool(begun) and time.monotonic() >= begun[0] + delay

        return has_come

    def _wait(self, process: subprocess.Popen, log: Path, has_come: Callable[[], bool]) -> bool:
        """Whether the moment came before the end; a process that says nothing for long is ended, and that is told."""
        said, since = 0, time.monotonic()
        while process.poll() is None:
            if has_come():
                return True
            if (size := log.stat().st_size) != said:
                said, since = size, time.monotonic()
            elif time.monotonic() - since > STUCK_S:
                self.score.fault(UNEXPECTED, "stuck after", [log.read_text()])
                process.kill()
                process.wait()
            time.sleep(0.001)
        return False

    def _strike(self, process: subprocess.Popen, log: Path, chosen: str) -> float:
        """Send the signal or signals; returns the seconds until the process has ended."""
        start = time.monotonic()
        process.send_signal(getattr(signal, f"SIG{chosen.split()[0]}"))
        if chosen == "INT twice":
            again = start + self.random.uniform(0, TWICE_S)
            if self._wait(process, log, lambda: time.monotonic() >= again):
                process.send_signal(signal.SIGINT)
        self._wait(process, log, lambda: False)
        return time.monotonic() - start

    def _phase(self, log: str, campaign: Campaign) -> str:
        """What it was about when it was ended, as far as its log tells."""
        if {name for name in self._expected(campaign) if name.startswith("trial_")} <= campaign.names():
            return "teardown"
        last = max(_PHASES, key=log.rfind)
        return _PHASES[last] if last in log else "before it began"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("-n", "--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.platform()}, {os.cpu_count()} cores, seed {options.seed}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the lab is taken down in any case
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        TEMPORARY.mkdir()
        chaos = Chaos(Path(folder), options.seed)
        try:
            score = chaos.run(options.kills)
        finally:
            chaos.lab.run("lab", "down")
            shutil.rmtree(TEMPORARY)
    print(score.render(time.monotonic() - start))
    return 1 if any(score.faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
