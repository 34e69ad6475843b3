"""``autotest init`` as users meet it: on a terminal, without one, and for the lab."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotest.config.testbed import load_testbed
from autotest.resources import PROJECT_DIRECTORY

_DEADLINE = 60.0  # seconds for a question to come
_ENVIRONMENT = os.environ | {"PYTHONPATH": str(PROJECT_DIRECTORY), "NO_COLOR": "1", "COLUMNS": "80"}
HOST, LOADGEN = "Host, which runs the guests [localhost]: ", "Loadgen, which sends the load: "
BOTH = ("--host", "localhost", "--loadgen", "localhost")


@pytest.fixture
def wire(netns: str) -> str:
    """A network namespace with the two ends of a wire, and an admin NIC with an address."""
    for name, peer in (("enp1s0f0", "enp1s0f1"), ("eno1", "eno2")):
        subprocess.run(["ip", "-n", netns, "link", "add", name, "type", "veth", "peer", "name", peer], check=True)
    for name in ("enp1s0f0", "enp1s0f1", "eno1"):
        subprocess.run(["ip", "-n", netns, "link", "set", name, "up"], check=True)
    subprocess.run(["ip", "-n", netns, "address", "add", "192.168.56.7/24", "dev", "eno1"], check=True)
    subprocess.run(["ip", "-n", netns, "address", "add", "192.168.77.7/24", "dev", "eno2"], check=True)
    return netns


def command(netns: str | None, *arguments: str) -> list[str]:
    inside = ["ip", "netns", "exec", netns] if netns else []
    return [*inside, sys.executable, "-m", "autotest", "init", *arguments]


def init(folder: Path, *arguments: str, netns: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(netns, *arguments), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        env=_ENVIRONMENT,
        check=False,
    )  # fmt: skip


# -- the lab -----------------------------------------------------------------------------------------------


@pytest.mark.default
def test_the_labs_files_are_those_of_the_project_and_plan_a_campaign(tmp_path: Path) -> None:
    done = init(tmp_path, "--lab")
    assert done.returncode == 0 and "autotest test-load-lat-file tests.conf" in done.stdout
    for name in ("autotest.conf", "tests.conf"):
        assert (tmp_path / name).read_text() == (PROJECT_DIRECTORY / name).read_text()
    planned = subprocess.run(
        [sys.executable, "-m", "autotest", "test-load-lat-file", "-d"], cwd=tmp_path, capture_output=True, text=True,
        env=_ENVIRONMENT,
        check=False,
    )  # fmt: skip
    assert planned.returncode == 0 and "0 done" in planned.stdout


def test_the_next_commands_name_the_folder(tmp_path: Path) -> None:
    done = init(tmp_path, "--lab", "-o", "a folder")
    assert "autotest -c 'a folder/autotest.conf' check 'a folder/tests.conf'" in done.stdout
    assert sorted(path.name for path in (tmp_path / "a folder").iterdir()) == ["autotest.conf", "tests.conf"]


@pytest.mark.parametrize("arguments", [["--lab"], [*BOTH, "--yes"]])
def test_existing_files_are_named_before_anything_else_and_stay(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "tests.conf").write_text("mine\n")
    done = init(tmp_path, *arguments)
    assert done.returncode == 2 and "tests.conf exists already" in done.stderr and done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["tests.conf"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lab", "--host", "river"], "--host is for a testbed of real machines"),
        (["--yes", "--loadgen", "-x"], "expected one argument"),
        (["--yes", "--loadgen=-x"], "loadgen.fqdn: '-x' is not a name"),
        (["--yes", *BOTH, "--set", "host.vcpus=2"], "unknown key 'vcpus' of"),
        (["-c", "mine.conf", "--lab"], "-c mine.conf: init writes a new autotest.conf"),
        (["--yes"], "--loadgen NAME: the machine which sends the load"),
        ([], "--loadgen NAME: the machine which sends the load"),
    ],
)
def test_wrong_usage_ends_with_2_and_writes_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = init(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- without a terminal ------------------------------------------------------------------------------------


def test_what_is_proposed_is_taken_and_the_check_that_follows_decides_the_exit_code(tmp_path: Path, wire: str) -> None:
    done = init(tmp_path, *BOTH, "--guest-image", "none", "--set", "host.moongen_dir=/nowhere", netns=wire)
    assert "fail  host     MoonGen" in done.stdout and "4 of 4 trials cannot be measured" in done.stdout
    assert done.returncode == 3, done.stdout + done.stderr
    testbed = load_testbed(tmp_path / "autotest.conf", PROJECT_DIRECTORY)
    assert {testbed.host.test_iface, testbed.loadgen.test_iface} == {"enp1s0f0", "enp1s0f1"}
    assert testbed.host.admin_bridge_ip_net == "192.168.57.1/24"  # the one before is eno1's
    assert testbed.host.moongen_dir == "/nowhere"


def test_all_that_cannot_be_proposed_is_listed_at_once(tmp_path: Path, wire: str) -> None:
    for name, peer in (("enp2s0f0", "enp2s0f1"),):
        subprocess.run(["ip", "-n", wire, "link", "add", name, "type", "veth", "peer", "name", peer], check=True)
        for each in (name, peer):
            subprocess.run(["ip", "-n", wire, "link", "set", each, "up"], check=True)
    done = init(tmp_path, *BOTH, netns=wire)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    for option in ("--set host.test_iface=NAME", "--set loadgen.test_iface=NAME", "--guest-image PATH"):
        assert option in told
    assert all(name in told for name in ("enp1s0f0", "enp1s0f1", "enp2s0f0", "enp2s0f1")) and "eno1" not in told
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_a_free_nic_makes_no_testbed(tmp_path: Path, wire: str) -> None:
    subprocess.run(["ip", "-n", wire, "link", "delete", "enp1s0f0"], check=True)
    done = init(tmp_path, *BOTH, netns=wire)
    assert done.returncode == 3
    assert "host: no NIC can be the test NIC: eno2 has the address 192.168.77.7" in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_nic_that_has_an_address_is_taken_only_where_it_is_named(tmp_path: Path, wire: str) -> None:
    given = ("--guest-image", "none", "--no-check", "--set", "host.test_iface=eno1", "--set", "loadgen.test_iface=eno2")
    done = init(tmp_path, *BOTH, *given, netns=wire)
    assert done.returncode == 0, done.stderr
    assert "eno1 has the address 192.168.56.7" in " ".join(done.stderr.split())
    assert load_testbed(tmp_path / "autotest.conf", PROJECT_DIRECTORY).host.test_iface == "eno1"


# -- on a terminal -----------------------------------------------------------------------------------------


@dataclass
class Terminal:
    """A process on a terminal of 80 columns, and all that it showed."""

    master: int
    process: subprocess.Popen[bytes]
    shown: str = ""
    seen: int = field(default=0)

    def wait_for(self, text: str) -> None:
        """Read until that is shown, behind what was waited for before."""
        deadline = time.monotonic() + _DEADLINE
        while (found := self.shown.find(text, self.seen)) < 0:
            assert time.monotonic() < deadline and self._read(), f"no {text!r} in\n{self.shown[self.seen :]}"
        self.seen = found + len(text)

    def answer(self, question: str, text: str) -> None:
        self.wait_for(question)
        os.write(self.master, f"{text}\n".encode())

    def end(self, key: str = "") -> int:
        """Return the exit code. A key is pressed again where nothing follows: Python loses one that comes just before readline waits."""
        deadline = time.monotonic() + _DEADLINE
        os.write(self.master, key.encode())
        while self._read():
            assert time.monotonic() < deadline, self.shown
            if key and self.process.poll() is None and not select.select([self.master], [], [], 5)[0]:
                os.write(self.master, key.encode())
        return self.process.wait(_DEADLINE)

    def _read(self) -> bool:
        """Whether there may be more."""
        if select.select([self.master], [], [], 1.0)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                return False
            self.shown += data.decode().replace("\r\n", "\n")
            return bool(data)
        return True


@pytest.fixture
def terminal(tmp_path: Path, wire: str) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (200, 80))

        def become_its_session() -> None:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        environment = _ENVIRONMENT | {"TERM": "dumb"}
        process = subprocess.Popen(
            command(wire, *arguments), cwd=tmp_path, env=environment, preexec_fn=become_its_session, **streams
        )
        os.close(slave)
        started.append(Terminal(master, process))
        return started[-1]

    yield start
    for each in started:
        with suppress(ProcessLookupError):
            each.process.kill()
        each.process.wait()
        os.close(each.master)


def test_wrong_answers_are_told_and_asked_again_and_enter_takes_what_is_proposed(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    dialogue = terminal("--no-check")
    dialogue.answer(HOST, "")
    dialogue.answer(LOADGEN, "")
    dialogue.wait_for("'' is not a name")
    dialogue.answer(LOADGEN, "-oProxyCommand=x")
    dialogue.wait_for("without a leading dash")
    dialogue.answer(LOADGEN, "localhost")
    nic = "Test NIC of the host, the only two ["
    dialogue.answer(nic, "enp1s0f9")
    dialogue.wait_for("there is no NIC 'enp1s0f9' (did you mean 'enp1s0f")
    dialogue.answer(nic, "eno1")
    dialogue.wait_for("eno1 has the address 192.168.56.7")
    dialogue.answer(nic, "enp1s0f1")
    dialogue.answer("Test NIC of the loadgen, the only two [enp1s0f0]: ", "enp1s0f1")
    dialogue.wait_for("is the host's test NIC already")
    dialogue.answer("Test NIC of the loadgen, the only two [enp1s0f0]: ", "")
    dialogue.answer("MoonGen's folder on the host [softmoon]: ", "")
    dialogue.answer("MoonGen's folder on the loadgen [softmoon]: ", "")
    dialogue.answer("admin network [192.168.57.1/24]: ", "10.0.0.1")
    dialogue.wait_for("has no prefix length")
    dialogue.answer("admin network [192.168.57.1/24]: ", "10.0.0.1/24")
    dialogue.answer("Guests' root disk, a path on the host: ", "/a #b")
    dialogue.wait_for("begins a comment")
    dialogue.answer("Guests' root disk, a path on the host: ", "/srv/guest.qcow2")
    dialogue.answer("Guest's address there [root@10.0.0.10]: ", "")
    assert dialogue.end() == 0, dialogue.shown
    testbed = load_testbed(tmp_path / "autotest.conf", PROJECT_DIRECTORY)
    assert (testbed.host.test_iface, testbed.loadgen.test_iface) == ("enp1s0f1", "enp1s0f0")
    assert (testbed.host.admin_bridge_ip_net, testbed.guest.fqdn) == ("10.0.0.1/24", "root@10.0.0.10")
    assert testbed.host.root_disk_file == "/srv/guest.qcow2"
    told = " ".join(dialogue.shown.split())
    assert f"must give 10.0.0.10/24 to its NIC with the MAC address {testbed.guest.admin_iface_mac}, and the name test" in told


def test_a_machine_that_cannot_be_reached_is_asked_for_again(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    dialogue = terminal("--ssh-config", "ssh_config", "--host", "localhost")
    dialogue.answer(LOADGEN, "gone")
    dialogue.wait_for("Connection refused: see that `ssh")
    dialogue.answer(LOADGEN, "localhost")
    dialogue.wait_for("Test NIC of the host")


def test_what_is_shown_fits_80_columns(terminal: Callable[..., Terminal]) -> None:
    dialogue = terminal("--no-check", *BOTH, "--guest-image", "none")
    for _ in range(5):
        dialogue.answer("]: ", "")
    assert dialogue.end() == 0
    lines = [line for line in dialogue.shown.splitlines() if "reflector.bpf.c" not in line]  # a path of any length
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert re.search(r"^  eno1 +no carrier +- +- +[0-9a-f:]{17}$", dialogue.shown, re.MULTILINE)
    assert "\n      not for the test: it has the address 192.168.56.7 (eno1)\n" in dialogue.shown


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
@pytest.mark.parametrize("questions", [1, 4])
def test_who_ends_the_questions_leaves_nothing(
    terminal: Callable[..., Terminal], tmp_path: Path, key: str, questions: int
) -> None:
    dialogue = terminal("--loadgen", "localhost")
    for _ in range(questions - 1):
        dialogue.answer("]: ", "")
    dialogue.wait_for("]: ")
    assert dialogue.end(key) == 130, dialogue.shown
    assert "Traceback" not in dialogue.shown
    assert re.search(r"\n[^\n:]*:[^\n:]*:[^\n:]* ERROR ", dialogue.shown[dialogue.seen :]), "on a line of its own"
    assert list(tmp_path.iterdir()) == []
