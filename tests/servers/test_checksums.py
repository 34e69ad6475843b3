"""Checksums of what a measurement runs: real files and folders on this machine."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hostile import FakeMachine, answers
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.config.testbed import ServerConfig
from autotest.errors import AutotestError
from autotest.remote.local import LocalTransport
from autotest.remote.transport import Result
from autotest.servers.checksums import (
    file_checksum,
    file_inode,
    generator_checksum,
    program_checksum,
)
from autotest.servers.server import Server

pytestmark = pytest.mark.default


class Counting(LocalTransport):
    """This machine; counts how often a checksum is really made there."""

    sums = 0

    def run(self, command: Sequence[str], **options: Any) -> Result:  # type: ignore[override]
        self.sums += command[0] == "sha256sum"
        return super().run(command, **options)


def server_with(tmp_path: Path, **keys: Any) -> Server:
    server = Server("host", ServerConfig(fqdn="localhost", **keys), Counting("host"))
    memory = tmp_path / "memory"
    memory.mkdir(exist_ok=True)
    server.__dict__["memory_dir"] = str(memory)  # not that of the machine
    return server


def sums(server: Server) -> int:
    assert isinstance(server.transport, Counting)
    return server.transport.sums


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", ["guest.qcow2", "-", "-n", "a b'c", "back\\slash", "new\nline", "$(touch pwned)", "ü"])
def test_a_file_is_summed_once_whatever_its_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"image")
    server = server_with(tmp_path)
    path = str(tmp_path / name)
    assert [file_checksum(server, path) for _ in range(3)] == [sha256(b"image")] * 3
    assert sums(server) == 1
    assert file_checksum(server_with(tmp_path), path) == sha256(b"image")  # another run, the same boot


def test_a_file_that_changes_in_any_way_is_summed_again(tmp_path: Path) -> None:
    server, path = server_with(tmp_path), tmp_path / "image"
    path.write_bytes(b"one")
    assert file_checksum(server, str(path)) == sha256(b"one")
    times = os.stat(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the same size and time of modification, as cp -p leaves it
    assert file_checksum(server, str(path)) == sha256(b"two")
    other = tmp_path / "other"
    other.write_bytes(b"six")
    os.replace(other, path)
    assert file_checksum(server, str(path)) == sha256(b"six")


def test_a_link_that_points_elsewhere_is_another_file(tmp_path: Path) -> None:
    server, link = server_with(tmp_path), tmp_path / "current"
    for version in ("1", "2"):
        (tmp_path / version).write_text(version)
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / version)
        assert file_checksum(server, str(link)) == sha256(version.encode())
        assert file_inode(server, str(link)) == f"{tmp_path / version} (inode {os.stat(link).st_ino})"


def test_what_is_no_file_has_no_checksum(tmp_path: Path) -> None:
    server = server_with(tmp_path)
    for path in (tmp_path / "missing", tmp_path):
        assert file_checksum(server, str(path)) is None
    assert file_inode(server, str(tmp_path / "missing")) is None


@pytest.mark.parametrize("content", ["", "garbage", "1 2 3 4 xyz", "\0"])
def test_a_damaged_memory_is_not_believed(tmp_path: Path, content: str) -> None:
    (tmp_path / "f").write_text("content")
    server = server_with(tmp_path)
    file_checksum(server, str(tmp_path / "f"))
    (remembered,) = (tmp_path / "memory").iterdir()
    remembered.write_text(content)
    assert file_checksum(server, str(tmp_path / "f")) == sha256(b"content")


def moongen(folder: Path) -> None:
    for name in ("build/MoonGen", "lua/main.lua", "libmoon/lua/device.lua", "examples/x.lua"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_moongen_is_its_binary_and_its_own_lua_files(tmp_path: Path) -> None:
    folder = tmp_path / "it's MoonGen"
    moongen(folder)
    server = server_with(tmp_path, moongen_dir=str(folder), moonprogs_dir="/elsewhere")
    first = generator_checksum(server, tmp_path)
    assert first
    (folder / "examples/x.lua").write_text("changed")
    assert generator_checksum(server, tmp_path) == first
    for name in ("build/MoonGen", "lua/main.lua", "libmoon/lua/device.lua"):
        before = generator_checksum(server, tmp_path)
        (folder / name).write_text("changed")
        assert generator_checksum(server, tmp_path) != before
    assert generator_checksum(server, tmp_path, is_there=False) is None


def test_a_moongen_that_is_not_there_has_no_checksum(tmp_path: Path) -> None:
    assert generator_checksum(server_with(tmp_path, moongen_dir=str(tmp_path / "missing")), tmp_path) is None
    assert generator_checksum(server_with(tmp_path), tmp_path) is None


def test_what_a_set_up_uploads_is_summed_here_and_there_to_the_same(tmp_path: Path) -> None:
    local = tmp_path / "moonprogs"
    moongen(local / "softmoon")
    there = server_with(tmp_path, moongen_dir="/there/moonprogs/softmoon", moonprogs_dir="/there/moonprogs")
    here = server_with(tmp_path, moongen_dir=str(local / "softmoon"), moonprogs_dir="/elsewhere")
    found = generator_checksum(there, local, is_there=False)
    assert found is not None and found == generator_checksum(here, tmp_path / "no programs")


def test_a_program_is_what_it_loads_too_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text("local mg = require 'moongen'\nlocal t = require(\"my.task\")\n")
    (tmp_path / "my").mkdir()
    (tmp_path / "my/task.lua").write_text('require "main" require "options"')
    (tmp_path / "options.lua").write_text("")
    (tmp_path / "other.lua").write_text("")
    first = program_checksum(tmp_path, "main.lua")
    (tmp_path / "other.lua").write_text("changed")
    assert program_checksum(tmp_path, "main.lua") == first
    for name in ("main.lua", "my/task.lua", "options.lua"):
        before = program_checksum(tmp_path, "main.lua")
        (tmp_path / name).write_text((tmp_path / name).read_text() + " -- changed")
        assert program_checksum(tmp_path, "main.lua") != before
    assert program_checksum(tmp_path, "missing.lua") is None


def test_our_programs_are_found_with_all_that_they_load(repository: Path, tmp_path: Path) -> None:
    program = "l2-load-latency.lua"
    used = [path.name for path in (repository / "moonprogs").glob("load-*.lua")]
    assert len(used) > 2
    for name in (program, *used):
        (tmp_path / name).write_bytes((repository / "moonprogs" / name).read_bytes())
    whole = program_checksum(repository / "moonprogs", program)
    assert program_checksum(tmp_path, program) == whole
    for name in used:
        (tmp_path / name).unlink()
        assert program_checksum(tmp_path, program) != whole


def test_storage_that_hangs_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "sha256sum").write_text("#!/bin/sh\nexec sleep 30\n")
    (slow / "sha256sum").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    monkeypatch.setattr("autotest.servers.checksums._LEAST_TIMEOUT", 0.3)
    (tmp_path / "f").write_text("x")
    with pytest.raises(AutotestError, match="did not end within"):
        file_checksum(server_with(tmp_path), str(tmp_path / "f"))


@settings(max_examples=examples(200))
@given(st.lists(answers | st.sampled_from(["12 5 1.000000000 1.000000000\n", f"{'a' * 64}  x\n"]), min_size=8, max_size=8))
def test_whatever_a_machine_answers_there_is_a_checksum_none_or_an_error_of_ours(given_answers: list[str]) -> None:
    left = iter(given_answers)
    server = Server("host", ServerConfig(fqdn="far", moongen_dir="/m"), FakeMachine(lambda command: next(left)))
    server.__dict__["memory_dir"] = "/memory"
    for ask in (lambda: file_checksum(server, "f"), lambda: generator_checksum(server, Path("/nowhere"))):
        try:
            found = ask()
        except AutotestError:
            continue
        assert found is None or re.fullmatch("[0-9a-f]{64}", found)
    with suppress(AutotestError):
        file_inode(server, "f")


@pytest.mark.parametrize("name", ["-", "sub", "--help"])
def test_a_path_that_is_not_absolute_is_only_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "elsewhere/sub/lua").mkdir(parents=True)
    (tmp_path / "elsewhere/sub/lua/x.lua").write_text("")
    monkeypatch.setenv("CDPATH", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    server = server_with(tmp_path, moongen_dir=name)
    assert generator_checksum(server, tmp_path) is None and file_checksum(server, name) is None
    (tmp_path / name).write_bytes(b"here")
    assert file_checksum(server, name) == sha256(b"here")
