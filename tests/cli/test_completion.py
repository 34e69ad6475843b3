"""A Tab in real shells, each in a terminal: commands, options, files, sections, conditions; and never an error."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tmux_terminal import TmuxTerminal, tmux_terminal

from autotest.cli import completion, words
from autotest.cli.arguments import build_parser
from autotest.interfaces import INTERFACE_KINDS
from autotest.measurements.load_latency import KIND
from autotest.measurements.load_matrix import MACHINES
from autotest.servers.guest import QEMU_MACHINES
from autotest.traffic.reflectors import REFLECTOR_KINDS

ROOT = Path(__file__).resolve().parents[2]
TESTS = """\
vhosts = no, yes
[lat]
machines = pcvm, microvm
interfaces = bridge, macvtap
qemus = new:/opt/qemu, old:
rates = 10-40*2, 1.5M
sizes = 60, 60:7 590:4
queues = default, 2
[more-load]
machines = host
interfaces = pnic
rates = 200
"""
RESULTS = ("pcvm_bridge_new_vhoston_ioregionfdoff_xdp_{}kpps_60B_1s", "host_pnic_moongen_{}kpps_imixB_2s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tests, results, files of other kinds, and autotest as a command."""
    (tmp_path / "tests.conf").write_text(TESTS)
    (tmp_path / "notes.txt").touch()
    (tmp_path / "results").mkdir()
    for name in RESULTS:
        for rate in (5, 100, 20):
            (tmp_path / "results" / f"output_{name.format(rate)}_rep0.log").touch()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/autotest"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m autotest "$@"\n')
    program.chmod(0o755)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder}/bin:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT), "TERM": "screen", "LANG": "C.UTF-8", "PS1": "$ "}


# -- in the shells -----------------------------------------------------------------------------------------

START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(autotest completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'PS1="$ "; eval "$(autotest completion zsh)"'),
    "fish": (
        ["fish", "--no-config", "-i"],
        "set -g fish_autosuggestion_enabled 0; function fish_prompt; echo -n '$ '; end; autotest completion fish | source",
    ),
}

# On a line each: what is typed before a Tab, and what then is on the screen.
LINES = (
    (("autotest stat", "$ autotest status"), ("--sec", "--section"), ("more", "--section more-load")),
    (("autotest test-load-lat-file --dry-run te", "tests.conf"), ("--select mach", "--select machine="), ("microv", "=microvm")),
    (("autotest summary results --select rate=1", "rate=100"), ("--accept under", "--accept under-sent")),
    (("autotest plot results:interf", "results:interface="), ("bridge,pn", "results:interface=bridge,pnic")),
    (("autotest plot -k latency,los", "-k latency,loss"), ("--format png,s", "--format png,svg"), ("--by ref", "--by reflector")),
    (("autotest run-guest -i macv", "-i macvtap"), ("-m micro", "-m microvm"), ("-D note", "-D notes.txt")),
    (("autotest lab stat", "lab status"), ("-c te", "-c tests.conf")),
    (("autotest status --select 'machine=pcvm ra", "'machine=pcvm rate"), ("<=4", "'machine=pcvm rate<=40")),
)
LISTS = (
    ("autotest compare --metric p50,", ("p50,achieved", "p50,loss", "p50,p99")),
    ("autotest status --section ", ("lat", "more-load")),
    ("autotest status --select machine=", ("pcvm", "microvm", "host")),
    ("autotest te", ("teardown-network", "test-load-lat-file")),
)  # fmt: skip


@pytest.fixture(params=sorted(START))
def shell(request: pytest.FixtureRequest, folder: Path) -> Iterator[TmuxTerminal]:
    command, completing = START[request.param]
    assert shutil.which(command[0]), f"{command[0]} is not installed: scripts/test.sh installs it"
    with tmux_terminal(folder, command, environment(folder)) as opened:
        opened.type(f"{completing}; clear; echo rea''dy")
        opened.press("Enter")
        opened.wait_until_only("ready\n$")
        yield opened


def begin(shell: TmuxTerminal) -> None:
    """An empty line on an empty screen."""
    shell.press("C-u", "C-l")
    shell.wait_until_only("$")


@pytest.mark.default
def test_a_tab_completes_what_is_begun_and_shows_what_there_is(shell: TmuxTerminal, request: pytest.FixtureRequest) -> None:
    for line in LINES:
        begin(shell)
        for typed, expected in line:
            shell.type(typed)
            shell.press("Tab")
            shell.wait_for(expected)
    for typed, expected_words in LISTS:
        begin(shell)
        shell.type(typed)
        shell.press("Tab", "Tab")
        screen = shell.wait_for(*expected_words)
        assert "None" not in screen and "Traceback" not in screen


