"""What is left of a campaign is estimated: from runs whose time is known, before a run and while it lasts."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig
from autotest.config.testbed import Testbed as Configuration
from autotest.errors import TestbedError as StageProblem
from autotest.measurements.kind import Trial
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case, Section
from autotest.run.campaign import Campaign
from autotest.run.clock import Clock
from autotest.run.estimate import Estimate, estimate
from autotest.run.observer import Observer
from autotest.run.runner import Outcome
from autotest.run.times import STEP_SECONDS, TRIAL_SECONDS
from autotest.servers.testbed import Servers

CONFIGURATION = Configuration(
    Path("a.conf"), HostConfig(fqdn="localhost"), GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost")
)
LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("pcvm", "microvm"), "interface": ("bridge", "macvtap"), "qemu": (("q", "/x"),), "vhost": (False,),
    "ioregionfd": (False,), "queues": (None,), "rx_queue_size": (None,), "tx_queue_size": (None,), "guests": (1,),
    "reflector": ("xdp", "moongen"), "weights": ("even",), "rate": (10, 20, 40), "size": (60,), "runtime": (30,),
}  # fmt: skip
TOTAL = (
    "[Device: id=0] {}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), total 5 packets with 320 bytes "
    "(incl. CRC)\n"
)
OUTPUT = TOTAL.format("RX") + TOTAL.format("TX")
MONDAY = datetime(2026, 3, 2, 18, tzinfo=UTC)
LOAD_AND_PAUSES = 30 + 5 + 3.0
START = 4.0
#: Seconds that it takes to enter and to leave a stage, by its name, and what a boot takes besides.
ENTER = {"load generator": 1.0, "admin network": 0.5, "test network": 2.0, "guest": 1.0, "reflector": 3.0}
LEAVE = {"load generator": 0.5, "admin network": 0.5, "test network": 1.0, "guest": 2.0, "reflector": 0.5}
BOOT = {"pcvm": 20.0, "microvm": 6.0, "host": 0.0}
CHANGE = 1.5


def section(outputdir: Path, name: str = "s", repetitions: int = 2, retries: int = 0, **lists: Any) -> Section:
    settings = {"outputdir": outputdir, "repetitions": repetitions, "retries": retries, "warmup": 5.0, "cooldown": 3.0}
    return Section(name, LISTS | lists, settings)


class Bed:
    """A testbed whose every step and trial takes a known time on a clock of its own; the real engine runs on it.

    Attributes:
        now: of that clock, in seconds.
        slower: how much longer everything takes than usual.
        problems: what the next trials end with; None: they are measured.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slower = 1.0
        self.problems: list[BaseException | None] = []
        self.kind = dataclasses.replace(
            KIND,
            stages=tuple(map(self._stage, KIND.stages)),
            measure=self._measure,
            determining=(),
            determines=lambda *_: {},
            found=lambda *_: {},
        )
        monkeypatch.setattr("autotest.run.recording.Clock", lambda: Clock(lambda: self.now))
        monkeypatch.setattr("autotest.run.campaign.time", SimpleNamespace(monotonic=lambda: self.now))

    def _stage(self, stage: Any) -> Any:
        @contextmanager
        def enter(servers: Servers, case: Case) -> Iterator[None]:
            self.takes(ENTER[stage.name] + (BOOT[case["machine"]] * case["guests"] if stage.name == "guest" else 0.0))
            yield
            self.takes(LEAVE[stage.name])

        def change(servers: Servers, before: Case, case: Case) -> bool:
            self.takes(CHANGE)
            return True

        return dataclasses.replace(stage, enter=enter, change=change if stage.change else None, check=None, end=None, mend=None)

    def takes(self, seconds: float) -> None:
        self.now += seconds * self.slower

    def _measure(self, servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
        if self.problems and (problem := self.problems.pop(0)):
            self.takes(300)
            raise problem
        self.now += LOAD_AND_PAUSES
        self.takes(1.0 + case["rate"] / 20 + (case["reflector"] == "moongen"))
        ended = MONDAY + timedelta(seconds=self.now)
        (folder / "o").write_text(OUTPUT)
        (folder / "h").write_text("1000,5\n")
        record = {
            "verdict": "valid",
            "reason": "",
            "started": (ended - timedelta(seconds=30)).isoformat(),
            "ended": ended.isoformat(),
        }
        return Trial({"output": folder / "o", "histogram": folder / "h"}, record, "figures")

    def campaign(self, *sections: Section) -> Campaign:
        return Campaign(self.kind, sections)

    def run(self, campaign: Campaign, observer: Observer = Observer()) -> float:
        """Measure what is to do; returns how long it took."""
        begin = self.now
        self.now += START
        with Servers(CONFIGURATION) as servers:
            campaign.run(servers, sum(1 for _ in campaign.to_do()), pause=0, observer=observer)
        return self.now - begin


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch)


