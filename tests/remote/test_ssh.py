"""SSH against a real server: keys, configuration, cut connections, ways around a corner."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
import pytest

from autotest.errors import ConnectError, HostKeyError
from autotest.remote.ssh import SshTransport
from autotest.remote.ssh_config import resolve

if TYPE_CHECKING:
    from conftest import SshServer


def ssh_ids(transport: SshTransport) -> str:
    """What tells one connection from another: its client's port."""
    return transport.run(["sh", "-c", "echo $SSH_CONNECTION"]).stdout


def test_making_a_transport_opens_nothing(sshd: SshServer) -> None:
    before = set(sshd.sessions())
    sshd.transport(destination="nobody.invalid")
    assert set(sshd.sessions()) <= before  # one of an earlier test may be at its end


def test_commands_files_and_sockets_share_one_connection(sshd: SshServer, tmp_path: Path) -> None:
    transport = sshd.transport()
    first = ssh_ids(transport)
    assert transport.read("/etc/hostname") is not None
    transport.write(str(tmp_path / "x"), "x")
    with transport.connect_unix(str(tmp_path / "nobody"), 1):
        pass
    assert ssh_ids(transport) == first
    assert len(sshd.sessions()) == 1


def test_an_unknown_host_key_is_refused_with_what_to_do(sshd: SshServer) -> None:
    empty = sshd.folder / "known_nothing"
    empty.write_text("")
    transport = sshd.transport(sshd.config(known=empty))
    with pytest.raises(HostKeyError, match="unknown") as caught:
        transport.run(["true"])
    assert str(empty) in str(caught.value) and "ssh" in str(caught.value)


def test_a_changed_host_key_is_refused_with_what_to_do(sshd: SshServer) -> None:
    known = sshd.known_hosts(f"[127.0.0.1]:{sshd.port}", key="login")  # another key than the server's
    with pytest.raises(HostKeyError, match="not the known one") as caught:
        sshd.transport(sshd.config(known=known)).run(["true"])
    assert f"ssh-keygen -R [127.0.0.1]:{sshd.port}" in str(caught.value).replace("'", "")


@pytest.mark.parametrize("content", [b"127.0.0.1 ssh-rsa \xff\xfe\n", b"rubbish\n", b"h ssh-ed25519 AAAA\n"])
def test_a_broken_known_hosts_file_is_an_error_of_ours(sshd: SshServer, content: bytes) -> None:
    broken = sshd.folder / "known_broken"
    broken.write_bytes(content)
    with pytest.raises(ConnectError):
        sshd.transport(sshd.config(known=broken)).run(["true"])


def test_a_refused_login_names_the_user(sshd: SshServer) -> None:
    config = sshd.config("Host server\n  User nobody")
    with pytest.raises(ConnectError, match="login as nobody refused"):
        sshd.transport(config).run(["true"])


def test_a_key_file_that_is_not_there_is_an_error_of_ours(sshd: SshServer) -> None:
    config = Path(sshd.config())
    config.write_text(config.read_text().replace("/login", "/no-login"))
    with pytest.raises(ConnectError):
        sshd.transport(str(config)).run(["true"])


def test_a_port_that_nobody_listens_on_is_named(sshd: SshServer) -> None:
    config = sshd.config("Host closed\n  HostName 127.0.0.1\n  Port 1")
    with pytest.raises(ConnectError, match="127.0.0.1 port 1: Connection refused"):
        sshd.transport(config, "closed").ping(1)


def test_a_name_that_does_not_exist_is_named(sshd: SshServer) -> None:
    with pytest.raises(ConnectError, match="a..b"):
        sshd.transport(destination="a..b").ping(1)


def test_user_and_port_in_the_destination_win_over_the_configuration(sshd: SshServer) -> None:
    config = sshd.config("Host 127.0.0.1\n  User nobody\n  Port 1")
    assert sshd.transport(config, f"root@127.0.0.1:{sshd.port}").run(["id", "-un"]).stdout == "root\n"


def test_a_host_key_alias_is_what_the_key_is_looked_up_under(sshd: SshServer) -> None:
    config = sshd.config("Host server\n  HostKeyAlias the-machine", known=sshd.known_hosts("the-machine"))
    assert sshd.transport(config).run(["true"]).code == 0


@pytest.mark.parametrize("command", ["socat - TCP:%h:%p", "exec socat - TCP:%h:%p 2>/dev/null", "sleep 0; socat - 'TCP:%h:%p'"])
def test_a_proxy_command_is_run_by_a_shell_and_ends_with_the_connection(
    sshd: SshServer, command: str, wait_until: Callable[..., None]
) -> None:
    transport = sshd.transport(sshd.config(f"Host server\n  ProxyCommand {command}"))
    assert transport.run(["echo", "through"]).stdout == "through\n"
    transport.close()
    target = f"TCP:127.0.0.1:{sshd.port}".encode()

    def proxies() -> list[Path]:
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += [file] if target in file.read_bytes() else []
            except OSError:
                continue
        return found

    wait_until(lambda: not proxies())


