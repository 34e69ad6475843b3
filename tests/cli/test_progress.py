"""A run as it is seen: on a terminal, in a file, by a build server; and the terminal afterwards, however the run ended."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import fake_campaign
import pytest
from fake_campaign import (
    BROKEN_INTERFACE,
    STAGE_SECONDS,
    TRIAL_SECONDS,
    UNDO_SECONDS,
)
from terminal import Terminal

from autotest.cli.progress import INTERRUPTED

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, fake_campaign.__file__]
NAME = "pcvm_{}_default_vhostoff_ioregionfdoff_xdp_{}kpps_60B_1s_rep0"
RULE = "───"
ENVIRONMENT = {"PYTHONPATH": str(PROJECT)}

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a campaign on a terminal; what is not about the terminal is for tests.conf, or the environment in capitals."""
    with ExitStack() as stack:

        def started(*options: str, columns: int = 100, rows: int = 24, stalled: bool = False, **values: object) -> Terminal:
            environment = ENVIRONMENT | {name: str(value) for name, value in values.items() if name.isupper()}
            lists = {name: value for name, value in values.items() if not name.isupper()}
            command = [*COMMAND, *fake_campaign.write(tmp_path, **lists), *options]
            return stack.enter_context(Terminal(command, columns, rows, stalled, environment))

        yield started