def is_as_older_ones(outputdir: Path) -> None:
    """Take from all records what earlier versions did not write."""
    for path in outputdir.glob("trial_*.json"):
        record = json.loads(path.read_text())
        del record["timing"]
        path.write_text(json.dumps(record))


# -- before a run ------------------------------------------------------------------------------------------


@pytest.mark.default
def test_what_was_measured_once_is_expected_to_take_as_long_again(bed: Bed, tmp_path: Path) -> None:
    took = bed.run(bed.campaign(section(tmp_path, repetitions=1)))
    again = bed.campaign(section(tmp_path, repetitions=2))
    expected = estimate(again)
    assert expected.assumed == {} and (expected.trials, expected.set_ups) == (18, 6)
    assert expected.seconds == pytest.approx(bed.run(again)) and expected.seconds == pytest.approx(took)


def test_set_ups_that_were_never_entered_are_expected_to_take_what_those_most_like_them_took(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, interface=("bridge",))))
    rest = bed.campaign(section(tmp_path, interface=("macvtap",)))
    assert estimate(rest).seconds == pytest.approx(bed.run(rest))


def test_a_boot_is_expected_to_take_what_it_takes_with_that_machine(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, repetitions=1, reflector=("xdp",))))
    left = [section(tmp_path, machine=(machine,), interface=("bridge",), reflector=("xdp",)) for machine in ("pcvm", "microvm")]
    of_pcvm, of_microvm = (estimate(bed.campaign(part)).seconds for part in left)
    assert of_pcvm - of_microvm == pytest.approx(BOOT["pcvm"] - BOOT["microvm"])


def test_only_set_ups_with_something_to_do_are_entered_and_only_as_far_as_they_differ(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), repetitions=1)))
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), reflector=("xdp",))))
    with_moongen = bed.campaign(section(tmp_path, machine=("pcvm",)))
    expected = estimate(with_moongen)
    assert (expected.trials, expected.set_ups) == (6, 2)
    assert expected.seconds == pytest.approx(bed.run(with_moongen), abs=1)  # what is left at the end only is not known
    both_reflectors = bed.campaign(section(tmp_path, machine=("pcvm",), interface=("bridge",), repetitions=3))
    boot = sum(ENTER.values()) + sum(LEAVE.values()) + BOOT["pcvm"]
    trials = 2 * (3 * LOAD_AND_PAUSES + 3 + 70 / 20) + 3
    expected = estimate(both_reflectors)
    assert expected.seconds == pytest.approx(START + boot + ENTER["reflector"] + LEAVE["reflector"] + trials, abs=1)


@pytest.mark.default
def test_a_stage_that_changes_without_being_left_takes_as_long_as_changing_it(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), guests=(1, 2, 4), repetitions=1)))
    again = bed.campaign(section(tmp_path, machine=("pcvm",), guests=(1, 2, 4), repetitions=2))
    assert estimate(again).seconds == pytest.approx(bed.run(again), abs=1)


def test_pauses_interruptions_and_retries_are_not_taken_for_the_time_of_anything(bed: Bed, tmp_path: Path) -> None:
    plan = section(tmp_path, repetitions=1, retries=2)
    bed.problems = [None, None, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        bed.run(bed.campaign(plan))
    bed.now += 86_400
    bed.problems = [None, StageProblem("x"), StageProblem("x"), None, StageProblem("y"), None, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        bed.run(bed.campaign(plan))
    bed.now += 700
    bed.run(bed.campaign(plan))
    again = bed.campaign(dataclasses.replace(plan, settings={**plan.settings, "repetitions": 2}))
    assert estimate(again).seconds == pytest.approx(bed.run(again), rel=0.01)


def test_one_run_that_was_much_slower_does_not_spoil_those_that_were_not(bed: Bed, tmp_path: Path) -> None:
    for repetitions, slower in enumerate((1, 1, 10, 1), 1):
        bed.slower = slower
        bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), interface=("bridge",), repetitions=repetitions)))
    last = bed.campaign(section(tmp_path, machine=("pcvm",), interface=("bridge",), repetitions=5))
    assert estimate(last).seconds == pytest.approx(bed.run(last), abs=sum(LEAVE.values()))


