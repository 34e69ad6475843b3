"""Huge pages: what is free is used, what is missing is reserved and given back, and the kernel may give fewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hostile import FakeMachine, answers
from hypothesis import given, settings

from autotest.errors import TestbedError
from autotest.remote.local import LocalTransport
from autotest.remote.transport import Result
from autotest.servers.hugepages import (
    HugepageCount,
    Hugepages,
    HugepageState,
    parse_state,
)

POOL, NODE = "sys/kernel/mm/hugepages", "sys/devices/system/node/node{}/hugepages"
HERE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")


class Machine(LocalTransport):
    """This machine with another root, whose kernel has memory for so many huge pages, whatever is asked for."""

    def __init__(self, root: Path, most: int = 10_000) -> None:
        super().__init__("host")
        self.root, self.most = root, most

    @property
    def is_root(self) -> bool:
        return True

    def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
        assert command[:2] == ["sh", "-c"] and command[4] == str(self.root)
        kernel = f'printf() {{ if [ "$2" -gt {self.most} ]; then echo {self.most}; else echo "$2"; fi; }}\n'
        return super()._execute(command, ["sh", "-c", kernel + command[2], *command[3:]], data, timeout)


def pool(root: Path, where: str, size: int, **counts: int) -> None:
    folder = root / where / f"hugepages-{size}kB"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in counts.items():
        (folder / f"{name}_hugepages").write_text(f"{count}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes with 4 pages of 2 MiB each, of which 5 are free and 1 is promised; one page of 1 GiB."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16000000 kB\nHugePages_Total:       8\nHugepagesize:       2048 kB\n")
    (tmp_path / "proc/mounts").write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        "hugetlbfs /mnt/of\\0401\\040GiB hugetlbfs rw,relatime,pagesize=1024M 0 0\n"
        "hugetlbfs /dev/hugepages hugetlbfs rw,nosuid,nodev,relatime,pagesize=2M 0 0\n"
    )
    pool(tmp_path, POOL, 2048, nr=8, free=5, resv=1, surplus=0, nr_overcommit=0)
    pool(tmp_path, POOL, 1048576, nr=1, free=1, resv=0)
    for node, free in ((0, 2), (1, 3)):
        pool(tmp_path, NODE.format(node), 2048, nr=4, free=free, surplus=0)
    return tmp_path


@pytest.fixture
def notes() -> list[dict[str, str]]:
    return []


def pages(root: Path, notes: list[dict[str, str]], most: int = 10_000) -> Hugepages:
    def note(kind: str, /, *, machine: str = "", **details: str) -> None:
        assert kind == "hugepages"
        notes.append(details)

    return Hugepages(Machine(root, most), note, str(root))


def number(root: Path, where: str = POOL) -> int:
    return int((root / where / "hugepages-2048kB/nr_hugepages").read_text())


def restore(hugepages: Hugepages, note: dict[str, str]) -> bool:
    return hugepages.restore(note["path"], int(note["before"]), int(note["wanted"]))


def test_all_sizes_nodes_and_mounts_are_told(root: Path, notes: list[Any]) -> None:
    assert pages(root, notes).state() == HugepageState(
        2048,
        {2048: HugepageCount(8, 4), 1048576: HugepageCount(1, 1)},
        {0: {2048: HugepageCount(4, 2)}, 1: {2048: HugepageCount(4, 3)}},
        {"/mnt/of 1 GiB": 1048576, "/dev/hugepages": 2048},
    )


@pytest.mark.parametrize(("mib", "node"), [(8, None), (1, None), (4, 0), (6, 1)])
def test_free_ones_are_used_and_nothing_is_changed(root: Path, notes: list[Any], mib: int, node: int | None) -> None:
    pages(root, notes).require(mib, node)
    assert notes == [] and number(root) == 8 and number(root, NODE.format(1)) == 4


@pytest.mark.parametrize(
    ("mib", "node", "where", "wanted"), [(9, None, POOL, 9), (64, None, POOL, 36), (5, 0, NODE.format(0), 5)]
)
def test_what_is_missing_is_reserved_noted_and_given_back_once(
    root: Path, notes: list[dict[str, str]], mib: int, node: int | None, where: str, wanted: int
) -> None:
    hugepages = pages(root, notes)
    before = number(root, where)
    hugepages.require(mib, node)
    assert number(root, where) == wanted
    (note,) = notes
    assert note == {"path": f"{where}/hugepages-2048kB/nr_hugepages", "before": str(before), "wanted": str(wanted)}
    assert restore(hugepages, note) and number(root, where) == before
    assert not restore(hugepages, note) and number(root, where) == before


def test_it_is_noted_before_it_is_reserved(root: Path) -> None:
    def note(kind: str, /, *, machine: str = "", **details: str) -> None:
        raise TestbedError("the journal is full")

    with pytest.raises(TestbedError, match="the journal is full"):
        Hugepages(Machine(root), note, str(root)).require(64)
    assert number(root) == 8


def test_that_the_kernel_gives_fewer_is_told_and_what_it_gave_is_given_back(root: Path, notes: list[dict[str, str]]) -> None:
    hugepages = pages(root, notes, most=20)
    with pytest.raises(TestbedError) as raised:
        hugepages.require(64)
    assert "64 MiB of huge pages are needed, but the kernel has memory for only 12 of 28 more pages of 2048 KiB" in str(
        raised.value
    )
    assert "hugepages=36 on the kernel's command line" in str(raised.value)
    assert number(root) == 20
    assert restore(hugepages, notes[0]) and number(root) == 8


@pytest.mark.parametrize("changed", [4, 8, 37, 100])
def test_a_number_that_somebody_has_changed_since_stays(root: Path, notes: list[dict[str, str]], changed: int) -> None:
    hugepages = pages(root, notes)
    hugepages.require(64)
    pool(root, POOL, 2048, nr=changed)
    assert not restore(hugepages, notes[0]) and number(root) == changed


def test_a_node_that_is_not_there_is_told(root: Path, notes: list[Any]) -> None:
    with pytest.raises(TestbedError, match="host: there is no NUMA node 2 with huge pages; its nodes are 0, 1"):
        pages(root, notes).require(2, node=2)


def test_a_kernel_without_huge_pages_is_told(tmp_path: Path, notes: list[Any]) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16000000 kB\n")
    for use in (pages(tmp_path, notes).mount, lambda: pages(tmp_path, notes).require(2)):
        with pytest.raises(TestbedError, match="has no huge pages"):
            use()


@pytest.mark.parametrize(
    ("mounts", "folder"),
    [
        ("none /dev/hugepages hugetlbfs rw 0 0\n", "/dev/hugepages"),
        ("none /mnt/huge hugetlbfs rw,pagesize=2M 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n", "/dev/hugepages"),
        ("none /mnt/huge hugetlbfs rw,pagesize=2048K,size=1G 0 0\n", "/mnt/huge"),
        ("none /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\nnone /mnt/huge hugetlbfs rw 0 0\n", "/mnt/huge"),
    ],
)
def test_a_mount_of_the_default_size_is_found(root: Path, notes: list[Any], mounts: str, folder: str) -> None:
    (root / "proc/mounts").write_text(mounts)
    assert pages(root, notes).mount() == folder


@pytest.mark.parametrize(
    "mounts", ["", "none /dev/hugepages tmpfs rw 0 0\n", "none /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\n"]
)
def test_without_a_mount_the_remedy_is_told(root: Path, notes: list[Any], mounts: str) -> None:
    (root / "proc/mounts").write_text(mounts)
    with pytest.raises(TestbedError, match="no hugetlbfs of 2048 KiB pages is mounted: mkdir -p /dev/hugepages && mount -t"):
        pages(root, notes).mount()


@settings(max_examples=examples(60))
@given(answers)
def test_whatever_a_machine_answers_is_understood_or_a_clear_error(text: str) -> None:
    parse_state(text)
    hugepages = Hugepages(FakeMachine(lambda command: text))
    for use in (hugepages.mount, lambda: hugepages.require(2), lambda: hugepages.restore("sys/x", 1, 2)):
        try:
            use()
        except TestbedError as error:
            assert str(error).startswith("far: ")


@pytest.fixture
def real() -> Iterator[int]:
    """How many this machine has. Afterwards it has them again."""
    before = HERE.read_text()
    yield int(before)
    HERE.write_text(before)


@pytest.mark.default
def test_this_machines_kernel_gives_one_and_takes_it_back(real: int, notes: list[dict[str, str]]) -> None:
    def note(kind: str, /, *, machine: str = "", **details: str) -> None:
        notes.append(details)

    hugepages = Hugepages(LocalTransport("here"), note)
    state = hugepages.state()
    assert state.counts[2048].total == real and sum(counts[2048].total for counts in state.of_nodes.values()) == real
    hugepages.require(2 * state.counts[2048].free + 2)
    assert int(HERE.read_text()) == real + 1
    (note_made,) = notes
    assert restore(hugepages, note_made) and int(HERE.read_text()) == real
    assert not restore(hugepages, note_made)
