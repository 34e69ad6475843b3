"""Running MoonGen programs, with a stand-in laid out like MoonGen; loading XDP programs on a veth in a namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotest.config.testbed import ServerConfig
from autotest.errors import TestbedError, TrafficError
from autotest.network.links import Links
from autotest.remote.following import FollowedFile
from autotest.remote.wait import wait_for
from autotest.servers.server import Server
from autotest.traffic.dpdk import interface_config
from autotest.traffic.moongen import MoonGen, unheard
from autotest.traffic.reflectors import REFLECTOR_KINDS, XDP_OBJECT

MakeServer = Callable[..., Server]


def program(tmp_path: Path, script: str) -> str:
    (tmp_path / "load.lua").write_text(script)
    return "load.lua"


def test_an_interface_of_the_kernel_comes_with_a_configuration_file(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    command = MoonGen(server, "veth9").command("x.lua", ["--rate", "5"])
    option = command[2]
    assert command == [f"{tmp_path}/moongen/bin/MoonGen", f"{tmp_path}/x.lua", option, "0", "--rate", "5"]
    file = option.removeprefix("--dpdk-config=")
    assert Path(file).read_text() == interface_config("veth9", "autotest-veth9")


def test_a_folder_without_moongen_is_named(make_server: MakeServer) -> None:
    server = make_server("other/MoonGen")
    with pytest.raises(TrafficError, match="loadgen: moongen_dir .*/moongen holds neither build/MoonGen nor bin"):
        MoonGen(server).command("x.lua", [])


def test_a_program_runs_to_its_end_and_its_file_is_fetched(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    script = 'while [ $# -gt 1 ]; do shift; done; echo 5,6 >"$1"; echo done'
    arguments = ["52:54:00:00:00:01", "--note", "a 'b' $(c)", "--file", "{histogram}"]
    target = tmp_path / "fetched.csv"
    end = MoonGen(server).run(program(tmp_path, script), arguments, fetch={"histogram": target}, seconds=0, timeout=5)
    assert end.code == 0 and target.read_text() == "5,6\n"
    assert end.output.splitlines()[2:6] == ["0", "52:54:00:00:00:01", "--note", "a 'b' $(c)"]
    assert end.output.endswith("done\n")
    assert not [name for name in os.listdir(server.state_dir) if "histogram" in name]
    assert not server.session("load").exists()


def test_what_the_program_writes_is_heard_while_it_runs_and_fetched_even_if_nobody_wants_it(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, looks = make_server(), list[str]()
    news = FollowedFile.news

    def counted(file: FollowedFile) -> str:
        looks.append(news(file))
        return looks[-1]

    monkeypatch.setattr(FollowedFile, "news", counted)
    heard: list[str] = []
    load = program(tmp_path, "echo first; sleep 2.2; echo last")
    for hear in (heard.append, unheard):
        looks.clear()
        end = MoonGen(server).run(load, [], fetch={}, seconds=2, timeout=5, hear=hear)
        assert end.output.endswith("first\nlast\n") and 2 <= len(looks) <= 4 and "first\n" in "".join(looks)
    assert "first\n" in "".join(heard) and end.output.startswith("".join(heard))


def test_a_file_that_the_program_reads_is_written_noted_and_removed(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, noted = make_server(), list[str]()
    note, write = server.note, server.transport.write

    def remembered(kind: str, /, **details: str) -> None:
        noted.append(details.get("path", ""))
        note(kind, **details)

    def written(path: str, content: str, *more: Any) -> None:
        assert path in noted, "it is written down before it is made"
        write(path, content, *more)

    monkeypatch.setattr(server, "note", remembered)
    monkeypatch.setattr(server.transport, "write", written)
    text = "60:7 590:4\n1514:1" * 20_000  # longer than a command line may be
    script = 'for last; do :; done; echo "told $last"; wc -c <"${last#@}"; cksum <"${last#@}"'
    load, arguments = program(tmp_path, script), ["--size", "@{sizes}"]
    end = MoonGen(server).run(load, arguments, fetch={}, give={"sizes": text}, seconds=0, timeout=5)
    assert end.code == 0, end.output
    told, length, *_ = end.output[end.output.index("told ") :].splitlines()
    path = told.removeprefix("told @")
    assert os.path.dirname(path) == server.state_dir and path.endswith(".sizes") and path in noted
    assert int(length) == len(text)
    assert not os.path.exists(path) and path not in [change.details["path"] for change in server.journal.standing]


def test_a_file_for_a_program_that_hangs_is_removed_too(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    with pytest.raises(TrafficError):
        load = program(tmp_path, "exec sleep 60")
        MoonGen(server).run(load, ["@{sizes}"], fetch={}, give={"sizes": "60"}, seconds=9, timeout=0.3)
    assert not [name for name in os.listdir(server.state_dir) if name.endswith(".sizes")]


def test_a_file_that_is_given_is_not_fetched_and_one_that_is_fetched_is_not_given(
    make_server: MakeServer, tmp_path: Path
) -> None:
    target = tmp_path / "fetched"
    script = 'for last; do :; done; [ ! -e "$last" ] && echo 5,6 >"$last"'
    files: dict[str, Any] = {"fetch": {"histogram": target}, "give": {"sizes": "60"}}
    end = MoonGen(make_server()).run(program(tmp_path, script), ["@{sizes}", "{histogram}"], **files, seconds=0, timeout=5)
    assert end.code == 0 and target.read_text() == "5,6\n"


def test_what_the_kernel_counted_meanwhile_is_told(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([(1000, 2000), (1500, 2300), (7, 7), (6, 9), (7, 7), (9, 6), None, (1, 1)])
    monkeypatch.setattr(Links, "frames", lambda links, name: next(counts))
    moongen = MoonGen(make_server())
    runs = [moongen.run(program(tmp_path, "exit 0"), [], fetch={}, seconds=0, timeout=5) for _ in range(4)]
    assert [end.interface for end in runs] == [(500, 300), None, None, None], "an interface made anew counts from 0"


@pytest.mark.parametrize(("real", "pauses"), [(True, [1.2]), (False, [])])
def test_the_counters_of_a_real_nic_get_the_time_that_its_driver_needs(
    make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: bool, pauses: list[float]
) -> None:
    events: list[object] = []
    monkeypatch.setattr(Links, "frames", lambda links, name: events.append("counted"))
    server = make_server()
    run = server.run

    def answer(command: list[str], **options: Any) -> Any:
        asked = command == ["test", "-e", f"/sys/class/net/{server.config.test_iface}/device"]
        return run(["true" if real else "false"], check=False) if asked else run(command, **options)

    monkeypatch.setattr(server, "run", answer)
    moongen = MoonGen(server)
    monkeypatch.setattr("autotest.traffic.moongen.time", SimpleNamespace(sleep=events.append))
    moongen.run(program(tmp_path, "exit 0"), [], fetch={}, seconds=0, timeout=5)
    assert events == ["counted", *pauses, "counted"]


def test_a_program_that_fails_gives_its_code_and_output_and_no_file(make_server: MakeServer, tmp_path: Path) -> None:
    target = tmp_path / "fetched.csv"
    end = MoonGen(make_server()).run(
        program(tmp_path, "echo no samples; exit 3"), ["{h}"], fetch={"h": target}, seconds=0, timeout=5
    )
    assert end.code == 3 and "no samples" in end.output and not target.exists()


def test_a_program_that_hangs_is_ended_and_its_last_words_are_in_the_error(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    start = time.monotonic()
    with pytest.raises(TrafficError, match="(?s)load did not end within 0.3 s.*stuck here"):
        MoonGen(server).run(program(tmp_path, "echo stuck here; exec sleep 60"), [], fetch={}, seconds=9, timeout=0.3)
    assert time.monotonic() - start < 3
    assert not server.session("load").exists()


def test_what_a_killed_run_left_is_ended_first(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    server.session("load").start(["sleep", "60"])
    end = MoonGen(server).run(program(tmp_path, "echo mine"), [], fetch={}, seconds=0, timeout=5)
    assert end.output.endswith("mine\n")


def test_a_program_is_started_when_it_says_that_it_is_ready_and_stopped_in_order(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server()
    name = program(tmp_path, f"trap 'echo >{tmp_path}/totals; exit 0' INT; echo reflector ready; while :; do sleep 0.02; done")
    moongen = MoonGen(server)
    moongen.start(name, [], "reflector ready", 5)
    assert server.session("load").exists()
    moongen.check(name)
    moongen.stop(name)
    moongen.stop(name)
    assert (tmp_path / "totals").exists()
    assert not server.session("load").exists()
    with pytest.raises(TrafficError, match="was ended"):
        moongen.check(name)


@pytest.mark.parametrize(("number", "says"), [(signal.SIGKILL, "ended with exit code 137"), (signal.SIGSTOP, "is stopped")])
def test_a_reflector_that_dies_or_hangs_is_found_with_its_last_words(
    make_server: MakeServer, tmp_path: Path, number: signal.Signals, says: str
) -> None:
    server = make_server()
    name = program(tmp_path, "echo reflector ready; exec sleep 60")
    MoonGen(server).start(name, [], "reflector ready", 5)
    session = server.session("load")
    os.kill(session.pid() or 0, number)
    wait_for(lambda: session.exit_code() or session.state() == "T", "the signal's effect", 5)
    with pytest.raises(TrafficError, match=f"(?s)loadgen: load.lua {says}.*reflector ready"):
        MoonGen(server).check(name)
    MoonGen(server).stop(name)


@pytest.mark.parametrize(
    ("script", "says"), [("echo no device; exit 1", "(?s)exit code 1 before.*no device"), ("exec sleep 60", "'ready'")]
)
def test_a_program_that_does_not_get_ready_is_an_error_and_does_not_run(
    make_server: MakeServer, tmp_path: Path, script: str, says: str
) -> None:
    server = make_server()
    with pytest.raises(TrafficError, match=says):
        MoonGen(server).start(program(tmp_path, script), [], "ready", 0.4)
    assert not server.session("load").exists()


# -- XDP ---------------------------------------------------------------------------------------------------

XDP = REFLECTOR_KINDS["xdp"]


@pytest.fixture
def xdp_server(make_netns: Callable[[], str], tmp_path: Path) -> Server:
    """A server in a namespace with a veth pair nic and peer, and a program that passes all frames."""
    netns = make_netns()
    subprocess.run(["ip", "-n", netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer"], check=True)
    subprocess.run(["ip", "-n", netns, "link", "set", "peer", "up"], check=True)
    source = '__attribute__((section("xdp"), used)) int f(void *c) { return 2; }\n'
    arguments = ["-target", "bpf", "-O2", "-x", "c", "-", "-c", "-o", str(tmp_path / XDP_OBJECT)]
    subprocess.run(["clang", *arguments], input=source, text=True, check=True)
    config = ServerConfig(fqdn="localhost", netns=netns, test_iface="nic", xdp_reflector_dir=str(tmp_path))
    return Server("host", config)


def attached(server: Server) -> bool:
    return "xdp" in (server.links.show("nic") or {})


def test_the_reflector_is_on_the_interface_as_long_as_the_context_lasts(xdp_server: Server) -> None:
    for _ in range(2):
        with xdp_server.journal.scope():
            XDP.up(xdp_server, "nic")
            assert attached(xdp_server)
        assert not attached(xdp_server)
    XDP.down(xdp_server, "nic")


def test_an_xdp_program_of_somebody_else_is_refused_and_stays(xdp_server: Server) -> None:
    XDP.up(xdp_server, "nic")
    with pytest.raises(TestbedError, match="nic has an XDP program already, f "):
        with xdp_server.journal.scope():
            XDP.up(xdp_server, "nic")
            raise AssertionError("it was replaced")
    assert attached(xdp_server)
    XDP.check(xdp_server, "nic")
    XDP.down(xdp_server, "nic")
    with pytest.raises(TrafficError, match="the XDP reflector is gone from nic"):
        XDP.check(xdp_server, "nic")


def test_no_interface_is_an_error_to_start_on_and_nothing_to_stop_on(xdp_server: Server) -> None:
    XDP.down(xdp_server, "nothing")
    with pytest.raises(TestbedError, match="no network interface nothing"):
        XDP.up(xdp_server, "nothing")


def test_a_missing_object_file_is_named_with_its_key(xdp_server: Server, tmp_path: Path) -> None:
    (tmp_path / XDP_OBJECT).unlink()
    with pytest.raises(TrafficError, match=f"{XDP_OBJECT}: xdp_reflector_dir must hold"):
        with xdp_server.journal.scope():
            XDP.up(xdp_server, "nic")
            raise AssertionError("it reflects")


def test_an_object_file_that_does_not_load_says_why(xdp_server: Server, tmp_path: Path) -> None:
    (tmp_path / XDP_OBJECT).write_text("no ELF")
    with pytest.raises(TrafficError, match="host: the XDP reflector does not load on nic: ."):
        XDP.up(xdp_server, "nic")
