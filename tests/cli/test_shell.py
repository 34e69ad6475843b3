"""The shell as users meet it: on a terminal with both consoles, in a pipe, as a program, and when it is ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from controlling_terminal import ControllingTerminal

from autotest.cli.console import attributes
from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.results.names import TrialName
from autotest.results.store import ResultStore
from autotest.servers.testbed import Servers

ROOT = Path(__file__).resolve().parents[2]
WITH_IPYTHON = [sys.executable, "-m", "autotest"]
WITHOUT_IPYTHON = [
    sys.executable, "-c", "import sys; sys.modules['IPython'] = None; from autotest.cli.program import program; sys.exit(program())"
]  # fmt: skip
# As built with a libedit that lacks it.
WITHOUT_APPENDING = [*WITHOUT_IPYTHON[:2], f"import readline; del readline.append_history_file; {WITHOUT_IPYTHON[2]}"]
COMMANDS = {"ipython": WITH_IPYTHON, "python": WITHOUT_IPYTHON, "python without appending": WITHOUT_APPENDING}
CONF = """\
[host]
fqdn = localhost
netns = {netns}
tmux_socket = {socket}
[guest]
fqdn = nobody.invalid
[loadgen]
fqdn = localhost
netns = {netns}
tmux_socket = {socket}
"""
TESTS = """\
[first]
machines = host
interfaces = pnic
reflectors = xdp
rates = 10, 20
sizes = 60
runtimes = 1
repetitions = 3
outputdir = out
"""
OUTPUT = "".join(
    f"[Device: id=0] {way}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), "
    "total 10000 packets with 640000 bytes (incl. CRC)\n"
    for way in ("RX", "TX")
)


@pytest.fixture
def folder(netns: str, tmux_socket: str, tmp_path: Path) -> Path:
    """A folder with a testbed in a namespace of its own, and tests for it."""
    (tmp_path / "autotest.conf").write_text(CONF.format(netns=netns, socket=f"{tmux_socket}-{os.getpid()}"))
    (tmp_path / "tests.conf").write_text(TESTS)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), "IPYTHONDIR": str(folder / "ipython"), "NO_COLOR": "1"
    }  # fmt: skip


def piped(folder: Path, stdin: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WITH_IPYTHON, "shell", *arguments], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60,
        env=environment(folder),
        check=False,
    )  # fmt: skip


def recover(folder: Path) -> str:
    ended = subprocess.run(
        [*WITH_IPYTHON, "recover"], cwd=folder, capture_output=True, text=True, timeout=60, check=True, env=environment(folder)
    )
    return ended.stdout


def links(netns: str) -> set[str]:
    shown = subprocess.run(["ip", "-n", netns, "-json", "link"], capture_output=True, text=True, check=True, timeout=10).stdout
    return {link["ifname"] for link in json.loads(shown)}


@pytest.fixture(params=["ipython", "python"])
def console(request: pytest.FixtureRequest) -> str:
    return request.param


class Shell(ControllingTerminal):
    """A shell on a terminal, at its first prompt."""

    def __init__(self, folder: Path, console: str, *arguments: str) -> None:
        super().__init__([*COMMANDS[console], "shell", *arguments], folder, environment(folder))
        self._lines: int | None = 0 if console == "ipython" else None
        self.prompted(40)

    def __enter__(self) -> Shell:
        return self

    def prompted(self, timeout: float = 20) -> None:
        """Wait for the prompt of the next line. IPython draws it again with each key: only its number tells them apart."""
        if self._lines is not None:
            self._lines += 1
        self.shows(">>> " if self._lines is None else f"In [{self._lines}]: ", timeout)
        time.sleep(0.3)  # a signal between a prompt and the waiting for keys is heard with the next key: so is Python

    def line(self, text: str) -> None:
        """Type a line, and wait for the next prompt."""
        self.type(f"{text}\r")
        self.prompted()


@pytest.fixture
def shell(folder: Path, console: str) -> Iterator[Shell]:
    with Shell(folder, console) as opened:
        yield opened


# -- at hand -----------------------------------------------------------------------------------------------


def test_servers_testbed_plan_and_results_are_at_hand(shell: Shell) -> None:
    for name, shown in (
        ("host", "<Host host at localhost>"),
        ("guest", "<Guest guest at nobody.invalid>"),
        ("loadgen", "<LoadGen loadgen at localhost>"),
        ("servers.testbed is testbed", "True"),
        ("plan", "<campaign of load-latency>\n[first] in out: 6 trials, 0 done, 6 to do"),
        ("results", "results() is a pandas DataFrame"),
    ):
        shell.type(f"{name}\r")
        shell.shows(shown)
        shell.prompted()
    shell.type("\x04")
    assert shell.end() == 0
    assert "until autotest recover undoes it. End with Ctrl-D." in shell.text


def test_an_exception_is_shown_alone(shell: Shell) -> None:
    shell.line("host.nothing")
    assert "'Host' object has no attribute 'nothing'" in shell.text
    assert "another exception" not in shell.text and "ModuleNotFoundError" not in shell.text


def test_the_plan_is_that_of_the_named_tests(folder: Path) -> None:
    (folder / "more.conf").write_text(TESTS.replace("first", "second").replace("10, 20", "30"))
    ended = piped(folder, "plan\n", "-t", "tests.conf", "more.conf")
    assert "[first] in out: 6 trials, 0 done, 6 to do\n[second] in out: 3 trials" in ended.stdout


def test_wrong_tests_do_not_keep_the_shell_from_starting(folder: Path) -> None:
    (folder / "tests.conf").write_text(TESTS.replace("xdp", "xpd").replace("rates = 10", "rates = 0"))
    ended = piped(folder, "print(plan, host.name)\n")
    assert ended.returncode == 0 and "None host" in ended.stdout and "Traceback" not in ended.stderr
    assert "plan is None: tests.conf [first] reflectors: " in ended.stderr
    assert "plan is None: tests.conf [first] rates: " in ended.stderr


def test_without_tests_there_is_no_plan_and_no_word_about_it(folder: Path) -> None:
    (folder / "tests.conf").unlink()
    ended = piped(folder, "print(plan)\nresults()\n", "--quiet")
    assert "None" in ended.stdout and "WARNING" not in ended.stderr
    assert 'UsageError: there is no tests.conf: name an output directory, like results("results")' in ended.stderr


def test_results_are_the_table_that_export_makes(folder: Path) -> None:
    store = ResultStore(folder / "out")
    for rate in (10, 20, 40):
        name = TrialName(f"host_pnic_xdp_{rate}kpps_60B_1s", 0)
        store.commit(name, {"output": OUTPUT, "histogram": "1000,5\n"}, {"verdict": "valid", "reason": ""})
    command = [*WITH_IPYTHON, "export", "out", "--select", "rate=..20", "--accept", "disturbed"]
    exported = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=60, env=environment(folder)
    ).stdout.splitlines()
    script = f"""\
