"""A comparison as plain text, and as checks for JUnit. docs/statistics.md explains what is shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from autotest.report.cases import LOAD, Case, differing, shown
from autotest.report.compare import (
    Compared,
    Comparison,
    Matching,
    Outcome,
    Pair,
    findings,
)
from autotest.report.junit import Check, State
from autotest.report.parameters import names_of
from autotest.report.tables import render_table
from autotest.results.identity import Identity, differences
from autotest.results.statistics import FEWEST_FOR_INTERVAL, Estimate, smallest_p

HEADER = (
    "",
    "A\nmean",
    "n",
    "B\nmean",
    "n",
    "B - A",
    "95 % CI\nof B - A",
    "B - A\n[% of A]",
    "effect\nsize",
    "p\ncorr.",
    "outcome",
)
_ALIGN = "lrrrrrrrrrl"
_MOST_NAMED = 10


def describe(compared: Compared) -> str:
    """The table of a comparison with what was compared above and what came out below; ends with a newline."""
    pairs = compared.matching.pairs
    varying = varying_parameters(pairs)
    lines = what_is_compared(compared.matching)
    table = render_table(HEADER, [row(comparison) for comparison in compared.comparisons], align=_ALIGN)
    lines += ["", *table[:2]]
    rows = iter(table[2:])
    for _, group in groupby(compared.comparisons, key=lambda comparison: id(comparison.pair)):
        members = list(group)
        pair = members[0].pair
        lines += ["", shown(pair.parameters, varying), *(f"! {finding}" for finding in findings(pair))]
        lines += [next(rows) for _ in members]
    return "\n".join([*lines, "", *unmatched(compared.matching), *closing(compared)]) + "\n"


def varying_parameters(pairs: Iterable[Pair]) -> list[str]:
    """The parameters that tell the pairs apart, the load among them."""
    many = [pair.parameters for pair in pairs]
    found = {*differing(many), LOAD}
    return [key for key in names_of(many) if key in found]


def what_is_compared(matching: Matching) -> list[str]:
    """What A and B differ in, and what all of it has in common."""
    pairs = matching.pairs
    varying = varying_parameters(pairs)
    constant = [key for key in pairs[0].parameters if key not in varying]
    return [*_apart(matching), *([f"everywhere: {shown(pairs[0].parameters, constant)}"] if constant else [])]


def _apart(matching: Matching) -> Iterator[str]:
    for key, (a, b) in matching.apart.items():
        yield f"{key}: {_value(key, a)} in A, {_value(key, b)} in B"
    testbeds = [_testbeds(getattr(pair, side) for pair in matching.pairs) for side in ("a", "b")]
    if testbeds[0] != testbeds[1] and all(testbeds):
        yield f"measured on other machines: {testbeds[0]} in A, {testbeds[1]} in B"
    changed = list(dict.fromkeys(line for pair in matching.pairs for line in _changed(pair)))
    yield from (f"not the same in both: {line}" for line in changed[:_MOST_NAMED])
    if len(changed) > _MOST_NAMED:
        yield f"and {len(changed) - _MOST_NAMED} more that is not the same"


def _changed(pair: Pair) -> list[str]:
    """What determines the result and is not the same in A and B, but what the parameters say: by one trial of each."""
    a, b = (Identity.of((case.used or case.trials)[0].record()) for case in (pair.a, pair.b))
    return differences(a, b, ("in A", "in B")) if a and b else []


def _value(key: str, value: str | int | bool | None) -> str:
    return "none" if value is None else shown({key: value})


def _testbeds(cases: Iterable[Case]) -> str:
    return ", ".join(sorted({trial.testbed for case in cases for trial in case.used if trial.testbed}))


def row(comparison: Comparison) -> tuple[str, ...]:
    metric, difference, relative = comparison.metric, comparison.difference, comparison.relative
    return (
        metric.title,
        _mean(comparison.a),
        str(comparison.repetitions[0]),
        _mean(comparison.b),
        str(comparison.repetitions[1]),
        "-" if difference is None else _signed(difference),
        _interval(comparison),
        "-" if relative is None else _signed(100 * relative),
        "-" if comparison.effect is None else f"{comparison.effect:+.2f}",
        _p(comparison.p),
        str(comparison.outcome),
    )


def _interval(comparison: Comparison) -> str:
    """Half of it: it lies around the difference."""
    if comparison.interval is None:
        return "-"
    low, high = comparison.interval
    reach = (high - low) / 2
    return f"±{reach:.{_decimals(reach, 3)}f}"


def _mean(found: Estimate | None) -> str:
    return "-" if found is None else f"{found.mean:.{_decimals(found.mean, 4)}f}"


def _signed(value: float) -> str:
    return f"{value:+.{_decimals(value, 3)}f}" if value else "0"


def _decimals(value: float, digits: int) -> int:
    """How many decimals give so many digits that count; at most six."""
    if not value:
        return 0
    return min(max(digits - 1 - math.floor(math.log10(abs(value))), 0), 6)


def _p(p: float | None) -> str:
    if p is None:
        return "-"
    return "<0.0001" if p < 0.0001 else f"{p:.{4 if p < 0.1 else 2}f}"


def unmatched(matching: Matching) -> Iterator[str]:
    for text, cases in (
        ("only in A", matching.only_a),
        ("only in B", matching.only_b),
        ("the same trials in A and in B, not compared", [pair.a for pair in matching.same]),
    ):
        if cases:
            yield f"{text}: {counted(len(cases), 'test case')}"
            yield from (f"  {shown(case.parameters)}" for case in cases[:_MOST_NAMED])
            if len(cases) > _MOST_NAMED:
                yield f"  and {len(cases) - _MOST_NAMED} more"
            yield ""


def closing(compared: Compared) -> Iterator[str]:
    chance = f"{100 * compared.alpha:g} %"
    yield f"""\
