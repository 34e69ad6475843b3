"""What dead runs left is found by the next start of the same testbed and by ``autotest recover``, and by nobody else."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import LoadGenConfig, Testbed, load_testbed
from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.run import recovery
from autotest.run.journal import Change, UndoFailed, read_journal
from autotest.run.opening import open_testbed, undo_what_is_left
from autotest.run.recovery import (
    journal_folder,
    journaled_servers,
    left_journals,
    undo_left,
    whose,
)
from autotest.servers.testbed import Servers

REPOSITORY = Path(__file__).resolve().parents[2]
_KILLED = """
import os, signal, sys
from pathlib import Path
from autotest.config.testbed import load_testbed
from autotest.interfaces import INTERFACE_KINDS
from autotest.run.opening import open_testbed
from autotest.servers.guest import GuestSettings

with open_testbed(load_testbed(Path(sys.argv[1]), Path(".")), exclusive=True) as servers, servers.journal.scope():
    servers.host.networks_up(GuestSettings("pcvm", INTERFACE_KINDS["bridge"], ""))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def ip(netns: str, *arguments: str) -> str:
    return subprocess.run(["ip", "-n", netns, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def testbed(netns: str, tmux_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    ip(netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer")
    ip(netns, "link", "set", "dev", "peer", "up")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    socket = f"{tmux_socket}-{os.getpid()}"
    (tmp_path / "autotest.conf").write_text(
        f"[host]\nfqdn = localhost\nnetns = {netns}\ntmux_socket = {socket}\ntest_iface = nic\ntest_bridge = br\ntest_tap = tap\n"
        "admin_bridge = adm\nadmin_tap = admtap\nadmin_bridge_ip_net = 10.9.0.1/24\ntest_macvtap = mvt\n"
        "[guest]\nfqdn = 10.9.0.2\nadmin_iface_mac = 52:54:00:fa:00:5f\ntest_iface_mac = 52:54:00:fa:00:60\n"
        f"[loadgen]\nfqdn = localhost\nnetns = {netns}\n"
    )
    yield load_testbed(tmp_path / "autotest.conf", REPOSITORY)
    shutil.rmtree(Path("/run/autotest", os.path.basename(socket)), ignore_errors=True)


def links(netns: str | None) -> set[str]:
    """The links of the namespace; those that are up end with an exclamation mark."""
    shown = json.loads(ip(str(netns), "-json", "link", "show"))
    return {link["ifname"] + "!" * ("UP" in link["flags"]) for link in shown}


BEFORE = {"lo!", "nic", "peer!"}
UNDONE = [
    "host: forwarding tap: removed", "host: link tap: deleted", "host: link admtap: deleted", "host: neighbour adm: removed",
    "host: up nic: taken down again", "host: port nic: released", "host: link br: deleted", "host: address adm: removed",
    "host: link adm: deleted",
]  # fmt: skip


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def left_by(testbed: Testbed, dead: int) -> Callable[..., Path]:
    """Makes the journal that a run left, which did the work and then ended; it says since when it ran, and as what."""

    def make(work: Callable[[Servers], object], since: str = "2026-01-01T00:00:00+00:00", **who: object) -> Path:
        before = set(journal_folder(testbed).glob("*"))
        with journaled_servers(testbed) as servers:
            work(servers)
        (path,) = set(journal_folder(testbed).glob("*")) - before
        header, *changes = path.read_text().splitlines(keepends=True)
        ended = {**json.loads(header)["who"], "pid": dead, "since": since, **who}
        path.unlink()
        path = path.with_name(f"{since.replace(':', '')}-{dead}.journal")
        path.write_text(json.dumps({**json.loads(header), "who": ended}) + "\n" + "".join(changes))
        return path

    return make


def nic_up(servers: Servers) -> None:
    servers.host.links.up("nic")


def bridge(name: str) -> Callable[[Servers], None]:
    return lambda servers: servers.host.links.add_bridge(name)


# -- the commands ------------------------------------------------------------------------------------------


def run(testbed: Testbed, *arguments: str, code: int = 0) -> tuple[list[str], list[str]]:
    """Run autotest; returns the lines that it printed and those that it logged, without the time."""
    command = [sys.executable, "-m", "autotest", "-c", str(testbed.file), *arguments]
    environment = os.environ | {"NO_COLOR": "1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=30, env=environment, cwd=testbed.file.parent
    )
    assert ended.returncode == code, ended.stderr
    return ended.stdout.splitlines(), [re.sub(r"^[-\d]+ [:,\d]+ ", "", line) for line in ended.stderr.splitlines()]


def test_a_start_says_that_it_recovers_from_a_dead_run_and_recover_undoes_what_there_is_and_may_be_repeated(
    testbed: Testbed,
) -> None:
    netns = testbed.host.netns
    killed = subprocess.Popen([sys.executable, "-c", _KILLED, str(testbed.file)], cwd=REPOSITORY)
    assert killed.wait(20) == -9
    with_networks = BEFORE ^ {"nic", "nic!", "br!", "tap!", "adm!", "admtap!"}
    assert links(netns) == with_networks
    printed, logged = run(testbed, "setup-network", "-i", "macvtap")
    assert printed == ["networks for interface macvtap are up"]
    (says,) = [line for line in logged if line.startswith("WARNING recovering: ")]
    at = logged.index(says)
    assert f", process {killed.pid} (autotest " in says and says.endswith(" ended before it undid its changes")
    assert logged[at + 1 :] == [f"undone: {line}" for line in UNDONE]
    assert any("held by" in line and f"process {killed.pid} " in line for line in logged[:at])
    assert links(netns) == with_networks ^ {"br!", "tap!", "mvt!"}

    printed, logged = run(testbed, "recover")
    assert printed[0] == "host: link mvt: deleted" and "host: up nic: taken down again" in printed[1:]
    assert logged[0] == "undoing what autotest setup-network -i macvtap set up"
    assert links(netns) == BEFORE
    assert run(testbed, "recover") == (["nothing was left to undo"], [])
    assert not journal_folder(testbed).exists()


def test_any_start_that_is_to_change_the_testbed_recovers_before_it_changes_anything(
    testbed: Testbed, left_by: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = left_by(nic_up, user="erika", command="autotest lab up")
    with open_testbed(testbed) as servers:
        assert "nic!" in links(testbed.host.netns)
    with open_testbed(testbed, exclusive=True) as servers:
        assert links(testbed.host.netns) == BEFORE and not path.exists() and not servers.journal.standing
    assert "recovering: erika@" in caplog.text and "(autotest lab up) since 2026-01-01T00:00:00+00:00 ended before" in caplog.text


def test_recover_keeps_away_from_a_testbed_that_is_in_use(testbed: Testbed) -> None:
    with open_testbed(testbed, exclusive=True) as servers, servers.journal.scope():
        servers.host.links.up("nic")
        printed, logged = run(testbed, "recover", code=3)
        assert printed == [] and f"process {os.getpid()} " in logged[0] and "in use" in logged[0]
        assert "nic!" in links(testbed.host.netns)


def test_what_cannot_be_undone_is_an_error_until_it_is_forgotten_and_the_rest_is_undone_and_said(
    testbed: Testbed, left_by: Callable[..., Path]
) -> None:
    def work(servers: Servers) -> None:
        nic_up(servers)
        servers.host.note("teleport", name="x")
        bridge("br")(servers)

    path = left_by(work)
    printed, logged = run(testbed, "recover", code=3)
    assert printed == [] and links(testbed.host.netns) == BEFORE
    undone = [line for line in logged if "undone" in line]
    assert undone == ["undone: host: link br: deleted", "undone: host: up nic: taken down again"]
    assert any(line.startswith("ERROR cannot undo host: teleport x") for line in logged)
    assert [change.kind for change in read_journal(path).changes] == ["teleport"]
    _, logged = run(testbed, "recover", "--forget")
    assert any("cannot undo host: teleport x" in line for line in logged)
    assert not path.exists()


@pytest.mark.parametrize(
    "content", ["", '{"version": 1}\n', '{"version": 1, "who": {"pid": 5}}\n', '{"version": 1}\nx\n', "\0\0\n"]
)
def test_a_damaged_journal_is_one_clear_error(testbed: Testbed, left_by: Callable[..., Path], content: str) -> None:
    path = left_by(nic_up)
    path.write_text(content)
    with pytest.raises(TestbedError, match=re.escape(str(path))):
        undo_what_is_left(testbed, kept=True)
    assert path.exists() and "nic!" in links(testbed.host.netns)


# -- which journals ----------------------------------------------------------------------------------------


def test_a_living_process_keeps_its_journal(testbed: Testbed, left_by: Callable[..., Path]) -> None:
    with journaled_servers(testbed) as servers, servers.journal.scope():
        nic_up(servers)
        assert left_journals(testbed) == [] and undo_what_is_left(testbed, kept=True) == []
        assert "nic!" in links(testbed.host.netns)


def test_a_process_that_has_the_number_of_a_dead_one_by_now_does_not_keep_its_journal(
    testbed: Testbed, left_by: Callable[..., Path]
) -> None:
    left_by(nic_up, pid=os.getpid(), start=1)
    assert undo_what_is_left(testbed, kept=True) == ["host: up nic: taken down again"]


@pytest.mark.parametrize("machine", ["this", "another"])
def test_what_an_earlier_boot_of_this_machine_or_another_one_left_is_found(
    testbed: Testbed, left_by: Callable[..., Path], machine: str
) -> None:
    left_by(nic_up, pid=os.getpid(), **({"machine_boot": "an earlier one"} if machine == "this" else {"machine": "far"}))
    assert undo_what_is_left(testbed, kept=True) == ["host: up nic: taken down again"]


def test_the_journal_of_another_testbed_stays(testbed: Testbed, left_by: Callable[..., Path]) -> None:
    path = left_by(nic_up)
    changes: list[dict[str, Any]] = [{"tmux_socket": "other"}, {"fqdn": "far.example"}, {"netns": "other"}]
    for change in changes:
        other = dataclasses.replace(testbed, host=dataclasses.replace(testbed.host, **change))
        assert left_journals(other) == []
    assert path.exists() and len(left_journals(testbed)) == 1


def test_a_testbed_whose_other_servers_have_changed_is_the_same_testbed(testbed: Testbed, left_by: Callable[..., Path]) -> None:
    left_by(nic_up)
    changed = dataclasses.replace(testbed, file=Path("other.conf"), loadgen=LoadGenConfig(fqdn="localhost", netns="other"))
    assert undo_what_is_left(changed, kept=True) == ["host: up nic: taken down again"]


def test_this_machine_is_another_testbed_on_each_machine_that_shares_the_home(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = dataclasses.replace(
        testbed,
        host=dataclasses.replace(testbed.host, fqdn="far.example"),
        loadgen=dataclasses.replace(testbed.loadgen, fqdn="far.example"),
    )
    folders = journal_folder(testbed), journal_folder(far)
    who = recovery.this_process()
    monkeypatch.setattr(recovery, "this_process", lambda: who | {"machine": "another"})
    assert journal_folder(testbed) != folders[0] and journal_folder(far) == folders[1]


def test_the_journals_are_undone_from_the_last_one_on(testbed: Testbed, left_by: Callable[..., Path]) -> None:
    for since, name in (("2026-01-03", "b3"), ("2026-01-01", "b1"), ("2026-01-02", "b2")):
        left_by(bridge(name), f"{since}T00:00:00+00:00")
    assert [whose(left).rpartition(" since ")[2][:10] for left in left_journals(testbed)] == [
        "2026-01-03",
        "2026-01-02",
        "2026-01-01",
    ]
    assert undo_what_is_left(testbed, kept=False) == [f"host: link {name}: deleted" for name in ("b3", "b2", "b1")]


def test_what_is_meant_to_stay_is_undone_only_when_it_is_in_the_way(
    testbed: Testbed, left_by: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    def kept(servers: Servers) -> None:
        with servers.journal.kept("setup-network -i bridge"):
            nic_up(servers)

    caplog.set_level(logging.INFO)
    path = left_by(kept)
    assert undo_what_is_left(testbed, kept=False) == []
    assert undo_what_is_left(testbed, kept=True, interface=INTERFACE_KINDS["macvtap"]) == []
    assert path.exists() and "nic!" in links(testbed.host.netns) and caplog.text == ""
    assert undo_what_is_left(testbed, kept=True, interface=INTERFACE_KINDS["bridge"]) == ["host: up nic: taken down again"]
    assert "undoing what autotest setup-network -i bridge set up" in caplog.text and "recovering" not in caplog.text


# -- what cannot be undone ---------------------------------------------------------------------------------


def test_an_interrupted_recovery_forgets_nothing(
    testbed: Testbed, left_by: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(servers: Servers, change: Change) -> None:
        raise KeyboardInterrupt

    def work(servers: Servers) -> None:
        nic_up(servers)
        bridge("br")(servers)

    path = left_by(work)
    with monkeypatch.context() as patch:
        patch.setattr(Servers, "undo", interrupted)
        with pytest.raises(KeyboardInterrupt):
            undo_left(testbed, read_journal(path), forget=True)
    assert len(read_journal(path).changes) == 2
    assert undo_left(testbed, read_journal(path)) == ["host: link br: deleted", "host: up nic: taken down again"]


def test_a_server_that_cannot_be_reached_keeps_its_changes_and_no_others(testbed: Testbed, left_by: Callable[..., Path]) -> None:
    def work(servers: Servers) -> None:
        nic_up(servers)
        servers.journal.note("loadgen", "xdp", details={"name": "eth1", "mode": "xdpgeneric"})

    path = left_by(work)
    header, rest = path.read_text().split("\n", 1)
    way = json.loads(header)["way"]
    way["loadgen"] |= {"fqdn": "gone", "ssh_config": str(testbed.file.parent / "ssh_config")}
    (testbed.file.parent / "ssh_config").write_text("Host gone\n  HostName 127.0.0.1\n  Port 1\n")
    path.write_text(json.dumps({**json.loads(header), "way": way}) + "\n" + rest)
    with pytest.raises(UndoFailed, match="loadgen: xdp eth1: loadgen: cannot connect to .* port 1: Connection refused"):
        undo_left(testbed, read_journal(path))
    assert links(testbed.host.netns) == BEFORE
    assert [change.server for change in read_journal(path).changes] == ["loadgen"]


def test_what_was_changed_in_a_guest_that_is_gone_is_nothing_to_undo(testbed: Testbed, left_by: Callable[..., Path]) -> None:
    def work(servers: Servers) -> None:
        nic_up(servers)
        servers.journal.note("guest", "xdp", details={"name": "eth1", "mode": "xdpgeneric"})

    path = left_by(work)
    assert undo_left(testbed, read_journal(path)) == ["host: up nic: taken down again"]
    assert not path.exists()


@pytest.mark.parametrize("way", [None, 5, {}, {"host": {}}, {"host": {"no such key": 1}, "guest": {}, "loadgen": {}}])
def test_a_journal_that_does_not_tell_how_its_servers_were_reached_is_an_error(
    testbed: Testbed, left_by: Callable[..., Path], way: object
) -> None:
    left = read_journal(left_by(nic_up))
    left.header = {**left.header, "way": way}
    with pytest.raises(TestbedError, match="does not tell how the servers were reached"):
        undo_left(testbed, left)
    assert left.path.exists()
