"""A campaign over a real output directory, with a measurement kind that measures nothing: resume, retries, records."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import ConfigError, TrafficError, UsageError
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case, Section
from autotest.results.figures import Figures
from autotest.results.identity import Identity
from autotest.results.records import TRIAL_VERSION
from autotest.results.verdicts import Verdict
from autotest.run.campaign import Campaign, count
from autotest.run.dry_run import describe
from autotest.run.observer import Observer
from autotest.run.stages import Stage
from autotest.servers.facts import MachineFacts
from autotest.servers.testbed import Servers
from autotest.traffic.frame_sizes import FrameSizes

HOST, GUEST = HostConfig(fqdn="localhost"), GuestConfig(fqdn="nobody.invalid")
TESTBED = Testbed(Path("a.conf"), HOST, GUEST, LoadGenConfig(fqdn="localhost"))
LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("pcvm",), "interface": ("bridge", "macvtap"), "qemu": (("q", "/x"),), "vhost": (False,),
    "ioregionfd": (False,), "queues": (None,), "rx_queue_size": (None,), "tx_queue_size": (None,), "guests": (1,),
    "reflector": ("xdp",), "weights": ("even",), "rate": (10, 20), "size": (60,), "runtime": (1,),
}  # fmt: skip
TOTAL = (
    "[Device: id=0] {}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 with framing), total 5 packets with 320 bytes (incl. CRC)\n"
).replace("(6 with", "(6 Mbit/s with")


class Fake:
    """Counts what is set up and measured; verdicts are taken from a list, valid when it is empty."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.measured: list[tuple[str, int]] = []
        self.outcomes: list[str | BaseException] = []
        self.output = "".join(TOTAL.format(direction) for direction in ("RX", "TX"))

    def kind(self) -> MeasurementKind:
        @contextmanager
        def stage(servers: Servers, case: Case) -> Iterator[None]:
            self.entered.append(str(case["interface"]))
            yield

        def measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
            self.measured.append((KIND.infix(case), case["repetition"]))
            outcome = self.outcomes.pop(0) if self.outcomes else "valid"
            if isinstance(outcome, BaseException):
                raise outcome
            (folder / "o").write_text(self.output)
            (folder / "h").write_text("1000,5\n")
            record = {"verdict": outcome, "reason": "", "figures": {}}
            files = {"output": folder / "o", "histogram": folder / "h"}
            return Trial(files, record, "figures", None if outcome == "valid" else f"{outcome}: bad")

        return MeasurementKind(
            KIND.name, KIND.parameters, KIND.settings, KIND.rules, (Stage("net", "interface", stage),), KIND.infix,
            lambda testbed, cases: [], measure, determining=("warmup", "cooldown"), unfitting=KIND.unfitting,
        )  # fmt: skip


def section(outputdir: Path, name: str = "s", repetitions: int = 1, retries: int = 0, **lists: Any) -> Section:
    settings = {"outputdir": outputdir, "repetitions": repetitions, "retries": retries, "warmup": 0.0, "cooldown": 1.5}
    return Section(name, LISTS | lists, settings)


def run(fake: Fake, *sections: Section, accept: frozenset[Verdict] = frozenset()) -> Any:
    campaign = Campaign(fake.kind(), sections, accept)
    campaign.check(TESTBED)
    campaign.record_accepted()
    total, done = count(campaign.trials())
    with Servers(TESTBED) as servers:
        return campaign.run(servers, total - done, pause=0)


def test_every_trial_is_measured_once_and_nothing_the_next_time(tmp_path: Path) -> None:
    fake = Fake()
    assert run(fake, section(tmp_path / "out", repetitions=2)).done == 8
    assert fake.entered == ["bridge", "macvtap"] and len(set(fake.measured)) == 8
    again = Fake()
    assert run(again, section(tmp_path / "out", repetitions=2)).done == 0
    assert again.entered == again.measured == []


