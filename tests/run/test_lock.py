"""One run per testbed: real processes that want the same one, on this machine and over SSH."""

from __future__ import annotations

import getpass
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotest.remote.local import LocalTransport
from autotest.remote.processes import Process, boot_id

pytestmark = pytest.mark.default

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = LocalTransport("here")
OTHER_BOOT = "12345678-1234-1234-1234-123456789abc"

# Takes and gives back a testbed as it is told. It may say that it is on another machine.
_WORKER = """
import json, logging, sys
from pathlib import Path

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import AutotestError
from autotest.run import lock
from autotest.servers.testbed import Servers

this_process = lock.this_process
logging.basicConfig(stream=sys.stdout, format="%(message)s")


def work(given):
    lock._FOLDER, sys.argv[1:] = given["folder"], given["arguments"]
    lock.this_process = lambda: this_process() | given["who"]
    testbed = Testbed(Path("a.conf"), HostConfig(**given["host"]), GuestConfig(fqdn="g"), LoadGenConfig(fqdn="localhost"))
    journal = Path(given["folder"], "..", "journals", testbed.host.tmux_socket, "1.journal")
    with Servers(testbed, journal) as servers:
        while (action := sys.stdin.readline().strip()) != "end":
            try:
                if action.startswith("take"):
                    held = lock.TestbedLock(servers, take_over=action == "take over").held()
                    held.__enter__()
                elif action == "give back":
                    held.__exit__(None, None, None)
                else:
                    servers.host.run(["touch", action])
                print("done", flush=True)
            except AutotestError as error:
                print(json.dumps(str(error)), flush=True)
        servers.host.transport.after_connect = None


while line := sys.stdin.readline():
    work(json.loads(line))
"""


