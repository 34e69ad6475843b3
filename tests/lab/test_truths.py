"""What is known of a path must be what is measured of it: the whole tool, real frames, and a part of the lab of which the
truth is known."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from labtest import PROJECT, CampaignFile, LabCommand
from running import RunningCampaign, inside
from variants import altered, replaced, undisturbed, with_keys, xdp_reflector

from autotest.report.cases import group_cases
from autotest.report.metrics import METRICS
from autotest.report.trials import read_results

TRUTHS = Path(__file__).parent / "truths"
ON_HOST = {"machines": "host", "interfaces": "pnic"}  # no guest: nothing there is slow, and nothing else in the way
AT_ANY_RATE = ON_HOST | {
    "tolerance_under_sent": "90 %"
}  # where the truth is the same for fewer frames, a busy sender is no matter


@pytest.fixture
def lab(lab: LabCommand, tmp_path: Path) -> LabCommand:
    """The lab, with a generator that sends in time on a busy machine, too: the truth is one of the path, not of the sender."""
    return with_keys(lab, tmp_path / "undisturbed.conf", loadgen={"moongen_dir": undisturbed(tmp_path / "undisturbed")})


def records(results: Path) -> list[dict]:
    """What the trials of an output directory say."""
    return [json.loads(path.read_text()) for path in sorted(results.glob("trial_*.json"))]


def late(tests: CampaignFile, record: dict) -> int:
    """How many frames the sender was behind at most: it says so at the end."""
    output = (tests.results / f"output_{record['infix']}_rep{record['repetition']}.log").read_text()
    found = re.search(r"largest lag of the load (\d+) frames", output)
    assert found, output
    return int(found[1])


def measured(
    lab: LabCommand, tests: CampaignFile, least: int = 1, held_back: Callable[[int], bool] = lambda rate: False,
    most_late: float = math.inf, **lists: str
) -> dict[int, list[dict]]:  # fmt: skip
    """By offered rate at least so many records, all of what was measured but trials in which the sender did not keep up.

    Such a trial (``under-sent``, or with more frames late at once than the path was made for, as the sender itself says) says
    nothing about the path, unless it is the path that holds the sender back at that rate; up to two more repetitions are
    measured in place of one. No other figure decides what is left out.
    """
    for repetitions in range(least, least + 3):
        tests.write(**lists, repetitions=str(repetitions))
        lab.run("test-load-lat-file", str(tests.file))
        found: dict[int, list[dict]] = {record["parameters"]["rate"]: [] for record in records(tests.results)}
        for record in records(tests.results):
            rate = record["parameters"]["rate"]
            kept_up = record["verdict"] != "under-sent" and (most_late == math.inf or late(tests, record) <= most_late)
            if held_back(rate) or kept_up:
                found[rate].append(record)
        if all(len(each) >= least for each in found.values()):
            return found
    raise AssertionError(
        f"the sender does not keep up: {[(record['infix'], record['reason']) for record in records(tests.results)]}"
    )


# -- loss --------------------------------------------------------------------------------------------------


def dropping(lab: LabCommand, folder: Path) -> LabCommand:
    """The lab with a reflector that drops every tenth frame."""
    folder.mkdir()
    program = xdp_reflector(folder / "xdp", PROJECT / "tests/moonprogs/lossy_reflector.bpf.c")
    return with_keys(lab, folder / "autotest.conf", host={"xdp_reflector_dir": program})


def test_a_reflector_that_drops_every_tenth_frame_reads_ten_percent_loss(lab: LabCommand, tests: CampaignFile, tmp_path):
    found = measured(dropping(lab, tmp_path / "dropping"), tests, 3, **AT_ANY_RATE, rates="5", runtimes="2")
    assert {record["verdict"] for record in found[5]} == {"valid"}
    [case] = group_cases(read_results(tests.results).trials)
    loss = case.estimate(METRICS["loss"])
    assert len(case.used) == len(found[5])
    assert {round(each, 1) for each in (*case.values(METRICS["loss"]), loss.mean, loss.pooled)} == {10.0}

    [whole] = measured(lab, CampaignFile(tests.file, tmp_path / "whole"), **AT_ANY_RATE, rates="5", runtimes="2")[5]
    assert (whole["verdict"], whole["figures"]["lost"]) == ("valid", 0)  # it is the reflector, and nothing else on the path


# -- the knee ----------------------------------------------------------------------------------------------

SHAPED = 30.5  # kpps; between two rates of the grid, each of which is within 2 % of it
GRID = (29, 30, 31, 32)
FRAME = 60  # bytes: what the queueing discipline counts of the smallest frame


def shape(server: str, link: str, burst: int, queue: int) -> None:
    """Let ``SHAPED`` pass a link, or as many frames as a burst at once; beyond that so many wait, and no more."""
    rate, burst, limit = f"{round(SHAPED * 1000 * FRAME * 8)}bit", str(burst * FRAME), str(queue * FRAME)
    inside(server, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", burst, "limit", limit)


def knee(found: dict[int, list[dict]], has: Callable[[dict], object]) -> float:
    """The first rate at which any trial has what is looked for."""
    return min((rate for rate, each in found.items() if any(map(has, each))), default=math.inf)


@pytest.mark.all
def test_where_a_shaped_path_loses_the_knee_is_the_first_rate_with_loss(lab: LabCommand, tests: CampaignFile):
    lab.run("lab", "up")
    # The way back from a bridge of the host goes through the queue of its port. The burst is for a sender that was off its
    # CPU for up to 50 ms and catches up. The queue holds less than fits a sender's socket buffer, which else holds it back.
    shape("host", "wire-host", burst=1500, queue=100)
    rates = ", ".join(map(str, GRID))
    found = measured(lab, tests, most_late=1500, machines="host", interfaces="bridge", rates=rates, runtimes="5")
    assert {record["verdict"] for each in found.values() for record in each} == {"valid"}
    assert abs(knee(found, lambda record: record["figures"]["lost"]) - SHAPED) / SHAPED < 0.02
    for rate in (rate for rate in GRID if rate > SHAPED):
        for figures in (record["figures"] for record in found[rate]):
            assert figures["received"] / figures["seconds"] / 1000 == pytest.approx(SHAPED, rel=0.02)


@pytest.mark.all
def test_where_a_shaped_path_holds_the_sender_back_the_knee_is_the_first_under_sent_rate(
    lab: LabCommand, tests: CampaignFile, tmp_path
):
    lab.run("lab", "up")
    # softmoon's frames pass by the queue of their own interface, but not by that of an interface below it.
    shape("loadgen", "wire-loadgen", burst=300, queue=60)
    inside("loadgen", "ip", "link", "add", "link", "wire-loadgen", "name", "above", "type", "macvlan", "mode", "passthru")
    variant = with_keys(lab, tmp_path / "above.conf", loadgen={"test_iface": "above"})
    rates = ", ".join(map(str, GRID))
    found = measured(variant, tests, held_back=lambda rate: rate > SHAPED, **ON_HOST, rates=rates, runtimes="5")
    first = knee(found, lambda record: record["verdict"] == "under-sent")
    assert abs(first - SHAPED) / SHAPED < 0.02
    for rate, record in ((rate, record) for rate, each in found.items() for record in each):
        assert record["verdict"] == ("valid" if rate < first else "under-sent")
        assert record["figures"]["lost"] == 0  # none of those that were sent
        assert record["figures"]["achieved_kpps"] == pytest.approx(min(rate, SHAPED), rel=0.02)


# -- latency -----------------------------------------------------------------------------------------------


def holding(lab: LabCommand, folder: Path, microseconds: int) -> LabCommand:
    """The lab with a reflector that holds each frame for so long."""
    folder.mkdir()
    program = replaced(folder / "moongen", TRUTHS / "holding_reflector.lua", microseconds)
    return with_keys(lab, folder / "autotest.conf", host={"moongen_dir": program})


def lowest_tenth(tests: CampaignFile, record: dict) -> float:
    """The latency in us that a tenth of the samples does not exceed; the histogram's lines ascend."""
    rows = (tests.results / f"histogram_{record['infix']}_rep{record['repetition']}.csv").read_text().splitlines()
    left = record["figures"]["samples"] / 10
    for nanoseconds, count in (map(int, row.split(",")) for row in rows):
        left -= count
        if left <= 0:
            return nanoseconds / 1000
    raise AssertionError("the histogram has fewer samples than the record")


