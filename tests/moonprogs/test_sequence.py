"""The modules that decide which frame comes next, in LuaJIT alone: cycles of turns, decks of sizes, shuffling."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from itertools import pairwise

import pytest
from moonwire import MOONPROGS

SETUP = f"""
package.path = "{MOONPROGS}/softmoon/lua/?.lua;{MOONPROGS}/?.lua;" .. package.path
require "utils"
local guests, sizes, sequence = require "load-guests", require "load-sizes", require "load-sequence"
local function list(array, n)
    local values = {{}}
    for i = 0, n - 1 do values[i + 1] = tonumber(array[i]) end
    return "[" .. table.concat(values, ",") .. "]"
end
local function arguments(n, text, seed, weights)
    return {{ addresses = guests.parseAddresses("52:54:00:00:00:01", n), weights = guests.parseWeights(weights, n),
        sizes = sizes.parse(text), seed = seed, threads = 2 }}
end
"""


def lua(program: str) -> list:
    """Run a program; the values that it prints, one JSON text per line."""
    result = subprocess.run(["luajit", "-"], input=SETUP + program, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def turns(weights: str, n: int) -> list[int]:
    return lua(f'print(list(guests.newCycle(guests.parseWeights("{weights}", {n}))))')[0]


def decks(size: str, n: int = 1, seed: int = 1, task: int = 0) -> list[list[int]]:
    """The deck of every guest."""
    [everything, first] = lua(
        f'local decks, first = sizes.newDecks(arguments({n}, "{size}", {seed}), {task})\n'
        f"print(list(decks, first[{n}])) print(list(first, {n} + 1))"
    )
    return [everything[start:end] for start, end in pairwise(first)]


def test_turns_are_smooth_and_in_proportion_to_the_weights() -> None:
    assert turns("1:1:1", 3) == [0, 1, 2]
    assert turns("4:4", 2) == [0, 1]  # divided by what divides both
    assert turns("5:1:1", 3) == [0, 0, 1, 0, 2, 0, 0]  # the example of nginx
    assert Counter(turns("300:2:51", 3)) == {0: 300, 1: 2, 2: 51}


@pytest.mark.parametrize(
    ("size", "shares"),
    [
        ("imix", {60: 7, 590: 4, 1514: 1}),
        ("60:700+590:400+1514:100", {60: 7, 590: 4, 1514: 1}),
        ("100", {100: 1}),
        ("100:5+200:0", {100: 1}),
        ("60:1+61:1+60:1", {60: 2, 61: 1}),
        ("60:9999+1514:1", {60: 9999, 1514: 1}),
    ],
)
def test_a_deck_holds_every_size_in_its_exact_proportion(size: str, shares: dict[int, int]) -> None:
    [deck] = decks(size)

    copies, remainder = divmod(len(deck), sum(shares.values()))
    assert remainder == 0 and len(deck) <= max(4096, sum(shares.values()))
    assert Counter(deck) == {value: share * copies for value, share in shares.items()}


def test_every_part_of_a_deck_is_in_proportion() -> None:
    [deck] = decks("imix")

    assert len(deck) == 4080
    for start in range(0, len(deck), 24):
        assert Counter(deck[start : start + 24]) == {60: 14, 590: 8, 1514: 2}
    assert len({tuple(deck[start : start + 24]) for start in range(0, len(deck), 24)}) > 100


def test_huge_counts_are_rounded_to_a_deck_of_65536_by_largest_remainder() -> None:
    counts = {60: 7_000_001, 590: 4_000_003, 1514: 1_000_007}
    [deck] = decks("+".join(f"{size}:{count}" for size, count in counts.items()))

    assert len(deck) == 65536
    for size, count in Counter(deck).items():
        assert abs(count - counts[size] / sum(counts.values()) * 65536) < 1


def test_decks_differ_by_guest_task_and_seed_and_by_nothing_else() -> None:
    first, second = decks("imix", n=2)

    assert first != second
    assert decks("imix", n=2) == [first, second] == decks("imix", n=5)[:2]
    assert decks("imix", seed=2)[0] != first
    assert decks("imix", task=1)[0] != first
    assert decks("60~imix~60:1+90:1", n=5)[3] == [60]
    assert set(decks("60~imix~60:1+90:1", n=5)[2]) == {60, 90}


def test_the_generator_is_the_same_everywhere() -> None:
    # the order that LuaJIT 2.1 gives: a change of it would change what a seed means
    assert decks("60:1+61:1+62:1+63:1+64:1+65:1+66:1+67:1")[0][:16] == [
        61,
        64,
        63,
        60,
        61,
        65,
        66,
        63,
        65,
        67,
        60,
        66,
        64,
        62,
        62,
        67,
    ]


def test_every_order_is_about_equally_frequent() -> None:
    [deck] = decks("60:8+61:8+62:8")  # 4096 / 24 parts

    firsts = Counter(deck[start] for start in range(0, len(deck), 3))
    assert all(abs(firsts[size] - len(deck) / 9) < 5 * (len(deck) / 9) ** 0.5 for size in (60, 61, 62))


def test_what_is_put_back_is_drawn_again_and_not_counted() -> None:
    drawn, again, frames, total = lua("""
local s = sequence.new(arguments(3, "imix", 1, "3:2:1"), 0)
local function draw(n)
    local drawn = {}
    for i = 1, n do
        local guest, size = s:draw(s.load)
        drawn[i] = guest * 10000 + size
    end
    return "[" .. table.concat(drawn, ",") .. "]"
end
s:draw(s.samples)
print(draw(30000)) -- several times round the deck and the cycle
for _ = 1, 30000 do s:putBack(s.load) end
print(draw(30000))
local totals = s.totals:lists()
print("[" .. table.concat(totals.frames, ",") .. "]") print("[" .. table.concat(totals.bytes, ",") .. "]")
""")

    assert drawn == again
    assert frames == [15001, 10000, 5000]  # one sample of the first guest
    sizes = Counter()
    for value in drawn:
        sizes[value // 10000] += value % 10000 + 4
    assert total[1:] == [sizes[1], sizes[2]] and 64 <= total[0] - sizes[0] <= 1518


def test_the_mean_size_of_the_load_is_by_the_guests_weights() -> None:
    mean, plain = lua('print(sizes.meanOfLoad(arguments(2, "60~imix", 1, "3:1"))) print(sizes.meanOfLoad(arguments(1, "60", 1)))')

    assert mean == pytest.approx((3 * 60 + (7 * 60 + 4 * 590 + 1514) / 12) / 4)
    assert plain == 60
