"""The state of a campaign, from directories filled as a run fills them: counts, failures, and the time that is left."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autotest.cli.program import main
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Section
from autotest.report.status import duration, status_lines
from autotest.results.names import TrialName, render_infix
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict
from autotest.run.campaign import Campaign
from autotest.run.dry_run import describe
from autotest.run.status import Status, read_status

LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("pcvm",), "interface": ("bridge", "macvtap"), "qemu": (("q", "/x"),), "vhost": (False,),
    "ioregionfd": (False,), "queues": (None,), "rx_queue_size": (None,), "tx_queue_size": (None,), "guests": (1,),
    "reflector": ("xdp",), "weights": ("even",), "rate": (10, 20), "size": (60,), "runtime": (30,),
}  # fmt: skip
TOTAL = (
    "[Device: id=0] {}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), total 5 packets with 320 bytes "
    "(incl. CRC)\n"
)
OUTPUT = TOTAL.format("RX") + TOTAL.format("TX")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = datetime(2026, 3, 2, 17, 30)  # noqa: DTZ001  # the clock on the wall


def section(outputdir: Path, name: str = "s", repetitions: int = 2, **lists: Any) -> Section:
    settings = {"outputdir": outputdir, "repetitions": repetitions, "retries": 0, "warmup": 5.0, "cooldown": 3.0}
    return Section(name, LISTS | lists, settings, Path("tests.conf"))


def trial(interface: str = "bridge", rate: int = 10, repetition: int = 0) -> TrialName:
    return TrialName(render_infix("pcvm", interface, "q", False, False, "xdp", rate, 60, 30), repetition)


def commit(outputdir: Path, name: TrialName, verdict: str = "valid", at: float | None = None, **record: Any) -> None:
    """A trial of 30 s of load that was started so many seconds after START."""
    if at is not None:
        times = {"started": START + timedelta(seconds=at), "ended": START + timedelta(seconds=at + 30)}
        record |= {key: value.isoformat() for key, value in times.items()}
    ResultStore(outputdir).commit(name, {"output": OUTPUT, "histogram": "1000,5\n"}, {"verdict": verdict, **record})


def fail(outputdir: Path, what: object, reason: str = "guest: no route", at: float = 0) -> None:
    with (outputdir / "failures.jsonl").open("a") as file:
        when = (START + timedelta(seconds=at)).isoformat()
        file.write(f'{{"time": "{when}", "what": "{what}", "reason": "{reason}"}}\n')


def read(*sections: Section) -> Status:
    return read_status(Campaign(KIND, sections))


def text(*sections: Section) -> str:
    return "\n".join(status_lines(read(*sections), NOW))


# -- counts ------------------------------------------------------------------------------------------------


def test_each_set_up_tells_what_is_done_to_do_and_invalid_by_verdict(tmp_path: Path) -> None:
    commit(tmp_path, trial())
    commit(tmp_path, trial(repetition=1), "no-reflection")
    commit(tmp_path, trial(rate=20), "under-sent")
    (tmp_path / trial("macvtap").output).write_text("")  # cut off, of the older tool
    bridge, macvtap = read(section(tmp_path)).sections[0].set_ups
    assert (bridge.done, bridge.to_do) == (2, 2)
    assert bridge.invalid == {Verdict.NO_REFLECTION: 1} and bridge.findings == {Verdict.UNDER_SENT: 1}
    assert (macvtap.done, macvtap.to_do, macvtap.invalid) == (0, 4, Counter({Verdict.INCOMPLETE: 1}))
    assert "interface bridge" in bridge.labels and "rate 10" not in bridge.labels


def test_a_trial_of_the_older_tool_is_done(tmp_path: Path) -> None:
    (tmp_path / trial().output).write_text(OUTPUT)
    (tmp_path / trial().histogram).write_text("1000,5\n")
    assert read(section(tmp_path)).total.done == 1


def test_a_trial_whose_files_were_changed_is_to_do_and_incomplete(tmp_path: Path) -> None:
    commit(tmp_path, trial())
    (tmp_path / trial().histogram).write_text("1000,6\n")
    total = read(section(tmp_path)).total
    assert (total.done, total.invalid) == (0, Counter({Verdict.INCOMPLETE: 1}))


def test_what_two_sections_share_is_counted_once(tmp_path: Path) -> None:
    commit(tmp_path, trial())
    status = read(section(tmp_path, "a"), section(tmp_path, "b", rate=(20, 40)))
    assert [part.shared for part in status.sections] == [0, 4]
    assert (status.total.done, status.total.to_do) == (1, 11)
    assert "4 trials of it counted with a section above, which has the same" in text(
        section(tmp_path, "a"), section(tmp_path, "b", rate=(20, 40))
    )


def test_sections_with_output_directories_of_their_own_are_counted_apart(tmp_path: Path) -> None:
    commit(tmp_path / "a", trial())
    status = read(section(tmp_path / "a", "a"), section(tmp_path / "b", "b"))
    assert [sum(row.done for row in part.set_ups) for part in status.sections] == [1, 0]
    assert status.total.to_do == 15


def test_a_verdict_that_the_user_accepts_is_done_and_named(tmp_path: Path) -> None:
    commit(tmp_path, trial(), "disturbed", accepted={"at": START.isoformat(), "by": "me@here"})
    commit(tmp_path, trial(rate=20), "no-reflection")
    total = read(section(tmp_path)).total
    assert (total.done, total.accepted, total.findings) == (1, 1, Counter({Verdict.DISTURBED: 1}))
    assert total.invalid == {Verdict.NO_REFLECTION: 1}
    assert "1 disturbed (1 accepted)" in text(section(tmp_path))
    as_a_run = read_status(Campaign(KIND, [section(tmp_path)], frozenset({Verdict.NO_REFLECTION}))).total
    assert (as_a_run.done, as_a_run.accepted, as_a_run.invalid) == (2, 2, Counter())


def test_nothing_is_made_or_changed(tmp_path: Path) -> None:
    text(section(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


# -- failures ----------------------------------------------------------------------------------------------


def test_a_trial_that_failed_is_told_until_it_is_done(tmp_path: Path) -> None:
    fail(tmp_path, trial())
    fail(tmp_path, trial(rate=20), "older")
    fail(tmp_path, trial(rate=20), "newer")
    status = read(section(tmp_path))
    assert status.total.failed == 2 and status.total.held_back == 0
    assert [failure.noted.reason for failure in status.failures] == ["guest: no route", "newer"]
    commit(tmp_path, trial())
    assert [failure.noted.reason for failure in read(section(tmp_path)).failures] == ["newer"]


def test_a_set_up_that_failed_holds_its_trials_back_until_something_is_measured_on_it(tmp_path: Path) -> None:
    commit(tmp_path, trial(), at=0)
    fail(tmp_path, "guest (machine pcvm, interface bridge, qemu q, vhost off, ioregionfd off)", at=100)
    fail(tmp_path, trial(rate=20), at=90)
    status = read(section(tmp_path))
    assert (status.total.failed, status.total.held_back) == (1, 2)
    assert [failure.trials for failure in status.failures] == [2, 1]
    commit(tmp_path, trial(repetition=1), at=200)
    assert [failure.noted.trial for failure in read(section(tmp_path)).failures] == [trial(rate=20)]
    assert read(section(tmp_path)).total.held_back == 0


def test_a_set_up_that_was_given_up_holds_back_only_its_own_trials(tmp_path: Path) -> None:
    what = "all others with machine pcvm, interface bridge, qemu q, vhost off, ioregionfd off, reflector xdp"
    tmp_path.mkdir(exist_ok=True)
    fail(tmp_path, what)
    bridge, macvtap = read(section(tmp_path)).sections[0].set_ups
    assert (bridge.held_back, macvtap.held_back) == (4, 0)


def test_a_stage_that_several_set_ups_stand_on_holds_all_of_them_back(tmp_path: Path) -> None:
    fail(tmp_path, "load generator (machine pcvm)", "loadgen: not reached")
    status = read(section(tmp_path))
    assert [row.held_back for row in status.sections[0].set_ups] == [4, 4]
    assert status.failures[0].trials == 8


def test_failures_of_other_plans_and_lines_that_are_no_failures_are_left_out(tmp_path: Path) -> None:
    fail(tmp_path, trial("macvtap", 99))
    fail(tmp_path, "guest (machine microvm)")
    with (tmp_path / "failures.jsonl").open("ab") as file:
        file.write(b'\xff\n[]\n{"what": 3}\n{"time": "yesterday", "what": "x", "reason": null}\n{"what": "host_pnic')
    status = read(section(tmp_path))
    assert status.failures == () and status.total.failed == 0


def test_failures_are_shown_with_their_time_and_first_line_and_not_all_of_many(tmp_path: Path) -> None:
    for rate in range(1, 16):
        fail(tmp_path, trial(rate=rate), f"no reply {rate}\\n\\u001b[2Jsecond line " + "x" * 300)
    shown = text(section(tmp_path, rate=tuple(range(1, 16))))
    assert "no reply 15" in shown and "no reply 6\n" in shown + "\n" and "no reply 5\n" not in shown + "\n"
    assert "second line" not in shown and "and 5 before these" in shown


# -- the time that is left ---------------------------------------------------------------------------------


def test_without_anything_measured_the_time_left_is_stated_to_be_rough(tmp_path: Path) -> None:
    status = read(section(tmp_path))
    steps = 5 + 3  # all of the first set-up, and those of the second that differ
    assert status.remaining.seconds == 8 * (38 + 1) + steps * 2
    shown = text(section(tmp_path))
    assert "8 trials on 2 set-ups take about 5 min (finishes about 17:35 if it runs from now on)" in shown
    assert "rough: nothing measured yet, 1 s for each trial and 2 s for each step of a set-up added" in shown


def test_the_time_left_is_what_trials_and_changes_of_the_set_up_took_so_far(tmp_path: Path) -> None:
    at = 0.0
    for interface in ("bridge", "macvtap"):
        for rate in (10, 20, 40):
            commit(tmp_path, trial(interface, rate), at=at)
            at += 40  # 2 s more than load, warm-up and rest
        at += 60
    status = read(section(tmp_path, repetitions=2, rate=(10, 20, 40)))
    assert status.remaining.seconds == 6 * 40 + 2 * 60
    assert "rough" not in text(section(tmp_path, repetitions=2, rate=(10, 20, 40)))


def test_times_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    commit(tmp_path, trial(), started="now", ended=None)
    commit(tmp_path, trial(rate=20), started=7, ended=START.isoformat())
    commit(tmp_path, trial("macvtap"), started="2026-03-01T12:00:00", ended="2026-03-01T12:00:30")
    remaining = read(section(tmp_path)).remaining
    assert remaining.assumed == {"trial": 1, "step of a set-up": 2}


def test_the_dry_run_ends_with_the_same_words(tmp_path: Path) -> None:
    commit(tmp_path, trial())
    *_, counts, time, rough = describe(Campaign(KIND, [section(tmp_path)]))
    assert counts == "all: 8 trials, 1 done, 7 to do"
    time_of_status, rough_of_status = text(section(tmp_path)).splitlines()[-2:]
    assert time.startswith("7 trials on 2 set-ups take about 5 min (") and rough == rough_of_status
    assert time.partition("(")[0] == time_of_status.partition("(")[0]


def test_the_end_has_a_date_when_it_is_not_today(tmp_path: Path) -> None:
    shown = text(section(tmp_path, repetitions=1000))
    assert "(finishes about 2026-03-04 12:" in shown and "4000 trials on 2 set-ups take about 1 d 19 h" in shown


def test_all_done_is_said_and_no_time(tmp_path: Path) -> None:
    commit(tmp_path, trial())
    shown = text(section(tmp_path, interface=("bridge",), rate=(10,), repetitions=1))
    assert shown.endswith("all done") and "about" not in shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (3569, "59 min"),
        (3599, "1 h 0 min"),
        (86_399, "1 d 0 h"),
        (1e7, "115 d 18 h"),
    ],
)
def test_durations_are_rounded_to_what_matters(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


# -- the screen --------------------------------------------------------------------------------------------


def test_a_section_is_a_table_with_what_its_set_ups_differ_in(tmp_path: Path) -> None:
    commit(tmp_path, trial())
    commit(tmp_path, trial(rate=20), "under-sent")
    commit(tmp_path, trial("macvtap"), "disturbed")
    lines = text(section(tmp_path)).splitlines()
    assert lines[0] == f"[s] of tests.conf, results in {tmp_path}"
    assert lines[1] == "all with machine pcvm, qemu q, vhost off, ioregionfd off, reflector xdp"
    assert lines[2:6] == [
        "interface  done  to do  failed  invalid      of the done",
        "bridge        2      2       0  0            1 under-sent",
        "macvtap       0      4       0  1 disturbed",
        "all           2      6       0  1 disturbed  1 under-sent",
    ]


def test_set_ups_that_lack_a_parameter_and_single_ones_are_shown(tmp_path: Path) -> None:
    lines = text(section(tmp_path, machine=("host", "pcvm"), interface=("bridge",), vhost=(False, True))).splitlines()
    assert lines[1] == "all with interface bridge, reflector xdp"
    assert [line.split() for line in lines[2:7]] == [
        ["machine", "qemu", "vhost", "ioregionfd", "done", "to", "do", "failed", "invalid"],
        ["host", "-", "-", "-", "0", "4", "0", "0"], ["pcvm", "q", "off", "off", "0", "4", "0", "0"],
        ["pcvm", "q", "on", "off", "0", "4", "0", "0"], ["all", "0", "12", "0", "0"],
    ]  # fmt: skip
    lines = text(section(tmp_path, interface=("bridge",))).splitlines()
    assert lines[1] == "all with machine pcvm, interface bridge, qemu q, vhost off, ioregionfd off, reflector xdp"
    assert [line.split() for line in lines[2:4]] == [["done", "to", "do", "failed", "invalid"], ["0", "4", "0", "0"]]


def test_what_is_left_to_qemu_is_a_default_where_there_are_other_values(tmp_path: Path) -> None:
    lines = text(section(tmp_path, machine=("host", "pcvm"), interface=("bridge",), queues=(None, 4))).splitlines()
    assert [line.split()[:5] for line in lines[2:6]] == [
        ["machine", "qemu", "vhost", "ioregionfd", "queues"],
        ["host", "-", "-", "-", "-"], ["pcvm", "q", "off", "off", "default"], ["pcvm", "q", "off", "off", "4"],
    ]  # fmt: skip


def test_a_guest_that_failed_holds_back_only_those_with_the_same_queues(tmp_path: Path) -> None:
    fail(tmp_path, "guest (machine pcvm, interface bridge, qemu q, vhost off, ioregionfd off)")
    many = section(tmp_path, interface=("bridge",), queues=(None, 4))
    assert [row.held_back for row in read(many).sections[0].set_ups] == [4, 0]
    fail(tmp_path, "guest (machine pcvm, interface bridge, qemu q, vhost off, ioregionfd off, queues 4)")
    assert [row.held_back for row in read(many).sections[0].set_ups] == [4, 4]


def test_a_section_without_a_valid_combination_says_so(tmp_path: Path) -> None:
    shown = text(section(tmp_path, interface=("pnic",)))
    assert "no valid combination of parameters" in shown and shown.endswith("nothing to do")


CONF = """\
[lat]
machines = pcvm, microvm
interfaces = bridge, macvtap
reflectors = xdp
rates = {rates}
sizes = 60
runtimes = 1
repetitions = {repetitions}
outputdir = out
"""


def test_the_command_needs_no_testbed_and_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests.conf").write_text(CONF.format(rates="10, 20", repetitions=2))
    assert main(["status"]) == 0
    output = capsys.readouterr()
    assert output.err == "" and output.out.startswith("[lat] of tests.conf, results in out\n")
    assert "16 trials on 4 set-ups take about" in output.out
    assert list(tmp_path.iterdir()) == [tmp_path / "tests.conf"]


def test_the_command_counts_what_a_run_with_the_same_accept_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests.conf").write_text(CONF.format(rates="10", repetitions=1).replace(", microvm", "").replace(", macvtap", ""))
    commit(tmp_path / "out", TrialName(render_infix("pcvm", "bridge", "default", False, False, "xdp", 10, 60, 1), 0), "disturbed")
    assert main(["status"]) == 0 and "1 trial on 1 set-up takes about" in capsys.readouterr().out
    assert main(["status", "--accept", "disturbed"]) == 0
    shown = capsys.readouterr().out
    assert "1 disturbed (1 accepted)" in shown and shown.endswith("all done\n")
    assert main(["status", "--accept", "lost"]) == 2


def test_a_failure_gives_no_orders_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests.conf").write_text(CONF.format(rates="10", repetitions=1))
    (tmp_path / "out").mkdir()
    fail(tmp_path / "out", "load generator (machine pcvm)", "\\u001b]0;owned\\u0007 \\u001b[2J")
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "owned" in shown and "\x1b" not in shown and "\x07" not in shown


@pytest.mark.default
@pytest.mark.alone
def test_the_state_of_100000_planned_trials_is_there_in_seconds(tmp_path: Path) -> None:
    rates = tuple(range(1, 251))
    commit(tmp_path, trial(), at=0)
    begin = time.process_time()
    total = read(section(tmp_path, repetitions=200, rate=rates)).total
    assert (total.done, total.to_do) == (1, 99_999)
    assert time.process_time() - begin < 5
