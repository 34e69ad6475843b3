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


@pytest.fixture
def lab(lab: LabCommand, tmp_path: Path) -> LabCommand:
    """The lab, with a generator that sends in time on a busy machine, too: the truth is one of the path, not of the sender."""
    return with_keys(lab, tmp_path / "undisturbed.conf", loadgen={"moongen_dir": undisturbed(tmp_path / "undisturbed")})


def records(results: Path) -> list[dict]:
    """What the trials of an output directory say."""
    return [json.loads(path.read_text()) for path in sorted(results.glob("trial_*.json"))]


Expected = Callable[[int, dict], bool]


def measured(lab: LabCommand, tests: CampaignFile, expected: Expected, **lists: str) -> dict[int, dict]:
    """By offered rate the record of a trial that is as expected, or else of any.

    Where there is none as expected, up to three repetitions are measured: the machine that the lab runs on may keep a sender
    off its CPU, which is told truly, but is no truth about the path.
    """
    found: dict[int, dict] = {}
    for repetitions in (1, 2, 3):
        tests.write(**lists, repetitions=str(repetitions))
        lab.run("test-load-lat-file", str(tests.file))
        for record in records(tests.results):
            rate = record["parameters"]["rate"]
            if rate not in found or expected(rate, record):
                found[rate] = record
        if all(expected(rate, record) for rate, record in found.items()):
            break
    return found


def is_whole(rate: int, record: dict) -> bool:
    return record["verdict"] == "valid" and record["figures"]["lost"] == 0


# -- loss --------------------------------------------------------------------------------------------------


def dropping(lab: LabCommand, folder: Path) -> LabCommand:
    """The lab with a reflector that drops every tenth frame."""
    folder.mkdir()
    program = xdp_reflector(folder / "xdp", PROJECT / "tests/moonprogs/lossy_reflector.bpf.c")
    return with_keys(lab, folder / "autotest.conf", host={"xdp_reflector_dir": program})


def test_a_reflector_that_drops_every_tenth_frame_reads_ten_percent_loss(lab: LabCommand, tests: CampaignFile, tmp_path):
    variant = dropping(lab, tmp_path / "dropping")
    for repetitions in (3, 4, 5):  # see measured()
        tests.write(**ON_HOST, rates="5", runtimes="2", repetitions=str(repetitions))
        variant.run("test-load-lat-file", str(tests.file))
        [case] = group_cases(read_results(tests.results).trials)
        if len(case.used) == 3 and not case.under_sent:
            break
    loss = case.estimate(METRICS["loss"])
    assert len(case.used) == 3 and not case.under_sent
    assert [round(each, 1) for each in (*case.values(METRICS["loss"]), loss.mean, loss.pooled)] == [10.0] * 5

    whole = CampaignFile(tests.file, tmp_path / "whole")
    found = measured(lab, whole, is_whole, **ON_HOST, rates="5", runtimes="2")
    assert is_whole(5, found[5])  # it is the reflector, and nothing else on the path


# -- the knee ----------------------------------------------------------------------------------------------

SHAPED = 30.5  # kpps; between two rates of the grid, each of which is within 2 % of it
GRID = (29, 30, 31, 32)
FRAME = 60  # bytes: what the queueing discipline counts of the smallest frame


