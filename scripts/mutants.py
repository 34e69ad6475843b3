"""Mutation testing: how many small mistakes in the code that decides about results do the tests of the fast tier notice?

Run from the repository, after ``.venv/bin/pip install cosmic-ray``: ``.venv/bin/python scripts/mutants.py``, or with names of
modules to test these alone. Takes about an hour on two cores, so it is no part of a tier.

cosmic-ray makes the mutants. A fixed seed draws the same ones each time, each is tried in a copy of the checkout with the tests of
its module, and those that survive are printed.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkResult

PROJECT = Path(__file__).resolve().parents[1]
TESTS = {
    "results/verdicts.py": "results/test_verdicts.py results/test_figures.py results/test_guests.py"
    " measurements/test_load_latency.py",
    "results/figures.py": "results/test_figures.py results/test_guests.py results/test_moongen.py results/test_hostile_output.py",
    "results/statistics.py": "results/test_statistics.py report/test_compare.py",
    "results/histogram.py": "results/test_histogram.py results/test_batch.py results/test_accumulate.py",
    "results/names.py": "results/test_names.py",
    "plan/tree.py": "plan",
    "run/journal.py": "run/test_journal.py run/test_journal_threads.py run/test_recovery.py",
    "results/store.py": "results/test_store.py",
}
"""The modules, below ``autotest/``, and the tests of each, below ``tests/``."""
EACH = 60
"""Mutants drawn of each module; of a smaller one all."""
SEED = 13
_KILLED = {TestOutcome.KILLED, TestOutcome.INCOMPETENT}


@dataclass(frozen=True)
class Tried:
    """The mutants of one module: how many were tried, and those that no test noticed, each as its place and difference."""

    module: str
    count: int
    survivors: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=list(TESTS), metavar="MODULE", help=f"of {', '.join(TESTS)}")
    options = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(try_module, options.modules))
    for tried in results:
        print(f"\n{tried.module}: {tried.count} mutants, {len(tried.survivors)} survived")
        print("\n".join(tried.survivors))
    count, survived = (sum(column) for column in zip(*((each.count, len(each.survivors)) for each in results), strict=True))
    print(f"\nkilled: {count - survived} of {count} ({(count - survived) / count:.1%})")
    return 0


def try_module(module: str) -> Tried:
    """Try the drawn mutants of a module in a copy of the checkout."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "checkout")
        subprocess.run(["git", "clone", "--quiet", "--shared", str(PROJECT), str(copy)], check=True)
        tests = [f"tests/{name}" for name in TESTS[module].split()]
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-qx",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            "not default and not all",
        ]
        start = time.monotonic()
        subprocess.run([*pytest, *tests], cwd=copy, check=True, stdout=subprocess.DEVNULL)
        config, session = Path(folder, "config.toml"), Path(folder, "session.sqlite")
        config.write_text(
            "[cosmic-ray]\n"
            f'module-path = "autotest/{module}"\n'
            f"timeout = {10 + 5 * (time.monotonic() - start):.0f}\n"
            "excluded-modules = []\n"
            f"test-command = {shlex.join([*pytest, *tests])!r}\n"
            '[cosmic-ray.distributor]\nname = "local"\n'
        )
        for command in ("init", "exec"):
            subprocess.run([sys.executable, "-m", "cosmic_ray.cli", command, str(config), str(session)], cwd=copy, check=True)
            if command == "init":
                draw(session, (copy / "autotest" / module).read_text())
        with use_db(str(session), WorkDB.Mode.open) as database:
            mutations = {item.job_id: item.mutations[0] for item in database.work_items}
            survivors = tuple(
                described(mutations[job], result) for job, result in database.results if result.test_outcome not in _KILLED
            )
        return Tried(module, len(mutations), survivors)


def draw(session: Path, source: str) -> None:
    """Leave the drawn mutants in a session, without those that change an annotation: nothing evaluates these."""
    annotations = list(annotated(ast.parse(source)))
    with use_db(str(session), WorkDB.Mode.open) as database:
        items = sorted(database.work_items, key=lambda item: (item.mutations[0].start_pos, str(item.mutations[0])))
        items = [item for item in items if not any(begin <= item.mutations[0].start_pos < end for begin, end in annotations)]
        drawn = random.Random(SEED).sample(items, min(EACH, len(items)))
        database.clear()
        database.add_work_items(drawn)


def annotated(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where each annotation begins and ends, as line and column."""
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if part is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def described(mutation: MutationSpec, result: WorkResult) -> str:
    """Return the place of a mutant, and the lines that differ."""
    lines = [line for line in (result.diff or "").splitlines() if re.match(r"[-+](?![-+])", line)]
    where = f"{mutation.module_path}:{mutation.start_pos[0]}: {mutation.operator_name}, {result.test_outcome}"
    return "\n".join([where, *(f"    {line}" for line in lines)])


if __name__ == "__main__":
    sys.exit(main())
