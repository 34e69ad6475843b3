"""Frame sizes: one size, mixes and measured distributions, as they are written, named and handed on."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.results.names import load_latency_infix, parse_load_latency_infix
from autotest.traffic.frame_sizes import (
    MAX_FRAME_SIZE,
    MIN_FRAME_SIZE,
    MOST_FRAMES,
    FrameSizes,
    parse,
    parse_file,
)

IMIX = ((60, 7), (590, 4), (1514, 1))
HERE = Path("/nowhere")
WEIGHTS = st.dictionaries(st.integers(MIN_FRAME_SIZE, MAX_FRAME_SIZE), st.integers(1, 500), min_size=2, max_size=8)
COUNTS = st.dictionaries(st.integers(MIN_FRAME_SIZE, MAX_FRAME_SIZE), st.integers(0, 10**12), min_size=1, max_size=60)


def mixed(text: str, folder: Path = HERE) -> FrameSizes:
    found = parse(text, folder)
    assert isinstance(found, FrameSizes)
    return found


# -- what is written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "size"), [("60", 60), ("060", 60), (" 1514 ", 1514), ("60:3", 60)])
def test_one_size_is_a_plain_number(text: str, size: int) -> None:
    assert parse(text, HERE) == size


def test_imix_is_seven_four_and_one_of_the_usual_sizes() -> None:
    assert mixed("imix") == FrameSizes("imix", (IMIX,))
    assert mixed("60:7 590:4 1514:1") == FrameSizes("60:7+590:4+1514:1", (IMIX,))
    assert mixed("imix").mean(1) == pytest.approx((60 * 7 + 590 * 4 + 1514) / 12)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1514:1 60:7  590:4", "60:7+590:4+1514:1"),
        ("60:2 61:4", "60:1+61:2"),
        ("60:300000 61:600000", "60:1+61:2"),
        ("60:1+61:2", "60:1+61:2"),
        ("060:1\t61:2", "60:1+61:2"),
    ],
)
def test_one_mix_has_one_name_however_it_is_written(text: str, name: str) -> None:
    assert str(mixed(text)) == mixed(text).name == name


@given(WEIGHTS)
def test_the_name_of_a_mix_says_all_of_it_and_can_be_a_result_name(weights: dict[int, int]) -> None:
    sizes = mixed(" ".join(f"{size}:{weight}" for size, weight in weights.items()))
    assert mixed(sizes.name.replace("+", " ")) == sizes and sizes.spec == sizes.name
    total = sum(weights.values())
    assert sizes.mean(1) == pytest.approx(sum(size * weight / total for size, weight in weights.items()))
    infix = load_latency_infix("host", "pnic", "xdp", 1, sizes.name, 1)
    found = parse_load_latency_infix(infix)
    assert found is not None and found.size == sizes.name


def test_guests_take_the_entries_in_turn() -> None:
    sizes = mixed("60 | imix|61:1 62:2")
    assert sizes.name == "60~imix~61:1+62:2" and sizes.spec == "60~60:7+590:4+1514:1~61:1+62:2"
    assert [sizes.of_guest(guest) for guest in (1, 2, 3, 4, 1000)] == [
        ((60, 1),), IMIX, ((61, 1), (62, 2)), ((60, 1),), ((60, 1),)
    ]  # fmt: skip
    assert [sizes.mean(guest) for guest in (1, 3, 4)] == [60, pytest.approx(185 / 3), 60]


def test_of_one_size_there_is_the_same_to_ask() -> None:
    sizes = FrameSizes.of(60)
    assert (sizes.name, sizes.spec, sizes.mean(7), FrameSizes.of(sizes)) == ("60", "60", 60, sizes)


def test_a_record_is_plain_json_with_every_share() -> None:
    record = mixed("60 | imix").record()
    assert json.loads(json.dumps(record)) == record
    assert record == {"name": "60~imix", "distributions": [[[60, 1]], [[60, 7], [590, 4], [1514, 1]]]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("59", "60 to 1514 bytes without CRC"),
        ("1515", "60 to 1514 bytes without CRC"),
        ("60:7 1515:1", "60 to 1514 bytes without CRC"),
        ("60.5", "not a whole number"),
        ("60 590", "'60' has no weight: expected SIZE:WEIGHT, like 60:7 590:4 1514:1"),
        ("60:7 590", "'590' has no weight"),
        ("60:0 590:0", "'0' is out of range: expected 1 to"),
        ("60:1.5 61:1", "'1.5' is not a whole number"),
        ("60:-1 61:1", "'-1' is out of range"),
        ("60: 61:1", "'' is not a whole number"),
        ("60:1 590:2 60:3", "size 60 is there twice"),
        ("60:65536 61:1", "sum up to 65537: at most 65536 can without a common divisor; a file may have more, as NAME:PATH"),
        ("imx", "did you mean 'imix'?): expected a size, imix, a mix like 60:7 590:4 1514:1, or NAME:PATH"),
        ("60 |", "nothing beside a '|'"),
        ("| 60", "nothing beside a '|'"),
        ("60 | 060", "gives all guests the same"),
        ("imix | imix", "gives all guests the same"),
        ("d_c:x.csv", "cannot be a mix's name"),
        ("a" * 41 + ":x.csv", "at most 40"),
        ("dc:", "not a path"),
        ("dc:-x", "not a path"),
        ("dc:missing.csv", "dc: /nowhere/missing.csv: cannot be read: No such file"),
        ("dc:~nobody-has-this/x", "home folder of nobody"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text, HERE)
    assert says in str(caught.value)


def test_a_mix_too_long_for_result_names_is_sent_to_a_file() -> None:
    text = " ".join(f"{size}:1" for size in range(60, 80))
    assert len(mixed(text).name) == 99
    with pytest.raises(ValueError, match="104 characters: at most 100 fit; a mix in a file has a short name, as NAME:PATH"):
        parse(f"{text} 99:1", HERE)


# -- measured distributions --------------------------------------------------------------------------------


def test_a_file_is_a_mix_under_its_name_and_a_changed_file_is_another(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "traffic mix.csv"
    file.parent.mkdir()
    file.write_text("# of a Tuesday\n\nsize, count\n590,400 # with a comment\n 60 , 700\n1514,100\n1000,0\n")
    found = mixed("dc:sub/traffic mix.csv", tmp_path)
    assert found.distributions == (IMIX,)
    assert found.name == "dc-" + hashlib.sha256(b"60:7+590:4+1514:1").hexdigest()[:8]
    assert mixed(f"dc:{file}", HERE) == found and mixed("dc:sub/traffic mix.csv | 60", tmp_path).name == f"{found.name}~60"
    file.write_text("60,7\r\n590,4\r\n1514,1\r\n", encoding="utf-8-sig")
    assert mixed("dc:sub/traffic mix.csv", tmp_path) == found, "the same shares, written in another way"
    file.write_text('"Size (L2)","Frames"\n60,7\n590,4\n1514,1\n')
    assert mixed("dc:sub/traffic mix.csv", tmp_path) == found
    file.write_text("60,7\n590,4\n1514,2\n")
    assert mixed("dc:sub/traffic mix.csv", tmp_path).name != found.name
    file.write_text("60,7\n")
    assert parse("dc:sub/traffic mix.csv", tmp_path) == 60


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no size: expected lines like 60,1000"),
        ("size,count\n# nothing\n", "holds no size"),
        ("60,0\n61,0\n", "all counts are 0: at least one size must come"),
        ("60,1\nabc,2\n", "line 2: 'abc' is not a whole number"),
        ("size,count\nsize,count\n60,1\n", "line 2: 'size' is not a whole number"),
        ("60,x\n", "line 1: 'x' is not a whole number"),
        # no header, though no number either: their frames must not be left out in silence
        ("60;7\n590,4\n", "line 1: '60;7' is not size,count"),
        ('"60","7"\n590,4\n', "line 1: '\"60\"' is not a whole number"),
        ("0x3c,0x10\n590,4\n", "line 1: '0x3c' is not a whole number"),
        ("60,1e6\n", "line 1: '1e6' is not a whole number"),
        ("60,1\n\n# c\n9000,2\n", "line 4: '9000' is out of range: expected 60 to 1514 bytes without CRC"),
        ("42,1\n", "line 1: '42' is out of range: expected 60 to 1514"),
        ("60,-1\n", "line 1: '-1' is out of range"),
        ("60,1\n60,2\n", "line 2: size 60 is there twice"),
        ("60\n", "line 1: '60' is not size,count, like 60,1000"),
        ("60,1,2\n", "line 1: '60,1,2' is not size,count"),
        ("60,1\n,\n", "line 2: '' is not a whole number"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError) as caught:
        parse("60 | dc:x.csv", tmp_path)
    assert str(caught.value).startswith(f"dc: {tmp_path}/x.csv: {says}")


def test_what_is_no_readable_text_is_no_distribution(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge").write_bytes(b"\n" * 2**21)
    os.mkfifo(tmp_path / "pipe")
    says = {"folder": "is no file", "pipe": "is no file", "binary": "is no text", "huge": "has 2097152 bytes: .* has at most"}
    for name, what in says.items():
        with pytest.raises(ValueError, match=f"{name}: {what}"):
            parse(f"dc:{name}", tmp_path)


@given(COUNTS)
def test_large_counts_are_scaled_to_the_nearest_whole_shares(counts: dict[int, int]) -> None:
    total = sum(counts.values())
    if not total:
        return
    sizes = dict(parse_file("".join(f"{size},{count}\n" for size, count in counts.items())))
    frames = sum(sizes.values())
    assert frames <= MOST_FRAMES and list(sizes) == sorted(sizes) and 0 not in sizes.values()
    for size, count in counts.items():
        assert abs(sizes.get(size, 0) / frames - count / total) <= 1 / MOST_FRAMES + 1e-12
    if total <= MOST_FRAMES:
        assert all(sizes.get(size, 0) * total == count * frames for size, count in counts.items())
