"""What every server can do, on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LoadGenConfig,
    LocalConfig,
    ServerConfig,
    Testbed,
)
from autotest.errors import ConnectError, TestbedError
from autotest.remote.local import LocalTransport
from autotest.remote.ssh import SshTransport
from autotest.resources import PROJECT_DIRECTORY
from autotest.servers.guest import Guest
from autotest.servers.server import Server, is_this_machine, takes_logins, transport_to
from autotest.servers.testbed import Servers


@pytest.fixture
def server(tmux_socket: str) -> Iterator[Server]:
    """A server on this machine with a state folder of its own."""
    socket_path = f"{tmux_socket}-{os.getpid()}"
    server = Server("host", ServerConfig(fqdn="localhost", tmux_socket=socket_path))
    yield server
    shutil.rmtree(server.state_dir)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.0.0.2", "::1", socket.gethostname()])
def test_names_and_addresses_of_this_machine_are_known(name: str) -> None:
    assert is_this_machine(name)


@pytest.mark.parametrize(
    "name", ["root@localhost", "192.0.2.1", "2001:db8::1", "nobody.invalid", "a..b", ".x", "x" * 70, "::1%nolink"]
)
def test_anything_else_is_another_machine(name: str) -> None:
    assert not is_this_machine(name)


def test_the_way_to_a_server_follows_its_name_and_the_ssh_configuration(tmp_path: Path) -> None:
    config = tmp_path / "c"
    config.write_text("Host localhost renamed\n  HostName 192.0.2.7\nHost jumped\n  HostName jumped\n  ProxyJump x\n")
    here = transport_to("host", ServerConfig(fqdn="localhost", netns="ns"))
    assert isinstance(here, LocalTransport) and here.netns == "ns"
    assert isinstance(transport_to("host", ServerConfig(fqdn="localhost", ssh_config=str(config))), LocalTransport)
    for fqdn in ("renamed", "jumped"):
        there = transport_to("host", ServerConfig(fqdn=fqdn, ssh_config=str(config)))
        assert isinstance(there, SshTransport)
    there = transport_to("host", ServerConfig(fqdn="me@192.0.2.1"))
    assert isinstance(there, SshTransport) and not there.is_local


def test_the_state_folder_is_for_its_user_alone(server: Server) -> None:
    assert stat.S_IMODE(os.stat(server.state_dir).st_mode) == 0o700
    assert server.state_file("x") == f"{server.state_dir}/x"
    assert Path(server.state_dir).parent == Path("/run/autotest")


def test_upload_copies_only_what_is_new_or_different(server: Server, tmp_path: Path) -> None:
    source, target = tmp_path / "a b", tmp_path / "there/it's"
    (source / "sub").mkdir(parents=True)
    (source / "one.lua").write_text("1")
    (source / "sub/run.sh").write_text("2")
    (source / "sub/run.sh").chmod(0o755)
    assert server.upload(source, str(target)) == 2
    assert server.upload(source, str(target)) == 0
    assert os.access(target / "sub/run.sh", os.X_OK) and not os.access(target / "one.lua", os.X_OK)
    (target / "own").write_text("stays")
    (target / "one.lua").write_text("changed")
    assert server.upload(source, str(target)) == 1
    assert (target / "one.lua").read_text() == "1" and (target / "own").read_text() == "stays"


def test_upload_of_an_empty_folder_copies_nothing(server: Server, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert server.upload(tmp_path / "empty", str(tmp_path / "t")) == 0


def test_missing_programs_are_named_with_what_needs_them(server: Server) -> None:
    server.require_programs(["sh", "ip"], "this test")
    with pytest.raises(TestbedError, match="host: this test needs no-such-a, no-such-b: install"):
        server.require_programs(["sh", "no-such-a", "no-such-b"], "this test")


def test_where_the_programs_go_must_be_known(server: Server, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="host: moonprogs_dir is missing"):
        server.upload_moonprogs(tmp_path)


def test_a_server_without_an_answer_takes_no_logins_and_a_ping_says_why(tmp_path: Path) -> None:
    config = tmp_path / "c"
    config.write_text("Host x\n  HostName 127.0.0.1\n  Port 1\n  ConnectTimeout 1\n")
    assert not takes_logins(Server("guest", GuestConfig(fqdn="x", ssh_config=str(config))), 0.2)
    with pytest.raises(ConnectError, match="127.0.0.1 port 1: Connection refused"):
        Server("guest", GuestConfig(fqdn="x", ssh_config=str(config))).ping(0.2)


def a_testbed(file: Path, moonprogs: str | None) -> Testbed:
    host, guest, loadgen = HostConfig(fqdn="localhost"), GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost")
    return Testbed(file, host, guest, loadgen, LocalConfig(moonprogs_dir=moonprogs))


def test_the_folder_of_the_programs_counts_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "autotest.conf"
    assert Servers(a_testbed(file, "progs")).local_moonprogs == tmp_path / "progs"
    assert Servers(a_testbed(file, "/progs")).local_moonprogs == Path("/progs")
    assert Servers(a_testbed(file, None)).local_moonprogs == PROJECT_DIRECTORY / "moonprogs"


def test_a_guest_that_is_this_machine_is_refused_before_any_command_runs_here(tmp_path: Path) -> None:
    guest = Guest("guest", GuestConfig(fqdn="127.0.0.1"))
    with pytest.raises(TestbedError, match="fqdn 127.0.0.1 is this machine"):
        guest.run(["touch", str(tmp_path / "touched")])
    assert not (tmp_path / "touched").exists()


@pytest.mark.default
def test_a_temporary_file_is_in_the_journal_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("host", ServerConfig(fqdn="localhost"))
    seen: list[str] = []

    def killed(source: Path, target: str, temporary: str, mode: int) -> None:
        Path(temporary).write_text("half")
        seen.append(temporary)
        raise KeyboardInterrupt

    (tmp_path / "source").write_text("whole")
    with monkeypatch.context() as patch, server.journal.scope():
        patch.setattr(LocalTransport, "_copy", staticmethod(killed))
        with pytest.raises(KeyboardInterrupt):
            server.transport.put(tmp_path / "source", str(tmp_path / "target"))
        assert [change.details["path"] for change in server.journal.standing] == seen
        assert Path(seen[0]).exists()
    assert not Path(seen[0]).exists()
    server.transport.put(tmp_path / "source", str(tmp_path / "target"))
    assert server.journal.standing == ()
