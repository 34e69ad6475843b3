"""MoonGen where it is installed, and softmoon where it comes with the programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from preflight_bed import Bed

from autotest.errors import TrafficError
from autotest.preflight.moongen import MoonGenThere
from autotest.preflight.requirement import Status
from autotest.preflight.survey import Survey

LOADGEN = MoonGenThere("loadgen")


def test_a_folder_without_moongen_is_named_with_what_was_looked_for(bed: Bed, tmp_path: Path) -> None:
    bed.change(loadgen={"moongen_dir": str(tmp_path)})
    with pytest.raises(TrafficError, match="holds neither build/MoonGen nor bin/MoonGen"):
        bed.look(LOADGEN)


@pytest.mark.parametrize("binary", ["build/MoonGen", "bin/MoonGen"])
def test_moongen_is_found_where_it_was_built_or_installed(bed: Bed, tmp_path: Path, binary: str) -> None:
    program = tmp_path / "moongen" / binary
    program.parent.mkdir(parents=True)
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    bed.change(loadgen={"moongen_dir": str(tmp_path / "moongen")})
    finding = bed.look(LOADGEN)
    assert finding.status is Status.PASS and finding.detail == str(program)


def test_softmoon_that_is_copied_with_the_programs_need_not_be_there_yet(bed: Bed, tmp_path: Path) -> None:
    bed.change(loadgen={"moonprogs_dir": "/nowhere/programs", "moongen_dir": "/nowhere/programs/softmoon/"})
    finding = bed.look(LOADGEN)
    assert finding.status is Status.PASS and finding.detail == "softmoon, copied to moonprogs_dir for the test"
    bed.change(loadgen={"moongen_dir": "/nowhere/programs/MoonGen"})  # nothing of that name is copied
    with pytest.raises(TrafficError, match="/nowhere/programs/MoonGen holds neither"):
        bed.look(LOADGEN)


@pytest.mark.parametrize("copied", [True, False])
def test_softmoon_needs_luajit(bed: Bed, monkeypatch: pytest.MonkeyPatch, copied: bool) -> None:
    if copied:
        bed.change(loadgen={"moonprogs_dir": "/nowhere", "moongen_dir": "/nowhere/softmoon"})
    servers = bed.servers
    run = servers.loadgen.run

    def without_luajit(command, **options):  # type: ignore[no-untyped-def]
        return run([word.replace("command -v luajit", "command -v no-such-luajit") for word in command], **options)

    monkeypatch.setattr(servers.loadgen, "run", without_luajit)
    finding = LOADGEN.look(Survey(servers))
    assert finding.status is Status.FAIL and "needs luajit, which is not there" in finding.detail


def test_missing_libraries_are_named(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "ldd").write_text("#!/bin/sh\necho '	libnuma.so.1 => not found'\necho '	libc.so.6 => /lib/libc.so.6 (0x1)'\n")
    (folder / "ldd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin:/usr/sbin:/sbin")
    finding = bed.look(LOADGEN)
    assert finding.status is Status.FAIL and "needs libnuma.so.1, which is not there" in finding.detail