def test_loads_that_were_not_tried_on_a_set_up_take_what_they_take_elsewhere_and_what_it_takes_more(
    bed: Bed, tmp_path: Path
) -> None:
    def of(reflector: str, *rates: int) -> Section:
        return section(tmp_path, machine=("pcvm",), interface=("bridge",), reflector=(reflector,), rate=rates, repetitions=1)

    bed.run(bed.campaign(of("xdp", 10, 1000, 4000), of("moongen", 10)))
    rest = bed.campaign(of("moongen", 10, 1000, 4000))
    assert estimate(rest).seconds == pytest.approx(bed.run(rest), abs=sum(LEAVE.values()))


@pytest.mark.parametrize("pause", [1200, 86_400 * 3], ids=["20 minutes", "three days"])
def test_records_of_earlier_versions_tell_by_the_gaps_between_them(bed: Bed, tmp_path: Path, pause: float) -> None:
    bed.problems = [None] * 11 + [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        bed.run(bed.campaign(section(tmp_path, repetitions=1)))
    bed.now += pause
    bed.problems = [None, StageProblem("x")]
    bed.run(bed.campaign(section(tmp_path, repetitions=1, retries=1)))
    is_as_older_ones(tmp_path)
    again = bed.campaign(section(tmp_path, repetitions=2))
    expected = estimate(again)
    assert expected.assumed == {}
    assert expected.seconds == pytest.approx(bed.run(again), rel=0.1)


def test_what_a_record_tells_that_cannot_be_is_left_out(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), interface=("bridge",), rate=(10,), repetitions=1)))
    wrong = [
        None,
        7,
        {"seconds": -1, "set_up": 3, "start": True},
        {"seconds": 1e999, "set_up": [4, {"stage": [], "way": "left"}]},
    ]
    (path, *_) = sorted(tmp_path.glob("trial_*.json"))
    record = json.loads(path.read_text())
    for timing in wrong:
        path.write_text(json.dumps({**record, "timing": timing, "ended": timing}))
        assert estimate(bed.campaign(section(tmp_path))).seconds > 0


def test_as_long_as_nothing_was_measured_times_are_assumed_and_said_to_be(bed: Bed, tmp_path: Path) -> None:
    expected = estimate(bed.campaign(section(tmp_path, machine=("pcvm",), reflector=("xdp",), rate=(10,), repetitions=1)))
    steps = len(KIND.stages) + 3  # all, and for macvtap network, guest and reflector
    assert expected.seconds == 2 * (LOAD_AND_PAUSES + TRIAL_SECONDS) + steps * STEP_SECONDS
    assert expected.assumed == {"trial": TRIAL_SECONDS, "step of a set-up": STEP_SECONDS}


def test_nothing_to_do_takes_no_time(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",))))
    expected = estimate(bed.campaign(section(tmp_path, machine=("pcvm",))))
    assert (expected.seconds, expected.trials, expected.set_ups) == (0.0, 0, 0)


def test_what_two_sections_share_is_measured_once(bed: Bed, tmp_path: Path) -> None:
    one, other = section(tmp_path, "a", machine=("pcvm",)), section(tmp_path, "b", machine=("pcvm",), rate=(20, 40, 80))
    assert estimate(bed.campaign(one, other)).trials == 4 * 2 * 4
    apart = dataclasses.replace(other, settings={**other.settings, "outputdir": tmp_path / "b"})
    assert estimate(bed.campaign(one, apart)).trials == 4 * 2 * 6


def test_of_a_part_of_a_campaign_the_others_are_learnt_from(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), repetitions=1)))
    only = bed.campaign(section(tmp_path, machine=("microvm",)))
    expected = estimate(only)
    assert expected.assumed == {}
    assert expected.seconds == pytest.approx(bed.run(only), rel=0.25)  # boots are those of the other machine


def test_a_limit_is_what_is_estimated(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, repetitions=1)))
    some = bed.campaign(section(tmp_path))
    some.limit = 8
    expected = estimate(some)
    assert (expected.trials, expected.set_ups) == (8, 3)
    assert expected.seconds == pytest.approx(bed.run(some))


# -- while it lasts ----------------------------------------------------------------------------------------


