"""QMP against a real QEMU without a machine."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotest.errors import ConnectError, QemuError
from autotest.qemu import qmp
from autotest.qemu.accelerator import choose
from autotest.remote.local import LocalTransport
from autotest.remote.wait import wait_for

pytestmark = pytest.mark.default

HERE = LocalTransport("host")


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    path = str(tmp_path / "qmp")
    arguments = ["-machine", "none", "-display", "none", "-nodefaults", "-qmp", f"unix:{path},server=on,wait=off"]
    process = subprocess.Popen(["qemu-system-x86_64", *arguments], stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: qmp.is_listening(HERE, path), "QEMU", 10, 0.02)
        yield process, path
    finally:
        process.kill()
        process.wait()


def test_status_and_quit(qemu: tuple[subprocess.Popen[bytes], str]) -> None:
    process, path = qemu
    with qmp.connect(HERE, path) as control:
        assert control.status() == "running"
        control.command("stop")
        assert control.status() == "paused"
        control.command("quit")
    assert process.wait(5) == 0
    assert not qmp.is_listening(HERE, path)


def test_connections_follow_one_another(qemu: tuple[subprocess.Popen[bytes], str]) -> None:
    for _ in range(5):
        with qmp.connect(HERE, qemu[1]) as control:
            assert control.status() == "running"


def test_a_command_that_qemu_refuses_is_an_error_with_its_reason(qemu: tuple[subprocess.Popen[bytes], str]) -> None:
    with qmp.connect(HERE, qemu[1]) as control:
        with pytest.raises(QemuError, match="QMP no-such.*not.*found"):
            control.command("no-such")
        assert control.status() == "running"


def test_a_qemu_that_dies_under_us_is_an_error_of_ours(qemu: tuple[subprocess.Popen[bytes], str]) -> None:
    process, path = qemu
    with qmp.connect(HERE, path) as control:
        process.kill()
        process.wait()
        with pytest.raises(QemuError):
            control.status()


def test_nobody_and_somebody_else_on_the_socket_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qmp, "_TIMEOUT", 0.3)
    path = str(tmp_path / "s")
    with pytest.raises(ConnectError, match="host"):
        with qmp.connect(HERE, path):
            pass
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()  # connects, but never says anything
        start = time.monotonic()
        with pytest.raises(QemuError, match="host"):
            with qmp.connect(HERE, path):
                pass
        assert time.monotonic() - start < 2
    assert not qmp.is_listening(HERE, path)


def test_tcg_is_taken_without_a_question_and_a_remembered_answer_without_a_boot(tmp_path: Path) -> None:
    assert choose("tcg", HERE, "no-such-qemu", None, str(tmp_path)) == "tcg"
    assert not list(tmp_path.iterdir())