def test_a_proxy_command_that_fails_is_an_error_of_ours(sshd: SshServer) -> None:
    config = sshd.config("Host server\n  ProxyCommand false")
    start = time.monotonic()
    with pytest.raises(ConnectError):
        sshd.transport(config).run(["true"])
    assert time.monotonic() - start < 3


def test_a_way_over_two_jump_hosts_leads_there(sshd: SshServer, tmp_path: Path) -> None:
    jumps = f"Host one two\n  HostName 127.0.0.1\n  Port {sshd.port}\nHost server\n  ProxyJump one,root@two"
    transport = sshd.transport(sshd.config(jumps))
    assert transport.run(["echo", "there"]).stdout == "there\n"
    assert len(sshd.sessions()) == 3
    transport.write(str(tmp_path / "f"), "x")
    assert (tmp_path / "f").read_text() == "x"


def test_a_jump_host_that_cannot_lead_on_is_named(sshd: SshServer) -> None:
    jump = f"Host one\n  HostName 127.0.0.1\n  Port {sshd.port}\nHost far\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump one"
    with pytest.raises(ConnectError, match="port 1 through one"):
        sshd.transport(sshd.config(jump), "far").run(["true"])


# -- cut connections ---------------------------------------------------------------------------------------


def cut(sshd: SshServer) -> None:
    for pid in sshd.sessions():
        os.kill(pid, signal.SIGKILL)
    while sshd.sessions():
        time.sleep(0.005)


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_cut_connection_is_opened_again_for_the_next_command(sshd: SshServer, pause: float) -> None:
    transport = sshd.transport()
    first = ssh_ids(transport)
    cut(sshd)
    time.sleep(pause)
    assert ssh_ids(transport) != first


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_cut_connection_is_opened_again_for_the_next_file(sshd: SshServer, tmp_path: Path, pause: float) -> None:
    transport = sshd.transport()
    transport.write(str(tmp_path / "f"), "1")
    cut(sshd)
    time.sleep(pause)
    assert transport.read(str(tmp_path / "f")) == "1"


