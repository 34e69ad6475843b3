"""The file that gives MoonGen one NIC, run by LuaJIT as libmoon runs it: what the installation says of itself must hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotest.traffic.dpdk import DpdkNic, interface_config, nic_config

pytestmark = pytest.mark.default

NIC = DpdkNic("0000:18:00.1", "64:9d:99:b1:0b:62")
OURS = ["--file-prefix=autotest-0000-18-00.1"]
MEMORY = ["--socket-mem=512,512", "--huge-unlink"]

# libmoon's lua/dpdk.lua, as far as it reads a configuration; one line for each key, tables with all their values.
LIBMOON = """
package.preload.dpdkc = function() return {} end
package.preload.libmoon = function() return { config = { basePath = BASE } } end
local cfg
local chunk = assert(loadfile("given.lua"))
setfenv(chunk, setmetatable({ DPDKConfig = function(arg) cfg = arg end }, { __index = _G }))
local ok, err = pcall(chunk)
if not ok then
	print("Could not load DPDK config: " .. err)
	os.exit(1)
end
for key, value in pairs(cfg) do
	print(key, type(value) == "table" and table.concat(value, " ") or tostring(value))
end
"""


def read(folder: Path, base: str = "nil", code: int = 0, without: str = "") -> str:
    script = LIBMOON.replace("BASE", base).replace(f"package.preload.{without} =", "local _ =")
    (folder / "libmoon.lua").write_text(script)
    (folder / "given.lua").write_text(nic_config(NIC, str(folder / "MoonGen"), [512, 512]))
    ended = subprocess.run(["luajit", "libmoon.lua"], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == code, f"{ended.stdout}{ended.stderr}"
    return ended.stdout


def settings(folder: Path, base: str = "nil") -> dict[str, str]:
    return dict(line.split("\t", 1) for line in read(folder, base).splitlines())


def installed(folder: Path, content: str, place: str = "MoonGen/libmoon") -> None:
    (folder / place).mkdir(parents=True)
    (folder / place / "dpdk-conf.lua").write_text(content)


def test_only_the_nic_is_allowed_and_its_files_and_memory_are_its_own(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found == {"pciWhitelist": NIC.address, "cli": " ".join([*OURS, *MEMORY])}


@pytest.mark.parametrize("place", ["MoonGen", "MoonGen/libmoon", "elsewhere"])
def test_what_the_installation_says_of_cores_and_memory_holds(tmp_path: Path, place: str) -> None:
    installed(tmp_path, 'DPDKConfig { cores = {2, 4}, sharedCores = 3, cli = { "--socket-mem", "64,0", "-n", "4" } }', place)
    base = f'"{tmp_path}/elsewhere"' if place == "elsewhere" else "nil"
    found = settings(tmp_path, base)
    assert found["cores"] == "2 4" and found["sharedCores"] == "3"
    assert found["cli"].split() == ["--socket-mem", "64,0", "-n", "4", *OURS, "--huge-unlink"]


def test_the_first_file_counts_as_it_does_where_moongen_is_started_in_its_folder(tmp_path: Path) -> None:
    installed(tmp_path, "DPDKConfig { sharedCores = 1 }", "MoonGen")
    installed(tmp_path, "DPDKConfig { sharedCores = 2 }", "MoonGen/libmoon")
    assert settings(tmp_path)["sharedCores"] == "1"


@pytest.mark.parametrize(
    "listed",
    [
        'pciWhitelist = {"0000:18:00.0"}', 'pciBlacklist = {"0000:18:00.1"}', 'cli = { "-w", "0000:18:00.0" }',
        'cli = { "-w0000:18:00.0", "-b", "0000:18:00.1" }', 'cli = { "-a0000:18:00.0", "--block=0000:18:00.1" }',
        'cli = { "--pci-whitelist", "0000:18:00.0", "--no-pci", "--file-prefix", "m1" }',
        'cli = { "--allow=0000:18:00.0", "--file-prefix=m1" }',
    ],
)  # fmt: skip
def test_other_nics_that_the_installation_lists_and_names_that_others_share_are_left_out(tmp_path: Path, listed: str) -> None:
    installed(tmp_path, f"DPDKConfig {{ {listed} }}")
    assert settings(tmp_path) == {"pciWhitelist": NIC.address, "cli": " ".join([*OURS, *MEMORY])}


def test_options_that_only_begin_alike_stay(tmp_path: Path) -> None:
    installed(tmp_path, 'DPDKConfig { cli = { "--vdev=net_null0", "--base-virtaddr", "0x100000000", "-v" } }')
    assert settings(tmp_path)["cli"].split()[:4] == ["--vdev=net_null0", "--base-virtaddr", "0x100000000", "-v"]


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ('"--no-huge", "-m", "256"', []), ('"--in-memory"', []), ('"-m", "256"', ["--huge-unlink"]),
        ('"-m256"', ["--huge-unlink"]), ('"--numa-mem=64"', ["--huge-unlink"]), ('"--huge-unlink"', MEMORY[:1]),
        ('"--huge-unlink=never"', MEMORY[:1]),
        ('"--single-file-segments"', MEMORY[:1]),
    ],
)  # fmt: skip
def test_memory_options_are_only_added_where_dpdk_takes_them_together(tmp_path: Path, options: str, added: list[str]) -> None:
    installed(tmp_path, f"DPDKConfig {{ cli = {{ {options} }} }}")
    words = settings(tmp_path)["cli"].split()
    assert words[words.index(OURS[0]) :] == [*OURS, *added]


def test_a_configuration_is_a_program_with_all_that_lua_has(tmp_path: Path) -> None:
    installed(tmp_path, "local n = tonumber('2')\nDPDKConfig { sharedCores = math.max(n, 1) }")
    assert settings(tmp_path)["sharedCores"] == "2"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("DPDKConfig { cores = ", "dpdk-conf.lua:1: unexpected symbol"), ("error('mine')", "mine"),
        ("cores = {1}", "dpdk-conf.lua does not contain a DPDKConfig statement"),
    ],
)  # fmt: skip
def test_a_broken_configuration_of_the_installation_ends_moongen_as_it_would_without_us(
    tmp_path: Path, content: str, says: str
) -> None:
    installed(tmp_path, content)
    assert says in read(tmp_path, code=1)


def test_a_runtime_without_dpdk_says_what_to_leave_out(tmp_path: Path) -> None:
    said = read(tmp_path, code=1, without="dpdkc")
    assert "has no DPDK, so it cannot drive 0000:18:00.1: leave test_iface_dpdk_driv out" in said


def test_softmoon_says_so_too(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "nic.lua").write_text(nic_config(NIC, "/opt", [512]))
    programs = repository / "moonprogs"
    command: list[str | Path] = [programs / "softmoon/bin/MoonGen", programs / "reflector.lua", "--dpdk-config=nic.lua", "0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode != 0 and "leave test_iface_dpdk_driv out" in ended.stdout + ended.stderr


def test_an_interface_of_the_kernel_is_port_0() -> None:
    assert interface_config('e"th0', "p") == (
        "DPDKConfig {\n"
        '  cli = { "--no-huge", "-m", "256", "--no-pci", "--file-prefix", "p", '
        '"--vdev", "net_af_packet0,iface=e\\"th0,qpairs=2" },\n'
        "}\n"
    )
