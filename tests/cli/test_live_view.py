"""What the live view and the lines of a run say, without a terminal and without a run."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Sequence

import pytest
from rich.text import Text

from autotest.cli import progress as progress_module
from autotest.cli.live_view import LiveView
from autotest.cli.progress import INTERRUPTED, Lines, Progress, is_live
from autotest.plan.parameters import Case
from autotest.run.observer import Observers
from autotest.run.runner import End, Job, Outcome

NAMES = ("machine", "interface", "qemu", "reflector", "rate", "size", "repetition")
NAME = "pcvm_bridge_default_vhostoff_ioregionfdoff_xdp_{}kpps_60B_30s_rep0"


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Estimate:
    """A trial takes 60 s."""

    def __init__(self, trials: int) -> None:
        self.seconds = trials * 60.0

    def over(self, case: Case) -> None:
        self.seconds -= 60


def labels(case: Case) -> Sequence[str]:
    return [f"{name} {value}" for name, value in case.items() if name != "repetition"]


def job(rate: int = 40, retries: int = 2, **values: object) -> Job:
    shown: dict[str, object] = {"machine": "pcvm", "interface": "bridge", "qemu": "default", "reflector": "xdp"}
    shown |= {"rate": rate, "size": 60, "repetition": 1}
    return Job(Case(NAMES, tuple((shown | values).values())), NAME.format(rate), str, retries=retries, group="latency")


class Run:
    """A run of 20 trials, of which 5 were done before."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.progress = Progress(labels, 4, self.clock)
        self.told = Observers([self.progress, Lines(self.progress)])
        self.progress.plans(5, 15)
        self.progress.estimates(Estimate(15))
        self.given: list[str] = []

    def ends(self, end: End = End.DONE, count: int = 1, figures: str = "achieved 9.99 kpps", seconds: float = 30.0) -> None:
        for _ in range(count):
            of = job()
            self.told.ends(Outcome(of.name, of.group, seconds, "" if end is End.DONE else "why", end, figures, of.case))

    def sets_up(self, planned: Job, **seconds: float) -> None:
        """Those stages, in so many seconds each; then the trial is measured."""
        self.told.tries(planned, 1, 0)
        for stage, took in seconds.items():
            self.told.enters(stage, planned.case.prefix(4))
            self.clock.time += took
            self.told.entered(stage, planned.case.prefix(4))
        self.told.measures(planned)

    def screen(self, columns: int = 80, rows: int = 24) -> list[str]:
        """The lines of the live view as they are seen."""
        found = LiveView(self.progress, io.StringIO()).frame(os.terminal_size((columns, rows)))
        shown = [Text.from_ansi(line.text).plain for line in found]
        assert [line.columns for line in found] == [len(text) for text in shown]
        return shown

    def text(self, columns: int = 80) -> str:
        return "\n".join(self.screen(columns))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Run()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "autotest")
    return caplog


# -- the live view -----------------------------------------------------------------------------------------


def test_before_the_first_trial_it_says_what_takes_the_time_and_how_much_there_is_to_do(run: Run) -> None:
    run.progress.does("bringing the lab up")
    run.clock.time += 12
    assert "bringing the lab up, 12 s" in run.text()
    assert "5 done (5 before), 0 failed, 0 invalid, 15 left" in run.text() and "25 %" in run.text()


def test_a_trial_shows_where_it_stands_in_the_tree_its_countdown_and_its_rate_as_it_comes(run: Run) -> None:
    run.ends(count=2)
    run.sets_up(job(), guest=3.0)
    run.told.phase("load", 30)
    run.clock.time += 12.4
    run.told.reads("19.9 kpps")
    text = run.text()
    assert "latency: machine pcvm, interface bridge, qemu default, reflector xdp" in text
    assert "trial 8/20: rate 40, size 60, repetition 1" in text
    assert "load, 18 s left   19.9 kpps" in text and "attempt" not in text
    run.told.reads("20.1 kpps")
    assert "20.1 kpps" in run.text() and "19.9" not in run.text()
    run.clock.time += 20
    assert "load, about to end   20.1 kpps" in run.text()
    run.told.phase("rest", 5)
    assert "kpps" not in run.text(), "what was read in one phase says nothing of the next"


def test_a_set_up_shows_its_stage_and_an_attempt_which_one_it_is(run: Run) -> None:
    run.told.tries(job(), 3, 1)
    run.told.enters("guest", job().case.prefix(4))
    run.clock.time += 2
    assert "setting up guest, 2 s" in run.text() and "attempt 2 of 3" in run.text()
    run.told.leaves("guest")
    assert "undoing guest, 0 s" in run.text()


def test_it_counts_from_what_was_done_before_and_ends_at_the_whole(run: Run) -> None:
    run.ends(count=11)
    run.ends(End.FAILED)
    run.ends(End.INVALID, 2)
    assert "16 done (5 before), 1 failed, 2 invalid, 1 left" in run.text() and "95 %" in run.text()
    assert "not tried" not in run.text()
    run.ends(End.NOT_TRIED)
    assert "2 invalid, 1 not tried, 0 left" in run.text() and "100 %" in run.text()


def test_what_remains_runs_down_and_is_put_right_by_each_trial(run: Run) -> None:
    assert "about 15 min left" in run.text()
    run.clock.time += 240
    assert "4:00 elapsed, about 11 min left" in run.text()
    run.ends()
    assert "about 14 min left" in run.text()