def test_a_reflector_that_holds_each_frame_moves_latencies_by_that_time(lab: LabCommand, tests: CampaignFile, tmp_path):
    """What else runs on the machine adds to many latencies, but not to all: the lowest tenth moves by that time alone."""
    lowest, medians = {}, {}
    for microseconds in (0, 500, 2000):
        held = CampaignFile(tests.file, tmp_path / f"{microseconds} us")
        variant = holding(lab, tmp_path / f"hold {microseconds}", microseconds)
        [record] = measured(variant, held, **AT_ANY_RATE, reflectors="moongen", rates="2", runtimes="2")[2]
        assert record["verdict"] == "valid" and record["figures"]["samples"] >= 0.95 * record["figures"]["sent"] > 1000
        lowest[microseconds] = lowest_tenth(held, record)
        medians[microseconds] = record["figures"]["p50_ns"] / 1000
    for microseconds in (500, 2000):
        assert lowest[microseconds] - lowest[0] == pytest.approx(microseconds, rel=0.05), lowest
        assert medians[microseconds] - lowest[0] >= 0.99 * microseconds, medians


# -- the same twice ----------------------------------------------------------------------------------------


def alternately(file: Path, first: Path, second: Path, repetitions: int, **lists: str) -> None:
    """Write a tests.conf that measures one case into two directories in turn: ABBAABBA..., so that drift hits both alike."""
    target = {first: 0, second: 0}
    sections = []
    for number in range(2 * repetitions):
        directory = (first, second, second, first)[number % 4]
        target[directory] += 1
        values = lists | {"outputdir": str(directory), "repetitions": str(target[directory]), "sizes": "60", "runtimes": "1"}
        sections.append(f"[{number}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))
    file.write_text("\n".join(sections))


@pytest.mark.all
def test_the_same_case_measured_twice_compares_as_no_difference_and_one_that_loses_as_worse(
    lab: LabCommand, tests: CampaignFile, tmp_path
):
    first, second, worse = (tmp_path / name for name in ("first", "second", "worse"))
    for repetitions in (6, 7, 8):  # see measured()
        alternately(tests.file, first, second, repetitions, **ON_HOST, reflectors="xdp", rates="5")
        lab.run("test-load-lat-file", str(tests.file))
        if all(sum(record["verdict"] == "valid" for record in records(each)) >= 6 for each in (first, second)):
            break
    measured(dropping(lab, tmp_path / "dropping"), CampaignFile(tests.file, worse), 6, **ON_HOST, rates="5")
    chance = "--alpha=0.01"  # of a difference that is none; one in every repetition is still found
    assert "4 comparisons of 1 test case: 4 no difference" in lab.run("compare", chance, str(first), str(second), code=0)
    assert re.search(r"loss .* regression\n", lab.run("compare", chance, str(first), str(worse), code=1))


# -- generators and reflectors that are wrong --------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "verdict", "reason"),
    [
        ("claims_more", "counter-mismatch", r"claims \d+ frames sent, the interface sent \d+"),
        ("stops_early", "incomplete", r"sent for [1-3]\.\d+ s instead of 5 s"),
        ("stops_early_in_silence", "incomplete", r"sent for [1-3]\.\d+ s instead of 5 s"),
        ("three_samples", "too-few-samples", r"^3 latency samples, 100 are needed"),
    ],
)
def test_a_generator_that_is_wrong_gets_its_verdict(
    script: str, verdict: str, reason: str, lab: LabCommand, tests: CampaignFile, tmp_path
):
    wrong = altered(tmp_path / "moongen", TRUTHS / f"{script}.sh")
    variant = with_keys(lab, tmp_path / "wrong.conf", loadgen={"moongen_dir": wrong})
    tests.write(**ON_HOST, rates="5", runtimes="5" if "early" in script else "1", retries="0")
    log = variant.run("test-load-lat-file", str(tests.file), code=1)
    [record] = records(tests.results)
    assert (record["verdict"], verdict in log) == (verdict, True)
    assert re.search(reason, record["reason"])
    assert list(tests.results.glob("acc_histogram_*")) == []  # never merged
    assert "1 trial, 0 done, 1 to do" in lab.run("test-load-lat-file", "-d", str(tests.file))


def test_a_reflector_that_dies_halfway_disturbs_the_trial(lab: LabCommand, tests: CampaignFile):
    """That it is started again, and one in a guest: test_failures.py."""
    tests.write(**ON_HOST, rates="5", runtimes="2", retries="0")
    with RunningCampaign(lab, tests) as campaign:
        campaign.next_trial()
        inside("host", "ip", "link", "set", "dev", "wire-host", "xdpgeneric", "off")
        campaign.end(code=1)
    [record] = records(tests.results)
    assert record["verdict"] == "disturbed"
    assert "the XDP reflector is gone from wire-host" in record["reason"]
    assert record["figures"]["loss"] > 0.2  # which would have passed for the path's
