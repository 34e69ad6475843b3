"""Selections on the command line: the same words for plans and results, and clear errors before anything is touched."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import pytest

from autotest.cli import campaigns
from autotest.cli.arguments import build_parser
from autotest.cli.program import main
from autotest.config.testbed import Testbed
from autotest.results.names import TrialName, load_latency_infix
from autotest.results.store import ResultStore
from autotest.run.campaign import Campaign
from autotest.run.observer import Observer

TESTS = """\
[one]
machines = pcvm
interfaces = bridge, macvtap
reflectors = xdp
rates = 10, 20, 40
sizes = 60
runtimes = 30
repetitions = 2
exclude = interface=macvtap rate>20
outputdir = out

[two]
machines = microvm
interfaces = bridge
reflectors = xdp
rates = 10
sizes = 60
runtimes = 30
outputdir = out2
"""
OUTPUT = "".join(
    f"[Device: id=0] {way}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), total 300000 packets with "
    "19200000 bytes (incl. CRC)\n"
    for way in ("RX", "TX")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> Path:
    (tmp_path / "tests.conf").write_text(TESTS)
    shutil.copy(repository / "autotest.conf", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def measured(directory: Path) -> None:
    """Bridge and macvtap at 10, 20 and 40 kpps, two repetitions each."""
    for interface in ("bridge", "macvtap"):
        for rate in (10, 20, 40):
            infix = load_latency_infix("pcvm", interface, "xdp", rate, 60, 30, "default", vhost=False, ioregionfd=False)
            for number in range(2):
                histogram = f"{1000 + rate + number + 100 * len(interface)},100\n{2000 + rate},100\n"
                ResultStore(directory).commit(
                    TrialName(infix, number), {"output": OUTPUT, "histogram": histogram}, {"verdict": "valid", "reason": ""}
                )


def autotest(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments])
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return code, found.out, found.err


def total(text: str) -> int:
    (line,) = [line for line in text.splitlines() if line.startswith("all: ")]
    return int(line.split()[1])


# -- plans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "trials"),
    [
        ([], 11),
        (["--select", "machine=pcvm rate<=20"], 8),
        (["-s", "machine=pcvm", "-s", "rate<=0.02M"], 8),
        (["--exclude", "interface=bridge rate>10", "-x", "machine=microvm"], 6),
        (["--section", "two"], 1),
        (["-S", "one", "-S", "two", "-s", "rate=10"], 5),
        (["-S", "one", "-s", "interface=mac*"], 4),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else str(given),
)
def test_the_dry_run_and_the_status_are_of_what_is_selected(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], trials: int
) -> None:
    code, out, _ = autotest(capsys, "test-load-lat-file", "-d", *options)
    assert code == 0 and total(out) == trials
    assert "4 trials: exclude rule 'interface=macvtap rate>20'" not in out
    code, out, _ = autotest(capsys, "status", "tests.conf", *options)
    assert code == 0 and re.search(rf"^{trials} trials? on .* takes? about", out, re.MULTILINE)
    assert not (folder / "out").exists()


def test_the_dry_run_explains_what_the_selection_leaves_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = autotest(capsys, "test-load-lat-file", "-d", "-S", "one", "-s", "rate<=20", "-x", "interface=bridge rate=10")
    assert [line for line in out.splitlines() if re.match(r"  \d+ trials?: ", line)] == [
        "  2 trials: --select 'rate<=20'",
        "  2 trials: --exclude 'interface=bridge rate=10'",
        "  2 trials: exclude rule 'interface=macvtap rate>20'",
        "  1 trial: --section one",
    ]


@pytest.mark.parametrize("command", ["test-load-lat-file", "status", "acc-load-lat-file", "check"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-s", "interfce=bridge"], "--select: no parameter 'interfce' (did you mean 'interface'?); there are"),
        (["-s", "rate=25"], "--select: rate is nowhere 25; there are"),
        (["-x", "rate=25"], "--exclude: rate is nowhere 25; there are"),
        (["-x", "rate"], "--exclude: 'rate' selects nothing: expected parameter=value"),
        (["-s", "rate<low"], "'low' is not a whole number of kpps"),
        (["-s", "machine=microvm rate=40"], "no trial meets --select 'machine=microvm rate=40'; there are"),
        (["-S", "tow"], "--section tow: there is none (did you mean 'two'?); there are one, two"),
        (["-S", "two", "-s", "rate=20"], "--select: rate is nowhere 20"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_there_is_not_is_refused_before_anything_is_touched(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, options: list[str], message: str
) -> None:
    before = sorted(folder.rglob("*"))
    code, out, err = autotest(capsys, command, "tests.conf", *options)
    assert (code, out) == (2, "") and message in err
    assert sorted(folder.rglob("*")) == before


def test_what_is_wrong_with_an_exclusion_of_the_file_names_file_section_and_key(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests.conf").write_text(TESTS.replace("interface=macvtap rate>20", "interface=mactap rate>20"))
    code, _, err = autotest(capsys, "status", "tests.conf")
    assert code == 2 and "tests.conf [one] exclude: interface is nowhere mactap (did you mean 'macvtap'?); there are" in err


def test_a_check_without_tests_has_nothing_to_select_from(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = autotest(capsys, "check", "--select", "rate=10")
    assert code == 2 and "name their file" in err


def test_limit_and_seed_reach_the_campaign_and_a_limit_is_above_0(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = autotest(capsys, "test-load-lat-file", "-d", "--limit", "3")
    assert "all: 11 trials, 0 done, 11 to do, 3 of them in this run" in out and re.search(
        "^3 trials .* take about", out, re.MULTILINE
    )
    seen = []

    def run(options: argparse.Namespace, testbed: Testbed, campaign: Campaign, observer: Observer) -> int:
        seen.append(campaign)
        return 0

    monkeypatch.setattr(campaigns, "_run_to_its_end", run)
    code, _, _ = autotest(capsys, "test-load-lat-file", "--limit", "3", "--shuffle", "-7")
    assert code == 0 and [(campaign.limit, campaign.seed) for campaign in seen] == [(3, -7)]
    with pytest.raises(SystemExit) as caught:
        main(["test-load-lat-file", "--limit", "0"])
    assert caught.value.code == 2


def test_only_the_sums_of_selected_test_cases_are_brought_up_to_date(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(folder / "out")
    code, out, _ = autotest(capsys, "acc-load-lat-file", "tests.conf", "-s", "interface=bridge rate<=20", "-S", "one")
    assert code == 0 and "the sums over repetitions of 2 test cases are up to date" in out
    found = sorted(path.name.partition("xdp_")[2] for path in (folder / "out").glob("acc_*"))
    assert found == ["10kpps_60B_30s.csv", "20kpps_60B_30s.csv"]
    autotest(capsys, "acc-load-lat-file", "tests.conf")
    assert len(list((folder / "out").glob("acc_*"))) == 5, "without the one that the file excludes"


# -- results -------------------------------------------------------------------------------------------------


def rows(out: str) -> int:
    """Test cases of an exported table."""
    header, *lines = out.splitlines()
    return len({line.split(",")[header.split(",").index("infix")] for line in lines})


@pytest.mark.parametrize(
    ("arguments", "cases"),
    [
        (["out"], 6),
        (["out:rate<=20"], 4),
        (["out:interface=bridge:rate=10..20"], 2),
        (["out:rate<=20 interface!=bridge"], 2),
        (["out", "-s", "rate<=20", "-s", "interface=mac*"], 2),
        (["out", "-x", "interface=macvtap rate>20", "-x", "rate=10"], 3),
        (["out:rate=10", "out:rate=40", "-x", "interface=macvtap"], 2),
        (["tests.conf", "--section", "one"], 5),
        (["tests.conf", "-S", "one", "-s", "rate>10", "-x", "interface=bridge"], 1),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else str(given),
)
def test_results_are_selected_in_the_same_language(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], cases: int
) -> None:
    measured(folder / "out")
    code, out, _ = autotest(capsys, "export", *arguments)
    assert code == 0 and rows(out) == cases
    code, out, _ = autotest(capsys, "summary", *arguments)
    assert code == 0 and out


@pytest.mark.parametrize("command", ["summary", "export", "plot", "report"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["out", "--section", "one"], "out: an output directory has no sections: --section is for those of a tests.conf"),
        (["tests.conf", "--section", "tow"], "--section tow: there is none (did you mean 'two'?)"),
        (["out", "-x", "interface=brigde"], "out: interface is nowhere brigde (did you mean 'bridge'?); there are"),
        (["out:rate<=5"], "out: no trial has rate<=5; there are"),
        (["out:rate<=five"], "'five' is not a whole number of kpps"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_results_have_not_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, arguments: list[str], message: str
) -> None:
    measured(folder / "out")
    before = sorted((folder / "out").iterdir())
    code, out, err = autotest(capsys, command, *arguments)
    assert (code, out) == (2, "") and message in err
    assert sorted((folder / "out").iterdir()) == before


def test_comparisons_take_the_same_selections_for_both_sides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(folder / "out")
    sides = "out:interface=bridge", "out:interface!=bridge"
    code, out, _ = autotest(capsys, "compare", *sides, "-x", "rate=10", "-s", "rate<40", "--metric", "p50")
    assert code == 0 and "20 kpps" in out and "10 kpps" not in out and "40 kpps" not in out
    code, _, err = autotest(capsys, "compare", "out", "tests.conf", "-S", "one")
    assert code == 2 and "out: an output directory has no sections" in err


def test_a_report_tells_the_whole_selection_that_it_was_made_with(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(folder / "out")
    given = ["tests.conf", "--select", "rate<=20", "--exclude", "interface=macvtap rate>10", "--section", "one"]
    code, _, _ = autotest(capsys, "report", *given, "-o", "page.html")
    page = (folder / "page.html").read_text().replace("\\u003c", "<")
    command = "autotest report tests.conf --select 'rate<=20' --exclude 'interface=macvtap rate>10' --section one"
    assert code == 0 and command in page


def test_every_command_on_campaigns_and_results_takes_all_of_it() -> None:
    parse = build_parser().parse_args
    on_campaigns = ("test-load-lat-file", "check", "acc-load-lat-file", "status")
    for command in (*on_campaigns, "summary", "plot", "report", "export", "compare"):
        sources = ["a", "b"] if command == "compare" else ["a"]
        options = parse([command, *sources, "-s", "rate=1", "--select", "size=60", "-x", "rate=2", "-S", "lat"])
        assert (options.select, options.exclude, options.section) == (["rate=1", "size=60"], ["rate=2"], ["lat"])