# -- each completion ---------------------------------------------------------------------------------------


def completed(folder: Path, line: str, shell: str = "bash", **more: str) -> list[str]:
    """What the shell is told; and nothing else is written, whatever happens."""
    reading, writing = os.pipe()
    asked = {
        "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": shell,
        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": f"/proc/self/fd/{writing}",
    }  # fmt: skip
    with os.fdopen(reading) as answer:
        result = subprocess.run(
            [sys.executable, "-m", "autotest"], cwd=folder, env=environment(folder) | asked | more, pass_fds=[writing],
            capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        os.close(writing)
        assert (result.stdout, result.stderr, result.returncode) == ("", "", 0), line
        return answer.read().split("\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("autotest t", ["teardown-network", "test-load-lat-file"]),
        ("autotest ping --", ["--help", "--config", "--verbose", "--quiet"]),
        ("autotest ping ", ["--help", "--config", "--verbose", "--quiet"]),
        ("autotest completion ", ["bash", "zsh", "fish"]),
        ("autotest lab ", ["up", "down", "status"]),
        ("autotest test-load-lat-file --stale ", ["fail", "keep", "rerun"]),
        ("autotest -c ", ["bin/", "results/", "tests.conf"]),
        ("autotest status ", ["bin/", "results/", "tests.conf"]),
        ("autotest status no", [""]),
        ("autotest summary re", ["results/"]),
        ("autotest run-guest -D n", ["notes.txt"]),
        ("autotest test-load-lat-file --limit ", [""]),
        ("autotest status -S ", ["lat", "more-load"]),
        ("autotest status tests.conf -S lat --section=", ["--section=more-load"]),
        ("autotest status -s machine=", ["machine=pcvm", "machine=microvm", "machine=host"]),
        ("autotest status -S lat -s machine=", ["machine=pcvm", "machine=microvm"]),
        ("autotest status -s machine=pcvm,", ["machine=pcvm,microvm", "machine=pcvm,host"]),
        ("autotest status -s rate=", [f"rate={rate}" for rate in (10, 20, 40, 1500, 200)]),
        ("autotest status -s 'size=60:", ["size=60:7+590:4"]),
        ("autotest status -s queues=", ["queues=default", "queues=2"]),
        ("autotest status -s vhost=", ["vhost=off", "vhost=on"]),
        ("autotest status -s qemu=", ["qemu=new", "qemu=old"]),
        ("autotest status -x ra", ["rate="]),
        ("autotest status -x 'ra", [f"rate{operator}" for operator in ("=", "!=", "<", "<=", ">", ">=")]),
        ("autotest status -x 'machine=pcvm rate>", [f"machine=pcvm rate>{rate}" for rate in (10, 20, 40, 1500, 200)]),
        ("autotest status -x 'nothing=", [""]),
        ("autotest plot results -s rate=", ["rate=5", "rate=20", "rate=100"]),
        ("autotest plot results -s size=", ["size=60", "size=imix"]),
        ("autotest plot results:vh", ["results:vhost="]),
        ("autotest plot results:rate=5:machine=", ["results:rate=5:machine=host", "results:rate=5:machine=pcvm"]),
        ("autotest plot --by machine,re", ["machine,reflector"]),
        ("autotest plot --side-by-side vh", ["vhost"]),
        ("autotest plot -k c", ["cdf"]),
        ("autotest plot --format png,", ["png,pdf", "png,svg"]),
        ("autotest export --format p", ["parquet"]),
        ("autotest compare results results --metric loss,ach", ["loss,achieved"]),
        ("autotest compare results results --threshold ach", ["achieved="]),
        ("autotest report --accept valid,inc", ["valid,incomplete"]),
        ("autotest init --set loadgen.moong", ["loadgen.moongen_dir="]),
        ("autotest no-such-command --", ["--help", "--version", "--config", "--verbose", "--quiet"]),
    ],
)  # fmt: skip
def test_each_word_is_completed_with_what_fits(folder: Path, line: str, expected: list[str]) -> None:
    assert completed(folder, line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("autotest plot ~/results -s rate=", ["rate=5", "rate=20", "rate=100"]),
        ("autotest plot ~/results:rate=5:machine=", ["~/results:rate=5:machine=host", "~/results:rate=5:machine=pcvm"]),
        ("autotest status ~/tests.conf -S ", ["lat", "more-load"]),
        ("autotest status ~/tests.conf -s machine=", ["machine=pcvm", "machine=microvm", "machine=host"]),
        ("autotest plot ~nobody-of-that-name/results -s vhost=", ["vhost=off"]),
    ],
)  # fmt: skip
def test_a_path_may_begin_with_the_home_folder(folder: Path, line: str, expected: list[str]) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/tests.conf").write_text("[here]\nmachines = host\nvhosts = no\n")
    assert completed(folder / "elsewhere", line, HOME=str(folder)) == expected


