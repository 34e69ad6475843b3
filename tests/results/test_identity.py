"""What determines a result: its hash, and how two of them differ, in words."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotest.results.identity import Identity, differences, several

A, B = "a" * 64, "b" * 64
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
mappings = st.dictionaries(st.text(min_size=1), plain, max_size=8)


def words(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return differences(Identity(then), Identity(now))


def test_the_hash_can_be_made_again_from_the_record_by_anyone() -> None:
    record = Identity({"qemu.sha256": A, "guest.vcpus": 2, "settings.warmup": 0.5, "host.turbo": None, "host.cpu": "µ"}).record()
    text = json.dumps(record["determines"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert record["hash"] == hashlib.sha256(text.encode()).hexdigest()


@given(mappings)
def test_the_hash_survives_the_json_and_the_order_of_keys(mapping: dict[str, Any]) -> None:
    identity = Identity(mapping)
    read = Identity.of(json.loads(json.dumps({"identity": identity.record()})))
    assert read is not None and read.hash == identity.hash and differences(read, identity) == []
    assert Identity(dict(reversed(mapping.items()))).hash == identity.hash


@given(mappings, st.text(min_size=1), plain, plain)
def test_identities_of_the_same_keys_differ_in_words_exactly_if_their_hashes_do(
    mapping: dict[str, Any], key: str, one: Any, other: Any
) -> None:
    then, now = Identity({**mapping, key: one}), Identity({**mapping, key: other})
    assume(one != other or json.dumps(one) == json.dumps(other) or bool in (type(one), type(other)))  # as 1 and 1.0
    assert (then.hash != now.hash) == bool(differences(then, now))


@pytest.mark.parametrize("record", [None, {}, {"identity": None}, {"identity": 5}, {"identity": {"determines": []}}])
def test_a_record_without_an_identity_has_none(record: Any) -> None:
    assert Identity.of(record) is None


def test_another_qemu_is_named_with_version_and_checksum() -> None:
    then = {"qemu.version": "7.2.1", "qemu.sha256": A}
    assert words(then, {"qemu.version": "8.0.0", "qemu.sha256": B}) == [
        "QEMU: 7.2.1 (sha256 aaaaaaaaaaaa...) then, 8.0.0 (sha256 bbbbbbbbbbbb...) now"
    ]
    assert words(then, {"qemu.version": None, "qemu.sha256": None}) == ["QEMU: 7.2.1 (sha256 aaaaaaaaaaaa...) then, none now"]


@pytest.mark.parametrize(
    ("key", "then", "now", "expected"),
    [
        ("guest image.sha256", A, B, "guest image: sha256 aaaaaaaaaaaa... then, sha256 bbbbbbbbbbbb... now"),
        ("guest image.file", "/a (inode 1)", "/b (inode 2)", "guest image: /a (inode 1) then, /b (inode 2) now"),
        ("guest.vcpus", 1, 2, "guest vcpus: 1 then, 2 now"),
        ("host.turbo", True, False, "host turbo: on then, off now"),
        ("host.smt", True, 1, "host smt: on then, 1 now"),
        ("loadgen.governor", "powersave", None, "loadgen governor: powersave then, none now"),
        ("settings.warmup", 0.0, 25.0, "warmup: 0.0 then, 25.0 now"),
    ],
)
def test_each_difference_is_told_in_words(key: str, then: Any, now: Any, expected: str) -> None:
    assert words({key: then, "x": 1}, {key: now, "x": 1}) == [expected]


def test_of_a_list_only_what_differs_is_shown() -> None:
    then = several(["mds: Mitigation: Clear CPU buffers", "meltdown: Mitigation: PTI"])
    now = several(["mds: Mitigation: Clear CPU buffers", "meltdown: Vulnerable"])
    assert words({"host.mitigations": then}, {"host.mitigations": now}) == [
        "host mitigations: meltdown: Mitigation: PTI then, meltdown: Vulnerable now"
    ]
    fewer = several(["meltdown: Vulnerable"])
    assert words({"host.mitigations": now}, {"host.mitigations": fewer}) == [
        "host mitigations: mds: Mitigation: Clear CPU buffers then, none of it now"
    ]


def test_what_only_one_version_of_autotest_knows_is_no_difference() -> None:
    assert words({"a": 1, "old": 5}, {"a": 1, "new": 6}) == []
    assert words({"a": 1, "old": 5}, {"a": 2, "new": 6}) == ["a: 1 then, 2 now"]


def test_what_was_configured_for_several_guests_only_once_is_a_difference() -> None:
    assert words({"a": 1}, {"a": 1, "guests.nics": "8086:1592 8086:1592"}) == ["guests nics: none then, 8086:1592 8086:1592 now"]
    assert words({"a": 1, "guests.nics": "x"}, {"a": 1, "guests.nics": "x"}) == []


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        (None, "2-5", "placement cpus of vcpus: none then, 2-5 now"),
        ("2-5", None, "placement cpus of vcpus: 2-5 then, none now"),
        ("2-5", "2-4", "placement cpus of vcpus: 2-5 then, 2-4 now"),
    ],
)
def test_threads_that_only_one_of_them_placed_are_a_difference(then: str | None, now: str | None, expected: str) -> None:
    """An autotest that did not know of it placed none: what it measured is not what would be measured now."""
    key = "placement.cpus of vcpus"
    assert words({"a": 1} | ({key: then} if then else {}), {"a": 1} | ({key: now} if now else {})) == [expected]