def redirected(tmp_path: Path, *options: str, **values: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a campaign without a terminal."""
    environment = ENVIRONMENT | {name: str(value) for name, value in values.items() if name.isupper()}
    lists = {name: value for name, value in values.items() if not name.isupper()}
    command = [*COMMAND, *fake_campaign.write(tmp_path, **lists), *options]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def untimed(log: str) -> list[str]:
    """The lines of a log, without dates and durations."""
    return [re.sub(r"[0-9.]+ (s|min)\b", "_ s", re.sub(r"^[0-9-]+ [0-9:]+ ", "", line)) for line in log.splitlines()]


def assert_whole(terminal: Terminal) -> None:
    """No frame is left, the cursor is shown, the colours are the user's, and the next line begins at the left."""
    assert RULE not in terminal.seen()
    hidden = [code for code in re.findall(r"\x1b\[\?25[lh]", terminal.data) if code.endswith("l")]
    shown = [code for code in re.findall(r"\x1b\[\?25[lh]", terminal.data) if code.endswith("h")]
    assert len(hidden) == len(shown)
    assert re.findall(r"\x1b\[([0-9;]*)m", terminal.data)[-1] in ("", "0")
    assert terminal.data.endswith("\r\n")


# -- on a terminal -----------------------------------------------------------------------------------------


@pytest.mark.default
def test_a_run_is_seen_while_it_goes_on_and_leaves_its_log(start: Start) -> None:
    terminal = start(rates="10, 13, 14", interfaces="bridge", **{STAGE_SECONDS: 0.5, TRIAL_SECONDS: 0.6})
    terminal.wait_for("setting up guest, 0 s")
    terminal.wait_for("trial 1/3: reflector xdp, rate 10, size 60, runtime 1, repetition 0")
    terminal.wait_for("latency: machine pcvm, interface bridge, qemu default, vhost off, ioregionfd off")
    terminal.wait_for("load, 1 s left   10.")
    terminal.wait_for("1 done, 1 failed, 0 invalid, 1 left")
    assert terminal.end() == 1
    assert_whole(terminal)
    log = terminal.seen()
    assert f"1/3 achieved 10.00 kpps ({NAME.format('bridge', 10)}" in re.sub(r"\([0-9.]+ s\).*: ?\n?", "(", log).replace("\n", "")
    assert "WARNING" in log and "1 trial done, 2 failed (1 invalid), in" in log


@pytest.mark.default
def test_log_lines_keep_their_colours_above_the_view(start: Start) -> None:
    terminal = start(rates="13", interfaces="bridge")
    assert terminal.end() == 1
    assert re.search(r"\x1b\[33m[0-9: -]+ WARNING\x1b\[0m pcvm_bridge", terminal.data)


@pytest.mark.default
def test_a_run_that_goes_on_counts_what_was_done_before(start: Start) -> None:
    assert start(rates="10, 20, 30").end() == 0
    terminal = start(rates="10, 20, 30, 40")
    terminal.wait_for("trial 7/8: reflector xdp, rate 40")
    terminal.wait_for("6 done (6 before), 0 failed, 0 invalid, 2 left")
    assert terminal.end() == 0
    assert " 8/8 achieved 40.00 kpps" in terminal.seen() and "2 trials done, 0 failed, in" in terminal.seen()


@pytest.mark.default
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_shows_the_undoing_and_leaves_the_terminal_whole(start: Start, number: signal.Signals) -> None:
    terminal = start(**{TRIAL_SECONDS: 20, UNDO_SECONDS: 0.6})
    terminal.wait_for("load, ")
    terminal.process.send_signal(number)
    terminal.wait_for("undoing guest")
    terminal.wait_for("undoing network")
    assert terminal.seen().replace("\n", "").count(INTERRUPTED) == 2, "a line of the log, and the view"
    assert terminal.end() == 130
    assert_whole(terminal)
    last = terminal.seen().splitlines()[-3:]
    assert "0 trials done, 0 failed, 4 left, in" in "".join(last) and last[-1].endswith("ERROR interrupted")


@pytest.mark.default
def test_the_second_interruption_ends_it_at_once_and_leaves_the_terminal_whole(start: Start) -> None:
    terminal = start(**{TRIAL_SECONDS: 20, UNDO_SECONDS: 20})
    terminal.wait_for("load, ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("undoing guest")
    time.sleep(0.6)  # sooner it counts as the same request
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end(5) == 130
    assert "?25l" not in terminal.data and re.findall(r"\x1b\[([0-9;]*)m", terminal.data)[-1] == "0"
    assert terminal.seen().splitlines()[-1].startswith("interrupted again:") and terminal.data.endswith("\r\n")


@pytest.mark.default
def test_a_bug_is_seen_whole_below_the_log(start: Start) -> None:
    terminal = start(rates="15")
    assert terminal.end() == 1
    assert_whole(terminal)
    assert terminal.seen().splitlines()[-1] == "ZeroDivisionError: a bug"


@pytest.mark.default
@pytest.mark.parametrize("columns", [80, 40])
def test_a_narrow_terminal_shows_it_all_without_wrapping(start: Start, columns: int) -> None:
    terminal = start(columns=columns, rates="10", interfaces="bridge", **{TRIAL_SECONDS: 3})
    terminal.wait_for("load, 1 s left")
    frame = terminal.seen().splitlines()
    frame = frame[next(number for number, line in enumerate(frame) if RULE in line) :]
    assert max(map(len, frame)) < columns and "repetition 0" in "\n".join(frame) and "1 left" in "\n".join(frame)
    assert terminal.end() == 0
    assert_whole(terminal)


@pytest.mark.default
def test_a_terminal_of_few_lines_shows_the_last_of_them(start: Start) -> None:
    terminal = start(rows=4, rates="10", interfaces="bridge", **{TRIAL_SECONDS: 3})
    terminal.wait_for("load, 1 s left")
    assert RULE not in terminal.seen() and "0 done, 0 failed, 0 invalid, 1 left" in terminal.seen()
    assert terminal.end() == 0


@pytest.mark.default
def test_a_terminal_that_gets_narrower_has_one_view_on_it(tmp_path: Path) -> None:
    """On a real one, which wraps the lines that were there."""
    arguments = [*COMMAND, *fake_campaign.write(tmp_path, rates="10", interfaces="bridge")]
    tmux = ["tmux", "-S", str(tmp_path / "tmux")]

    def pane() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in pane():
            assert time.monotonic() < deadline, pane()
            time.sleep(0.05)

    environment = ["env", "-u", "CI", "TERM=screen-256color", f"PYTHONPATH={PROJECT}", f"{TRIAL_SECONDS}=60"]
    new = [*tmux, "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30"]
    subprocess.run([*new, *environment, *arguments], check=True)
    try:
        wait_for("load, ")
        for columns in (60, 90, 45):
            subprocess.run([*tmux, "resize-window", "-x", str(columns)], check=True)
            wait_for("─" * (columns - 1) + "\n")
            time.sleep(1.2)
            lines = pane().splitlines()
            assert sum(RULE in line for line in lines) == 1 and sum("0 failed" in line for line in lines) == 1, pane()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


@pytest.mark.default
def test_what_a_shell_wrote_while_the_run_was_stopped_is_not_erased(start: Start) -> None:
    terminal = start(rates="10", FAKE_TRIAL_SECONDS=2)
    terminal.wait_for("load, ")
    terminal.process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    before = len(terminal.data)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for("trials done")
    first, drawn, _ = terminal.data[before:].partition(RULE)
    assert drawn and "\x1b[A" not in first


@pytest.mark.default
def test_a_terminal_that_takes_nothing_does_not_hold_up_the_run(start: Start, tmp_path: Path) -> None:
    terminal = start(stalled=True, rates=", ".join(map(str, range(20, 50))), interfaces="bridge", **{TRIAL_SECONDS: 0.02})
    deadline = time.monotonic() + 30
    while len(list((tmp_path / "out").glob("trial_*"))) < 30:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert terminal.data == ""
    terminal.reads()
    assert terminal.end() == 0
    assert " 30/30 achieved 49.00 kpps" in terminal.seen()


@pytest.mark.default
def test_a_terminal_that_is_gone_does_not_end_the_run(start: Start, tmp_path: Path) -> None:
    """It is nobody's controlling terminal here: no SIGHUP says that all is to be undone."""
    terminal = start(rates="10, 20", interfaces="bridge")
    terminal.wait_for("load, ")
    terminal.close()
    terminal.process.wait(20)
    assert len(list((tmp_path / "out").glob("trial_*"))) == 2


# -- plain -------------------------------------------------------------------------------------------------


@pytest.mark.default
def test_a_redirected_run_is_one_line_for_each_event_and_no_control_codes(tmp_path: Path) -> None:
    code, output, log = redirected(tmp_path, rates="10, 14")
    assert (code, output) == (1, "") and set(re.findall(r"[^ -~]", log)) == {"\n"}
    set_up = "set up in _ s: machine pcvm, interface {}, qemu default, vhost off, ioregionfd off"
    invalid = "no-reflection: nothing came back"
    told = [line for line in untimed(log) if not line.startswith(("opening", "preflight"))]
    assert told[:6] == [
        "4 trials, 0 done, 4 to do",
        set_up.format("bridge"),
        f"1/4 achieved 10.00 kpps (_ s), _ s left: {NAME.format('bridge', 10)}",
        f"WARNING {NAME.format('bridge', 14)}: {invalid}",
        f"2/4 invalid (_ s), _ s left: {NAME.format('bridge', 14)}",
        set_up.format("macvtap"),
    ]
    assert "undoing what was set up" in told and "2 trials done, 2 failed (2 invalid), in _ s" in told
    assert f"ERROR failed: {NAME.format('macvtap', 14)}: {invalid}" in told


def test_a_limited_run_counts_what_it_tries_and_no_further(tmp_path: Path) -> None:
    code, _, log = redirected(tmp_path, "--limit", "2", **{BROKEN_INTERFACE: "bridge", TRIAL_SECONDS: 0})
    told = untimed(log)
    numbered = [line.partition(":")[0] for line in told if re.match(r"\d+/\d+ ", line)]
    assert code == 1 and numbered == ["1/2 failed (_ s), _ s left", "2/2 achieved 10.00 kpps (_ s)"]
    assert "1 trial done, 1 failed, in _ s" in told and "2 trials left: the same command goes on" in told
    (failed,) = [line for line in told if line.startswith("ERROR failed: ")]
    assert "interface bridge" in failed and failed.endswith("no such link (2 trials)")


@pytest.mark.default
def test_a_build_server_with_a_terminal_gets_plain_lines_too(start: Start) -> None:
    terminal = start(rates="10", interfaces="bridge", CI="true")
    assert terminal.end() == 0
    assert set(re.findall(r"[^ -~]", terminal.data)) == {"\r", "\n"} and " 1/1 achieved" in terminal.data


@pytest.mark.default
def test_a_dumb_terminal_gets_plain_lines(start: Start) -> None:
    terminal = start(rates="10", interfaces="bridge", TERM="dumb")
    assert terminal.end() == 0
    assert RULE not in terminal.data and not re.search(r"\x1b\[[0-9]*[A-Z]", terminal.data)


@pytest.mark.default
def test_no_color_leaves_a_live_view_without_colours(start: Start) -> None:
    terminal = start(rates="13", interfaces="bridge", NO_COLOR="1")
    terminal.wait_for("load, 1 s left")
    assert terminal.end() == 1
    assert {code for found in re.findall(r"\x1b\[([0-9;]*)m", terminal.data) for code in found.split(";")} <= {"", "0", "1", "2"}


@pytest.mark.default
def test_quiet_leaves_what_went_wrong_and_the_summary(tmp_path: Path, start: Start) -> None:
    code, output, log = redirected(tmp_path, "--quiet", rates="10, 13", interfaces="bridge")
    assert (code, output) == (1, "")
    name = NAME.format("bridge", 13)
    assert untimed(log) == [
        f"WARNING {name}: loadgen: hangs", "with two lines", "1 trial done, 1 failed, in _ s",
        f"ERROR failed: {name}: loadgen: hangs", "with two lines",
    ]  # fmt: skip
    terminal = start("--quiet", rates="10, 20", interfaces="bridge")
    assert terminal.end() == 0
    assert RULE not in terminal.data and untimed(terminal.seen()) == ["1 trial done, 0 failed, in _ s"]


@pytest.mark.default
def test_what_draws_is_loaded_only_for_a_live_view(tmp_path: Path) -> None:
    support = str(Path(fake_campaign.__file__).parent)
    arguments = fake_campaign.write(tmp_path, rates="10", interfaces="bridge")
    without, of_campaign = "from autotest.cli.program import main; main([])", "from fake_campaign import main; main()"
    for program, given in ((without, []), (of_campaign, arguments)):
        command = [sys.executable, "-c", f"import sys; {program}; sys.exit('rich' in sys.modules)", *given]
        ended = subprocess.run(
            command, env=ENVIRONMENT | {"PYTHONPATH": f"{PROJECT}:{support}"}, capture_output=True, timeout=30, check=False
        )
        assert ended.returncode == 0, ended.stderr