n: repetitions. CI: bootstrap-t over repetitions, of each difference alone; from {FEWEST_FOR_INTERVAL} repetitions with
spread on. Effect size: Cliff's delta, +1 where every value of B is larger. p: exact Mann-Whitney
test, two-sided, corrected (Holm) for the {compared.counted} comparisons that could come out: the chance of any
finding where there is none is {chance} at most. Repetitions share a boot: what varies from boot to
boot or from night to night counts as a difference, too."""
    if compared.count(Outcome.NO_DIFFERENCE):
        yield "No difference: none was shown, which is no proof; the CI says how large it may be."
    yield from _too_few(compared)
    counts = ", ".join(f"{number} {outcome}" for outcome in Outcome if (number := compared.count(outcome)))
    comparisons, cases = len(compared.comparisons), len(compared.matching.pairs)
    yield f"{counted(comparisons, 'comparison')} of {counted(cases, 'test case')}: {counts}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _too_few(compared: Compared) -> Iterator[str]:
    """How many repetitions it would have taken, where there were too few."""
    few = [comparison.repetitions for comparison in compared.comparisons if comparison.outcome is Outcome.TOO_FEW]
    if any(all(counts) for counts in few):
        a, b = max(few, key=lambda counts: (min(counts), max(counts)))
        yield (
            f"Too few repetitions: with {a} in A and {b} in B, p is never below {smallest_p(a, b):.2g}.\n"
            f"Alpha {compared.alpha:g} takes {compared.repetitions_needed()} on each side for "
            f"{counted(compared.varying, 'comparison')}, {compared.repetitions_needed(1)} for a single one.\n"
            "(--select and --metric make fewer comparisons.)"
        )


def checks(compared: Compared) -> list[Check]:
    """One check per comparison: failed where it is a regression, an error where A has a figure and B none at all, which no build
    server should pass over; what was not compared for another reason is skipped.
    """
    found = [_check(comparison) for comparison in compared.comparisons]
    matching = compared.matching
    for why, cases in (
        ("only in A", matching.only_a),
        ("only in B", matching.only_b),
        ("the same trials in A and in B", [pair.a for pair in matching.same]),
    ):
        found += [Check(shown(case.parameters), "all metrics", "skipped", why) for case in cases]
    return found


def _check(comparison: Comparison) -> Check:
    header = [title.replace("\n", " ") for title in HEADER]
    cells = [f"{title or 'metric'}: {cell}" for title, cell in zip(header, row(comparison), strict=True)]
    states: Mapping[Outcome, State] = {
        Outcome.REGRESSION: "failed",
        Outcome.TOO_FEW: "skipped",
        Outcome.NOT_COMPARABLE: "skipped",
    }
    state = "error" if comparison.is_lost else states.get(comparison.outcome, "passed")
    return Check(
        shown(comparison.pair.parameters),
        comparison.metric.name,
        state,
        _message(comparison),
        "\n".join([*findings(comparison.pair), *cells]),
    )


def _message(comparison: Comparison) -> str:
    if comparison.is_lost:
        return f"no usable repetition in B, {comparison.repetitions[0]} in A"
    if comparison.a is None or comparison.b is None:
        return str(comparison.outcome)
    unit = f" {comparison.metric.unit}" if comparison.metric.unit else ""
    return f"{comparison.outcome}: {comparison.metric.label} {_mean(comparison.a)}{unit} in A, {_mean(comparison.b)}{unit} in B"