class Worker:
    """A process that takes and gives back a testbed."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        self.is_asked = False

    def ask(self, action: str) -> None:
        self.is_asked = True
        self.tell(action)

    def tell(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[str, list[str]]:
        """What came of the last action, and what was logged before."""
        assert self.process.stdout
        logged = []
        while (line := self.process.stdout.readline().rstrip("\n")) != "done" and not line.startswith('"'):
            assert line, "it has ended"
            logged.append(line)
        self.is_asked = False
        return (line if line == "done" else json.loads(line)), logged

    def do(self, action: str) -> tuple[str, list[str]]:
        self.ask(action)
        return self.answer()

    def take(self) -> None:
        assert self.do("take") == ("done", [])

    def is_refused(self, action: str = "take") -> str:
        """Returns why."""
        said, logged = self.do(action)
        assert said != "done" and logged == []
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "held"


MakeWorker = Callable[..., Worker]


@pytest.fixture(scope="module")
def idle() -> Iterator[list[Worker]]:
    """Workers that wait: to start one takes a while."""
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        worker.kill()


@pytest.fixture
def make_worker(folder: Path, idle: list[Worker]) -> Iterator[MakeWorker]:
    made: list[Worker] = []

    def make(*arguments: str, who: dict[str, Any] | None = None, **host: Any) -> Worker:
        made.append(idle.pop() if idle else Worker())
        host = {"fqdn": "localhost", "tmux_socket": "s", **host}
        made[-1].tell(json.dumps({"folder": str(folder), "arguments": arguments, "host": host, "who": who or {}}))
        return made[-1]

    yield make
    for worker in made:
        if worker.process.poll() is None and not worker.is_asked:
            worker.tell("end")
            idle.append(worker)
        else:
            worker.kill()


def record_file(folder: Path, thing: str = "tmux socket s") -> Path:
    return folder / f"{thing.encode().hex()}.held"


def record(folder: Path, thing: str = "tmux socket s") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record_file(folder, thing).read_text())
    return found


def change_record(folder: Path, **changes: Any) -> None:
    record_file(folder).write_text(json.dumps(record(folder) | changes))


def nobody_holds(folder: Path) -> bool:
    return os.listdir(folder) == ["guard"]


def test_a_second_run_is_refused_with_who_holds_the_testbed(make_worker: MakeWorker, folder: Path) -> None:
    first = make_worker("test-load-lat-file", "tests.conf")
    first.take()
    second = make_worker()
    who = f"{getpass.getuser()}@{socket.gethostname()}, process {first.process.pid} (autotest test-load-lat-file tests.conf)"
    since = record(folder)["since"]
    assert second.is_refused() == f"the testbed is in use by {who} since {since}: wait for its end, or end it"
    assert time.time() - time.mktime(time.strptime(since[:19], "%Y-%m-%dT%H:%M:%S")) < 60
    assert first.do("give back") == ("done", [])
    assert nobody_holds(folder)
    second.take()


def test_the_records_are_for_their_owner_alone(make_worker: MakeWorker, folder: Path) -> None:
    make_worker().take()
    assert folder.stat().st_mode & 0o777 == 0o700 and record_file(folder).stat().st_mode & 0o777 == 0o600


def test_a_killed_holder_is_taken_over_with_a_warning_that_names_it(make_worker: MakeWorker, folder: Path) -> None:
    first, second = make_worker("setup-network"), make_worker()
    first.take()
    since = record(folder)["since"]
    first.kill()
    said, (warning,) = second.do("take")
    assert said == "done"
    who = f"{getpass.getuser()}@{socket.gethostname()}, process {first.process.pid} (autotest setup-network)"
    assert f"held by {who} since {since}" in warning
    assert warning.endswith("it has ended without giving it back")
    assert record(folder)["pid"] == second.process.pid


def test_a_killed_holder_of_somebody_else_leaves_its_journal_to_him(make_worker: MakeWorker) -> None:
    first, second = make_worker(who={"user": "erika", "machine": "far", "hostname": "far.example"}), make_worker()
    first.take()
    first.kill()
    said, logged = second.do("take")
    assert said == "done" and logged[1:] == ["what it left is undone by autotest recover, as erika on far.example"]


@pytest.mark.parametrize("change", ["start", "boot"])
def test_a_holder_here_is_dead_when_another_process_has_its_number(make_worker: MakeWorker, folder: Path, change: str) -> None:
    first, second = make_worker(), make_worker()
    first.take()
    start = Process.of_this().start
    change_record(folder, pid=os.getpid(), start=start)
    assert "in use" in second.is_refused()
    change_record(folder, **({"start": start - 1} if change == "start" else {"machine_boot": OTHER_BOOT}))
    assert second.do("take")[0] == "done"


@pytest.mark.parametrize("change", ["start", "boot"])
def test_a_holder_far_away_is_dead_when_another_process_has_the_number_of_its_witness(
    make_worker: MakeWorker, folder: Path, change: str
) -> None:
    first, second = make_worker(who={"machine": "far"}), make_worker()
    first.take()
    witness = {"pid": os.getpid(), "start": Process.of_this().start}
    change_record(folder, witness=witness)
    assert "in use" in second.is_refused()
    if change == "start":
        change_record(folder, witness=witness | {"start": witness["start"] - 1})
    else:
        change_record(folder, boot=OTHER_BOOT)
    assert second.do("take")[0] == "done"


def test_testbeds_that_share_nothing_are_held_side_by_side_and_those_that_share_one_thing_are_not(
    make_worker: MakeWorker, folder: Path
) -> None:
    make_worker(tmux_socket="a", test_iface="eth1", admin_bridge="br").take()
    make_worker(tmux_socket="b", test_iface="eth2", admin_bridge="br2").take()
    make_worker(tmux_socket="a", test_iface="eth1", admin_bridge="br", netns="other").take()
    for host in ({"tmux_socket": "a"}, {"tmux_socket": "c", "test_iface": "eth1"}, {"tmux_socket": "c", "admin_bridge": "br2"}):
        assert "in use" in make_worker(**host).is_refused()
    assert not record_file(folder, "tmux socket c").exists(), "it holds a part of what it was refused"


def test_a_holder_on_another_machine_of_which_nothing_is_known_is_only_taken_over_when_the_user_says_so(
    make_worker: MakeWorker, folder: Path
) -> None:
    first, second, third = make_worker(who={"machine": "far"}), make_worker(), make_worker()
    first.take()
    first.kill()
    change_record(folder, witness=None)
    assert second.is_refused().endswith("; if that machine is gone: autotest recover --take-over")
    said, logged = second.do("take over")
    assert said == "done" and logged[0].endswith(": it is taken over")
    assert f"process {second.process.pid} " in third.is_refused()


def test_after_the_next_boot_of_the_host_nobody_holds_anything(make_worker: MakeWorker, folder: Path) -> None:
    first, second = make_worker(who={"machine": "far"}), make_worker()
    first.take()
    change_record(folder, witness=None, boot=OTHER_BOOT)
    assert second.do("take")[0] == "done"


def test_a_holder_that_lost_the_testbed_does_not_give_back_what_is_another_ones(make_worker: MakeWorker, folder: Path) -> None:
    first, second, third = make_worker(), make_worker(), make_worker()
    first.take()
    assert second.do("take over")[0] == "done"
    assert first.do("give back") == ("done", [])
    assert f"process {second.process.pid} " in third.is_refused()
    assert second.do("give back") == ("done", [])
    assert nobody_holds(folder)


def test_one_that_wants_what_two_dead_ones_held_takes_over_from_both(make_worker: MakeWorker, folder: Path) -> None:
    dead = [make_worker(tmux_socket="a"), make_worker(tmux_socket="b", test_iface="eth1")]
    for worker in dead:
        worker.take()
        worker.kill()
    third = make_worker(tmux_socket="a", test_iface="eth1")
    said, logged = third.do("take")
    assert (
        said == "done"
        and [f"process {worker.process.pid} " in line for worker, line in zip(dead, logged, strict=True)] == [True] * 2
    )
    assert {record(folder, thing)["pid"] for thing in ("tmux socket a", "interface eth1")} == {third.process.pid}


def test_a_dead_holder_whose_changes_another_configuration_knows_is_to_be_recovered_by_that(
    make_worker: MakeWorker, folder: Path, tmp_path: Path
) -> None:
    first, second = make_worker(tmux_socket="a", test_iface="eth1"), make_worker(tmux_socket="b", test_iface="eth1")
    first.take()
    first.kill()
    left = tmp_path / "journals" / "other" / "1.journal"
    found = record(folder, "interface eth1") | {"journal": str(left), "file": "/the other.conf"}
    record_file(folder, "interface eth1").write_text(json.dumps(found))
    left.parent.mkdir(parents=True)
    left.touch()
    assert second.is_refused().endswith("left changes under another configuration: autotest -c '/the other.conf' recover")
    left.unlink()
    assert second.do("take")[0] == "done"


@pytest.mark.parametrize("content", ["", '{"id": "x", "pi', "[]", "{}", '{"id": 5}'])
def test_a_record_that_a_crash_cut_off_is_nobodys(make_worker: MakeWorker, folder: Path, content: str) -> None:
    folder.mkdir()
    record_file(folder).write_text(content)
    make_worker().take()
    assert record(folder)["boot"] == boot_id(HERE)


@pytest.mark.parametrize("outlived", [False, True])
def test_of_two_that_take_over_from_a_dead_holder_at_once_exactly_one_gets_the_testbed(
    make_worker: MakeWorker, folder: Path, outlived: bool
) -> None:
    """The connection of a dead holder may outlive it: then it is only known as dead on its own machine."""
    dead, workers = make_worker(), [make_worker(), make_worker()]
    dead.take()
    left = record(folder)
    if outlived:
        left["witness"] = {"pid": os.getpid(), "start": Process.of_this().start}
    dead.kill()
    winners = []
    for _ in range(20):
        record_file(folder).write_text(json.dumps(left))
        for worker in workers:
            worker.ask("take")
        said = [worker.answer()[0] for worker in workers]
        assert sorted(answer == "done" for answer in said) == [False, True], said
        winner = said.index("done")
        assert f"in use by {getpass.getuser()}@{socket.gethostname()}, process {workers[winner].process.pid} " in said[1 - winner]
        assert record(folder)["pid"] == workers[winner].process.pid
        assert workers[winner].do("give back") == ("done", [])
        winners.append(winner)
    assert nobody_holds(folder)


# -- over SSH ----------------------------------------------------------------------------------------------


def load_ssh_server() -> Any:
    name = "conftest_of_remote"
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tests/remote/conftest.py")
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SshServer


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = load_ssh_server()(tmp_path_factory.mktemp("sshd"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def far(sshd: Any, make_worker: MakeWorker) -> Callable[[], Worker]:
    """Makes workers for which this machine is reached over SSH, and which say that they are on machines of their own."""
    config = sshd.config()
    numbers = iter(range(100))
    return lambda: make_worker(fqdn="server", ssh_config=config, who={"machine": f"far-{next(numbers)}"})


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(witness: dict[str, int]) -> bool:
    return Process(witness["pid"], witness["start"]).state(HERE) is not None


def test_a_holder_far_away_lives_as_long_as_its_connection(far: Callable[[], Worker], folder: Path) -> None:
    first, second = far(), far()
    first.take()
    witness = record(folder)["witness"]
    assert Path(f"/proc/{witness['pid']}/comm").read_text().startswith("sshd") and is_alive(witness)
    assert f"process {first.process.pid} " in second.is_refused()
    first.kill()
    wait_until(lambda: not is_alive(witness))
    said, logged = second.do("take")
    assert said == "done" and f"process {first.process.pid} " in logged[0]
    assert second.do("give back") == ("done", [])
    assert nobody_holds(folder)


def test_a_connection_that_was_cut_and_opened_anew_holds_the_testbed_again(
    far: Callable[[], Worker], folder: Path, tmp_path: Path
) -> None:
    first, second = far(), far()
    first.take()
    before = record(folder)["witness"]
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(before))
    assert first.do(f"{tmp_path}/touched") == ("done", []) and (tmp_path / "touched").exists()
    after = record(folder)["witness"]
    assert after != before and is_alive(after)
    assert f"process {first.process.pid} " in second.is_refused()


def test_a_holder_that_was_cut_off_is_not_taken_over_by_its_own_machine_while_it_lives(
    sshd: Any, make_worker: MakeWorker, folder: Path
) -> None:
    way = {"fqdn": "server", "ssh_config": sshd.config()}
    first, second = make_worker(**way), make_worker(**way)
    first.take()
    witness = record(folder)["witness"]
    os.kill(witness["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(witness))
    assert f"process {first.process.pid} " in second.is_refused()
    first.kill()
    assert second.do("take")[0] == "done"


def test_a_holder_whose_testbed_was_taken_while_it_was_cut_off_does_nothing_there_any_more(
    far: Callable[[], Worker], folder: Path, tmp_path: Path
) -> None:
    first, second, third = far(), far(), far()
    first.take()
    witness = record(folder)["witness"]
    os.kill(witness["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(witness))
    assert second.do("take")[0] == "done"
    for name in ("once", "twice"):
        refusal = first.is_refused(f"{tmp_path}/{name}")
        assert "the testbed was taken over by" in refusal and f"process {second.process.pid} " in refusal
        assert not (tmp_path / name).exists()
    first.do("give back")
    assert f"process {second.process.pid} " in third.is_refused()
