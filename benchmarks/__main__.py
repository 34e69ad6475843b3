"""All benchmarks as one table: ``python -m benchmarks`` from the repository, as root. Names choose among them.

A figure stands beside its goal, or beside a named peer measured in the same run. The ratio is such that 1 or more is as
good as the goal or the peer, so it holds on noisy machines where single times do not. ``--tiny`` runs each in seconds, to
see that it still works.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from autotest.errors import EXIT_FAILED, EXIT_OK, EXIT_TESTBED, EXIT_USAGE
from benchmarks.scale import TINY

_LAB = ("ip", "luajit", "qemu-system-x86_64", "socat", "tmux")
BENCHMARKS: dict[str, Sequence[str]] = {
    "plan": (),
    "accumulate": (),
    "report": (),
    "softmoon": ("ip", "luajit", "trafgen"),
    "lab": _LAB,
    "guests": _LAB,
    "estimate": _LAB,
}
"""The benchmarks, with the programs that they need; each that needs one also makes network namespaces, as root."""


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, all without a name; return the exit code, 1 if a goal is missed."""
    tiny = TINY in arguments
    names = [argument for argument in arguments if argument != TINY] or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return EXIT_USAGE
    if missing := [f"{name}: {problem}" for name in names if (problem := _missing(BENCHMARKS[name]))]:
        print("\n".join(missing), file=sys.stderr)
        return EXIT_TESTBED
    missed = 0
    print(f"{'figure':<66} {'measured':>10} {'goal':>10} {'':<5} {'goal/meas.':>10} {'vs. peer':>9}")
    for name in names:
        for row in importlib.import_module(f"benchmarks.{name}").measure():
            missed += _print(row)
    return EXIT_FAILED if missed and not tiny else EXIT_OK


def _missing(programs: Sequence[str]) -> str:
    """Return what keeps a benchmark from running, and the remedy; empty if nothing does."""
    if absent := [program for program in programs if shutil.which(program) is None]:
        return f"{', '.join(absent)} not installed: scripts/benchmark.sh installs what the benchmarks need"
    if programs and os.geteuid() != 0:
        return "root is needed for network namespaces: run this with sudo"
    return ""


def _print(row: dict[str, Any]) -> bool:
    """Print one line of the table; return whether its goal is missed."""
    goal, ratio = row.get("goal"), row.get("ratio")
    reached = goal / max(row["value"], 1e-9) if goal is not None else None
    columns = [f"{row['name']:<66}", f"{row['value']:>10.3f}"]
    columns.append(f"{goal:>10.3f}" if goal is not None else f"{'-':>10}")
    columns.append(f"{row['unit']:<5}")
    columns.append(f"{min(reached, 999.0):>10.2f}" if reached is not None else f"{'-':>10}")
    columns.append(f"{ratio:>9.2f}" if ratio is not None else f"{'-':>9}")
    print(" ".join(columns), flush=True)
    return (reached is not None and reached < 1) or (goal is None and ratio is not None and ratio < 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
