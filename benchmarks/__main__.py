"""All benchmarks as one table: ``python -m benchmarks`` from the repository, as root. Names choose among them.

A figure stands beside its goal, or beside a named peer measured in the same run. The ratio is such that 1 or more is as
good as the goal or the peer, so it holds on noisy machines where single times do not.
"""

from __future__ import annotations

import importlib
import sys

MODULES = ("plan", "accumulate", "report", "softmoon", "lab", "guests", "estimate")


def main(names: list[str]) -> int:
    """Run the named benchmarks, all without a name; returns 1 when a goal is missed."""
    unknown = set(names) - set(MODULES)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    missed = 0
    print(f"{'figure':<66} {'measured':>10} {'goal':>10} {'':<5} {'goal/meas.':>10} {'vs. peer':>9}")
    for name in names or MODULES:
        for row in importlib.import_module(f"benchmarks.{name}").measure():
            missed += _print(row)
    return 1 if missed else 0


def _print(row: dict) -> bool:
    """One line of the table; whether its goal is missed."""
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
