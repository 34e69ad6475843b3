"""The guest image without building one: recipe, cache, lock, formats."""

from __future__ import annotations

import bz2
import dataclasses
import fcntl
import gzip
import lzma
import os
import re
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotest.lab import image as image_module
from autotest.lab.guest import build as build_module
from autotest.lab.guest import initramfs, run, vmlinux
from autotest.lab.image import GuestImage, ImageError, Recipe, build
from autotest.qemu import tsc

KERNEL = b"\x7fELF" + bytes(range(256)) * 40


@pytest.fixture
def made_recipe(tmp_path: Path) -> Recipe:
    """A recipe whose parts can be changed."""
    files = tmp_path / "recipe"
    files.mkdir()
    own_files = tmp_path / "own"
    own_files.mkdir()
    (own_files / "packages.txt").write_text("tmux\n")
    (own_files / "modules.txt").write_text("virtio_net\n")
    for name in ("init", "fetch.sh", "sshd_config"):
        (files / name).write_text("#!/bin/sh\n")
    reflector = tmp_path / "traffic" / "reflector.bpf.c"
    reflector.parent.mkdir()
    reflector.write_text("int x;\n")
    return Recipe(files=files, own_files=own_files, reflector=reflector)


def fill(image: GuestImage, _: Recipe) -> None:
    """Stands in for the real build."""
    for path in (image.disk, image.kernel, image.initrd, image.known_hosts, image.xdp_reflector, image.packages):
        path.write_text("made")
    image.identity.touch(0o600)
    image.identity.write_text("made")


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the real build; gives the digests that were built."""
    calls: list[str] = []

    def fake(image: GuestImage, recipe: Recipe) -> None:
        calls.append(image.digest)
        fill(image, recipe)

    monkeypatch.setattr(image_module, "check_host", lambda: None)
    monkeypatch.setattr(image_module, "build_image", fake)
    return calls


@pytest.mark.parametrize(
    "change",
    [
        lambda r: (r.own_files / "packages.txt").write_text("tmux\nperf\n"),
        lambda r: (r.own_files / "modules.txt").write_text("virtio_net\ne1000\n"),
        lambda r: (r.own_files / "boot").write_text(""),
        lambda r: (r.files / "init").write_text("#!/bin/busybox sh\n"),
        lambda r: (r.files / "fetch.sh").write_text(""),
        lambda r: (r.files / "sshd_config").write_text(""),
        lambda r: r.reflector.write_text("int y;\n"),
        lambda r: (r.reflector.parent / "shared.h").write_text(""),
    ],
)
def test_every_part_of_the_recipe_changes_the_digest(made_recipe: Recipe, change: Callable[[Recipe], object]) -> None:
    before = made_recipe.digest()
    assert made_recipe.digest() == before
    change(made_recipe)
    assert made_recipe.digest() != before


@pytest.mark.parametrize(
    "settings",
    [{"name": "other"}, {"suite": "trixie"}, {"kernel": "linux-image-rt-amd64"}, {"disk_mib": 1024}, {"version": 99}],
)
def test_every_setting_of_the_recipe_changes_the_digest(made_recipe: Recipe, settings: dict[str, object]) -> None:
    assert dataclasses.replace(made_recipe, **settings).digest() != made_recipe.digest()  # type: ignore[arg-type]


def test_a_missing_reflector_is_an_image_error(made_recipe: Recipe) -> None:
    made_recipe.reflector.unlink()
    with pytest.raises(ImageError, match=r"reflector\.bpf\.c"):
        made_recipe.digest()


@pytest.mark.parametrize("name", ["modules.txt", "packages.txt"])
def test_a_missing_list_is_an_image_error(made_recipe: Recipe, name: str) -> None:
    (made_recipe.own_files / name).unlink()
    with pytest.raises(ImageError, match=re.escape(name)):
        made_recipe.digest()


def test_an_image_is_built_once_and_private(made_recipe: Recipe, tmp_path: Path, builds: list[str]) -> None:
    cache = tmp_path / "new" / "cache"
    first = build(cache, made_recipe)
    assert build(cache, made_recipe) == first
    assert builds == [first.digest]
    assert first.directory == cache / made_recipe.digest()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(first.directory.stat().st_mode) == 0o700


def test_an_incomplete_image_is_built_again(made_recipe: Recipe, tmp_path: Path, builds: list[str]) -> None:
    build(tmp_path, made_recipe).kernel.write_text("")
    assert build(tmp_path, made_recipe).missing() == []
    assert len(builds) == 2


@pytest.mark.parametrize("failure", [ImageError("no mirror"), KeyboardInterrupt()])
def test_a_failed_build_leaves_nothing_behind(
    made_recipe: Recipe, tmp_path: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(image: GuestImage, _: Recipe) -> None:
        image.disk.write_text("half")
        raise failure

    monkeypatch.setattr(image_module, "build_image", fail)
    cache = tmp_path / "cache"
    with pytest.raises(type(failure)):
        build(cache, made_recipe)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_what_a_killed_builder_left_is_removed(made_recipe: Recipe, tmp_path: Path, builds: list[str]) -> None:
    stale = tmp_path / ".partial-0123456789abcdef"
    (stale / "root").mkdir(parents=True)
    build(tmp_path, made_recipe)
    assert not stale.exists()


def test_a_build_without_all_files_is_an_error(
    made_recipe: Recipe, tmp_path: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_module, "build_image", lambda image, _: image.disk.write_text("x"))
    with pytest.raises(ImageError, match="vmlinux"):
        build(tmp_path / "cache", made_recipe)


def test_a_held_lock_times_out_with_the_reason(made_recipe: Recipe, tmp_path: Path, builds: list[str]) -> None:
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ImageError, match="still building"):
            build(tmp_path, made_recipe, lock_timeout_s=0)
    assert builds == []


def test_who_waited_for_the_lock_takes_the_others_image(made_recipe: Recipe, tmp_path: Path, builds: list[str]) -> None:
    """Another process holds the lock, completes the image and goes; then nothing is built here."""
    done = GuestImage(tmp_path / made_recipe.digest(), made_recipe.digest())
    program = (
        "import fcntl, sys, time, pathlib; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX);"
        "print('locked', flush=True); time.sleep(0.3);"
        "directory = pathlib.Path(sys.argv[2]); directory.mkdir();"
        "[(directory / name).write_text('x') for name in sys.argv[3:]]"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock"), str(done.directory), *done.missing()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"locked\n"
        assert build(tmp_path, made_recipe) == done
    assert builds == []


def test_building_needs_root_and_names_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="root"):
        build_module.check_host()
    monkeypatch.setattr(build_module.shutil, "which", lambda program: None if program == "mke2fs" else program)
    with pytest.raises(ImageError, match="apt-get install e2fsprogs"):
        build_module.check_host()


def test_a_failing_command_tells_its_arguments_code_and_stderr() -> None:
    with pytest.raises(ImageError, match=r"(?s)sh -c .*exit code 3.*no such thing"):
        run.run(["sh", "-c", "echo no such thing >&2; exit 3"])
    with pytest.raises(ImageError, match="cannot run nosuchprogram"):
        run.run(["nosuchprogram"])


def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(ImageError, match="was not done after"):
        run.run(["sh", "-c", f"sleep 60 & echo $! >{pid_file}; wait"], timeout_s=0.5)
    process = Path("/proc") / pid_file.read_text().strip() / "stat"
    deadline = time.monotonic() + 2
    while process.exists() and ") Z " not in process.read_text():
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.01)


def bzimage(payload: bytes) -> bytes:
    """The least that has the header of a bzImage; the payload begins 16 bytes into the protected-mode code."""
    header = bytearray(1024)
    header[0x1F1] = 1
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", header, 0x206, 0x20F)
    struct.pack_into("<II", header, 0x248, 16, len(payload))
    return bytes(header) + b"\xcc" * 16 + payload + b"rest"


def no_pipe(command: list[str], _: bytes) -> bytes:
    raise AssertionError(f"{command} is not needed")


SIZE = struct.pack("<I", len(KERNEL))


@pytest.mark.parametrize(
    "payload",
    [
        gzip.compress(KERNEL),
        bz2.compress(KERNEL) + SIZE,
        lzma.compress(KERNEL) + SIZE,
        lzma.compress(KERNEL, lzma.FORMAT_ALONE) + SIZE,
    ],
    ids=["gzip", "bzip2", "xz", "lzma"],
)
def test_the_kernel_is_taken_out_of_a_bzimage(payload: bytes) -> None:
    assert vmlinux.extract_vmlinux(bzimage(payload), no_pipe) == KERNEL


@pytest.mark.parametrize(("magic", "program"), [("02214c18", "lz4"), ("28b52ffd", "zstd")])
def test_lz4_and_zstd_are_left_to_their_programs(magic: str, program: str) -> None:
    packed = bytes.fromhex(magic) + b"packed"

    def pipe(command: list[str], data: bytes) -> bytes:
        assert command[0] == program
        assert data == packed
        return KERNEL

    assert vmlinux.extract_vmlinux(bzimage(packed + SIZE), pipe) == KERNEL


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"\x7fELF", "not a bzImage"),
        (bzimage(gzip.compress(KERNEL))[:1200], "cut off"),
        (bzimage(lzma.compress(KERNEL) + b"\x01\0\0\0"), "instead of 1"),
        (bzimage(gzip.compress(b"no kernel")), "not an ELF"),
        (bzimage(b"unknown format"), "unknown compression"),
        (bzimage(b"\x1f\x8bdamaged"), "damaged"),
    ],
)
def test_a_bad_bzimage_is_refused_with_the_reason(image: bytes, message: str) -> None:
    with pytest.raises(vmlinux.VmlinuxError, match=message):
        vmlinux.extract_vmlinux(image, no_pipe)


def test_modules_come_after_what_they_need_and_builtin_ones_not_at_all() -> None:
    text = "k/net-a.ko: k/mid.ko k/deep.ko\nk/mid.ko: k/deep.ko\nk/deep.ko:\nk/blk.ko: k/deep.ko\n"
    dependencies = initramfs.parse_dependencies(text)
    order = initramfs.load_order(dependencies, {"ext4"}, ["net_a", "ext4", "blk"])
    assert order == ["k/deep.ko", "k/mid.ko", "k/net-a.ko", "k/blk.ko"]
    with pytest.raises(initramfs.ModuleError, match="e1000"):
        initramfs.load_order(dependencies, set(), ["e1000"])


@pytest.mark.default
def test_cpio_reads_the_archive_back(tmp_path: Path) -> None:
    files = {name: bytes(length) for name, length in (("a", 0), ("bc", 1), ("def", 5))}
    data = initramfs.archive(initramfs.Entry(name, stat.S_IFREG | 0o640, data) for name, data in files.items())
    subprocess.run(["cpio", "-i", "--quiet"], input=data, cwd=tmp_path, check=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_only_debians_own_sources_of_the_suite_are_used() -> None:
    listed = (
        "Debian http://mirror/debian/ bookworm main\n"
        "Debian http://mirror/debian/ bookworm main\n"
        "Debian http://mirror/debian/ bookworm contrib\n"
        "Debian http://mirror/security/ bookworm-security main\n"
        "Debian http://mirror/debian/ trixie main\n"
        "Docker http://docker/ bookworm main\n"
        "$(ORIGIN) http://unknown/ bookworm main\n"
    )
    expected = ["deb http://mirror/debian/ bookworm main", "deb http://mirror/security/ bookworm-security main"]
    assert build_module.parse_targets(listed, "bookworm") == expected
    assert build_module.parse_targets("Debian http://mirror/ bookworm-updates main\n", "bookworm") == []


def test_a_recipe_list_has_one_word_a_line_and_comments() -> None:
    assert build_module.read_list("# head\n\ntmux   # why\nperf\n") == ["tmux", "perf"]
    shipped = Recipe().own_files
    assert "openssh-server" in build_module.read_list((shipped / "packages.txt").read_text())
    assert {"virtio_net", "e1000", "8139cp", "e1000e"} <= {*build_module.read_list((shipped / "modules.txt").read_text())}
    assert Recipe().name == "autotest-guest"


@pytest.mark.parametrize("name", ["init", "fetch.sh"])
def test_the_scripts_of_the_recipe_are_whole(name: str) -> None:
    subprocess.run(["sh", "-n", str(Recipe().files / name)], check=True)


def test_the_time_stamp_counter_has_one_rate() -> None:
    assert tsc.tsc_khz(0.05) == pytest.approx(tsc.tsc_khz(0.05), rel=1e-3)
