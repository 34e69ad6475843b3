"""The benchmarks still run: with tiny sizes, whose figures mean nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS

IN_THE_LAB = ("lab", "guests", "estimate")
ROW = re.compile(r"^\S.* +\d+\.\d{3} +(-|\d+\.\d{3}) ", re.MULTILINE)


def benchmarks(repository: Path, *arguments: str, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(
        command, cwd=repository, check=False, capture_output=True, text=True, timeout=timeout, env=os.environ | environment
    )


def named(name: str) -> object:
    """Return the benchmark as a parameter, with the tier in which it runs."""
    if name in IN_THE_LAB:
        return pytest.param(name, marks=[pytest.mark.all, pytest.mark.alone])
    return pytest.param(name, marks=[pytest.mark.default, *([pytest.mark.alone] if name == "softmoon" else [])])


@pytest.mark.parametrize("name", [named(name) for name in BENCHMARKS])
def test_each_benchmark_runs_with_tiny_sizes(repository: Path, name: str) -> None:
    done = benchmarks(repository, "--tiny", name, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ROW.search(done.stdout), done.stdout


def test_a_missing_program_is_one_line_with_the_remedy(repository: Path, tmp_path: Path) -> None:
    done = benchmarks(repository, "softmoon", "plan", PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "softmoon: ip, luajit, trafgen not installed: scripts/benchmark.sh installs what the benchmarks need\n"


def test_an_unknown_name_is_refused_with_the_known_ones(repository: Path) -> None:
    done = benchmarks(repository, "planning")
    assert done.returncode == 2 and f"there are {', '.join(BENCHMARKS)}" in done.stderr
