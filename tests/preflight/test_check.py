"""``autotest check``: the table, its exit codes, and what becomes of servers that are not reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import fake_qemu
import pytest
from junitparser import JUnitXml
from preflight_bed import Bed, ip

from autotest.cli.program import main
from autotest.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_TESTBED,
    EXIT_USAGE,
    TestbedError,
)
from autotest.servers import undoing
from autotest.servers.server import Server


class Checker:
    """Runs ``autotest check`` on the testbed, for tests where lists of them are given."""

    def __init__(self, bed: Bed, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.bed = bed
        self.folder = folder
        self._capsys = capsys
        self.err = ""

    def __call__(self, code: int, *options: str, **lists: str) -> str:
        (self.folder / "autotest.conf").write_text("".join(self._sections()))
        files = []
        if lists:
            values = {"interfaces": "bridge", "reflectors": "xdp", "rates": "10, 20", "sizes": "60", "runtimes": "1", **lists}
            values["outputdir"] = str(self.folder / "results")
            files = [str(self.folder / "tests.conf")]
            Path(files[0]).write_text("[test]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))
        ended = main(["-c", str(self.folder / "autotest.conf"), "check", *options, *files])
        output = self._capsys.readouterr()
        self.err = output.err
        assert ended == code, output.out + output.err
        return output.out

    def _sections(self) -> Iterator[str]:
        for name in ("host", "guest", "loadgen"):
            values = dataclasses.asdict(getattr(self.bed.testbed, name))
            lines = (
                f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in values.items() if value
            )
            yield "\n".join([f"[{name}]", *(line for line in lines if not line.endswith(")")), ""])


@pytest.fixture
def check(bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checker:
    return Checker(bed, tmp_path, capsys)


def test_without_tests_it_looks_at_what_every_test_needs(check: Checker) -> None:
    output = check(EXIT_OK)
    assert "pass  host     NIC " in output and "pass  loadgen  MoonGen " in output
    assert "QEMU" not in output and output.endswith("0 failed\n")


def test_with_tests_it_looks_at_just_what_they_need(check: Checker) -> None:
    output = check(EXIT_OK, machines="pcvm", interfaces="macvtap")
    assert "pass  host     QEMU default: device" in output and "macvtap" in output
    assert "e1000" not in output and "/dev/net/tun" not in output and "vhost" not in output
    assert output.endswith("0 failed; 2 trials can be measured\n")
    output = check(EXIT_OK, machines="host", interfaces="macvtap", reflectors="moongen, xdp")
    assert "QEMU" not in output and "files of the reflector" in output


def test_what_the_matrix_leaves_out_is_a_line_for_each_reason_below_the_table(check: Checker) -> None:
    output = check(EXIT_OK, machines="pcvm, microvm", interfaces="bridge-e1000, bridge-rtl8139", vhosts="no, yes")
    *table, vhost, bus, _ = [line for line in output.splitlines() if not line.startswith(" ")]
    assert vhost == "left out: 4 trials: vhost only with virtio over tap or macvtap (--dry-run shows which)"
    assert bus.startswith("left out: 8 trials: ") and "which microvm has not" in bus
    assert all(line[:4] in ("pass", "warn") for line in table)
    assert "left out" not in check(EXIT_OK, machines="pcvm") and "left out" not in check(EXIT_OK)


def test_some_blocked_cases_are_a_failure_and_all_of_them_an_unusable_testbed(check: Checker, tmp_path: Path) -> None:
    output = check(EXIT_FAILED, machines="pcvm", qemus="default:, gone:/no")
    assert "fail  host     QEMU gone" in output and "blocks 2 of 4 trials: qemu gone" in output
    assert output.endswith("1 failed; 2 of 4 trials cannot be measured\n")
    check(EXIT_TESTBED, machines="pcvm", qemus="gone:/no")
    assert not (tmp_path / "results").exists()


def test_a_nic_that_is_missing_is_a_failure_without_tests_too(check: Checker) -> None:
    check.bed.change(host={"test_iface": "eth9"})
    output = check(EXIT_TESTBED)
    assert "fail  host     NIC" in output and "-> correct test_iface" in output


@pytest.mark.parametrize("server", ["loadgen", "host"])
def test_a_server_that_is_not_reached_is_one_failure_and_the_other_is_looked_at(check: Checker, server: str) -> None:
    other = {"loadgen": "host", "host": "loadgen"}[server]
    check.bed.change(**{server: {"fqdn": "10.255.255.1"}})
    output = check(EXIT_TESTBED, machines="host")
    assert output.count("fail  ") == 1 and f"fail  {server:<7}  reached, as root" in output
    assert f"pass  {other:<7}  programs" in output and "blocks all 2 trials" in output
    assert f"pass  {server}" not in output and f"ssh_config of [{server}]" in output


def test_what_a_look_cannot_undo_is_the_end_and_is_tried_again(
    check: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = undoing._UNDOINGS["link"]
    tried: list[str] = []

    def stuck_at_first(server: Server, **details: str) -> str:
        tried.append(details["name"])
        if tried.count("tap") <= 2 and details["name"] == "tap":  # by the look itself
            raise TestbedError("not given back")
        return undo(server, **details)

    monkeypatch.setitem(undoing._UNDOINGS, "link", stuck_at_first)
    vmux = tmp_path / "vmux"
    vmux.write_text("#!/bin/sh\nexit 3\n")
    vmux.chmod(0o755)
    check.bed.change(host={"vmux_path": str(vmux), "vmux_qemu_path": fake_qemu.build(tmp_path, more=fake_qemu.VFIO_USER)})
    before = check.bed.links()
    assert check(EXIT_TESTBED, machines="pcvm", interfaces="vmux-emu") == ""
    assert "cannot undo host: link tap: not given back" in check.err
    assert check.bed.links() == before and tried.count("tap") == 3


def test_what_is_found_can_be_written_for_a_build_server(check: Checker, tmp_path: Path) -> None:
    file = tmp_path / "check.xml"
    check(EXIT_FAILED, "--junit", str(file), machines="pcvm", qemus="default:, gone:/no")
    (suite,) = JUnitXml.fromfile(str(file))
    assert suite.name == "autotest check" and suite.failures == 1 and suite.tests > 10
    (bad,) = [case for case in suite if case.result]
    assert bad.classname == "host" and bad.name == "QEMU gone" and "there is no such program" in bad.result[0].message


def test_bad_options_and_configurations_are_told_before_anything_is_looked_at(check: Checker, tmp_path: Path) -> None:
    assert check(EXIT_USAGE, "--junit", str(tmp_path / "check.txt")) == "" and "ends in .xml" in check.err
    check.bed.change(host={"test_bridge": None})
    assert check(EXIT_USAGE, machines="pcvm") == "" and "test_bridge: is missing: interface bridge needs it" in check.err
    assert check(EXIT_USAGE, machines="pcvm", interfaces="bridges") == "" and "did you mean 'bridge'" in check.err
    assert check(EXIT_USAGE, machines="pcvm", interfaces="pnic") == "" and "no valid combination" in check.err


def test_nothing_is_changed_by_looking(check: Checker) -> None:
    ip(check.bed.loadgen, "link", "set", "nic", "down")
    before = check.bed.links()
    check(EXIT_OK, machines="pcvm, microvm, host", interfaces="bridge, macvtap, pnic, bridge-e1000", reflectors="xdp, moongen")
    assert check.bed.links() == before
