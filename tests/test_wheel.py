"""autotest as pip installs it: from a wheel, in an environment of its own, away from any checkout."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labtest import LabCommand, lab_command, own_lab

pytestmark = pytest.mark.default

ROOT = Path(__file__).resolve().parents[1]
_SHARED = ("moonprogs", "configs", "autotest.conf", "tests.conf")
_NOT_OURS = {".git", ".venv", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache", "__pycache__"}
_INSTALLING = 600.0  # seconds: dependencies may have to be downloaded


def run(*command: str | Path, cwd: Path, timeout: float = 120) -> str:
    """Run to the end, without a way to the checkout; returns what was printed."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )
    assert ended.returncode == 0, f"{command}: exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def files(folder: Path) -> set[str]:
    """The paths of all files below, without what Python and tools keep for themselves."""
    found = set()
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_OURS]
        found |= {os.path.relpath(os.path.join(place, name), folder) for name in names}
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    before = files(ROOT)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT, cwd=folder, timeout=_INSTALLING)
    assert not {name for name in files(ROOT) - before if name.startswith(("build", "dist", "autotest"))}
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with nothing but the wheel and what that needs."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    run(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder, timeout=_INSTALLING)
    return folder / "bin"


def package(installed: Path) -> Path:
    [found] = installed.parent.glob("lib/python*/site-packages/autotest")
    return found


def test_the_wheel_brings_along_what_a_checkout_has_beside_the_package(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    beside = [path for name in _SHARED for path in (repository / name, *(repository / name).rglob("*")) if path.is_file()]
    for path in beside:
        mode = names.get(f"autotest/share/{path.relative_to(repository)}")
        assert mode is not None, path
        assert bool(mode & stat.S_IXUSR) == os.access(path, os.X_OK) == (path.name == "MoonGen"), path
    inside = {name.removeprefix("autotest/") for name in names if name.startswith("autotest/") and "/share/" not in name}
    assert inside == files(repository / "autotest")


def test_a_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT, cwd=tmp_path, timeout=_INSTALLING)
    [sdist] = tmp_path.iterdir()
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/results" in name.partition("/")[2][:8] or ".git/" in name]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, sdist, cwd=tmp_path, timeout=_INSTALLING)
    [made] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(made) as one, zipfile.ZipFile(wheel) as other:
        described = {entry.filename: entry.external_attr for entry in one.infolist()}
        assert described == {entry.filename: entry.external_attr for entry in other.infolist()}


def test_it_runs_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "autotest", "--version", cwd=tmp_path).startswith("autotest 0.")
    run(installed / "autotest", "init", "--lab", cwd=tmp_path)
    planned = run(installed / "autotest", "test-load-lat-file", "--dry-run", cwd=tmp_path)
    assert re.search(r"^all: (\d+) trials, 0 done, \1 to do", planned, re.MULTILINE)
    ask = "import autotest.resources as r; from autotest.servers.inspection import git_revision; print(git_revision(), r.PROJECT_DIRECTORY)"
    assert run(installed / "python", "-c", ask, cwd=tmp_path) == f"None {package(installed) / 'share'}\n"
    with pytest.raises(AssertionError, match="No module named 'IPython'"):
        run(installed / "python", "-c", "import IPython", cwd=tmp_path)


@pytest.fixture
def lab(installed: Path, tmp_path: Path) -> Iterator[LabCommand]:
    """The installed autotest with the lab that ``init`` describes, under a name of its own."""
    run(installed / "autotest", "init", "--lab", "-o", tmp_path / "described", cwd=tmp_path)
    config = own_lab(tmp_path / "described/autotest.conf", tmp_path / "autotest.conf")
    with contextmanager(lab_command)(config, (str(installed / "autotest"),)) as command:
        yield command


@pytest.mark.all
@pytest.mark.alone
def test_it_measures_and_draws_in_the_lab_and_writes_nothing_into_its_package(
    lab: LabCommand, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = {name: (package(installed) / name).stat() for name in files(package(installed))}
    tests = str(tmp_path / "described/tests.conf")
    results = tmp_path / "described/results"
    select = "machine=microvm interface=bridge reflector=xdp rate=10,20"
    said = lab.run("test-load-lat-file", tests, "--select", select, "--limit", "4", timeout=600)
    records = [json.loads(path.read_text()) for path in results.glob("trial_*.json")]
    assert len(records) == 4 and {record["verdict"] for record in records} <= {"valid", "under-sent"}, said
    assert all(record["versions"]["git revision"] is None and record["versions"]["autotest"] for record in records)
    summed = lab.run("summary", str(results))
    assert "10" in summed and "bridge" in summed
    lab.run("plot", str(results), "-k", "latency", "--format", "svg")
    assert list(results.glob("*.svg"))
    lab.run("report", str(results))
    assert (results / "report.html").stat().st_size > 100_000
    assert files(package(installed)) == before.keys()
    for name, status in before.items():
        assert (package(installed) / name).stat().st_mtime_ns == status.st_mtime_ns, name
