"""What lies in an output directory and should not: it is told by name, the rest is used, and nothing is touched."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import example
import older
import pytest
import sample_output as sample

from autotest.cli.program import main
from autotest.report.trials import read_results
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict

GOOD = older.name(10, 0)


@pytest.fixture
def directory(tmp_path):
    """With one good trial of the older tool."""
    folder = tmp_path / "results"
    older.write(folder, GOOD)
    return folder


def told(directory):
    """The complaints; the good trial is used whatever else there is."""
    results = read_results(directory)
    assert GOOD in [trial.name for trial in results.trials if trial.verdict is Verdict.VALID]
    return [str(complaint) for complaint in results.complaints]


def verdicts(directory):
    return {trial.name.repetition: trial.verdict for trial in read_results(directory).trials}


def test_foreign_files_are_named_and_many_are_summarised(directory):
    (directory / "notes.txt").write_text("")
    (directory / "output_x_rep01.log").write_text("")
    assert told(directory) == ["notes.txt, output_x_rep01.log: no file of autotest's; it is left alone"]
    for number in range(100):
        (directory / f"x{number:03}").mkdir()
    names = "notes.txt, output_x_rep01.log, x000, x001, x002 and 97 more"
    assert told(directory) == [f"{names}: no file of autotest's; it is left alone"]


def test_what_autotest_writes_itself_is_not_foreign(directory):
    names = ["failures.jsonl", ".autotest-accumulated.json", ".autotest-tmp.host.1.abc", "report.html", "load_latency.png"]
    names += ["packet_loss_by-vhost_interface-bridge+macvtap.svg", "latency_cdf.pdf", f"acc_histogram_{GOOD.infix}.csv"]
    for name in names:
        (directory / name).write_text("")
    (directory / "invalid").mkdir()
    assert told(directory) == []
    (directory / "load_latency.png.bak").write_text("")
    assert len(told(directory)) == 1


@pytest.mark.default
def test_everything_that_a_run_and_the_reports_leave_there_is_known(directory):
    example.add(directory, example.MACVTAP, 10, 0)
    example.add(directory, example.HOST, 10, 0, disturbed="link went down")
    example.add(directory, example.HOST, 10, 1, latency_ns=9_000)
    ResultStore(directory).note_failure("x", "y")
    assert main(["plot", str(directory)]) == 0
    assert main(["report", str(directory)]) == 0
    assert told(directory) == []


def test_results_of_no_known_measurement_are_named(directory):
    (directory / "output_throughput-of-something_rep0.log").write_text("")
    (directory / "trial_x_rep3.json").write_text("{")
    message = "the name is not that of a load latency trial"
    assert told(directory) == [f"output_throughput-of-something_rep0.log, trial_x_rep3.json: {message}"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "not JSON: Expecting value: line 1 column 1"),
        ('{"version": 1, "infix": "p', "not JSON: Unterminated string"),
        ("[" * 100_000, "not JSON: maximum recursion depth"),
        ("[]", "not the record of a trial"),
        ('"x"', "not the record of a trial"),
        ('{"version": 0}', "not the record of a trial"),
        ('{"version": 1, "infix": "x", "repetition": 1}', "the record of another trial"),
    ],
)
def test_half_a_json_makes_its_trial_incomplete_and_is_named(directory, content, expected):
    name = older.name(10, 1)
    older.write(directory, name, first_ns=20_000)
    (directory / name.trial).write_text(content)
    (complaint,) = told(directory)
    assert complaint.startswith(f"{name.trial}: {expected}")
    assert verdicts(directory) == {0: Verdict.VALID, 1: Verdict.INCOMPLETE}


def recorded(directory, repetition=1, **changes):
    name = older.name(10, repetition)
    example.add(directory, example.BRIDGE, 10, repetition, latency_ns=200_000 + 1000 * repetition)
    document = json.loads((directory / name.trial).read_text())
    (directory / name.trial).write_text(json.dumps(document | changes))
    return name


@pytest.mark.parametrize(
    "hostile", [None, 3, "x", [], {}, {"seconds": "x"}, {"seconds": 10**400}, {"seconds": None}, {"seconds": True}, "\ud800"]
)
def test_a_record_with_anything_in_its_parts_makes_no_error(directory, hostile):
    keys = ("figures", "settings", "testbed", "accepted", "reason", "started")
    recorded(directory, **dict.fromkeys(keys, hostile))
    assert told(directory) == []
    assert main(["export", str(directory)]) == main(["summary", str(directory)]) == 0
    recorded(directory, 2, settings={"tolerance_in_flight_frames": "many", "tolerance_in_flight_share": float("inf")})
    assert told(directory) == []


@pytest.mark.parametrize("kind", ["output", "histogram"])
def test_files_that_do_not_fit_their_json_are_named(directory, kind):
    changed, lost = recorded(directory, 1), recorded(directory, 2)
    path = directory / changed.file(kind)
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    (directory / lost.file(kind)).unlink()
    assert told(directory) == [
        f"{changed.trial}: the {kind} is not the one that was measured",
        f"{lost.trial}: the {kind} is missing",
    ]
    assert verdicts(directory) == {0: Verdict.VALID, 1: Verdict.INCOMPLETE, 2: Verdict.INCOMPLETE}


def test_orphans_are_named(directory):
    alone, bare = older.write(directory, older.name(10, 1)), older.write(directory, older.name(10, 2))
    (directory / alone.output).unlink()
    (directory / bare.histogram).unlink()
    assert told(directory) == [f"{alone.histogram}: no output beside it", f"{bare.output}: no histogram beside it"]
    assert verdicts(directory) == {0: Verdict.VALID, 1: Verdict.INCOMPLETE, 2: Verdict.INCOMPLETE}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the histogram is empty"),
        ("10,1\n11,1", "line 2 of the histogram: the last line is cut off"),
        ("10,1\n11,\n", "line 2 of the histogram: '11,' is not 'nanoseconds,count'"),
        ("10,1\nabc\n", "line 2 of the histogram: 'abc' is not 'nanoseconds,count'"),
        ("10.5,1\n", "line 1 of the histogram: '10.5,1' is not 'nanoseconds,count'"),
        ("ns,count\n10,1\n", "line 1 of the histogram: 'ns,count' is not 'nanoseconds,count'"),
        ("11,1\n10,1\n", "line 2 of the histogram: 10 ns after 11 ns: not ascending"),
        ("11,0\n", "line 1 of the histogram: the count is 0"),
    ],
)
def test_a_broken_histogram_is_named_with_line_and_reason(directory, content, expected):
    name = older.write(directory, older.name(10, 1))
    (directory / name.histogram).write_text(content)
    assert told(directory) == [f"{name.histogram}: {expected}"]
    assert verdicts(directory)[1] is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "the output is empty"),
        ("EAL: Detected CPU lcores: 24\n", "the output has no final totals"),
        (sample.output()[:-100], "the output has no final totals"),
        (sample.output() + "[FATAL] Lua error in task x\n", "a task failed: Lua error in task x"),
    ],
)
def test_a_broken_output_is_named_with_the_reason(directory, content, expected):
    name = older.write(directory, older.name(10, 1))
    (directory / name.output).write_text(content)
    assert told(directory) == [f"{name.output}: {expected}"]
    assert verdicts(directory)[1] is Verdict.INCOMPLETE


def test_bytes_that_are_no_text_are_read_as_far_as_they_go(directory):
    name = older.write(directory, older.name(10, 1), first_ns=20_000)
    output = (directory / name.output).read_bytes()
    (directory / name.output).write_bytes(b"\xff\xfe\x00\x9b31m\n" + output)
    assert told(directory) == [] and verdicts(directory)[1] is Verdict.VALID


@pytest.mark.parametrize("by", ["the older tool", "autotest"])
def test_mixed_units_are_named_and_not_used(directory, by):
    """A histogram in µs, beside an output whose mean is in ns."""
    name = older.name(10, 1)
    histogram = sample.histogram(200, 30)
    output = sample.output(samples=sample.samples_line(histogram, 1000))
    if by == "autotest":
        ResultStore(directory).commit(name, {"output": output, "histogram": histogram}, {"verdict": "valid"})
    else:
        (directory / name.output).write_text(output)
        (directory / name.histogram).write_text(histogram)
    (complaint,) = told(directory)
    assert complaint.startswith(name.trial if by == "autotest" else name.histogram) and "µs: units are mixed" in complaint
    assert verdicts(directory)[1] is Verdict.INCOMPLETE


def test_a_copied_repetition_counts_once_and_is_named(directory):
    for repetition in (3, 7):
        copy = older.name(10, repetition)
        shutil.copy(directory / GOOD.output, directory / copy.output)
        shutil.copy(directory / GOOD.histogram, directory / copy.histogram)
    other_case = older.name(20, 0)
    shutil.copy(directory / GOOD.output, directory / other_case.output)
    shutil.copy(directory / GOOD.histogram, directory / other_case.histogram)
    message = "left out as a copy of repetition 0"
    assert told(directory) == [f"{older.name(10, 3).output}: {message}", f"{older.name(10, 7).output}: {message}"]
    assert [trial.name for trial in read_results(directory).trials] == [GOOD, other_case]


def test_the_same_histogram_with_another_output_is_no_copy(directory):
    name = older.write(directory, older.name(10, 1))
    with open(directory / name.output, "a", encoding="utf-8") as file:
        file.write("\n")
    assert told(directory) == [] and len(read_results(directory).trials) == 2


def test_of_a_trial_and_its_renamed_copy_the_trial_is_used(directory):
    original = recorded(directory, 5)
    copy = older.name(10, 2)
    for kind in ("output", "histogram", "trial"):
        shutil.copy(directory / original.file(kind), directory / copy.file(kind))
    assert told(directory) == [f"{copy.trial}: the record of another trial", f"{copy.output}: left out as a copy of repetition 5"]
    assert verdicts(directory) == {0: Verdict.VALID, 5: Verdict.VALID}


def test_trials_of_two_testbeds_are_not_merged(directory):
    for repetition, testbed in enumerate(("b", "a", "a", "a", "b", "c"), start=1):
        recorded(directory, repetition, testbed={"name": testbed})
    results = read_results(directory)
    assert [trial.name.repetition for trial in results.trials] == [0, 2, 3, 4]
    assert [trial.name.repetition for trial in results.elsewhere] == [1, 5, 6]
    assert told(directory) == [
        (
            f"{older.name(10, 1).trial}, {older.name(10, 5).trial}: measured on testbed b, not on a like most: "
            "left out unless selected by testbed=b"
        ),
        f"{older.name(10, 6).trial}: measured on testbed c, not on a like most: left out unless selected by testbed=c",
    ]


def test_one_testbed_and_none_recorded_are_used_together(directory):
    recorded(directory, 1, testbed={"name": "b"})
    assert told(directory) == [] and len(read_results(directory).trials) == 2


def test_a_tie_between_testbeds_is_broken_the_same_way_each_time(directory):
    for repetition, testbed in enumerate(("b", "a", "b", "a"), start=1):
        recorded(directory, repetition, testbed={"name": testbed})
    assert {trial.testbed for trial in read_results(directory).elsewhere} == {"b"}


# -- names and kinds of files ------------------------------------------------------------------------------


def test_links_are_followed_and_those_to_nothing_are_named(directory, tmp_path):
    away = older.write(tmp_path / "away", older.name(10, 1), first_ns=20_000)
    linked = older.name(10, 1)
    for kind in ("output", "histogram"):
        (directory / linked.file(kind)).symlink_to(tmp_path / "away" / away.file(kind))
    dangling = older.write(directory, older.name(10, 2), first_ns=30_000)
    (directory / dangling.trial).symlink_to("nowhere")
    circle = older.name(10, 3)
    (directory / circle.output).symlink_to(circle.output)
    assert told(directory) == [
        f"{dangling.trial}: a link to nothing",
        f"{circle.output}: cannot be read: Too many levels of symbolic links",
    ]
    assert verdicts(directory) == {0: Verdict.VALID, 1: Verdict.VALID, 2: Verdict.INCOMPLETE, 3: Verdict.INCOMPLETE}


def test_folders_with_names_of_results_are_named(directory):
    name = older.write(directory, older.name(10, 1))
    (directory / name.histogram).unlink()
    (directory / name.histogram).mkdir()
    (directory / older.name(10, 2).trial).mkdir()
    assert told(directory) == [
        f"{name.histogram}: a folder, not a file",
        f"{older.name(10, 2).trial}: a folder, not a file",
    ]


def test_a_file_that_cannot_be_read_is_named(directory):
    """Here by an error of the device: for root, every file has permission."""
    name = older.write(directory, older.name(10, 1))
    (directory / name.histogram).unlink()
    (directory / name.histogram).symlink_to("/proc/self/mem")
    assert told(directory) == [f"{name.histogram}: cannot be read: Input/output error"]
    assert verdicts(directory)[1] is Verdict.INCOMPLETE


@pytest.fixture
def nobody(capsys):
    """Runs a command as a user who may not read everything."""

    def run(*arguments):
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            return summary(capsys, *arguments)
        finally:
            if is_root:
                os.seteuid(0)

    return run


def test_files_and_directories_without_permission_are_named(capsys, nobody):
    with tempfile.TemporaryDirectory() as folder:  # one that others may enter, unlike pytest's
        directory = Path(folder)
        directory.chmod(0o755)
        older.write(directory, GOOD)
        name = older.write(directory, older.name(10, 1))
        assert summary(capsys, directory)[0] == 0  # and all that is to be imported is
        (directory / name.output).chmod(0)
        code, out, err = nobody(directory)
        assert code == 0 and "1 valid, 1 incomplete" in out and f"{name.output}: cannot be read: Permission denied" in err
        directory.chmod(0)
        code, _, err = nobody(directory)
        assert code == 1 and f"{directory}: Permission denied" in err
        directory.chmod(0o755)


def test_names_that_are_no_text_are_told(directory, capfd):
    for name in (b"\xff\xfe", b"output_\xff_rep0.log", b"new\nline\x1b[31m"):
        (directory / os.fsdecode(name)).write_text("")
    assert main(["summary", str(directory)]) == 0
    captured = capfd.readouterr()
    assert "\\udcff\\udcfe" in captured.err and "\x1b[31m" not in captured.err and "Traceback" not in captured.err


# -- through the command line ------------------------------------------------------------------------------


def summary(capsys, *arguments):
    code = main(["summary", *map(str, arguments)])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, re.sub(r"\x1b\[[0-9;]*m", "", captured.err)


def test_an_empty_directory_is_told(tmp_path, capsys):
    code, out, err = summary(capsys, tmp_path)
    assert (code, out) == (2, "") and f"{tmp_path}: holds no load latency trials, it is empty" in err


def test_a_directory_of_other_things_is_told(tmp_path, capsys):
    for number in range(7):
        (tmp_path / f"holiday{number}.jpg").write_text("")
    code, _, err = summary(capsys, tmp_path)
    assert code == 2 and f"{tmp_path}: holds no load latency trials, but other files: 7" in err
    assert "holiday0.jpg, holiday1.jpg" in err and "and 2 more" in err


def test_no_such_directory_is_told(tmp_path, capsys):
    code, _, err = summary(capsys, tmp_path / "none")
    assert code == 2 and "none: no such output directory, and no such tests.conf" in err


def test_what_is_wrong_is_told_beside_the_table(directory, capsys):
    name = older.write(directory, older.name(10, 1))
    (directory / name.histogram).write_text("1,")
    code, out, err = summary(capsys, directory)
    assert code == 0 and "1 valid, 1 incomplete" in out
    assert f"{directory}: {name.histogram}: line 1 of the histogram: the last line is cut off" in err


def test_very_much_that_is_wrong_is_told_in_part_and_all_with_v(directory, capsys):
    for repetition in range(1, 31):
        (directory / older.name(10, repetition).output).write_text("")
    code, _, err = summary(capsys, directory)
    assert code == 0 and err.count("no histogram beside it") == 20 and f"{directory}: 10 more like these; -v shows them" in err
    _, _, err = summary(capsys, "-v", directory)
    assert err.count("no histogram beside it") == 30


def test_a_selection_that_matches_nothing_says_what_there_is(directory, capsys):
    for arguments in ([f"{directory}:interface=brdige"], [directory, "--select", "interface=brdige"]):
        code, out, err = summary(capsys, *arguments)
        assert (code, out) == (2, "")
        assert f"{directory}: interface is nowhere brdige (did you mean 'bridge'?); there are" in err
        assert "  interface: bridge" in err and "  rate: 10" in err


def test_half_a_selection_is_told(directory, capsys):
    code, _, err = summary(capsys, directory, "-s", "interface")
    assert code == 2 and "'interface' selects nothing: expected parameter=value" in err


def test_another_testbed_can_be_selected(directory, capsys):
    recorded(directory, 1, testbed={"name": "a"})
    recorded(directory, 2, testbed={"name": "a"})
    recorded(directory, 3, testbed={"name": "b"})
    _, out, _ = summary(capsys, directory)
    assert "3/3" in out
    _, out, _ = summary(capsys, f"{directory}:testbed=b")
    assert "1/1" in out


def test_a_newer_autotest_is_told(directory, capsys):
    (directory / older.name(10, 1).trial).write_text('{"version": 99}')
    code, _, err = summary(capsys, directory)
    assert code == 1 and "written by a newer autotest" in err


TESTS_CONF = """\
[DEFAULT]
machines = pcvm
interfaces = {interface}
qemus = normal:
vhosts = on
reflectors = xdp
rates = 10
sizes = 60
runtimes = 30
repetitions = 1
[one]
outputdir = {directory}/results
[two]
outputdir = {directory}/later
"""


def test_a_directory_that_a_tests_conf_names_and_that_is_not_there_yet_is_told_and_passed_over(directory, capsys, tmp_path):
    file = tmp_path / "tests.conf"
    file.write_text(TESTS_CONF.format(interface="bridge", directory=tmp_path))
    code, out, err = summary(capsys, file)
    assert code == 0 and "1/1" in out and f"{tmp_path}/later: nothing is measured yet: there is no such directory" in err
    file.write_text(TESTS_CONF.format(interface="macvtap", directory=tmp_path))
    code, out, err = summary(capsys, file)
    assert code == 2 and f"{directory}: holds no trials of these test cases, but other files: 2; given itself" in err


def test_nothing_is_changed_whatever_is_wrong(directory, capsys):
    (directory / "notes.txt").write_text("x")
    (directory / older.name(10, 1).trial).write_text("{")
    (directory / older.name(10, 2).histogram).write_text("1,")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    for command in (["summary", str(directory)], ["export", str(directory)]):
        main(command)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()} == before


def test_what_cannot_be_used_is_not_used_whoever_accepts_it(directory, capsys):
    whole = (directory / GOOD.histogram).read_text()
    for repetition, broken in enumerate(("output", "histogram", "both fit no record", "not of one run"), start=1):
        name = older.write(directory, older.name(10, repetition), first_ns=20_000 * repetition)
        if broken in ("output", "histogram"):
            path = directory / name.file(broken)
            path.write_bytes(path.read_bytes()[:-10])
        elif broken == "both fit no record":
            (directory / name.trial).write_text('{"version": 1}')
        else:
            (directory / name.histogram).write_text(whole)
    assert [bool(trial.figures) for trial in read_results(directory).trials] == [True, False, False, False, False]
    code, out, _ = summary(capsys, directory, "--accept", "incomplete")
    assert code == 0 and "1/5" in out


def test_a_trial_that_stopped_early_can_be_accepted(directory, capsys):
    name = older.name(10, 1)
    histogram = sample.histogram(200, 50_000)
    output = sample.output(150_000, 150_000, seconds=sample.second() * 12, samples=sample.samples_line(histogram))
    (directory / name.output).write_text(output)
    (directory / name.histogram).write_text(histogram)
    (complaint,) = told(directory)
    assert complaint.startswith(f"{name.output}: frames were sent for ") and complaint.endswith(" s instead of 30 s")
    assert "1/2" in summary(capsys, directory)[1]
    assert "2/2" in summary(capsys, directory, "--accept", "incomplete")[1]


def test_a_trial_without_any_sample_has_an_empty_histogram(directory):
    name = older.name(10, 1)
    ResultStore(directory).commit(name, {"output": sample.output(300_000, 0)}, {"verdict": "no-reflection"})
    trial = read_results(directory).trials[1]
    assert (trial.verdict, trial.figures.samples, trial.histogram().samples) == (Verdict.NO_REFLECTION, 0, 0)