def test_without_tests_and_results_the_usual_values_are_offered(tmp_path: Path) -> None:
    assert completed(tmp_path, "autotest status -s machine=") == [f"machine={machine}" for machine in MACHINES]
    assert completed(tmp_path, "autotest status -s rate=") == [""]
    assert completed(tmp_path, "autotest status -S ") == [""]


@pytest.mark.default
@pytest.mark.parametrize(
    "content",
    [
        b"[ok]\nrates = 7, x, 5-1, 1-99999999\nmachines = ${nope}\nsizes = dc:/no/such, 60\nvhosts = ?\n[lat\nrates = ${x\n\0\n",
        b"\xff\xfe", b"rates = 1\n" * 200_000, b"", b"[a]\nrates = ${rates}\n",
    ],
    ids=["mistakes", "bytes", "large", "empty", "circle"],
)  # fmt: skip
def test_a_broken_file_gives_what_can_be_read_of_it_and_no_error(folder: Path, content: bytes) -> None:
    (folder / "tests.conf").write_bytes(content)
    for rest in ("status -S ", "status -s ", "status -s rate=", "status -s size=", "plot --by "):
        completed(folder, f"autotest {rest}")
    if b"[ok]" in content:
        assert completed(folder, "autotest status -S ") == ["ok"]
        assert completed(folder, "autotest status -s rate=") == ["rate=7"]


@pytest.mark.parametrize("rest", ["-c /no/such/", "status /proc/1/no/", 'status "$(x', "plot no-such:rate="])
def test_what_cannot_be_completed_gives_nothing_and_no_error(folder: Path, rest: str) -> None:
    assert completed(folder, f"autotest {rest}") == [""]


def test_words_have_no_description_rather_than_none_in_zsh(folder: Path) -> None:
    assert completed(folder, "autotest status --section=", "zsh") == ["--section=lat:", "--section=more-load:"]
    (found,) = completed(folder, "autotest stat", "zsh")
    assert found.startswith("status:what is done")


@pytest.mark.default
@pytest.mark.alone
def test_a_directory_of_many_results_does_not_delay_a_tab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rate in range(20_000):
        (tmp_path / f"output_{RESULTS[0].format(rate + 1)}_rep0.log").touch()
    start = time.monotonic()
    assert words.there_is([tmp_path])["machine"] == ["pcvm"]
    assert time.monotonic() - start < 2  # 0.1 s, but for the machine


def test_a_tab_imports_argcomplete_and_nothing_heavy(folder: Path) -> None:
    """Measured in modules, as time depends on the machine: 0.1 s more than Python's own start where this was written."""
    line = "autotest status --select machine="
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/null"}
    command = [sys.executable, "-X", "importtime", "-m", "autotest"]
    tab = subprocess.run(command, cwd=folder, env=environment(folder) | asked, capture_output=True, text=True, check=True).stderr
    version = subprocess.run([*command, "--version"], env=environment(folder), capture_output=True, text=True, check=True).stderr
    assert "argcomplete" in tab and "argcomplete" not in version
    for heavy in ("paramiko", "numpy", "pandas", "matplotlib", "rich", "libtmux", "colorlog", "junitparser"):
        assert f" {heavy}" not in tab


# -- what is written down twice ----------------------------------------------------------------------------


def test_the_words_are_those_of_the_measurement_kind() -> None:
    assert words.KEYS.keys() == {parameter.name for parameter in KIND.parameters}
    assert all(set(words.KEYS[parameter.name]) == {parameter.key, *parameter.older_keys} for parameter in KIND.parameters)
    assert words.MACHINES == MACHINES and set(words.MACHINES[1:]) == set(QEMU_MACHINES)
    assert set(words.INTERFACES) == set(INTERFACE_KINDS)
    assert set(words.USUAL["reflector"]) == set(REFLECTOR_KINDS)
    assert words._NUMBERS.keys() == {parameter.name for parameter in KIND.parameters if parameter.quantity}


def test_every_completer_is_of_an_option_that_there_is() -> None:
    def names(parser: argparse.ArgumentParser) -> set[str]:
        found = set()
        for action in parser._actions:
            found.add(action.dest)
            if isinstance(action, argparse._SubParsersAction):
                found.update(*map(names, action.choices.values()))
        return found

    assert completion._COMPLETERS.keys() <= names(build_parser())


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_help_says_where_the_code_of_each_shell_goes(shell: str) -> None:
    assert f"{shell}: " in completion.WHERE and f"autotest completion {shell}" in completion.WHERE
