"""What the load program is told: whom it sends to, in which shares, which sizes, and which files it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autotest.traffic.frame_sizes import FrameSizes
from autotest.traffic.load import PROGRAM, Load
from autotest.traffic.moongen import ProgramEnd

FIRST = "52:54:00:fa:00:60"
BEHIND = ["--rate", "10", "--time", "5", "--file", "{histogram}", "--size"]
IMIX = FrameSizes("imix", (((60, 7), (590, 4), (1514, 1)),))
ROW = tuple(f"52:54:00:fa:00:{last:02x}" for last in range(0x60, 0x64))


def load(addresses: tuple[str, ...] = (FIRST,), sizes: FrameSizes = FrameSizes.of(60), **more: Any) -> Load:
    return Load(addresses, more.pop("weights", (1,) * len(addresses)), sizes, **more)


class FakeLoadGen:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def run_load(self, program: str, arguments: list[str], **how: Any) -> ProgramEnd:
        self.told = {"program": program, "arguments": arguments, **how}
        return ProgramEnd(0, "")


def test_one_address_is_told_as_it_always_was() -> None:
    assert load().arguments(10, 5) == [FIRST, *BEHIND, "60"]
    assert not load().is_shared


def test_addresses_in_a_row_are_told_as_the_first_and_their_count() -> None:
    assert load(ROW).arguments(10, 5) == [FIRST, "--count", "4", *BEHIND, "60", "--guests-file", "{guests}"]
    many = tuple(f"52:54:00:fa:{number >> 8:02x}:{number & 255:02x}" for number in range(0xF0, 0x110))
    assert load(many).arguments(10, 5)[:3] == ["52:54:00:fa:00:f0", "--count", "32"], "the last byte may overflow"


@pytest.mark.parametrize(
    "addresses",
    [(ROW[0], ROW[2]), (ROW[1], ROW[0]), (ROW[0], ROW[0]), (ROW[0], ROW[1], ROW[3]), ("52:54:00:ff:ff:ff", "52:54:01:00:00:00")],
    ids=["gap", "backwards", "twice", "gap at the end", "another vendor"],
)
def test_addresses_that_do_not_follow_each_other_are_told_one_by_one(addresses: tuple[str, ...]) -> None:
    assert load(addresses).arguments(10, 5)[0] == ",".join(addresses)
    assert "--count" not in load(addresses).arguments(10, 5)


def test_the_rate_is_told_as_it_is_however_many_addresses_share_it() -> None:
    found = load(ROW).arguments(1000, 2.5)
    assert found[found.index("--rate") + 1] == "1000" and found[found.index("--time") + 1] == "2.5"


@pytest.mark.parametrize(("weights", "told"), [((3, 1, 1, 2), "3:1:1:2"), ((1, 1, 1, 1), None), ((2, 2, 2, 2), None)])
def test_shares_are_told_where_they_differ(weights: tuple[int, ...], told: str | None) -> None:
    found = load(ROW, weights=weights).arguments(10, 5)
    assert (found[found.index("--weights") + 1] if "--weights" in found else None) == told


@pytest.mark.parametrize(("threads", "told"), [(1, []), (4, ["--threads", "4"])])
def test_threads_are_told_where_there_are_several(threads: int, told: list[str]) -> None:
    found = load(threads=threads).arguments(10, 5)
    assert found[found.index("60") + 1 :] == told


@pytest.mark.parametrize("sizes", [IMIX, FrameSizes("60~imix", (((60, 1),), *IMIX.distributions))])
def test_a_mix_is_given_as_a_file_and_a_single_size_is_not(tmp_path: Path, sizes: FrameSizes) -> None:
    loadgen, fetch = FakeLoadGen(), {"histogram": tmp_path / "h"}
    load(sizes=sizes).run(loadgen, 10, 5, fetch)  # type: ignore[arg-type]
    assert loadgen.told["give"] == {"sizes": sizes.spec}
    assert loadgen.told["arguments"][-2:] == ["--size", "@{sizes}"]
    load().run(loadgen, 10, 5, fetch)  # type: ignore[arg-type]
    assert loadgen.told["give"] == {} and loadgen.told["arguments"][-2:] == ["--size", "60"]


def placeholders(arguments: list[str]) -> set[str]:
    return {argument.lstrip("@").strip("{}") for argument in arguments if "{" in argument}


@pytest.mark.parametrize("sizes", [FrameSizes.of(60), IMIX])
@pytest.mark.parametrize("addresses", [ROW[:1], ROW])
def test_every_file_that_the_program_is_told_of_is_given_or_fetched(
    tmp_path: Path, addresses: tuple[str, ...], sizes: FrameSizes
) -> None:
    loadgen = FakeLoadGen()
    fetch: Mapping[str, Path] = {name: tmp_path / name for name in ("histogram", *(["guests"] if len(addresses) > 1 else []))}
    load(addresses, sizes).run(loadgen, 10, 5, fetch)  # type: ignore[arg-type]
    told = loadgen.told
    assert placeholders(told["arguments"]) == {*told["fetch"], *told["give"]}
    assert told["program"] == PROGRAM and told["seconds"] == 5 < told["timeout"]