def test_without_an_estimate_nothing_is_said_of_what_remains() -> None:
    run = Run.__new__(Run)
    run.progress = Progress(labels, 4, Clock())
    assert "about" not in run.text() and "0 s elapsed" in run.text()


def test_an_interruption_is_shown_with_what_another_one_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.told.leaves("guest")
    assert "interrupted" not in run.text()
    monkeypatch.setattr("autotest.run.interruption.requested", lambda: True)
    assert INTERRUPTED in run.text(120) and "undoing guest" in run.text(120)


@pytest.mark.parametrize("columns", [200, 121, 80, 60, 40, 25])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost_on_a_narrow_one(run: Run, columns: int) -> None:
    run.sets_up(job(), guest=3.0)
    run.told.phase("load", 30)
    run.told.reads("19.9 kpps")
    lines = run.screen(columns)
    assert all(len(line) < columns for line in lines)
    words = re.findall(r"[\w.]+", " ".join(lines))
    for each in ("reflector", "xdp", "repetition", "load", "19.9", "done", "elapsed"):
        assert each in words, f"{each} at {columns} columns"


def test_what_users_and_machines_wrote_gives_no_orders_to_the_terminal(run: Run) -> None:
    run.sets_up(job(qemu="[bold]\x1b[2Jevil\x07\nname"), guest=1.0)
    run.told.reads("\x1b]0;title\x07fast")
    text = "".join(line.text for line in LiveView(run.progress, io.StringIO()).frame(os.terminal_size((200, 24))))
    assert "[bold]" in text, "no markup either"
    orders = set(re.findall(r"\x1b\[?[^\x1b]*?[A-Za-z\]]", text))
    assert orders == set(re.findall(r"\x1b\[[0-9;]*m", text)) and "\x07" not in text


def test_no_color_is_honoured_and_else_no_colour_is_one_that_a_background_swallows(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def codes() -> set[str]:
        lines = LiveView(run.progress, io.StringIO()).frame(os.terminal_size((80, 24)))
        text = "".join(line.text for line in lines)
        return {code for found in re.findall(r"\x1b\[([0-9;]*)m", text) for code in found.split(";")}

    run.sets_up(job(), guest=1.0)
    run.ends(End.FAILED)
    run.ends(End.INVALID)
    run.told.reads("1 kpps")
    legible = {"0", "", "1", "2", "31", "32", "35", "90"}  # reset, bold, dim, red, green, magenta, grey
    assert {"31", "32", "35"} < codes() <= legible
    monkeypatch.setenv("NO_COLOR", "1")
    assert codes() <= {"0", "", "1", "2"}


# -- lines -------------------------------------------------------------------------------------------------


def test_each_event_is_one_line_with_the_figures_before_the_name(run: Run, told: pytest.LogCaptureFixture) -> None:
    run.sets_up(job(), network=0.1, guest=3.2, reflector=0.9)
    run.told.phase("load", 30)
    run.told.reads("20 kpps")
    run.ends()
    run.ends(End.FAILED, figures="")
    run.ends(End.INVALID, figures="")
    run.ends(End.NOT_TRIED, figures="")
    assert told.messages == [
        "set up in 4.2 s (guest 3.2 s, reflector 0.9 s): machine pcvm, interface bridge, qemu default, reflector xdp",
        f"6/20 achieved 9.99 kpps (30.0 s), 14 min left: {NAME.format(40)}",
        f"7/20 failed (30.0 s), 13 min left: {NAME.format(40)}",
        f"8/20 invalid (30.0 s), 12 min left: {NAME.format(40)}",
    ]


def test_the_next_trial_on_the_same_set_up_tells_of_no_set_up(run: Run, told: pytest.LogCaptureFixture) -> None:
    run.sets_up(job(), guest=3.0)
    run.sets_up(job(80))
    assert [message for message in told.messages if "set up" in message] == told.messages[:1]


def test_an_interruption_is_told_once_when_the_first_stage_is_undone(
    run: Run, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.told.leaves("reflector")
    monkeypatch.setattr("autotest.run.interruption.requested", lambda: True)
    run.told.leaves("guest")
    run.told.leaves("network")
    assert told.messages == [INTERRUPTED]


def test_the_summary_says_what_this_run_came_to(run: Run) -> None:
    assert run.progress.summary() == "0 trials done, 0 failed, 15 left, in 0 s"
    run.ends(count=11)
    run.ends(End.FAILED)
    run.ends(End.INVALID)
    run.ends(End.NOT_TRIED, 2)
    run.clock.time += 200
    assert run.progress.summary() == "11 trials done, 4 failed (1 invalid, 2 not tried), in 3 min"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "xterm"}, True), ({"TERM": "xterm", "CI": ""}, True), ({"TERM": "xterm", "CI": "true"}, False),
        ({"TERM": "dumb"}, False), ({}, False),
    ],
)  # fmt: skip
def test_only_a_terminal_that_somebody_watches_gets_a_live_view(environment: dict[str, str], expected: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert is_live(Terminal(), environment) is expected
    assert not is_live(io.StringIO(), environment)
    assert progress_module.summary_log.name == "autotest.cli.progress.summary", "which program.py leaves on with --quiet"
