"""Done trials whose result was determined by something else than what would be run now."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import UsageError
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case, Section
from autotest.results.identity import Identity, differences
from autotest.results.names import TrialName
from autotest.results.store import ResultStore
from autotest.run.campaign import Campaign, count
from autotest.run.observer import Observer
from autotest.run.recording import identity
from autotest.run.runner import Summary
from autotest.run.stages import Stage
from autotest.run.stale import OnStale, can_be_compared, compare, settle
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers

TESTBED = Testbed(
    Path("a.conf"), HostConfig(fqdn="localhost"), GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost")
)
LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("pcvm",), "interface": ("bridge", "macvtap"), "qemu": (("q", "/x"),), "vhost": (False,),
    "ioregionfd": (False,), "queues": (None,), "rx_queue_size": (None,), "tx_queue_size": (None,), "guests": (1,),
    "reflector": ("xdp",), "weights": ("even",), "rate": (10, 20), "size": (60,), "runtime": (1,),
}  # fmt: skip
TOTAL = (
    "[Device: id=0] {}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), total 5 packets with 320 bytes "
    "(incl. CRC)\n"
)


class Machines:
    """Stands for the machines: what determines a result there, and how often they were asked."""

    def __init__(self, **determines: Any) -> None:
        self.determines: dict[str, Any] = {"qemu.version": "7.2.1", "qemu.sha256": "a" * 64} | determines
        self.asked = 0
        self.measured: list[str] = []
        self.verdict = "valid"

    def kind(self) -> MeasurementKind:
        @contextmanager
        def stage(servers: Servers, case: Case) -> Iterator[None]:
            yield

        def measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
            self.measured.append(f"{KIND.infix(case)}_rep{case['repetition']}")
            (folder / "o").write_text("".join(TOTAL.format(direction) for direction in ("RX", "TX")))
            (folder / "h").write_text("1000,5\n")
            record = {"verdict": self.verdict, "reason": "", "figures": {}}
            problem = None if self.verdict == "valid" else "bad"
            return Trial({"output": folder / "o", "histogram": folder / "h"}, record, "figures", problem)

        def determines(inspection: Inspection, case: Case) -> dict[str, Any]:
            self.asked += 1
            return self.determines | {"guest.interface": case["interface"]}

        return MeasurementKind(
            KIND.name, KIND.parameters, KIND.settings, KIND.rules, (Stage("net", "reflector", stage),), KIND.infix,
            lambda testbed, cases: [], measure, determines=determines, determining=("warmup",),
        )  # fmt: skip

    def campaign(self, *sections: Section) -> Campaign:
        return Campaign(self.kind(), sections)


def section(outputdir: Path, warmup: float = 0.0, repetitions: int = 1, **lists: Any) -> Section:
    settings = {"outputdir": outputdir, "repetitions": repetitions, "retries": 0, "warmup": warmup, "accumulate": False}
    return Section("s", LISTS | lists, settings)


def run(campaign: Campaign, on_stale: OnStale = OnStale.FAIL) -> Summary:
    with Servers(TESTBED) as servers:
        settle(campaign, servers, on_stale)
        total, done = count(campaign.trials())
        return campaign.run(servers, total - done, pause=0)


@pytest.fixture
def servers() -> Iterator[Servers]:
    with Servers(TESTBED) as servers:
        yield servers


def test_what_would_be_measured_the_same_way_is_left_alone(tmp_path: Path) -> None:
    machines = Machines()
    assert run(machines.campaign(section(tmp_path))).done == 4
    assert run(machines.campaign(section(tmp_path))).done == 0 and len(machines.measured) == 4


def test_another_qemu_ends_the_run_before_anything_is_measured_and_names_the_difference(tmp_path: Path) -> None:
    run(Machines().campaign(section(tmp_path)))
    now = Machines(**{"qemu.version": "8.0.0", "qemu.sha256": "b" * 64})
    with pytest.raises(UsageError) as caught:
        run(now.campaign(section(tmp_path, repetitions=2)))
    message = str(caught.value)
    assert "4 done trials, e.g. pcvm_bridge_q_vhostoff_ioregionfdoff_xdp_10kpps_60B_1s_rep0: " in message
    assert "QEMU: 7.2.1 (sha256 aaaaaaaaaaaa...) then, 8.0.0 (sha256 bbbbbbbbbbbb...) now" in message
    assert all(text in message for text in ("--stale rerun", "--stale keep", "another outputdir"))
    assert caught.value.exit_code == 2 and now.measured == []


def test_kept_ones_stay_and_the_missing_ones_are_measured_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(Machines().campaign(section(tmp_path)))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("trial_*")}
    now = Machines(**{"qemu.sha256": "b" * 64})
    assert run(now.campaign(section(tmp_path, repetitions=2)), OnStale.KEEP).done == 4
    assert all(name.endswith("_rep1") for name in now.measured)
    assert before.items() <= {path.name: path.read_bytes() for path in tmp_path.glob("trial_*")}.items()
    (warning,) = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert "kept" in warning.getMessage() and "QEMU" in warning.getMessage()


def test_rerun_measures_them_again_and_keeps_the_earlier_ones_beside(tmp_path: Path) -> None:
    run(Machines().campaign(section(tmp_path)))
    now = Machines(**{"qemu.sha256": "b" * 64})
    assert run(now.campaign(section(tmp_path)), OnStale.RERUN).done == 4
    for folder, digit in ((tmp_path, "b"), (tmp_path / "invalid", "a")):
        records = [json.loads(path.read_text()) for path in folder.glob("trial_*")]
        assert [record["identity"]["determines"]["qemu.sha256"] for record in records] == [digit * 64] * 4
        assert {record["verdict"] for record in records} == {"valid"}
    for kind in ("output", "histogram"):
        assert len(list((tmp_path / "invalid").glob(f"{kind}_*"))) == 4
    assert run(now.campaign(section(tmp_path))).done == 0


def test_rerun_measures_only_what_is_stale(tmp_path: Path) -> None:
    machines = Machines()
    run(machines.campaign(section(tmp_path, interface=("bridge",))))
    machines.determines["qemu.sha256"] = "b" * 64
    run(machines.campaign(section(tmp_path, interface=("macvtap",))))
    machines.measured.clear()
    run(machines.campaign(section(tmp_path)), OnStale.RERUN)
    assert machines.measured == [f"pcvm_bridge_q_vhostoff_ioregionfdoff_xdp_{rate}kpps_60B_1s_rep0" for rate in (10, 20)]


def test_a_rerun_that_was_interrupted_leaves_the_rest_stale_and_nothing_lost(tmp_path: Path) -> None:
    run(Machines().campaign(section(tmp_path)))
    now = Machines(**{"qemu.sha256": "b" * 64})
    campaign = now.campaign(section(tmp_path))
    with Servers(TESTBED) as servers:
        settle(campaign, servers, OnStale.RERUN)
        next(campaign._jobs(servers, Observer()))  # and then it is killed
    with pytest.raises(UsageError, match="4 done trials"):
        run(now.campaign(section(tmp_path)))


def test_a_setting_that_changes_the_load_makes_stale_and_one_that_does_not_does_not(tmp_path: Path) -> None:
    machines = Machines()
    run(machines.campaign(section(tmp_path)))
    assert run(machines.campaign(section(tmp_path, repetitions=2))).done == 4
    with pytest.raises(UsageError, match=r"8 done trials.*warmup: 0.0 then, 5.0 now"):
        run(machines.campaign(section(tmp_path, warmup=5.0, repetitions=2)))


def test_different_differences_are_told_one_by_one(tmp_path: Path, servers: Servers) -> None:
    machines = Machines()
    run(machines.campaign(section(tmp_path, rate=(10,))))
    machines.determines["host.governor"] = None
    machines.determines["qemu.sha256"] = "b" * 64
    run(machines.campaign(section(tmp_path, rate=(20,), interface=("bridge",))))
    machines.determines["host.governor"] = "performance"
    lines = compare(machines.campaign(section(tmp_path)), servers).lines()
    assert len(lines) == 2
    assert lines[0].startswith("2 done trials, e.g. ") and "QEMU" in lines[0] and "governor" not in lines[0]
    assert "20kpps_60B_1s_rep0: host governor: none then, performance now" in lines[1]


def test_trials_of_older_autotests_are_kept_and_that_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machines = Machines()
    run(machines.campaign(section(tmp_path)))
    for path in tmp_path.glob("trial_*"):
        record = json.loads(path.read_text())
        record["version"] = 1
        del record["identity"]
        path.write_text(json.dumps(record))
    machines.determines["qemu.sha256"] = "b" * 64
    assert not can_be_compared(machines.campaign(section(tmp_path)))
    caplog.set_level(logging.INFO)
    assert run(machines.campaign(section(tmp_path))).done == 0
    (line,) = [entry.getMessage() for entry in caplog.records if "older autotest" in entry.getMessage()]
    assert line.startswith("4 done trials")


def test_machines_are_asked_once_for_a_set_up_and_files_read_once_for_a_difference_however_many_trials_there_are(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines()
    planned = section(tmp_path, rate=(1, 2, 3, 4), repetitions=3)
    run(machines.campaign(planned))
    loaded: list[TrialName] = []
    load = ResultStore.load
    monkeypatch.setattr(ResultStore, "load", lambda self, name: loaded.append(name) or load(self, name))
    for digit, read in (("a", 0), ("b", 2)):
        machines.determines["qemu.sha256"] = digit * 64
        campaign = machines.campaign(planned)
        assert count(campaign.trials()) == (24, 24)
        machines.asked = 0
        loaded.clear()
        assert len(compare(campaign, servers).trials()) == (24 if digit == "b" else 0)
        assert machines.asked == 2 and len(loaded) == read


def test_what_is_recorded_is_what_was_at_the_set_up_and_not_at_the_start_of_the_run(tmp_path: Path) -> None:
    machines = Machines()
    campaign = machines.campaign(section(tmp_path, rate=(10,)))
    first = campaign.kind.measure

    def replaced_while_it_runs(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
        machines.determines["qemu.sha256"] = "c" * 64
        return first(servers, case, section, folder, observer)

    campaign.kind = dataclasses.replace(campaign.kind, measure=replaced_while_it_runs)
    run(campaign)
    found = [json.loads(path.read_text())["identity"]["determines"] for path in sorted(tmp_path.glob("trial_*"))]
    assert [(entry["guest.interface"], entry["qemu.sha256"][0]) for entry in found] == [("bridge", "a"), ("macvtap", "c")]


def test_what_one_task_sent_is_no_other_result_because_earlier_versions_knew_of_no_tasks(tmp_path: Path) -> None:
    def now(threads: int) -> Identity:
        chosen = Section("s", LISTS, {"outputdir": tmp_path, "warmup": 0.0, "cooldown": 0.0, "threads": threads})
        return identity(KIND, {"qemu.version": "7.2.1"}, chosen)

    earlier = Identity({"qemu.version": "7.2.1", "settings.warmup": 0.0, "settings.cooldown": 0.0})
    assert now(1).hash == earlier.hash
    assert differences(earlier, now(2)) == ["threads: none then, 2 now"]
    assert differences(now(2), now(1)) == ["threads: 2 then, none now"]
