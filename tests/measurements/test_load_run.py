"""One trial of load latency: from what the generator says and leaves behind to files, figures and verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sample_output as sample

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import TestbedError, TrafficError
from autotest.measurements import load_latency
from autotest.measurements.kind import Trial
from autotest.measurements.load_run import Run
from autotest.plan.parameters import Case, Section
from autotest.results.guest_latencies import parse_guest_latencies
from autotest.results.verdicts import DEFAULT_TOLERANCES
from autotest.run.observer import Observer
from autotest.servers.testbed import Servers
from autotest.traffic.moongen import Hear, ProgramEnd

VALUES = {
    "machine": "host", "interface": "bridge", "qemu": None, "vhost": None, "ioregionfd": None,
    "queues": None, "rx_queue_size": None, "tx_queue_size": None, "guests": None,
    "reflector": "xdp", "weights": None, "rate": 10, "size": 60, "runtime": 30, "repetition": 0,
}  # fmt: skip
CASE = Case(tuple(VALUES), tuple(VALUES.values()))
SETTINGS = {setting.name: setting.default for setting in load_latency.SETTINGS}
SAID = "[INFO]  Test frames: sent {} in {} s, received {}, 0 of them in a drain of 0.000 s\n"


class FakeLoadGen:
    """Prints what it is told to, and leaves a histogram where there is one."""

    def __init__(self, end: ProgramEnd, histogram: str | None) -> None:
        self.end, self.histogram = end, histogram

    def run_load(self, program: str, arguments: Sequence[str], *, fetch: Mapping[str, Path], hear: Hear, **_: Any) -> ProgramEnd:
        hear("[INFO]  load paced by software\n")
        hear(sample.second("0.02 10", "0.02 10"))
        if self.histogram is not None:
            fetch["histogram"].write_text(self.histogram)
        return self.end


def measured(
    folder: Path,
    output: str = "",
    histogram: str | None = "",
    *,
    code: int = 0,
    clock_jump: float | None = 0.0,
    interface: tuple[int, int] | None = None,
    seconds: float = 31.0,
    observer: Observer = Observer(),
    **settings: Any,
) -> Trial:
    """A trial of 10 kpps for 30 s; by default one that is valid."""
    samples = sample.histogram() if histogram == "" else histogram
    end = ProgramEnd(code, output or sample.output(), seconds, clock_jump, interface)
    host = HostConfig(fqdn="h", test_iface_mac="52:54:00:aa:00:01")
    servers = SimpleNamespace(
        testbed=Testbed(folder, host, GuestConfig(fqdn="g"), LoadGenConfig(fqdn="l")),
        loadgen=FakeLoadGen(end, samples),
    )
    section = Section("t", {}, SETTINGS | settings)
    trial = load_latency.measure(cast(Servers, servers), CASE, section, folder, observer)
    json.dumps(dict(trial.record), allow_nan=False)
    return trial


@pytest.fixture(autouse=True)
def _nothing_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_latency, "_breakdown", lambda servers, case: "")


def test_a_trial_has_its_files_its_figures_and_its_verdict(tmp_path: Path) -> None:
    trial = measured(tmp_path, sample.output(300_000, 299_000), interface=(300_004, 299_003))
    assert trial.problem is None and trial.record["verdict"] == "valid"
    assert {kind: path.read_text()[:5] for kind, path in trial.files.items()} == {"output": "EAL: ", "histogram": "10000"}
    figures = trial.record["figures"]
    assert (figures["sent"], figures["received"], figures["interface_sent"], figures["interface_received"]) == (
        300_000,
        299_000,
        300_004,
        299_003,
    )
    assert (figures["dropout_seconds"], figures["contradiction"]) == (0, "")


def test_a_generator_that_claims_more_than_it_sent_is_found_out(tmp_path: Path) -> None:
    trial = measured(tmp_path, interface=(270_000, 300_000))
    assert trial.record["verdict"] == "counter-mismatch"
    assert trial.problem and "claims 300000 frames sent, the interface sent 270000" in trial.problem


@pytest.mark.parametrize(
    "output",
    [
        sample.output(150_000, 150_000) + SAID.format(150_000, "15.000", 150_000),
        sample.output(150_000, 150_000, seconds=sample.second() * 14),
    ],
    ids=["it says so", "by its lines"],
)
def test_a_generator_that_stops_early_leaves_an_incomplete_trial(tmp_path: Path, output: str) -> None:
    trial = measured(tmp_path, output)
    assert trial.record["verdict"] == "incomplete" and "s instead of 30 s" in trial.record["reason"]


def test_a_generator_that_ran_for_less_than_the_runtime_cannot_have_sent_all_of_it(tmp_path: Path) -> None:
    trial = measured(tmp_path, sample.output(100_000, 100_000), seconds=12.0)
    assert trial.record["verdict"] == "incomplete" and "for 12 s instead of 30 s" in trial.record["reason"]


def test_three_samples_are_too_few(tmp_path: Path) -> None:
    trial = measured(tmp_path, histogram="100,3\n")
    assert (trial.record["verdict"], trial.record["reason"]) == ("too-few-samples", "3 latency samples, 100 are needed")


def test_a_reflector_that_dies_half_way_disturbs_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = sample.output(300_000, 150_000, seconds=sample.second() * 15 + sample.second("0.00 0") * 15)
    seen = measured(tmp_path, half)
    assert (seen.record["verdict"], seen.record["figures"]["dropout_seconds"]) == ("disturbed", 14)
    monkeypatch.setattr(load_latency, "_breakdown", lambda servers, case: "the XDP reflector is gone from nic")
    asked = measured(tmp_path, half)
    assert (asked.record["verdict"], asked.record["reason"]) == ("disturbed", "the XDP reflector is gone from nic")


def test_no_reflection_blames_the_set_up(tmp_path: Path) -> None:
    trial = measured(tmp_path, sample.output(300_000, 0, seconds=sample.second("0.00 0") * 30), None, code=1)
    assert trial.record["verdict"] == "no-reflection" and trial.blames_set_up and list(trial.files) == ["output"]


@pytest.mark.parametrize("histogram", ["1,1\n2", "1;1\n", "2,1\n1,1\n", "1.5,3\n"])
def test_a_histogram_that_cannot_be_read_is_kept_with_the_reason(tmp_path: Path, histogram: str) -> None:
    trial = measured(tmp_path, histogram=histogram)
    assert trial.record["verdict"] == "incomplete" and trial.record["reason"].startswith("the histogram:")
    assert trial.files["histogram"].read_text() == histogram


def test_a_histogram_in_microseconds_is_found_out(tmp_path: Path) -> None:
    text = sample.histogram(200, 40)
    trial = measured(tmp_path, sample.output(samples=sample.samples_line(text, 1000)), text)
    assert trial.record["verdict"] == "incomplete" and "units are mixed" in trial.record["reason"]


def test_the_tolerances_of_the_section_count(tmp_path: Path) -> None:
    output = sample.output(280_000, 280_000)
    assert measured(tmp_path, output).record["verdict"] == "under-sent"
    assert measured(tmp_path, output, tolerance_under_sent=0.1).record["verdict"] == "valid"


def test_a_generator_that_ended_before_it_said_anything_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(TrafficError, match="exit code 1:\nno device"):
        measured(tmp_path, "no device\n", None, code=1)


@pytest.mark.parametrize(("jump", "verdict"), [(0.12, "valid"), (-0.14, "disturbed"), (5.0, "disturbed"), (None, "valid")])
def test_a_clock_that_was_set_disturbs_the_trial(tmp_path: Path, jump: float | None, verdict: str) -> None:
    trial = measured(tmp_path, clock_jump=jump)
    assert trial.record["verdict"] == verdict
    assert (trial.record["reason"] == "") == (verdict == "valid") and (
        verdict == "valid" or f"{jump:+.2f} s" in trial.record["reason"]
    )


def test_what_broke_is_asked_only_where_frames_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(servers: object, case: object) -> str:
        raise TestbedError("asked")

    monkeypatch.setattr(load_latency, "_breakdown", asked)
    assert measured(tmp_path).record["verdict"] == "valid"
    with pytest.raises(TestbedError, match="asked"):
        measured(tmp_path, sample.output(300_000, 299_999))


# -- several guests ----------------------------------------------------------------------------------------

EVEN = ((75_000, 75_000),) * 4
START = datetime(2026, 1, 1, tzinfo=UTC)


def of_guests(
    folder: Path,
    *totals: tuple[int, int],
    output: str = "",
    histograms: str | None = "",
    guests: tuple[int, ...] | None = None,
    weights: tuple[int, ...] = (),
    missing: Mapping[str, str] | None = None,
    broke: str = "",
) -> Trial:
    """A trial of 10 kpps for 30 s on several guests, of which these frames were sent and received; by default 100 samples of each."""
    files = {kind: folder / f"{kind}.txt" for kind in ("output", "histogram", "guests")}
    said = output or sample.of_guests(*totals)
    files["output"].write_text(said)
    files["histogram"].write_text(sample.histogram(100 * len(totals)))
    if histograms is not None:
        files["guests"].write_text(histograms or sample.guest_histograms(len(totals)))
    numbers = tuple(range(1, len(totals) + 1)) if guests is None else guests
    end = ProgramEnd(0, said, 31.0, 0.0, None)
    run = Run("load.lua", end, 10, 30, (START, START), files, numbers, weights, missing or {})
    trial = run.judged(DEFAULT_TOLERANCES, lambda: broke)
    json.dumps(dict(trial.record), allow_nan=False)
    return trial


def test_a_trial_of_several_guests_has_their_figures_their_file_and_their_fairness(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, (150_000, 150_000), (150_000, 50_000))
    assert trial.record["verdict"] == "valid" and trial.problem is None
    assert [(guest["guest"], guest["mac"], guest["received"], guest["p50_ns"]) for guest in trial.record["figures"]["guests"]] == [
        (1, sample.mac(1), 150_000, 10_049), (2, sample.mac(2), 50_000, 10_149)]  # fmt: skip
    assert trial.record["figures"]["fairness"] == pytest.approx(0.8)
    assert trial.files["guests"].read_text() == sample.guest_histograms(2)
    assert trial.line == "achieved 10.00 kpps, loss 33.33%, median 10.1 us, fairness 0.800 of 2 guests, valid"
    assert "missing_guests" not in trial.record


def test_fairness_is_relative_to_the_weights_of_the_run(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, (225_000, 225_000), (75_000, 75_000), weights=(3, 1))
    assert trial.record["figures"]["fairness"] == 1


def test_the_file_of_the_guests_has_their_numbers_where_some_are_missing(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, *EVEN[:3], guests=(1, 2, 4), missing={"guest3": "no SSH after 60 s"})
    assert sorted(parse_guest_latencies(trial.files["guests"].read_bytes(), "g")) == [1, 2, 4]
    assert trial.files["guests"].read_text() == sample.guest_histograms(3).replace("\n3,", "\n4,")
    assert [guest["guest"] for guest in trial.record["figures"]["guests"]] == [1, 2, 4]


def test_missing_guests_are_recorded_and_the_trial_counts_only_where_that_is_accepted(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, (100_000, 100_000), (200_000, 200_000), guests=(1, 3), missing={"guest2": "no SSH after 60 s"})
    assert trial.record["missing_guests"] == {"guest2": "no SSH after 60 s"}
    assert trial.record["verdict"] == "missing-guests"
    assert trial.problem == "missing-guests: 1 of 3 guests were not there: guest2: no SSH after 60 s"
    assert trial.blames_set_up


def test_one_guest_that_is_left_of_two_is_measured_as_one(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, (300_000, 300_000), output=sample.output(), guests=(), weights=(1,), missing={"guest2": "no SSH"})
    assert trial.record["reason"] == "1 of 2 guests were not there: guest2: no SSH" and trial.record["figures"]["guests"] == []
    assert sorted(trial.files) == ["histogram", "output"] and "fairness" not in trial.line


def test_something_worse_than_missing_guests_is_told_instead(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, *EVEN[:2], (75_000, 0), (75_000, 75_000), guests=(1, 2, 3, 5), missing={"guest4": "no SSH"})
    assert (trial.record["verdict"], trial.record["reason"]) == (
        "no-reflection",
        "of 75000 frames sent to guest3, none came back",
    )
    assert trial.blames_set_up and trial.record["missing_guests"] == {"guest4": "no SSH"}


def test_a_guest_that_dies_in_the_middle_is_named(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, *EVEN[:3], (75_000, 30_000), broke="guest4: QEMU is gone")
    assert (trial.record["verdict"], trial.record["reason"]) == ("disturbed", "guest4: QEMU is gone")


@pytest.mark.parametrize("content", ["1,5,1\n1,4,1\n", "1,5,1", "5,5,1\n", "guest,nanoseconds,count\n"])
def test_guests_histograms_that_cannot_be_read_are_kept_with_the_reason(tmp_path: Path, content: str) -> None:
    trial = of_guests(tmp_path, *EVEN[:2], histograms=content)
    assert trial.record["verdict"] == "incomplete" and trial.record["reason"].startswith("the guests' histograms:")
    assert trial.files["guests"].read_text() == content


def test_guests_without_any_histogram_are_found_out(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, *EVEN, histograms=None)
    assert (
        trial.record["verdict"] == "incomplete"
        and "100 latency samples of guest, its histogram holds 0" in trial.record["reason"]
    )
    assert "guests" not in trial.files


def test_an_output_of_other_guests_is_found_out(tmp_path: Path) -> None:
    trial = of_guests(tmp_path, *EVEN[:2], output=sample.of_guests(*EVEN[:3]))
    assert (trial.record["verdict"], "went to 2 guests, the output tells of 3" in trial.record["reason"]) == ("incomplete", True)


def test_it_is_loaded_without_numpy() -> None:
    code = "import sys; import autotest.measurements.load_run; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_trial_tells_its_phases_and_the_rate_at_which_it_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, object]] = []

    class Told(Observer):
        def phase(self, name: str, seconds: float) -> None:
            told.append((name, seconds))

        def reads(self, text: str) -> None:
            told.append(("reads", text))

    def slept(seconds: float) -> None:
        told.append(("sleeps", seconds))

    monkeypatch.setattr("autotest.measurements.load_latency.time.sleep", slept)
    measured(tmp_path, observer=Told(), cooldown=3, warmup=5)
    sent = [("reads", "19-21 kpps")]
    assert told == [("rest", 3), ("sleeps", 3), ("warm-up", 5), *sent, ("load", 30), *sent]
    told.clear()
    measured(tmp_path, observer=Told(), cooldown=0, warmup=0)
    assert told == [("load", 30), *sent]