table = results("out", select="rate=..20", accept=["disturbed"])
print(len(table), list(table) == {exported[0].split(",")}, list(table.accept))
print("planned:", results().rate.tolist())
"""
    ended = piped(folder, script)
    assert ended.returncode == 0, ended.stderr
    assert "2 True ['disturbed', 'disturbed']" in ended.stdout and len(exported) == 3
    assert "planned: [10, 20]" in ended.stdout  # tests.conf plans no 40 kpps


def test_completion_asks_no_machine() -> None:
    testbed = Testbed(Path("a.conf"), HostConfig(fqdn="192.0.2.1"), GuestConfig(fqdn="g"), LoadGenConfig(fqdn="l"))
    with Servers(testbed) as servers:
        assert attributes({"host": servers.host}, "host.pi") == ["host.ping("]
        everything = attributes({"host": servers.host}, "host.")
        assert {"host.run(", "host.links", "host.boot", "host.name"} <= set(everything)
        assert not {"transport", "links", "pci", "boot", "state_dir"} & set(vars(servers.host))
        assert not any("._" in name for name in everything) and "host._note_file(" in attributes(
            {"host": servers.host}, "host._n"
        )
        assert attributes({}, "nobody.x") == []


# -- on a terminal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("console", COMMANDS)
def test_history_is_kept_for_the_next_shell_even_if_this_one_is_killed(folder: Path, console: str) -> None:
    with Shell(folder, console) as shell:
        shell.line("first = 6 * 7")
        shell.line("number = first + 1000")
        shell.process.kill()
        shell.process.wait()
    with Shell(folder, console) as shell:
        shell.type("\x1b[A")  # the line before
        shell.shows("number = first + 1000")
        shell.type("\x1b[A")
        shell.shows("first = 6 * 7")
    kept = folder / "state/autotest" / ("shell-history.sqlite" if console == "ipython" else "shell-history")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_tab_completes_names_and_attributes(shell: Shell) -> None:
    shell.type("loadg\t")
    shell.shows("loadgen")
    shell.type(".upload_m\t")
    shell.shows("upload_moonprogs")


def test_ctrl_c_ends_a_line_and_not_the_shell_however_often(shell: Shell) -> None:
    shell.type("import time; print('sle' + 'eps', flush=True); time.sleep(60)\r")
    shell.shows("sleeps")
    shell.type("\x03")
    shell.shows("KeyboardInterrupt")
    shell.prompted()
    for _ in range(3):
        shell.type("nonsense ")
        shell.shows("nonsense")
        shell.type("\x03")
        time.sleep(0.3)
    shell.type("print('still', 'there')\r")
    shell.shows("still there")
    shell.type("exit()\r")
    assert shell.end() == 0


# -- in a pipe, and as a program ---------------------------------------------------------------------------


def test_a_piped_script_goes_on_after_an_exception_and_the_exit_code_tells(folder: Path) -> None:
    ended = piped(folder, "1 / 0\nprint('goes', 'on')\n")
    assert ended.returncode == 1 and "goes on" in ended.stdout and "ZeroDivisionError" in ended.stderr
    assert piped(folder, "if\nprint('goes', 'on')\n").returncode == 1
    assert piped(folder, "print('goes', 'on')\n").returncode == 0
    assert piped(folder, "exit(7)\n").returncode == 7


def test_a_program_has_the_same_variables_and_its_exception_is_the_exit_code(folder: Path, netns: str) -> None:
    program = folder / "program.py"
    program.write_text("host.links.add_bridge('br')\nfor server in servers.all():\n    print(server.name, plan is not None)\n")
    ended = piped(folder, "", "program.py")
    assert ended.returncode == 0 and ended.stdout == "host True\nguest True\nloadgen True\n"
    assert "br" in links(netns) and "deleted" in recover(folder)
    program.write_text("host.links.add_bridge('br')\nhost.run(['false'])\n")
    ended = piped(folder, "", "program.py")
    assert ended.returncode == 1 and "host: false: exit code 1" in ended.stderr and "Traceback" not in ended.stderr
    assert links(netns) == {"lo"}
    ended = piped(folder, "", "missing.py")
    assert ended.returncode == 2 and "missing.py: there is no such file" in ended.stderr


# -- ended -------------------------------------------------------------------------------------------------


def test_what_a_shell_changed_stays_until_recover_undoes_it(shell: Shell, folder: Path, netns: str) -> None:
    shell.line("host.links.add_bridge('br')")
    shell.type("\x04")
    assert shell.end() == 0
    assert links(netns) == {"lo", "br"}
    assert "host: link br: deleted" in recover(folder)
    assert links(netns) == {"lo"}


def test_a_shell_that_is_killed_leaves_a_journal_and_recover_undoes_it(shell: Shell, folder: Path, netns: str) -> None:
    shell.line("host.links.add_bridge('br')")
    shell.process.kill()
    assert shell.end() == -signal.SIGKILL
    assert links(netns) == {"lo", "br"}
    assert "host: link br: deleted" in recover(folder)
    assert links(netns) == {"lo"} and "nothing was left" in recover(folder)


@pytest.mark.parametrize("busy", [False, True], ids=["at its prompt", "in a line"])
def test_sigterm_ends_it_and_undoes_what_it_changed(shell: Shell, folder: Path, netns: str, busy: bool) -> None:
    shell.line("host.links.add_bridge('br')")
    if busy:
        shell.type("import time; print('sle' + 'eps', flush=True); time.sleep(60)\r")
        shell.shows("sleeps")
    shell.process.terminate()
    assert shell.end() == 130
    assert links(netns) == {"lo"} and "nothing was left" in recover(folder)
    assert shell.echoes and "Traceback" not in shell.text


@pytest.mark.parametrize("busy", [False, True], ids=["at its prompt", "in a line"])
def test_a_terminal_that_closes_ends_it_in_order(shell: Shell, folder: Path, netns: str, busy: bool) -> None:
    shell.line("host.links.add_bridge('br')")
    if busy:
        shell.type("import time; print('sle' + 'eps', flush=True); time.sleep(60)\r")
        shell.shows("sleeps")
    shell.hang_up()
    assert shell.end() == 130
    assert links(netns) == {"lo"} and "nothing was left" in recover(folder)


def test_a_line_that_swallows_its_end_is_ended_all_the_same(shell: Shell, folder: Path, netns: str) -> None:
    shell.line("host.links.add_bridge('br')")
    shell.line("import time")
    shell.type('exec(\'try:\\n print("sle" + "eps", flush=True); time.sleep(60)\\nexcept BaseException: time.sleep(60)\')\r')
    shell.shows("sleeps")
    shell.hang_up()
    assert shell.end() == 130
    assert links(netns) == {"lo"} and "nothing was left" in recover(folder)