def shape(server: str, link: str, burst: int, queue: int) -> None:
    """Let ``SHAPED`` pass a link, or as many frames as a burst at once; beyond that so many wait, and no more."""
    rate, burst, limit = f"{round(SHAPED * 1000 * FRAME * 8)}bit", str(burst * FRAME), str(queue * FRAME)
    inside(server, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", burst, "limit", limit)


def knee(found: dict[int, dict], has: Callable[[dict], object]) -> float:
    """The first rate whose record has what is looked for."""
    return min((rate for rate, record in found.items() if has(record)), default=math.inf)


def test_where_a_shaped_path_loses_the_knee_is_the_first_rate_with_loss(lab: LabCommand, tests: CampaignFile):
    lab.run("lab", "up")
    # The way back from a bridge of the host goes through the queue of its port. The burst is for a sender that was off its
    # CPU for up to 50 ms and catches up. The queue holds less than fits a sender's socket buffer, which else holds it back.
    shape("host", "wire-host", burst=1500, queue=100)
    lists = {"machines": "host", "interfaces": "bridge", "rates": ", ".join(map(str, GRID)), "runtimes": "5"}

    def expected(rate: int, record: dict) -> bool:
        return record["verdict"] == "valid" if rate > SHAPED else is_whole(rate, record)

    found = measured(lab, tests, expected, **lists)
    assert {record["verdict"] for record in found.values()} == {"valid"}
    assert abs(knee(found, lambda record: record["figures"]["lost"]) - SHAPED) / SHAPED < 0.02
    for rate, record in found.items():
        if rate > SHAPED:
            figures = record["figures"]
            assert figures["received"] / figures["seconds"] / 1000 == pytest.approx(SHAPED, rel=0.02)


def test_where_a_shaped_path_holds_the_sender_back_the_knee_is_the_first_under_sent_rate(
    lab: LabCommand, tests: CampaignFile, tmp_path
):
    lab.run("lab", "up")
    # softmoon's frames pass by the queue of their own interface, but not by that of an interface below it.
    shape("loadgen", "wire-loadgen", burst=300, queue=60)
    inside("loadgen", "ip", "link", "add", "link", "wire-loadgen", "name", "above", "type", "macvlan", "mode", "passthru")
    variant = with_keys(lab, tmp_path / "above.conf", loadgen={"test_iface": "above"})

    def expected(rate: int, record: dict) -> bool:
        return record["verdict"] == "under-sent" if rate > SHAPED else is_whole(rate, record)

    found = measured(variant, tests, expected, **ON_HOST, rates=", ".join(map(str, GRID)), runtimes="5")
    first = knee(found, lambda record: record["verdict"] == "under-sent")
    assert abs(first - SHAPED) / SHAPED < 0.02
    for rate, record in found.items():
        assert record["verdict"] == ("valid" if rate < first else "under-sent")
        assert record["figures"]["lost"] == 0  # none of those that were sent
        assert record["figures"]["achieved_kpps"] == pytest.approx(min(rate, SHAPED), rel=0.02)


# -- latency -----------------------------------------------------------------------------------------------


def holding(lab: LabCommand, folder: Path, microseconds: int) -> LabCommand:
    """The lab with a reflector that holds each frame for so long."""
    folder.mkdir()
    program = replaced(folder / "moongen", TRUTHS / "holding_reflector.lua", microseconds)
    return with_keys(lab, folder / "autotest.conf", host={"moongen_dir": program})


def test_a_reflector_that_holds_each_frame_moves_the_median_by_that_time(lab: LabCommand, tests: CampaignFile, tmp_path):
    medians = {}
    for microseconds in (0, 500, 2000):
        held = CampaignFile(tests.file, tmp_path / f"{microseconds} us")
        variant = holding(lab, tmp_path / f"hold {microseconds}", microseconds)
        lists = {**ON_HOST, "reflectors": "moongen", "rates": "2", "runtimes": "2"}
        [record] = measured(variant, held, lambda _, record: record["verdict"] == "valid", **lists).values()
        assert record["verdict"] == "valid" and record["figures"]["samples"] >= 3900
        medians[microseconds] = record["figures"]["p50_ns"] / 1000
    for microseconds in (500, 2000):
        assert medians[microseconds] - medians[0] == pytest.approx(microseconds, rel=0.05), medians


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


def test_the_same_case_measured_twice_compares_as_no_difference_and_one_that_loses_as_worse(
    lab: LabCommand, tests: CampaignFile, tmp_path
):
    first, second, worse = (tmp_path / name for name in ("first", "second", "worse"))
    alternately(tests.file, first, second, 6, **ON_HOST, reflectors="xdp", rates="5")
    lab.run("test-load-lat-file", str(tests.file))
    CampaignFile(tests.file, worse).write(**ON_HOST, rates="5", repetitions="6")
    dropping(lab, tmp_path / "dropping").run("test-load-lat-file", str(tests.file))
    assert [len(list(each.glob("trial_*.json"))) for each in (first, second, worse)] == [6, 6, 6]
    chance = "--alpha=0.01"  # of a difference that is none
    assert "4 comparisons of 1 test case" in lab.run("compare", chance, str(first), str(second), code=0)
    assert re.search(r"loss .* regression\n", lab.run("compare", str(first), str(worse), code=1))



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
    assert "1 trials, 0 done, 1 to do" in lab.run("test-load-lat-file", "-d", str(tests.file))


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
