"""Runs of a part of a campaign: what is selected, at most so many trials, in an order of chance; of any measurement kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import ConfigError, TrafficError
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.plan.narrowing import Narrowing, narrow
from autotest.plan.parameters import Case, Parameter, Rule, Section, Setting
from autotest.plan.shuffle import shuffled
from autotest.results.files import temporary_path
from autotest.results.verdicts import Verdict
from autotest.run.campaign import Campaign, count
from autotest.run.checks import checks
from autotest.run.dry_run import describe
from autotest.run.observer import Observer
from autotest.run.runner import End, Summary
from autotest.run.stages import Stage
from autotest.servers.testbed import Servers

TESTBED = Testbed(
    Path("a.conf"), HostConfig(fqdn="localhost"), GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost")
)
OUTPUT = "".join(
    f"[Device: id=0] {way}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), total 5 packets with 320 bytes "
    "(incl. CRC)\n"
    for way in ("RX", "TX")
)
PARAMETERS = (
    Parameter("path", "paths", str),
    Parameter("link", "links", str),
    Parameter("streams", "streams", int),
    Parameter("bytes", "bytes", int),
)
SETTINGS = (Setting("repetitions", int, 1), Setting("outputdir", Path))
EVERYTHING = Narrowing()
RULES = (Rule(("path", "link"), lambda path, link: (path, link) == ("tcp", "none"), "tcp needs a link"),)


class Throughput:
    """A measurement kind of its own, which counts what is set up and measured."""

    def __init__(self) -> None:
        self.set_up: list[tuple[str, str]] = []
        self.measured: list[str] = []
        self.outcomes: list[BaseException | str] = []
        self.broken: set[tuple[str, str]] = set()

    def kind(self) -> MeasurementKind:
        @contextmanager
        def stage(servers: Servers, case: Case) -> Iterator[None]:
            self.set_up.append((case["path"], case["link"]))
            if (case["path"], case["link"]) in self.broken:
                raise TrafficError("no such link")
            yield

        def measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
            self.measured.append(f"{infix(case)}_rep{case['repetition']}")
            outcome = self.outcomes.pop(0) if self.outcomes else "valid"
            if isinstance(outcome, BaseException):
                raise outcome
            (folder / "o").write_text(OUTPUT)
            (folder / "h").write_text("1000,5\n")
            files = {"output": folder / "o", "histogram": folder / "h"}
            return Trial(files, {"verdict": outcome, "reason": ""}, "figures", None if outcome == "valid" else "bad")

        return MeasurementKind(
            "throughput", PARAMETERS, SETTINGS, RULES, (Stage("link", "link", stage),), infix, lambda testbed, cases: [],
            measure,
        )  # fmt: skip


def infix(case: Any) -> str:
    return f"{case['path']}_{case['link']}_{case['streams']}streams_{case['bytes']}B"


def section(outputdir: Path, name: str = "s", repetitions: int = 2, **lists: Any) -> Section:
    there = {"path": ("tcp", "udp"), "link": ("none", "veth"), "streams": (1, 2, 4, 8), "bytes": (64, 1500)} | lists
    return Section(name, there, {"outputdir": outputdir, "repetitions": repetitions, "retries": 0})


def campaign(fake: Throughput, narrowing: Narrowing, *sections: Section, **more: Any) -> Campaign:
    found = narrow(sections, PARAMETERS, RULES, narrowing)
    planned = Campaign(fake.kind(), found.sections, more.get("accept", frozenset()), found.left_out)
    planned.limit, planned.seed = more.get("limit"), more.get("seed")
    return planned


def run(planned: Campaign) -> Summary:
    planned.check(TESTBED)
    planned.record_accepted()
    to_do = sum(1 for _ in planned.to_do())
    with Servers(TESTBED) as servers:
        return planned.run(servers, to_do, pause=0)


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


# -- selection -----------------------------------------------------------------------------------------------


def test_a_selection_measures_only_what_is_selected_and_sets_nothing_else_up(tmp_path: Path) -> None:
    fake = Throughput()
    narrowing = Narrowing((), ("path=udp streams<=2",), ("link=veth bytes>64",))
    assert run(campaign(fake, narrowing, section(tmp_path, repetitions=1))).done == len(fake.measured)
    assert fake.measured == [
        f"udp_{link}_{streams}streams_{size}B_rep0"
        for link in ("none", "veth") for streams in (1, 2) for size in (64, 1500) if not (link == "veth" and size > 64)
    ]  # fmt: skip
    assert fake.set_up == [("udp", "none"), ("udp", "veth")]


@pytest.mark.default
def test_nothing_outside_of_a_selection_is_touched(tmp_path: Path) -> None:
    fake = Throughput()
    fake.outcomes = ["disturbed"] * 56
    run(campaign(fake, EVERYTHING, section(tmp_path / "a"), section(tmp_path / "b", "other", path=("tcp",), link=("veth",))))
    dead = tmp_path / "b" / re.sub(r"\.[0-9]+\.", ".999999999.", temporary_path(tmp_path).name, count=1)
    dead.write_text("of a run that is dead")
    before = content(tmp_path)
    accept = frozenset({Verdict.DISTURBED})
    narrowing = Narrowing(("s",), ("path=udp link=veth streams=8",))
    again = campaign(Throughput(), narrowing, section(tmp_path / "a"), section(tmp_path / "b", "other"), accept=accept)
    assert run(again).done == 0, "all of it is accepted"
    after = content(tmp_path)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {f"a/trial_udp_veth_8streams_{size}B_rep{number}.json" for size in (64, 1500) for number in (0, 1)}
    fresh = Throughput()
    assert run(campaign(fresh, narrowing, section(tmp_path / "a"), section(tmp_path / "b", "other"))).done == 0
    assert dead.exists()
    run(campaign(fresh, Narrowing(("other",)), section(tmp_path / "a"), section(tmp_path / "b", "other"), limit=1))
    assert not dead.exists(), "this run was about that section"


def test_what_a_selection_measured_is_done_without_it_too(tmp_path: Path) -> None:
    run(campaign(Throughput(), Narrowing((), ("streams=4",)), section(tmp_path)))
    fake = Throughput()
    run(campaign(fake, EVERYTHING, section(tmp_path)))
    assert len(fake.measured) == 3 * 3 * 2 * 2 and not any("_4streams_" in name for name in fake.measured)


def test_all_that_asks_the_campaign_sees_the_selected_part_alone(tmp_path: Path) -> None:
    narrowing = Narrowing((), ("path=udp bytes=64",))
    planned = campaign(Throughput(), narrowing, section(tmp_path), section(tmp_path, "t", path=("tcp",)))
    assert count(planned.trials()) == (2 * 4 * 2, 0)
    assert [tuple(case.values()) for case in planned.set_ups()] == [("udp", "none"), ("udp", "veth")]
    assert list(planned.by_set_up(planned.to_do()).values()) == [8, 8]
    assert [one.name for one in planned.sections] == ["s"] and len(list(planned.infixes(planned.sections[0]))) == 8
    assert len(checks(planned, "no testbed")) == 16


def test_a_name_that_is_too_long_is_no_mistake_where_it_is_left_out(tmp_path: Path) -> None:
    long = section(tmp_path, path=("udp" * 80, "udp"))
    with pytest.raises(ConfigError, match="which makes result names too long"):
        campaign(Throughput(), EVERYTHING, long).check(TESTBED)
    campaign(Throughput(), Narrowing((), ("path=udp",)), long).check(TESTBED)


def test_the_dry_run_says_of_each_reason_how_many_trials_it_leaves_out(tmp_path: Path) -> None:
    narrowing = Narrowing(("s",), ("streams<8", "path=udp"), ("link=veth bytes=1500",))
    lines = list(describe(campaign(Throughput(), narrowing, section(tmp_path), section(tmp_path, "t", path=("udp",)))))
    left_out = lines[lines.index("left out:") + 1 :]
    assert left_out[:4] == [
        "  16 trials: --select 'path=udp'",
        "  8 trials: --select 'streams<8'",
        "  6 trials: --exclude 'link=veth bytes=1500'",
        "  32 trials: --section s",
    ]
    assert lines[0] == "[s]: 18 trials, 0 done, 18 to do"
    full = list(describe(campaign(Throughput(), EVERYTHING, section(tmp_path))))
    assert full[0].startswith("[s]: 48 trials") and "  path tcp link none: 16 trials: tcp needs a link" in full


def test_a_reason_for_very_many_combinations_is_one_line(tmp_path: Path) -> None:
    many = [section(tmp_path, f"s{number}") for number in range(20)]
    lines = list(describe(campaign(Throughput(), EVERYTHING, *many)))
    (line,) = [line for line in lines if "tcp needs a link" in line]
    assert line == "  320 trials in 20 places, like [s0] path tcp link none: tcp needs a link"


# -- limit ---------------------------------------------------------------------------------------------------


@pytest.mark.default
def test_a_limit_measures_so_many_trials_and_the_next_run_goes_on(tmp_path: Path) -> None:
    measured: list[str] = []
    for expected in (20, 20, 8, 0):
        fake = Throughput()
        assert run(campaign(fake, EVERYTHING, section(tmp_path), limit=20)).done == len(fake.measured) == expected
        measured += fake.measured
    whole = Throughput()
    run(campaign(whole, EVERYTHING, section(tmp_path / "whole")))
    assert measured == whole.measured


def test_a_limit_sets_up_and_asks_for_no_more_than_it_measures(tmp_path: Path) -> None:
    fake = Throughput()
    planned = campaign(fake, EVERYTHING, section(tmp_path), limit=3)
    assert planned.by_set_up(planned.to_do()) == {Case((*(one.name for one in PARAMETERS), "repetition"), ("tcp", "veth")): 3}
    assert [planned.within_limit(number) for number in (0, 2, 3, 48)] == [0, 2, 3, 3]
    run(planned)
    assert fake.set_up == [("tcp", "veth")]
    assert "[s]: 48 trials, 3 done, 45 to do" in (lines := list(describe(planned)))
    assert "all: 48 trials, 3 done, 45 to do, 3 of them in this run" in lines


def test_trials_that_fail_count_for_the_limit(tmp_path: Path) -> None:
    fake = Throughput()
    fake.outcomes = [TrafficError("hangs"), "no-reflection"]
    summary = run(campaign(fake, EVERYTHING, section(tmp_path), limit=2))
    assert (summary.done, summary.failed, len(fake.measured)) == (0, 2, 2)


def test_what_is_given_up_does_not_use_up_the_limit(tmp_path: Path) -> None:
    fake = Throughput()
    fake.broken = {("tcp", "veth")}
    planned = campaign(fake, EVERYTHING, section(tmp_path), limit=2)
    summary = run(planned)
    assert (summary.done, len(fake.measured)) == (1, 1) and "udp" in fake.measured[0]
    assert [outcome.end for outcome in planned.outcomes] == [End.FAILED, End.DONE] and summary.failed == 16
    states = [check.state for check in checks(planned)]
    assert states == ["failed", *["skipped"] * 15, "passed", *["skipped"] * 31]


def test_trials_beyond_the_limit_are_skipped_for_a_build_server_and_no_failure(tmp_path: Path) -> None:
    planned = campaign(Throughput(), EVERYTHING, section(tmp_path), limit=3)
    run(planned)
    states = [check.state for check in checks(planned)]
    assert states == ["passed"] * 3 + ["skipped"] * 45
    assert {check.state for check in checks(planned, "interrupted")} == {"passed", "error"}


# -- shuffle -------------------------------------------------------------------------------------------------


def test_a_shuffled_run_measures_the_same_trials_in_the_same_set_ups_in_another_order(tmp_path: Path) -> None:
    plain, mixed = Throughput(), Throughput()
    run(campaign(plain, EVERYTHING, section(tmp_path / "a")))
    run(campaign(mixed, EVERYTHING, section(tmp_path / "b"), seed=7))
    assert mixed.set_up == plain.set_up == [("tcp", "veth"), ("udp", "none"), ("udp", "veth")]
    assert sorted(mixed.measured) == sorted(plain.measured)
    for number in range(3):
        part = slice(16 * number, 16 * number + 16)
        assert mixed.measured[part] != plain.measured[part] and sorted(mixed.measured[part]) == sorted(plain.measured[part])
        order = [name.split("_", 2)[2] for name in mixed.measured[part]]
        first = [name.split("_", 2)[2] for name in mixed.measured[:16]]
        assert number == 0 or order != first, "each set-up has an order of its own"


@pytest.mark.default
def test_the_order_depends_on_the_seed_alone_and_an_interrupted_run_goes_on_in_it(tmp_path: Path) -> None:
    whole, other, first, second = Throughput(), Throughput(), Throughput(), Throughput()
    run(campaign(whole, EVERYTHING, section(tmp_path / "a"), seed=7))
    run(campaign(other, EVERYTHING, section(tmp_path / "b"), seed=8))
    assert other.measured != whole.measured
    first.outcomes = ["valid"] * 21 + [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        run(campaign(first, EVERYTHING, section(tmp_path / "c"), seed=7))
    run(campaign(second, EVERYTHING, section(tmp_path / "c"), seed=7))
    assert first.measured[:21] + second.measured == whole.measured


@pytest.mark.default
def test_what_else_is_selected_or_repeated_does_not_change_which_of_two_comes_first(tmp_path: Path) -> None:
    whole, part, limited = Throughput(), Throughput(), Throughput()
    run(campaign(whole, EVERYTHING, section(tmp_path / "a", repetitions=3), seed=7))
    run(campaign(part, Narrowing((), ("streams>1",)), section(tmp_path / "b", repetitions=1), seed=7))
    assert part.measured == [name for name in whole.measured if "_1streams" not in name and name.endswith("_rep0")]
    run(campaign(limited, EVERYTHING, section(tmp_path / "c", repetitions=3), seed=7, limit=5))
    assert limited.measured == whole.measured[:5]


def test_the_order_of_a_seed_stays_the_same_from_version_to_version() -> None:
    names = [f"a_{number}" for number in range(8)]
    assert list(shuffled(names, lambda name: "a", str, 1)) == [f"a_{number}" for number in (2, 0, 5, 4, 7, 1, 6, 3)]


def test_set_ups_are_shuffled_one_by_one_as_they_come() -> None:
    def endless() -> Iterator[tuple[int, int]]:
        number = 0
        while True:
            yield number // 4, number
            number += 1

    found = shuffled(endless(), lambda trial: trial[0], str, 3)
    first = [next(found) for _ in range(12)]
    assert [key for key, _ in groupby(first, lambda trial: trial[0])] == [0, 1, 2]


def test_the_record_of_a_trial_tells_that_its_order_was_one_of_chance(tmp_path: Path) -> None:
    run(campaign(Throughput(), Narrowing((), ("path=tcp",)), section(tmp_path), seed=7, limit=1))
    run(campaign(Throughput(), Narrowing((), ("path=udp",)), section(tmp_path), limit=1))
    records = {path.name[6:9]: json.loads(path.read_text()) for path in tmp_path.glob("trial_*")}
    assert records["tcp"]["shuffle"] == 7 and "shuffle" not in records["udp"]
    schema = Draft202012Validator(json.loads((resources.files("autotest.results") / "trial.schema.json").read_text()))
    for record in records.values():
        schema.validate(record)
    assert not schema.is_valid(records["tcp"] | {"shuffle": "7"})