def test_after_an_interruption_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["valid", "valid", KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        run(fake, section(tmp_path))
    again = Fake()
    assert run(again, section(tmp_path)).done == 2
    assert again.entered == ["macvtap"]


def test_repetitions_added_later_are_the_only_ones_measured(tmp_path: Path) -> None:
    run(Fake(), section(tmp_path, rate=(10,)))
    again = Fake()
    run(again, section(tmp_path, repetitions=3, rate=(10,)))
    assert sorted(number for _, number in again.measured) == [1, 1, 2, 2]


def test_a_trial_that_counts_for_nothing_is_measured_again_and_fails_the_run_if_it_stays(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["no-reflection", "valid"]
    assert run(fake, section(tmp_path, rate=(10,), retries=1)).done == 2
    fake.outcomes = ["no-reflection"] * 2 + [TrafficError("loadgen: hangs")] * 2
    summary = run(fake, section(tmp_path, rate=(20,), retries=1))
    assert [failure.reason for failure in summary.failures] == ["no-reflection: bad", "loadgen: hangs"]
    assert summary.done == 0 and summary.failed == 2


def test_the_record_of_a_trial_holds_parameters_configuration_and_versions(tmp_path: Path) -> None:
    run(Fake(), section(tmp_path, interface=("bridge",), rate=(10,)))
    (file,) = tmp_path.glob("trial_*.json")
    record = json.loads(file.read_text())
    assert record["parameters"] == {
        "machine": "pcvm", "interface": "bridge", "qemu": "q", "vhost": False, "ioregionfd": False,
        "guests": 1, "reflector": "xdp", "rate": 10, "size": 60, "runtime": 1,
    }  # fmt: skip
    assert record["testbed"]["configuration"]["host"]["fqdn"] == "localhost" and record["versions"]["autotest"]
    assert record["machines"]["host"]["kernel"] == os.uname().release and record["accepted"] is None
    assert record["identity"] == Identity({"settings.warmup": 0.0, "settings.cooldown": 1.5}).record()


def schema() -> Draft202012Validator:
    file = resources.files("autotest.results") / "trial.schema.json"
    Draft202012Validator.check_schema(json.loads(file.read_text()))
    return Draft202012Validator(json.loads(file.read_text()))


def test_the_record_of_a_trial_is_as_the_published_schema_says_whatever_its_verdict(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = [str(verdict) for verdict in Verdict]
    one_for_each = section(tmp_path, rate=tuple(range(1, len(Verdict) + 1)), interface=("bridge",))
    run(fake, one_for_each, accept=frozenset({Verdict.DISTURBED}))
    records = [json.loads(file.read_text()) for file in tmp_path.glob("trial_*.json")]
    assert {record["verdict"] for record in records} == set(Verdict)
    assert [record["accepted"] is not None for record in records] == [record["verdict"] == "disturbed" for record in records]
    for record in records:
        schema().validate(record)
    assert set(schema().schema["properties"]["verdict"]["enum"]) == set(Verdict)
    assert schema().schema["properties"]["version"]["const"] == TRIAL_VERSION


def test_the_schema_describes_every_figure_and_every_fact_of_a_machine() -> None:
    known = schema().schema
    figures = [field.name for field in dataclasses.fields(Figures)]
    assert list(known["properties"]["figures"]["properties"]) == figures
    assert set(known["$defs"]["machine"]["properties"]) == set(MachineFacts().record())
    assert set(known["$defs"]["machine"]["properties"]["nic"]["properties"]) == set(MachineFacts().record()["nic"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("version", 1), ("version", 4), ("verdict", "fine"), ("repetition", -1), ("files", []), ("identity", {"hash": "x"}),
     ("accepted", True), ("testbed", {"host": {}}), ("machines", {"host": {}}), ("settings", {"a": []}),
     ("figures", {"sent": -1}), ("figures", {"loss": 1.5}), ("figures", {"p50_ns": "8 us"})],
)  # fmt: skip
def test_the_schema_refuses_what_is_none_of_our_records(tmp_path: Path, key: str, value: object) -> None:
    run(Fake(), section(tmp_path, interface=("bridge",), rate=(10,)))
    (file,) = tmp_path.glob("trial_*.json")
    record = json.loads(file.read_text())
    assert schema().is_valid(record) and not schema().is_valid({**record, key: value})


# -- accepted verdicts ---------------------------------------------------------------------------------------


DISTURBED = frozenset({Verdict.DISTURBED})


def test_an_accepted_verdict_makes_a_trial_done_and_is_recorded(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["disturbed", "no-reflection"]
    summary = run(fake, section(tmp_path, rate=(10,)), accept=DISTURBED)
    assert summary.done == 1 and summary.failed == 1
    accepted = {record["verdict"]: record["accepted"] for record in records(tmp_path)}
    assert accepted["no-reflection"] is None
    assert set(accepted["disturbed"]) == {"at", "by"} and accepted["disturbed"]["by"].endswith(os.uname().nodename)
    again = Fake()
    run(again, section(tmp_path, rate=(10,)))  # without --accept: what was accepted stays so
    assert again.measured == [("pcvm_macvtap_q_vhostoff_ioregionfdoff_xdp_10kpps_60B_1s", 0)]


def test_a_trial_that_is_there_already_can_be_accepted_afterwards(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["disturbed"]
    run(fake, section(tmp_path, rate=(10,)))
    again = Fake()
    assert run(again, section(tmp_path, rate=(10,)), accept=DISTURBED).done == 0 and again.measured == []
    assert {record["verdict"]: bool(record["accepted"]) for record in records(tmp_path)} == {"disturbed": True, "valid": False}


def test_what_has_no_usable_files_fails_the_run_whatever_is_accepted(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["incomplete"] * 2
    fake.output = "MoonGen ended early\n"
    accept = frozenset({Verdict.INCOMPLETE})
    assert run(fake, section(tmp_path, rate=(10,)), accept=accept).failed == 2
    assert [record["accepted"] for record in records(tmp_path)] == [None, None]


def test_a_verdict_that_is_not_accepted_is_measured_again_and_the_earlier_attempt_is_kept(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["too-few-samples"]
    run(fake, section(tmp_path, rate=(10,)), accept=DISTURBED)
    run(Fake(), section(tmp_path, rate=(10,)), accept=DISTURBED)
    assert {record["verdict"] for record in records(tmp_path)} == {"valid"}
    assert [record["verdict"] for record in records(tmp_path / "invalid")] == ["too-few-samples"]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in folder.glob("trial_*.json")]


def test_sections_that_share_cases_and_a_folder_measure_them_once(tmp_path: Path) -> None:
    fake = Fake()
    run(fake, section(tmp_path, "a"), section(tmp_path, "b"))
    assert len(fake.measured) == len(set(fake.measured)) == 4


def test_what_sections_share_is_counted_once_wherever_trials_are_counted(tmp_path: Path) -> None:
    campaign = Campaign(KIND, [section(tmp_path, "a"), section(tmp_path, "b", rate=(20, 30)), section(tmp_path, "c", rate=(10,))])
    assert count(campaign.trials()) == (2 * 3, 0)
    assert len({planned.name for planned in campaign.to_do()}) == len(list(campaign.to_do())) == 6
    lines = list(describe(campaign))
    assert [line for line in lines if line.startswith("[")] == [
        "[a]: 4 trials, 0 done, 4 to do",
        "[b]: 2 trials, 0 done, 2 to do; 2 more counted with a section above",
        "[c]: 0 trials, 0 done, 0 to do; 2 more counted with a section above",
    ]
    assert "all: 6 trials, 0 done, 6 to do" in lines and lines[-2].startswith("6 trials on ")


def test_a_trial_that_fails_is_not_tried_again_for_another_section_that_shares_it(tmp_path: Path) -> None:
    fake = Fake()
    fake.outcomes = ["no-reflection"]
    summary = run(fake, section(tmp_path, "a"), section(tmp_path, "b"))
    assert (summary.done, summary.failed, len(fake.measured)) == (3, 1, 4)


def test_what_is_wrong_with_several_output_directories_is_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    campaign = Campaign(Fake().kind(), [section(tmp_path / "file", "a"), section(Path("/proc/no/way"), "b")])
    with pytest.raises(ConfigError) as caught:
        campaign.check(TESTBED)
    assert [(problem.section, problem.key) for problem in caught.value.problems] == [("a", "outputdir"), ("b", "outputdir")]


def test_two_ways_to_measure_what_has_one_name_are_a_contradiction_in_one_folder_only(tmp_path: Path) -> None:
    def problems(*sections: Section) -> list[str]:
        try:
            Campaign(Fake().kind(), sections).check(TESTBED)
        except ConfigError as error:
            return [str(problem) for problem in error.problems]
        return []

    one, other = section(tmp_path, "a"), section(tmp_path, "b", rate=(20, 30))
    slow = Section("c", other.lists, {**other.settings, "warmup": 5.0})
    assert problems(one, other) == []
    (problem,) = problems(one, slow)
    name = "pcvm_bridge_q_vhostoff_ioregionfdoff_xdp_20kpps_60B_1s"
    assert problem == f"tests.conf [c] warmup: is 0.0 in [a], which measures {name} too: one outputdir for each"
    assert problems(one, Section("c", slow.lists, {**slow.settings, "outputdir": tmp_path / "c"})) == []
    assert problems(section(tmp_path, "a", rate=(10,)), slow) == []


def test_a_plan_without_a_valid_case_is_an_error(tmp_path: Path) -> None:
    campaign = Campaign(Fake().kind(), [section(tmp_path, interface=("pnic",))])
    campaign.check(TESTBED)
    with pytest.raises(UsageError, match="no valid combination"):
        campaign.require_cases()


def test_the_dry_run_counts_all_done_and_to_do_and_says_why_cases_are_left_out(tmp_path: Path) -> None:
    run(Fake(), section(tmp_path, interface=("bridge",), rate=(10,)))
    campaign = Campaign(KIND, [section(tmp_path, "lat", repetitions=2, ioregionfd=(False, True))])
    lines = list(describe(campaign))
    assert lines[0] == "[lat]: 8 trials, 1 done, 7 to do"
    assert "all: 8 trials, 1 done, 7 to do" in lines
    text = "\n".join(lines)
    assert "├─ interface bridge: 4 trials, 1 done, 3 to do" in text
    assert "└─ interface macvtap: 4 trials, 0 done, 4 to do" in text
    assert "qemu q:" in text and "vhost off" in text
    (left_out,) = [line for line in lines if "interface bridge" in line and "ioregionfd on" in line]
    assert "4 trials" in left_out and "only on microvm" in left_out


def problems_of(*sections: Section) -> list[str]:
    try:
        Campaign(Fake().kind(), sections).check(TESTBED)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


IN_TURN = FrameSizes("60~590~imix", (((60, 1),), ((590, 1),), ((60, 7), (590, 4), (1514, 1))))


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"weights": ("3:1",)}, "weights: '3:1' is for 2 guests, and guests is 1: expected as many numbers, or 2 among guests"),
        ({"guests": (1, 4), "weights": ("even", "3:1:1")},
         "weights: '3:1:1' is for 3 guests, and guests is 1, 4: expected as many numbers, or 3 among guests"),
        ({"guests": (2, 1), "size": (60, IN_TURN)},
         "sizes: '60~590~imix' is for 3 guests or more, and guests is 2, 1: "
         "expected at most 2 with | between them, or 3 among guests"),
        ({"guests": (1, 2, 3), "weights": ("even", "3:1", "3:1:1"), "size": (60, IN_TURN)}, None),
    ],
    ids=["one guest", "weights", "sizes", "all fit"],
)  # fmt: skip
def test_what_fits_no_number_of_guests_of_its_section_is_an_error(
    tmp_path: Path, lists: dict[str, tuple[Any, ...]], expected: str | None
) -> None:
    assert problems_of(section(tmp_path, "a", **lists)) == ([f"tests.conf [a] {expected}"] if expected else [])


def test_the_value_that_makes_result_names_too_long_is_an_error_before_the_start(tmp_path: Path) -> None:
    qemu, weights = "q" * 80, ":".join(["17"] + ["1"] * 19)
    fitting = {"qemu": ((qemu, ""), ("b", "")), "guests": (20,), "weights": (weights, "even"), "rate": (1, 200_000)}
    assert problems_of(section(tmp_path, **fitting)) == []
    mix = FrameSizes("+".join(f"{size}:1" for size in range(60, 80)), (tuple((size, 1) for size in range(60, 80)),))
    (problem,) = problems_of(section(tmp_path, "b", **fitting, size=(60, mix)))
    assert problem.startswith("tests.conf [b] sizes: '60:1+61:1")
    assert "has 99 characters, which makes result names too long: at most" in problem
    most = int(problem.partition("at most ")[2].split()[0])
    shorter = FrameSizes("x" * most, mix.distributions)
    assert problems_of(section(tmp_path, **fitting, size=(60, shorter))) == []
    assert problems_of(section(tmp_path, **fitting, size=(60, FrameSizes("x" * (most + 1), mix.distributions))))
    too_many = ":".join(["2"] + ["1"] * 199)
    (problem,) = problems_of(section(tmp_path, "c", guests=(200,), weights=("even", too_many)))
    assert problem.startswith("tests.conf [c] weights: '2:1:1") and "has 399 characters" in problem


def test_mixes_of_sizes_are_recorded_by_their_names(tmp_path: Path) -> None:
    run(Fake(), section(tmp_path, interface=("bridge",), rate=(10,), guests=(3,), weights=("3:1:1",), size=(60, IN_TURN)))
    found = {record["parameters"]["size"]: record["parameters"] for record in records(tmp_path)}
    assert set(found) == {60, "60~590~imix"}
    assert found[60]["guests"] == 3 and found[60]["weights"] == "3:1:1"
    names = sorted(file.name for file in tmp_path.glob("trial_*"))
    assert names[1] == "trial_pcvm_bridge_q_vhostoff_ioregionfdoff_guests3_xdp_weights3:1:1_10kpps_60~590~imixB_1s_rep0.json"


def test_one_guest_is_not_mentioned_where_there_are_no_others(tmp_path: Path) -> None:
    text = "\n".join(describe(Campaign(KIND, [section(tmp_path)])))
    assert "guests" not in text and "weights" not in text
    lines = list(describe(Campaign(KIND, [section(tmp_path, interface=("bridge",), guests=(2, 1))])))
    found = [line.strip("│├└─ ").partition(":")[0] for line in lines]
    assert found[found.index("ioregionfd off") + 1 :][:4] == ["guests 2", "reflector xdp", "guests 1", "reflector xdp"]


def test_the_dry_run_names_sizes_that_are_left_out_once_and_not_at_every_rate(tmp_path: Path) -> None:
    lists = {"interface": ("bridge",), "guests": (1, 3), "size": (60, IN_TURN)}
    lines = list(describe(Campaign(KIND, [section(tmp_path, **lists)])))
    (left_out,) = [line for line in lines if "these sizes are for more guests" in line]
    assert "guests 1 reflector xdp size 60~590~imix: 2 trials" in left_out
    assert "all: 6 trials, 0 done, 6 to do" in lines


def test_the_dry_run_tells_what_is_left_to_qemu_from_other_values(tmp_path: Path) -> None:
    lines = list(describe(Campaign(KIND, [section(tmp_path, interface=("bridge",), rate=(10,), queues=(4, None))])))
    found = [line.strip("│├└─ ").partition(":")[0] for line in lines]
    assert found[found.index("ioregionfd off") + 1 :][:4] == ["queues 4", "reflector xdp", "queues default", "reflector xdp"]
    assert not any("queue_size" in line for line in lines)


def test_results_that_are_there_count_for_what_is_left_to_qemu_alone(tmp_path: Path) -> None:
    run(Fake(), section(tmp_path, interface=("bridge",)))
    more = Fake()
    run(more, section(tmp_path, interface=("bridge",), queues=(None, 4)))
    expected = {f"pcvm_bridge_q_vhostoff_ioregionfdoff_queues4_xdp_{rate}kpps_60B_1s" for rate in (10, 20)}
    assert {name for name, _ in more.measured} == expected


def test_the_dry_run_does_not_make_the_output_directory(tmp_path: Path) -> None:
    campaign = Campaign(Fake().kind(), [section(tmp_path / "new/out")])
    campaign.check(TESTBED)
    list(describe(campaign))
    assert list(tmp_path.iterdir()) == []
