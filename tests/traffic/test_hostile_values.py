"""What becomes Lua is read back as it was; what becomes an argument of a generator stays one; and any output can be read."""

from __future__ import annotations

import posixpath
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from examples import examples
from hostile import HOSTILE, FakeMachine, answers, texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotest.config.testbed import ServerConfig
from autotest.errors import AutotestError, TrafficError
from autotest.remote.transport import to_bytes
from autotest.servers.server import Server
from autotest.traffic.dpdk import (
    DpdkNic,
    interface_config,
    lua_string,
    nic_config,
    nic_of,
)
from autotest.traffic.moongen import MoonGen
from autotest.traffic.reflectors import REFLECTOR_KINDS, XDP_OBJECT

FIXTURES = [HealthCheck.function_scoped_fixture]
IN_LUA = [
    *HOSTILE,
    "]]",
    "[[",
    "--[[",
    "]]--",
    '"..os.execute("touch pwned").."',
    '\\"',
    "\\\\",
    "\\0651",
    "\r",
    "\n\r",
    "\x1a",
    "\x00",
]

#: Loads a configuration as MoonGen and softmoon do, and prints what it gets, each byte as a number.
PRINT = """
local function show(text) print((text:gsub(".", function(c) return string.format("%02x", c:byte()) end))) end
function DPDKConfig(given) for _, option in ipairs(given.cli) do show(option) end end
dofile(arg[1])
"""