@contextmanager
def silence(sshd: SshServer, for_good: bool = False) -> Iterator[None]:
    """The other end of all connections of this moment says nothing, as behind a cut cable; ``for_good``: new ones, too."""
    assert sshd.process
    pids = [*sshd.sessions(), *([sshd.process.pid] if for_good else [])]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_connection_that_goes_silent_during_a_command_is_given_up(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("autotest.remote.ssh._GRACE", 0.3)
    transport = sshd.transport()
    first = ssh_ids(transport)
    with ExitStack() as later:
        threading.Timer(0.2, lambda: later.enter_context(silence(sshd))).start()
        with pytest.raises(ConnectError, match="no answer to sleep within 0.8 s: the connection is cut"):
            transport.run(["sleep", "60"], timeout=0.5)
        assert ssh_ids(transport) != first


def test_a_connection_that_went_silent_is_opened_anew(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotest.remote.ssh_channel._CHANNEL_TIMEOUT", 0.3)
    transport = sshd.transport()
    first = ssh_ids(transport)
    with silence(sshd):
        assert ssh_ids(transport) != first


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fails, rather than hangs, when what is inside takes longer."""

    def ring(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def use_socket(transport: SshTransport, path: str) -> None:
    with transport.connect_unix(path, 1) as connection:
        connection.recv(1)


USES: dict[str, Callable[[SshTransport, str], object]] = {
    "run": lambda transport, path: transport.run(["true"]),
    "read": lambda transport, path: transport.read(path),
    "write": lambda transport, path: transport.write(path, "x"),
    "get": lambda transport, path: transport.get(path, Path(f"{path}.got")),
    "socket": use_socket,
}


def before_step(monkeypatch: pytest.MonkeyPatch, owner: type, step: str, happen: Callable[[], object]) -> None:
    """Whatever is to happen does so right before the library's step, which is then made as ever."""
    real = getattr(owner, step)

    def late(*arguments: object, **options: object) -> object:
        happen()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, step, late)


@pytest.mark.parametrize(
    ("use", "owner", "step"),
    [
        ("run", paramiko.Channel, "exec_command"),
        ("socket", paramiko.Channel, "exec_command"),
        ("read", paramiko.Channel, "invoke_subsystem"),
        ("write", paramiko.Channel, "invoke_subsystem"),
        ("get", paramiko.Channel, "invoke_subsystem"),
        ("read", paramiko.SFTPClient, "_send_version"),
        ("write", paramiko.SFTPClient, "_send_version"),
    ],
)
def test_a_connection_that_goes_silent_once_its_channel_is_open_is_given_up(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, owner: type, step: str
) -> None:
    monkeypatch.setattr("autotest.remote.ssh_channel._CHANNEL_TIMEOUT", 0.4)
    transport = sshd.transport()
    assert transport.is_root  # known from here on, and the connection is open
    with ExitStack() as later:
        with monkeypatch.context() as patch:
            before_step(patch, owner, step, lambda: later.enter_context(silence(sshd)))
            with at_most(5), pytest.raises(ConnectError, match="no answer.* within 0.4 s: the connection is cut"):
                USES[use](transport, str(tmp_path / "f"))
        assert transport.run(["echo", "on"]).stdout == "on\n"


@pytest.mark.parametrize("use", ["run", "socket", "read"])
def test_a_connection_that_is_cut_just_as_an_answer_is_waited_for_is_given_up(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    monkeypatch.setattr("autotest.remote.ssh_channel._CHANNEL_TIMEOUT", 0.4)
    transport = sshd.transport()
    assert transport.is_root  # known from here on, and the connection is open

    def cut_and_noticed() -> None:
        over = transport._hops[-1].get_transport()
        cut(sshd)
        while over and over.is_active():
            time.sleep(0.005)
        time.sleep(0.05)

    before_step(monkeypatch, paramiko.Channel, "_event_pending", cut_and_noticed)
    with at_most(5), pytest.raises(ConnectError):
        USES[use](transport, str(tmp_path / "f"))


def test_a_connection_that_is_cut_before_a_socket_is_reached_is_an_error_of_ours(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = sshd.transport()
    assert transport.is_root  # known from here on, and the connection is open
    with monkeypatch.context() as patch:
        before_step(patch, paramiko.Channel, "exec_command", lambda: cut(sshd))
        with at_most(5), pytest.raises(ConnectError, match="far: the connection was cut"):
            use_socket(transport, str(tmp_path / "s"))
    assert transport.run(["echo", "on"]).stdout == "on\n"


@pytest.mark.parametrize("use", ["read", "write", "get"])
def test_files_over_a_connection_that_went_silent_cost_one_wait(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    monkeypatch.setattr("autotest.remote.ssh_channel.DEFAULT_TIMEOUT", 0.5)
    transport = sshd.transport()
    path = str(tmp_path / "f")
    transport.write(path, "1")
    with silence(sshd), at_most(5), pytest.raises(ConnectError):
        start = time.monotonic()
        try:
            USES[use](transport, path)
        finally:
            assert time.monotonic() - start < 0.9
    assert transport.read(path) == "1"


def narrow(transport: SshTransport) -> None:
    """As over a slow link, and unlike on the loopback, little is on its way: who sends more is blocked."""
    over = transport._hops[-1].get_transport()
    assert over
    over.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)


@pytest.mark.filterwarnings("error")  # a thread of the library that fails would write to the user's terminal
@pytest.mark.parametrize(("use", "step"), [("write", "set_pipelined"), ("get", "prefetch"), ("read", "read")])
def test_a_connection_that_goes_silent_within_a_large_file_is_given_up(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, step: str
) -> None:
    monkeypatch.setattr("autotest.remote.ssh_channel.DEFAULT_TIMEOUT", 0.5)
    monkeypatch.setitem(USES, "write", lambda transport, path: transport.write(path, "x" * (64 << 20)))
    transport = sshd.transport()
    path = tmp_path / "f"
    path.write_bytes(b"x" * (64 << 20))
    assert transport.read(str(tmp_path / "none")) is None
    narrow(transport)
    with ExitStack() as later:
        with monkeypatch.context() as patch:
            before_step(patch, paramiko.SFTPFile, step, lambda: later.enter_context(silence(sshd)))
            with at_most(10), pytest.raises(ConnectError):
                USES[use](transport, str(path))
        path.write_text("1")
        assert transport.read(str(path)) == "1"


def test_input_that_a_silent_server_does_not_take_is_given_up(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotest.remote.ssh._GRACE", 0.3)
    transport = sshd.transport()
    assert transport.is_root  # known from here on, and the connection is open
    narrow(transport)
    with ExitStack() as later:
        with monkeypatch.context() as patch:
            before_step(patch, paramiko.Channel, "sendall", lambda: later.enter_context(silence(sshd)))
            with at_most(10), pytest.raises(ConnectError, match="no answer to cat within 0.8 s"):
                transport.run(["cat"], input=b"x" * (64 << 20), timeout=0.5)
        assert transport.run(["echo", "on"]).stdout == "on\n"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user pressed Ctrl-C."""
    monkeypatch.setattr("autotest.run.interruption.requested", lambda: True)


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("use", USES)
def test_in_a_hurry_a_server_that_went_silent_costs_little(
    sshd: SshServer, tmp_path: Path, hurried: None, use: str, for_good: bool
) -> None:
    transport = sshd.transport()
    path = str(tmp_path / "f")
    transport.write(path, "1")  # from here on there is an SFTP channel
    assert transport.is_root
    with silence(sshd, for_good), at_most(3.5), pytest.raises(ConnectError):
        USES[use](transport, path)


@pytest.mark.parametrize("way", ["straight", "proxy", "jump"])
def test_in_a_hurry_a_server_that_takes_a_connection_and_says_nothing_costs_little(
    sshd: SshServer, hurried: None, way: str
) -> None:
    options = {
        "straight": "",
        "proxy": f"Host server\n  ProxyCommand socat - TCP:127.0.0.1:{sshd.port}",
        "jump": f"Host one\n  HostName 127.0.0.1\n  Port {sshd.port}\nHost server\n  ProxyJump one",
    }
    transport = sshd.transport(sshd.config(options[way]))
    with silence(sshd, for_good=True), at_most(3.5), pytest.raises(ConnectError):
        transport.connect(60)
    assert transport.run(["echo", "on"]).stdout == "on\n"


def test_in_a_hurry_a_jump_host_that_goes_silent_costs_little(
    sshd: SshServer, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    jump = f"Host one\n  HostName 127.0.0.1\n  Port {sshd.port}\nHost server\n  ProxyJump one"
    transport = sshd.transport(sshd.config(jump))
    with ExitStack() as later:
        before_step(monkeypatch, SshTransport, "_channel_to", lambda: later.enter_context(silence(sshd)))
        with at_most(3.5), pytest.raises(ConnectError):
            transport.run(["true"])


def test_in_a_hurry_a_cut_connection_is_still_opened_again(sshd: SshServer, hurried: None) -> None:
    transport = sshd.transport()
    first = ssh_ids(transport)
    cut(sshd)
    assert ssh_ids(transport) != first


def test_whoever_waits_for_a_new_connection_is_told(sshd: SshServer) -> None:
    transport = sshd.transport()
    told: list[str] = []
    transport.after_connect = lambda: told.append(transport.run(["echo", "hello"]).stdout)
    for count in (1, 2):
        transport.run(["true"])
        transport.run(["true"])
        assert told == ["hello\n"] * count
        cut(sshd)


def test_a_connection_that_is_cut_during_a_command_is_an_error_and_the_next_command_works(
    sshd: SshServer, tmp_path: Path
) -> None:
    import threading

    transport = sshd.transport()
    transport.run(["true"])
    threading.Timer(0.2, cut, [sshd]).start()
    with pytest.raises(ConnectError, match="cut"):
        transport.run(["sh", "-c", f"touch {tmp_path}/ran; exec sleep 1"])
    assert (tmp_path / "ran").exists()
    assert transport.run(["echo", "on"]).stdout == "on\n"


# -- ssh_config --------------------------------------------------------------------------------------------


def test_a_configuration_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="no-config"):
        resolve("x", str(tmp_path / "no-config"))


@pytest.mark.parametrize("text", ["Host x\n  Port abc\n", "Host x\n  ConnectTimeout soon\n", "Match rubbish\n  Port 1\n"])
def test_a_malformed_configuration_is_an_error_of_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(ConnectError):
        resolve("x", str(tmp_path / "c"))


def test_what_the_configuration_says_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "c").write_text(
        "Host x\n  HostName 10.0.0.9\n  Port 2222\n  User me\n  IdentityFile ~/k\n  IdentitiesOnly yes\n"
        "  ProxyJump a, b@c:23\n  UserKnownHostsFile /k1 /k2\n  Ciphers aes128-ctr,aes256-ctr\n"
    )
    found = resolve("x", str(tmp_path / "c"))
    assert (found.host, found.port, found.user) == ("10.0.0.9", 2222, "me")
    assert found.key_files == (os.path.expanduser("~/k"),) and found.only_these_keys
    assert found.jumps == ("a", "b@c:23") and found.known_hosts == ("/k1", "/k2")
    assert found.ciphers == ("aes128-ctr", "aes256-ctr")
    assert found.host_key_name == "[10.0.0.9]:2222"


@pytest.mark.parametrize(
    ("alias", "host", "port"),
    [("::1", "::1", 22), ("fd00::1:2", "fd00::1:2", 22), ("[fd00::1]:2222", "fd00::1", 2222), ("h:23", "h", 23)],
)
def test_addresses_of_both_kinds_are_taken_apart(tmp_path: Path, alias: str, host: str, port: int) -> None:
    (tmp_path / "c").write_text("")
    found = resolve(f"me@{alias}", str(tmp_path / "c"))
    assert (found.host, found.port, found.user) == (host, port, "me")
