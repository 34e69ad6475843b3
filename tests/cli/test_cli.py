"""The command line as users meet it: real processes, exit codes, one line per problem, never a traceback."""

from __future__ import annotations

import argparse
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import fake_campaign
import pytest
from junitparser import JUnitXml
from labtest import interruptible

from autotest.cli.arguments import build_parser, verbosity
from autotest.cli.program import main
from autotest.results.identity import Identity
from autotest.results.names import TrialName
from autotest.results.store import ResultStore

TRACEBACK = "Traceback"


def subparsers() -> dict[str, argparse.ArgumentParser]:
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("no commands")


def autotest(*arguments: str, cwd: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autotest", *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])} | environment,
        check=False,
    )  # fmt: skip


UNREACHABLE = """\
[host]
fqdn = 192.0.2.1
admin_bridge = adm
admin_bridge_ip_net = 10.9.0.1/24
admin_tap = admtap
test_iface = eth0
test_bridge = br
test_tap = tap
root_disk_file = /no/disk
[guest]
fqdn = user@192.0.2.2
ssh_config = /no/such/ssh_config
admin_iface_mac = 52:54:00:00:00:01
test_iface_mac = 52:54:00:00:00:02
test_iface = eth1
xdp_reflector_dir = /x
[loadgen]
fqdn = 192.0.2.3
test_iface = eth0
test_iface_mac = 52:54:00:00:00:03
moongen_dir = /m
moonprogs_dir = /m
"""
TESTS = """\
[lat]
machines = pcvm, microvm
interfaces = bridge, pnic
reflectors = xdp
rates = 10, 20
sizes = 60
runtimes = 1
repetitions = 3
outputdir = out
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a testbed that nobody can reach, and tests for it."""
    (tmp_path / "autotest.conf").write_text(UNREACHABLE)
    (tmp_path / "tests.conf").write_text(TESTS)
    return tmp_path


# -- help and usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", sorted(subparsers()))
def test_the_help_of_each_command_shows_an_example_that_parses(command: str) -> None:
    text = subparsers()[command].format_help()
    example = re.search(r"example: (.*)", text)
    assert example and f"autotest {command}" in example[1]
    arguments = example[1].partition("autotest ")[2].split() if "|" not in example[1] else [command]
    assert build_parser().parse_args(arguments).command


def test_the_commands_are_those_that_users_know() -> None:
    known = {"ping", "run-guest", "kill-guest", "setup-network", "teardown-network", "test-load-lat-file",
             "acc-load-lat-file", "shell", "upload-moonprogs", "lab"}  # fmt: skip
    assert known <= set(subparsers())


def test_the_help_tells_the_exit_codes(folder: Path) -> None:
    result = autotest("--help", cwd=folder)
    assert result.returncode == 0
    assert re.search(r"0 all done.*1 something failed.*2 wrong usage.*3 testbed.*130 interrupted", result.stdout, re.DOTALL)