def read_by_luajit(folder: Path, content: str) -> list[bytes]:
    (folder / "print.lua").write_text(PRINT)
    (folder / "config.lua").write_bytes(content.encode())
    command = ["luajit", "print.lua", "config.lua"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{ended.stderr}\n{content}"
    return [bytes.fromhex(line) for line in ended.stdout.split("\n")[:-1]]


@pytest.mark.default
@settings(max_examples=examples(15), suppress_health_check=FIXTURES)
@given(st.lists(st.one_of(texts, st.sampled_from(IN_LUA), st.text(st.characters(exclude_categories=["Cs"]))), max_size=30))
def test_luajit_reads_each_string_back_as_it_was(tmp_path: Path, values: list[str]) -> None:
    content = "DPDKConfig { cli = { " + ", ".join(map(lua_string, values)) + " } }"
    assert read_by_luajit(tmp_path, content) == [to_bytes(value) for value in values]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.default
def test_luajit_reads_every_hostile_value_and_every_byte_back(tmp_path: Path) -> None:
    values = [*IN_LUA, *(bytes([byte]).decode("utf-8", "surrogateescape") + "1" for byte in range(256))]
    content = "DPDKConfig { cli = { " + ", ".join(map(lua_string, values)) + " } }"
    assert content.isascii() and content.isprintable()
    assert read_by_luajit(tmp_path, content) == [to_bytes(value) for value in values]


@pytest.mark.default
@pytest.mark.parametrize("folder", ["/o'e\"x", '/a\nlocal given = { nic = "0000:66:00.0", mac = "", ', "/$(x) `y`", "/üñ\\"])
def test_the_folder_of_an_installation_is_only_a_name_in_the_file_for_a_nic(tmp_path: Path, folder: str) -> None:
    nic = DpdkNic("0000:18:00.1", "64:9d:99:b1:0b:62")
    content = nic_config(nic, folder, [512])
    (tmp_path / "config.lua").write_text(content.splitlines()[0] + "\nDPDKConfig { cli = { given.folder, given.nic } }")
    assert read_by_luajit(tmp_path, (tmp_path / "config.lua").read_text()) == [to_bytes(folder), b"0000:18:00.1"]
    machine = FakeMachine()
    machine.files["/run/autotest/autotest/nic-loadgen.lua"] = content
    assert nic_of(server(machine)) == nic


@settings(max_examples=examples(150))
@given(texts)
def test_an_interface_is_only_a_name_to_dpdk_or_is_refused(name: str) -> None:
    try:
        written = interface_config(name, f"autotest-{name}")
    except TrafficError as error:
        assert "DPDK takes no interface named" in str(error)
        assert not name or set(name) & set(",=[]()") or any(char.isspace() for char in name)
        return
    # rte_kvargs.c: pairs at commas, and in each the key to the first equals sign.
    assert f'"net_af_packet0,iface={lua_string(name)[1:-1]},qpairs=2"' in written
    assert not set(name) & set(",=")


@pytest.mark.default
@pytest.mark.parametrize("name", ["$x`y`", 'e"th', "-x", "a;b", "\\n", "üñ", "{a}", "'", "\x01"])
def test_the_whole_file_is_read_back_and_softmoon_finds_the_interface(tmp_path: Path, repository: Path, name: str) -> None:
    options = read_by_luajit(tmp_path, interface_config(name, f"autotest-{name}"))
    assert options[-1] == to_bytes(f"net_af_packet0,iface={name},qpairs=2") and to_bytes(f"autotest-{name}") in options
    script = f"package.path = '{repository}/moonprogs/softmoon/lua/?.lua'; io.write(require('softmoon.config').read(arg[1])[1])"
    (tmp_path / "find.lua").write_text(script)
    found = subprocess.run(["luajit", "find.lua", "config.lua"], cwd=tmp_path, capture_output=True, check=True).stdout
    assert found == to_bytes(name)


# -- commands ----------------------------------------------------------------------------------------------


def server(machine: FakeMachine, folder: str = "/moongen") -> Server:
    config = ServerConfig(fqdn="far", test_iface="nic", moongen_dir=folder, moonprogs_dir="/progs", xdp_reflector_dir=folder)
    return Server("loadgen", config, machine)


@settings(max_examples=examples(100))
@given(st.lists(texts, max_size=4), st.sampled_from(["1", "2"]), texts)
def test_arguments_of_a_program_stay_as_they_are(arguments: list[str], left: str, folder: str) -> None:
    machine = FakeMachine(lambda command: f"{left}\n" if command[0] == "sh" and "-x" in command[2] else "")
    command = MoonGen(server(machine, f"/{folder}")).command("x.lua", arguments)
    binary = {"2": "build/MoonGen", "1": "bin/MoonGen"}[left]
    assert command[0] == posixpath.join(f"/{folder}", binary)
    assert command[1:] == ["/progs/x.lua", "--dpdk-config=/run/autotest/autotest/dpdk-nic.lua", "0", *arguments]


@settings(max_examples=examples(150))
@given(answers)
def test_a_path_that_the_server_tells_is_never_run(answer: str) -> None:
    machine = FakeMachine(lambda command: answer if command[0] == "sh" and "-x" in command[2] else "")
    try:
        command = MoonGen(server(machine)).command("x.lua", [])
    except TrafficError as error:
        assert "holds neither" in str(error)
        return
    assert command[0] in ("/moongen/build/MoonGen", "/moongen/bin/MoonGen")


def started(machine: FakeMachine) -> list[str]:
    """The command that was started in tmux."""
    return next(command for command in machine.commands if "new-session" in command)


def test_only_the_very_placeholder_stands_for_a_file(tmp_path: Path) -> None:
    def answer(command: Sequence[str]) -> str | int:
        if command[0] == "sh" and "-x" in command[2]:
            return "1"
        return 1 if "has-session" in command or command[0] == "test" else ""

    machine = FakeMachine(answer)
    given_ = ["{file}", "{filex", "{file}}", "x{file}", "{other}", "{", "{}"]
    with suppress(AutotestError):  # nothing runs there
        MoonGen(server(machine)).run("x.lua", given_, fetch={"file": tmp_path / "f"}, seconds=0, timeout=0)
    path, *others = started(machine)[-len(given_) :]
    assert path.startswith("/run/autotest/autotest/x-") and path.endswith(".file") and others == given_[1:]


@pytest.mark.parametrize(
    "program", ["../x.lua", "a b.lua", "#(touch pwned).lua", "a.b.lua", "-x.lua", "x\n.lua", "/etc/x.lua", ""]
)
def test_a_program_whose_name_is_more_than_a_name_is_not_run(program: str) -> None:
    machine = FakeMachine()
    with pytest.raises(AutotestError, match="cannot be the name of a tmux session"):
        MoonGen(server(machine)).start(program, [], "ready", 1)
    assert not [command for command in machine.commands if "new-session" in command]


@settings(max_examples=examples(100))
@given(texts)
def test_the_object_file_of_the_xdp_reflector_is_one_argument(folder: str) -> None:
    machine = FakeMachine(lambda command: '[{"ifname": "nic", "flags": ["UP", "LOWER_UP"]}]' if "show" in command else "")
    REFLECTOR_KINDS["xdp"].up(server(machine, f"/{folder}"), "nic")
    loads = [command for command in machine.commands if "obj" in command]
    assert [command[command.index("obj") + 1] for command in loads] == [posixpath.join(f"/{folder}", XDP_OBJECT)]
    assert all(len(command) == 10 for command in loads)
