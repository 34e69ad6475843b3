"""The parsers: errors of a line that name the nearest, help that fits a terminal, and no colours where they are not wanted."""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotest.cli.arguments import build_parser
from autotest.cli.parser import GENERAL, Parser

ROOT = Path(__file__).resolve().parents[2]


def subparsers() -> dict[str, Parser]:
    (action,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


COMMANDS = sorted(subparsers())


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says", "see"),
    [
        ("stauts", "unknown command 'stauts' (did you mean 'status'?)", "autotest --help"),
        ("compleshun bash", "unknown command 'compleshun' (did you mean 'completion'?)", "autotest --help"),
        ("qqqq", "unknown command 'qqqq'\n", "autotest --help"),
        ("--versoin", "unknown option --versoin (did you mean '--version'?)", "autotest --help"),
        ("test-load-lat-file --shufle 3", "unknown option --shufle (did you mean '--shuffle'?)", "autotest test-load-lat-file"),
        ("test-load-lat-file --shufle=3", "unknown option --shufle (did you mean '--shuffle'?)", "autotest test-load-lat-file"),
        ("plot results --side-by-sid x --knd loss", "unknown option --knd (did you mean '--kind'?)", "autotest plot --help"),
        ("status --qqqq", "unknown option --qqqq\n", "autotest status --help"),
        ("status --shufle", "unknown option --shufle\n", "autotest status --help"),  # which only a run has
        ("lab upp", "invalid choice: 'upp' (did you mean 'up'?): expected up, down, status", "autotest lab --help"),
        ("completion fihs", "invalid choice: 'fihs' (did you mean 'fish'?): expected bash, zsh, fish", "autotest completion"),
        ("export r --format paquet", "--format: invalid choice: 'paquet' (did you mean 'parquet'?)", "autotest export --help"),
        ("lab up now", "unexpected argument 'now'", "autotest lab --help"),
        ("ping tests.conf", "unexpected argument 'tests.conf'", "autotest ping --help"),
        ("compare a", "the following arguments are required: B", "autotest compare --help"),
        ("status --accept", "argument --accept: expected one argument", "autotest status --help"),
        ("run-guest -n 0", "argument -n/--guests: 0 is not above 0", "autotest run-guest --help"),
        ("test-load-lat-file --limit 99999999999999999999", "--limit: 99999999999999999999 is above ", "autotest test-load"),
        ("run-guest -C 99999999999999999999", "-C/--cpus: 99999999999999999999 is above ", "autotest run-guest"),
        ("run-guest -M 2GB", "argument -M/--memory: '2GB' has the unknown unit 'GB' (did you mean 'GiB'?)", "autotest run-guest"),
    ],
)  # fmt: skip
def test_an_error_of_the_line_names_the_nearest_and_where_help_is_and_is_no_wall_of_text(
    line: str, says: str, see: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(line.split())
    output = capsys.readouterr()
    assert caught.value.code == 2 and output.out == ""
    _first, second = output.err.splitlines()
    assert output.err.startswith("error: ") and says in output.err
    assert second.startswith(see) and second.endswith("--help says what there is")


def test_an_error_gives_the_terminal_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["\x1b[2Jx"], ["ping", "\x1b]0;x\x07"], ["ping", "--\x1b[2J"], ["lab", "\x1b[2J"]):
        with pytest.raises(SystemExit):
            build_parser().parse_args(arguments)
        assert "\x1b" not in capsys.readouterr().err


def test_an_option_may_be_shortened_as_far_as_it_is_clear(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_parser().parse_args(["test-load-lat-file", "--shuf", "3"]).shuffle == 3
    with pytest.raises(SystemExit):
        build_parser().parse_args(["test-load-lat-file", "--s", "3"])
    assert "ambiguous option: --s could match" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "memory"), [("512", 512), ("512M", 512), ("2G", 2048)])
def test_a_guests_memory_may_have_a_unit(text: str, memory: int) -> None:
    assert build_parser().parse_args(["run-guest", "-M", text]).memory == memory


# -- help --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_says_of_everything_what_it_does(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = subparsers()[command] if command else build_parser()
    text = parser.format_help()
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("example: "))
    assert lines[0].startswith(f"usage: autotest {command}".rstrip()) and len(lines[0]) <= 80 and lines[1] == ""
    assert re.match(r"example: (echo .* \| |sudo )?autotest ", lines[-1])
    silent = [action.dest for action in parser._actions if not action.help and not isinstance(action, argparse._SubParsersAction)]
    assert not silent
    groups = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    assert [group for group in groups if group != "where it goes"][-1] == GENERAL
    assert not re.search(r"^  -\w [A-Z]+, --", text, re.MULTILINE)  # what an option takes is said once


def test_the_help_of_the_program_names_every_command_on_a_line_with_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = build_parser().format_help()
    for command in COMMANDS:
        assert re.search(rf"^    {command} +\w.*", text, re.MULTILINE)


# -- colours -----------------------------------------------------------------------------------------------

TESTBED = """\
[host]
fqdn = nobody.invalid
[guest]
fqdn = guest.invalid
[loadgen]
fqdn = loadgen.invalid
"""
TESTS = """\
[lat]
machines = pcvm
interfaces = bridge, pnic
reflectors = xdp
rates = 10-40*2
sizes = 60
runtimes = 1
outputdir = out
"""


def on_a_terminal(folder: Path, arguments: list[str], **environment: str) -> bytes:
    """All that a command writes to a terminal."""
    leader, follower = pty.openpty()
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "autotest", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
        env=inherited | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "HOME": str(folder)} | environment,
    )  # fmt: skip
    os.close(follower)
    written = b""
    with os.fdopen(leader, "rb", 0) as terminal:
        while True:
            try:
                if not (more := terminal.read(4096)):
                    break
            except OSError:  # the process has closed its end
                break
            written += more
    process.wait(30)
    return written


@pytest.mark.default
@pytest.mark.parametrize(
    ("line", "coloured"),
    [
        ("--help", None), ("--version", False), ("stauts", None), ("status --help", None), ("status", False), ("ping", False),
        ("completion zsh", False), ("test-load-lat-file -d", True), ("summary", True), ("check", True),
    ],
)  # fmt: skip
def test_with_no_color_nothing_that_is_written_to_a_terminal_has_an_escape_code(
    tmp_path: Path, line: str, coloured: bool | None
) -> None:
    """``coloured``: what is written without it, so that this sees colours; None where newer versions of argparse have some."""
    (tmp_path / "autotest.conf").write_text(TESTBED)
    (tmp_path / "tests.conf").write_text(TESTS)
    plain = on_a_terminal(tmp_path, line.split(), NO_COLOR="1")
    assert plain and b"\x1b" not in plain
    if coloured is not None:
        assert (b"\x1b[" in on_a_terminal(tmp_path, line.split())) == coloured


@pytest.mark.parametrize("line", ["test-load-lat-file -d", "check"])
def test_a_build_server_with_a_terminal_gets_no_colours(tmp_path: Path, line: str) -> None:
    (tmp_path / "autotest.conf").write_text(TESTBED)
    (tmp_path / "tests.conf").write_text(TESTS)
    written = on_a_terminal(tmp_path, line.split(), CI="1")
    assert written and b"\x1b" not in written
