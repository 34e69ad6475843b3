"""The device file of a macvtap where the kernel made none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from autotest.config.testbed import HostConfig
from autotest.network.links import Links
from autotest.servers.macvtap import macvtap_opener
from autotest.servers.server import Server

NODE = Path("/dev/autotest-no-such-macvtap")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Server:
    """One whose macvtap has the numbers of /dev/null, and no file."""
    monkeypatch.setattr(Links, "macvtap_device", lambda self, name: ("/dev/no-such-tap", 1, 3))
    return Server("host", HostConfig(fqdn="localhost"))


@pytest.mark.default
def test_it_is_there_until_qemu_has_opened_it(host: Server) -> None:
    with macvtap_opener(host, "no-such-macvtap", 2) as opener:
        status = NODE.stat()
        assert stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3)
        assert opener[-3:] == [str(NODE), "9", "2"]
    assert not NODE.exists()
    assert host.journal.standing == ()


@pytest.mark.default
def test_what_is_started_meanwhile_stays(host: Server, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with macvtap_opener(host, "no-such-macvtap", 1):
        host.note("file", path=str(started))
        started.touch()
    assert started.exists()
    assert [change.details["path"] for change in host.journal.standing] == [str(started)]


@pytest.mark.default
def test_a_qemu_that_does_not_start_leaves_none(host: Server) -> None:
    with pytest.raises(RuntimeError), macvtap_opener(host, "no-such-macvtap", 1):
        raise RuntimeError
    assert not NODE.exists() and host.journal.standing == ()


def test_without_a_macvtap_nothing_is_put_in_front() -> None:
    with macvtap_opener(Server("host", HostConfig(fqdn="localhost")), None, 1) as opener:
        assert opener == []