@pytest.mark.parametrize(
    "arguments",
    [[], ["no-such"], ["ping", "--no-such"], ["lab"], ["lab", "sideways"], ["run-guest", "-C", "0"],
     ["run-guest", "-C", "two"], ["run-guest", "-i", "brige"], ["run-guest", "-i", "pnic"], ["run-guest", "-m", "pc"],
     ["ping", "-c", "missing.conf"], ["ping", "-c", "."], ["setup-network", "-i", "x"],
     ["test-load-lat-file", "missing.conf"], ["summary", "missing.conf"]],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_ends_with_2_and_without_a_traceback(
    folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    try:
        code: object = main(arguments)
    except SystemExit as error:
        code = error.code
    assert code == 2
    output = capsys.readouterr()
    assert output.err or output.out
    assert TRACEBACK not in output.err and "_positive" not in output.err


def test_the_configuration_and_verbosity_may_stand_before_and_after_the_command() -> None:
    parse = build_parser().parse_args
    for arguments in (["-c", "x", "-v", "ping"], ["ping", "-c", "x", "-v"]):
        options = parse(arguments)
        assert (options.config, verbosity(options)) == (Path("x"), 1)
    assert parse(["-c", "x", "ping", "-c", "y"]).config == Path("y")
    assert (parse(["ping"]).config, verbosity(parse(["ping"]))) == (Path("autotest.conf"), 0)
    assert verbosity(parse(["ping", "-vvv"])) == verbosity(parse(["-v", "ping", "-vv"])) == 3


def test_files_of_tests_are_given_by_place_or_by_option() -> None:
    options = build_parser().parse_args(["test-load-lat-file", "a", "b", "-t", "c", "d", "-d"])
    assert options.files == [Path("a"), Path("b")] and options.tests == [Path("c"), Path("d")] and options.dry_run


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.default
def test_all_problems_of_both_files_are_shown_at_once_each_on_its_line(folder: Path) -> None:
    (folder / "autotest.conf").write_text(UNREACHABLE.replace("test_tap", "tset_tap").replace("10.9.0.1/24", "10.9"))
    (folder / "tests.conf").write_text(TESTS.replace("10, 20", "0").replace("xdp", "xpd"))
    result = autotest("test-load-lat-file", cwd=folder)
    assert result.returncode == 2 and result.stdout == "" and TRACEBACK not in result.stderr
    for expected in (
        r"autotest.conf \[host\] tset_tap: unknown key \(did you mean 'test_tap'",
        r"autotest.conf \[host\] admin_bridge_ip_net: ",
        r"tests.conf \[lat\] rates: '0' is out of range",
        r"tests.conf \[lat\] reflectors: .*did you mean 'xdp'",
    ):
        assert len(re.findall(expected, result.stderr)) == 1, result.stderr
    assert len(result.stderr.splitlines()) == 4


def test_missing_keys_and_unwritable_folders_name_their_own_files(folder: Path) -> None:
    (folder / "autotest.conf").write_text(UNREACHABLE.replace("moongen_dir = /m\n", ""))
    (folder / "more.conf").write_text(TESTS.replace("[lat]", "[more]").replace("= out", "= /proc/no"))
    result = autotest("test-load-lat-file", "tests.conf", "more.conf", cwd=folder)
    assert result.returncode == 2 and TRACEBACK not in result.stderr
    assert "autotest.conf [loadgen] moongen_dir: is missing: the load generator needs it" in result.stderr
    assert "more.conf [more] outputdir: " in result.stderr


# -- dry run -----------------------------------------------------------------------------------------------


@pytest.mark.default
def test_a_dry_run_touches_no_machine_and_prints_counts_and_reasons(folder: Path) -> None:
    start = time.monotonic()
    result = autotest("test-load-lat-file", "--dry-run", cwd=folder)
    assert time.monotonic() - start < 5
    assert (result.returncode, result.stderr) == (0, "")
    assert "[lat]: 12 trials, 0 done, 12 to do" in result.stdout and "all: 12 trials" in result.stdout
    assert "only with machine host" in result.stdout
    assert not (folder / "out").exists()


@pytest.mark.default
def test_a_dry_run_needs_no_privileges(folder: Path) -> None:
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    result = subprocess.run(
        [*powerless, sys.executable, "-m", "autotest", "test-load-lat-file", "-d"], cwd=folder, capture_output=True,
        text=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert "12 to do" in result.stdout


@pytest.mark.default
def test_a_dry_run_of_nothing_says_why_all_was_left_out(folder: Path) -> None:
    (folder / "tests.conf").write_text(TESTS.replace("bridge, pnic", "pnic"))
    result = autotest("test-load-lat-file", "-d", cwd=folder)
    assert "only with machine host" in result.stdout and "all: 0 trials" in result.stdout
    result = autotest("test-load-lat-file", cwd=folder)
    assert result.returncode == 2 and "no valid combination" in result.stderr


# -- runs --------------------------------------------------------------------------------------------------


def done_before(folder: Path, identity: bool = True) -> Path:
    """The tests of the folder are done, on a testbed that is gone by now."""
    conf = (folder / "autotest.conf").read_text()
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        conf = conf.replace(address, "nobody.invalid" + address[-1])
    (folder / "autotest.conf").write_text(conf)
    (folder / "tests.conf").write_text(TESTS.replace("pcvm, microvm", "pcvm").replace("10, 20", "10"))
    store = ResultStore(folder / "out")
    for repetition in range(3):
        name = TrialName("pcvm_bridge_default_vhostoff_ioregionfdoff_xdp_10kpps_60B_1s", repetition)
        record = {"verdict": "valid", "reason": ""} | ({"identity": Identity({"qemu.sha256": "a"}).record()} if identity else {})
        output = "".join(
            f"[Device: id=0] {way}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), "
            "total 10000 packets with 640000 bytes (incl. CRC)\n"
            for way in ("RX", "TX")
        )
        store.commit(name, {"output": output, "histogram": "1000,5\n"}, record)
    return folder


@pytest.mark.default
def test_where_all_is_done_a_testbed_that_is_gone_is_a_warning_and_no_failure(folder: Path) -> None:
    result = autotest("test-load-lat-file", cwd=done_before(folder))
    assert result.returncode == 0 and TRACEBACK not in result.stderr
    assert "3 trials, 3 done, 0 to do" in result.stderr and "could not be checked: " in result.stderr
    assert "WARNING" in result.stderr and "nobody.invalid1" in result.stderr
    assert "left out" not in result.stderr  # though pnic is, with a guest: nothing is to be measured


def test_where_all_is_done_by_an_older_autotest_no_machine_is_asked(folder: Path) -> None:
    result = autotest("test-load-lat-file", cwd=done_before(folder, identity=False))
    assert result.returncode == 0 and "WARNING" not in result.stderr
    assert "3 done trials do not say what determined their result" in result.stderr


@pytest.mark.default
def test_a_run_that_cannot_begin_says_so_in_its_junit_file(folder: Path) -> None:
    done_before(folder)
    (folder / "tests.conf").write_text((folder / "tests.conf").read_text().replace("repetitions = 3", "repetitions = 4"))
    result = autotest("test-load-lat-file", "--junit", "run.xml", cwd=folder)
    assert result.returncode == 3
    (suite,) = JUnitXml.fromfile(str(folder / "run.xml"))
    assert (suite.tests, suite.skipped, suite.errors, suite.failures) == (4, 3, 1, 0)
    (case,) = [case for case in suite if case.name.endswith("_rep3")]
    assert case.classname == "lat" and "nobody.invalid1" in case.result[0].message


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--accept", "bad"], "no such verdict; there are valid, under-sent"),
        (["--junit", "missing/run.xml"], "there is no directory missing"),
        (["--junit", "results.json"], "a name that ends in .xml"),
        (["--stale", "no"], "invalid choice: 'no'"),
    ],
)
def test_a_wrong_option_of_a_run_is_refused_before_anything_is_touched(folder: Path, option: list[str], message: str) -> None:
    result = autotest("test-load-lat-file", *option, cwd=folder)
    assert result.returncode == 2 and message in result.stderr and TRACEBACK not in result.stderr
    assert not (folder / "out").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leads_nowhere_and_no_file_takes_its_place(tmp_path: Path, closed: str) -> None:
    arguments = fake_campaign.write(tmp_path, interfaces="bridge", rates="10")
    environment = os.environ | {fake_campaign.TRIAL_SECONDS: "0", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, fake_campaign.__file__, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert ended.returncode == 0 and TRACEBACK not in ended.stderr
    assert len(list((tmp_path / "out").glob("trial_*.json"))) == 1
    assert not [file for file in (tmp_path / "out").glob("*_rep0.*") if "undoing what was set up" in file.read_text()]


@pytest.mark.parametrize("arguments", [("shell",), ("init", "-o", "new")])
def test_without_an_input_nobody_is_asked(local: Path, arguments: tuple[str, ...]) -> None:
    command = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "autotest", *arguments]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ended = subprocess.run(command, cwd=local, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert TRACEBACK not in ended.stderr and ended.returncode in (0, 2), ended.stderr


@pytest.mark.default
def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    (folder / "tests.conf").write_text("".join(TESTS.replace("lat", f"s{number}") for number in range(300)))
    command = f"{sys.executable} -m autotest test-load-lat-file -d 2>err | head -1; echo ${{PIPESTATUS[0]}}"
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
        check=False,
    )
    assert result.stdout.splitlines()[-1] == "0"
    assert (folder / "err").read_text() == ""


# -- machines ----------------------------------------------------------------------------------------------

LOCAL = """\
[host]
fqdn = localhost
[guest]
fqdn = guest
ssh_config = {ssh_config}
[loadgen]
fqdn = localhost
moonprogs_dir = /proc/no
"""


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A folder with a testbed on this machine, whose guest is not there."""
    (tmp_path / "ssh_config").write_text("Host guest\n  HostName 127.0.0.1\n  Port 1\n")
    (tmp_path / "autotest.conf").write_text(LOCAL.format(ssh_config=tmp_path / "ssh_config"))
    return tmp_path


def test_ping_says_of_each_server_how_it_is_reached_or_why_not(local: Path) -> None:
    result = autotest("ping", cwd=local)
    assert result.returncode == 3 and TRACEBACK not in result.stderr
    host, guest, loadgen = result.stdout.splitlines()
    assert re.fullmatch(r"host +localhost: reached locally in [0-9.]+ ms", host)
    assert re.fullmatch(r"guest +guest: not reached: .*127.0.0.1 port 1: Connection refused", guest)
    assert loadgen.startswith("loadgen")


@pytest.mark.default
def test_a_configuration_of_ssh_that_is_missing_makes_the_testbed_unusable(folder: Path) -> None:
    result = autotest("ping", cwd=folder)
    assert result.returncode == 3 and TRACEBACK not in result.stderr
    assert "/no/such/ssh_config" in result.stdout


def test_a_file_that_cannot_be_written_is_one_line_and_no_traceback(local: Path) -> None:
    result = autotest("upload-moonprogs", cwd=local)
    assert result.returncode in (1, 3) and TRACEBACK not in result.stderr
    assert "/proc/no" in result.stdout + result.stderr


def test_the_lab_is_refused_for_a_testbed_of_its_own(local: Path) -> None:
    result = autotest("lab", "status", cwd=local)
    assert result.returncode == 3 and "has no section [lab]" in result.stderr and TRACEBACK not in result.stderr


@pytest.mark.default
def test_the_shell_offers_the_servers_and_leaves_out_what_is_not_wanted(local: Path) -> None:
    result = autotest("shell", "-G", cwd=local, stdin='print(host.run(["echo", "$HOME"]).stdout)\nprint(loadgen)\nguest\n')
    assert result.returncode == 1
    assert "$HOME" in result.stdout and "<LoadGen loadgen at localhost>" in result.stdout
    assert "NameError: name 'guest' is not defined" in result.stderr
    assert "host.kill_guest" in result.stderr and "guest: <" not in result.stderr
    result = autotest("shell", "-H", "-L", cwd=local, stdin="print(guest)\nhost\nloadgen\n")
    assert "<Guest guest at guest>" in result.stdout
    assert "'host' is not defined" in result.stderr and "'loadgen' is not defined" in result.stderr


@pytest.mark.default
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_with_130_and_one_line(local: Path, number: signal.Signals) -> None:
    (local / "ssh_config").write_text("Host guest\n  ProxyCommand sleep 60\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "autotest", "ping"], cwd=local, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PYTHONUNBUFFERED": "1"},
        preexec_fn=interruptible,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline().startswith("host")
    time.sleep(0.2)
    process.send_signal(number)
    _, error = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "interrupted" in error and TRACEBACK not in error


def test_a_shell_ends_when_it_is_told_to(local: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "autotest", "shell"], cwd=local, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    assert process.stderr
    while "Ctrl-D" not in process.stderr.readline():
        pass
    try:
        process.terminate()
        assert process.wait(5) == 130
    finally:
        process.kill()
        process.communicate()


def test_a_warning_of_a_library_is_a_line_of_the_log(folder: Path) -> None:
    warning = """
import sys, warnings
from autotest.cli import commands
from autotest.cli.program import main

def load_configuration(options):
    warnings.warn("an old thing")
    sys.exit(0)

commands.load_configuration = load_configuration
main(["ping"])
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ended = subprocess.run(
        [sys.executable, "-c", warning], cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert re.match(r"\d\d-\d\d \d\d:\d\d:\d\d WARNING .*UserWarning: an old thing", ended.stderr)


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_logs_are_coloured_on_a_terminal_unless_no_color_is_set(
    folder: Path, environment: dict[str, str], coloured: bool
) -> None:
    leader, follower = pty.openpty()
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "TERM": "xterm"} | environment
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    with os.fdopen(leader, "rb", 0) as terminal:
        process = subprocess.run(
            [sys.executable, "-m", "autotest", "ping", "-c", "missing"], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=follower, env=kept | environment,
            check=False,
        )  # fmt: skip
        os.close(follower)
        text = terminal.read(10000)
    assert process.returncode == 2
    assert (b"\x1b[" in text) == coloured