class Watch(Observer):
    """Keeps what is expected after each trial, and when that was."""

    def __init__(self, bed: Bed, campaign: Campaign) -> None:
        self.bed = bed
        self.expected = estimate(campaign, begun=True)
        self.seen = [(bed.now + START, self.expected.seconds)]

    def ends(self, outcome: Outcome) -> None:
        self.expected.over(outcome.case)
        self.seen.append((self.bed.now, self.expected.seconds))

    def errors(self) -> list[float]:
        """By how many seconds the time that was left was expected to be longer than it was, after each trial."""
        return [seconds - (self.bed.now - when) for when, seconds in self.seen]


@pytest.mark.parametrize("seed", [None, 1], ids=["in the order of the plan", "shuffled"])
def test_what_is_left_shrinks_by_what_is_over(bed: Bed, tmp_path: Path, seed: int | None) -> None:
    bed.run(bed.campaign(section(tmp_path, repetitions=1)))
    campaign = bed.campaign(section(tmp_path))
    campaign.seed = seed
    watch = Watch(bed, campaign)
    bed.run(campaign, watch)
    assert len(watch.seen) == 19 and watch.errors() == pytest.approx([0.0] * 19, abs=0.01)
    assert (watch.expected.trials, watch.expected.set_ups) == (0, 0)
    assert watch.expected.seconds == pytest.approx(sum(LEAVE.values()))  # all is still to be undone


def test_a_run_of_which_nothing_was_known_is_known_after_its_first_set_ups(bed: Bed, tmp_path: Path) -> None:
    campaign = bed.campaign(section(tmp_path, machine=("pcvm",)))
    watch = Watch(bed, campaign)
    took = bed.run(campaign, watch)
    errors = [abs(error) for error in watch.errors()]
    assert errors[0] > 40
    assert max(errors[8:]) < 0.02 * took


def test_a_run_that_is_slower_than_those_before_it_is_noticed(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("microvm",), repetitions=1)))
    campaign, bed.slower = bed.campaign(section(tmp_path, machine=("microvm",), repetitions=6)), 4.0
    watch = Watch(bed, campaign)
    bed.run(campaign, watch)
    errors = [abs(error) for error in watch.errors()]
    assert errors[5] < errors[0] / 2


def test_trials_that_fail_or_are_not_tried_are_left_no_more(bed: Bed, tmp_path: Path) -> None:
    bed.run(bed.campaign(section(tmp_path, machine=("pcvm",), repetitions=1)))
    campaign = bed.campaign(section(tmp_path, machine=("pcvm",)))
    bed.problems = [StageProblem("guest: no route")] * 3  # three test cases: the rest of the set-up is given up
    watch = Watch(bed, campaign)
    bed.run(campaign, watch)
    assert len(campaign.outcomes) == 12 and (watch.expected.trials, watch.expected.set_ups) == (0, 0)
    assert watch.errors()[3:] == pytest.approx([0.0] * 10, abs=1)


def test_a_case_that_is_not_of_the_plan_changes_nothing(bed: Bed, tmp_path: Path) -> None:
    expected = estimate(bed.campaign(section(tmp_path, machine=("pcvm",))))
    before = expected.seconds
    (other, *_) = bed.campaign(section(tmp_path, machine=("microvm",))).trials()
    expected.over(other.case)
    assert expected.seconds == before and expected.trials == 24


# -- how long estimating takes -----------------------------------------------------------------------------


def seconds_of(expected: list[Estimate], campaign: Campaign) -> float:
    begin = time.process_time()
    expected.append(estimate(campaign))
    return time.process_time() - begin


@pytest.mark.default
@pytest.mark.alone
def test_100000_trials_are_estimated_in_seconds_whatever_is_known_of_them(bed: Bed, tmp_path: Path) -> None:
    many = tuple((f"q{number}", "/x") for number in range(500))
    bed.run(bed.campaign(section(tmp_path, machine=("microvm",), qemu=many[:4], rate=(1, 2, 3), repetitions=1)))
    of_loads = section(tmp_path, reflector=("xdp",), qemu=many[:1], rate=tuple(range(1, 251)), repetitions=100)
    of_set_ups = section(tmp_path, reflector=("xdp",), qemu=many, rate=tuple(range(1, 11)), repetitions=5)
    found: list[Estimate] = []
    assert seconds_of(found, bed.campaign(of_loads)) < 10 and seconds_of(found, bed.campaign(of_set_ups)) < 10
    assert [expected.trials > 99_900 for expected in found] == [True, True] and found[1].set_ups == 2000
