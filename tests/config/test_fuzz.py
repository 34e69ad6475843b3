"""Any text is either a configuration or a ConfigError that says where; nothing else ever comes out, and nothing is done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from examples import examples, is_few
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.config import lines
from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LabConfig,
    Testbed,
    load_testbed,
)
from autotest.config.tests import load_sections
from autotest.errors import ConfigError
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Section
from autotest.traffic.frame_sizes import FrameSizes

pytestmark = pytest.mark.filterwarnings("error")

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = {
    "testbed": [REPOSITORY / name for name in ("autotest.conf", "configs/lab-ssh.conf", "configs/real-testbed.conf")],
    "tests": [REPOSITORY / name for name in ("tests.conf", "configs/tests-virtio.conf")],
}

SECTIONS = ["host", "guest", "loadgen", "local", "common", "lab", "load-latency", "DEFAULT"]
LINKS = ["test_iface", "admin_bridge", "admin_tap", "test_bridge", "test_tap", "test_macvtap"]
KEYS = [*HostConfig.__dataclass_fields__, *GuestConfig.__dataclass_fields__, *LabConfig.__dataclass_fields__]
KEYS += [parameter.key for parameter in KIND.parameters] + [setting.name for setting in KIND.settings] + ["size", "username"]

HOSTILE = [
    # references: broken, missing, to themselves, in a circle, to everything
    "${", "${}", "${:}", "${a}", "${host:fqdn}", "${guest:fqdn}", "${a:b:c}", "$", "$$", "$$${fqdn}", "${fqdn}",
    "${memory}", "${DEFAULT:username}", "${projectDirectory}/x", "${common:lab_dir}", "%(fqdn)s", "%", "%d",
    "%h", "${${a}}", "${a\n b}",
    # what a shell, ssh, tmux, QEMU or the kernel would take for more than a name
    "$(reboot)", "$$(reboot)", "`reboot`", "; reboot", "a;reboot", "a|b", "a&b", "'", '"', "\\", "a'b", "-", "-rf",
    "--help", "-oProxyCommand=x", "a b", "a\tb", "a\n  b", "a\n\n  b", "~", "~/x", "~nobody-has-this/x", "~root/x", "..",
    ".", "/", "//", "a/b", "../../x", "/proc/x", "/dev/null/x", "x,if=none", "a,b", "a:b,c:", "a:/b,a:/c", "a:-b", "tap%d",
    "#", ";", "a #b", "[x]", "*", "?", "!", "eth0", "tap0", "br0", "a" * 15, "a" * 16, "ü" * 8, "ü", "a\u00a0b", "a\u2028b",
    "a\x85b", "\0", "a\0b", "\x1b[2J", "\x7f", "\u202e", "\ud800",
    # numbers and the like
    "0", "1", "2", "64", "-1", "+5", "007", "1_0", "1e9", "1.5", ".5", "5.", "0x10", "nan", "inf", "-inf", "٣", "１２", "²",
    "9" * 20, "1" * 5000, "-" + "9" * 4400, "0.1" + "0" * 400, "yes", "no", "ON", "true", "None", "null",
    # lists
    "", ",", ", ,", "a,,b", "1,1", "1, 2,\n 3", "host", "pcvm", "microvm, host", "bridge, macvtap", "xdp", "q:, q:/x",
    # units and ranges
    "1.5M", "1.5k", "20k", "1500kpps", "1m", "1.5 M", "2G", "1g", "512MiB", "90s", "1h", "0.5m", "1d", "5x", "M", "1Mx", "1M M",
    "1-4", "10-150/10", "10-155/10", "10-160*2", "150-10/10", "1-200000", "1-99999999999999999999", "1-2/0", "1-2*1", "1-8*2",
    "1-2*0", "0.5M-2M/0.5M", "1M-2M", "1-2M/1", "60-1514/727", "256-1024*2", "1-", "1--2", "1-2-3", "1-2/", "1-2*", "1/2", "1*2",
    "1-9999, " * 500, "10-22.5*1.5", "1-2*1." + "0" * 300 + "1", "60-64 | imix", "60:1-2", "default, 1-4", "٣-٤",
    # addresses
    "52:54:00:fa:00:60", "53:54:00:fa:00:60", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "0000:51:00.0", "51:ff.0", "::1/64",
    "10.0.0.1/24", "10.0.0.1/33", "10.0.0.1/-1", "224.0.0.1/4", "fe80::1%a;b/64", "localhost", "root@host", "@", "a@",
    "[::1]:22", "/" * 300, "a" * 300, "/run/x", "/run/../etc", "/etc", "🙂",
]  # fmt: skip

hostile = st.sampled_from(HOSTILE)
value = st.one_of(hostile, hostile, st.tuples(hostile, hostile).map("".join), st.text(max_size=12))
line = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(KEYS), value),
    st.builds("{}: {}".format, st.sampled_from(KEYS), value),
    st.sampled_from(SECTIONS).map("[{}]".format),
    st.builds("  {}".format, value),
    hostile,
)
# A file that is whole but for what follows: so that the last checks are reached, too.
WHOLE = [
    "", "[host]\nfqdn = a\n[guest]\nfqdn = b\n[loadgen]\nfqdn = c\n",
    "[t]\nmachines = pcvm\ninterfaces = bridge\nreflectors = xdp\nrates = 1\nsizes = 60\nruntimes = 1\noutputdir = o\n",
]  # fmt: skip
structured = st.builds("{}{}".format, st.sampled_from(WHOLE), st.lists(line, max_size=20).map("\n".join))

# Every key with a value that is right.
SERVER = {
    "fqdn": "{}.example", "netns": "n", "ssh_config": "/s", "ssh_as_root": "no", "test_iface": "nic",
    "test_iface_addr": "51:00.0", "test_iface_driv": "ice", "test_iface_dpdk_driv": "vfio-pci",
    "bind_in_use": "51:00.0, 0000:52:00.1",
    "test_iface_ip_net": "10.2.0.1/24", "moongen_dir": "/m", "moonprogs_dir": "/p", "xdp_reflector_dir": "/x",
    "tmux_socket": "t-{}",
}  # fmt: skip
HOST = {
    "netns": "hn", "test_iface_mac": "52:54:00:00:00:01", "admin_bridge": "ab", "admin_bridge_ip_net": "10.1.0.1/24",
    "admin_tap": "at", "test_bridge": "tb", "test_bridge_ip_net": "10.3.0.1/24", "test_tap": "tt", "test_macvtap": "tm",
    "test_iface_vfio_driv": "v", "test_iface_vfs": "2", "guest_nics": "53:00.0 52:54:00:00:00:09", "cpu_overcommit": "2",
    "qemu_path": "/q", "accelerator": "auto", "testpmd_path": "/t",
    "vhost_user_socket_path": "/s", "vmux_path": "/v", "vmux_qemu_path": "/v",
    "vmux_socket_path": "/v", "root_disk_file": "/d", "root_disk_snapshot": "yes", "fsdevs": "home:/home, nix:/nix",
    "cpus_vcpus": "2-5", "cpus_vhost": "6,7", "cpus_qemu": "0", "cpus_switch": "1", "scheduling_vcpus": "other",
    "scheduling_vhost": "fifo:1", "scheduling_qemu": "nice:-5", "scheduling_switch": "rr:99",
}  # fmt: skip
GUEST = {
    "test_iface_mac": "52:54:00:00:00:02", "vcpus": "2", "memory": "2G", "hugepages": "yes", "admin_iface_mac": "52:54:00:00:00:03",
    "cpu_model": "max", "kernel": "/k", "initrd": "/i", "kernel_args": "quiet a=b", "boot_timeout": "2m",
}  # fmt: skip
LAB = {"directory": "/run/l", "host_netns": "hn", "loadgen_netns": "ln", "guest_address": "10.1.0.2/24", "sshd": "no",
       "emulated_host": "no", "emulated_host_address": "10.4.0.2/24"}  # fmt: skip
LISTS = {
    "machines": "pcvm, host", "interfaces": "bridge, pnic", "qemus": "a:, b:/b", "vhosts": "no", "ioregionfds": "no",
    "queues": "default, 4", "rx_queue_sizes": "512", "tx_queue_sizes": "default",
    "guests": "1, 2", "weights": "even, 3:1", "reflectors": "xdp", "rates": "1, 2k, 10-40*2", "sizes": "60, imix, 60:7 590:4 | 1514", "runtimes": "1-3, 2m", "repetitions": "2", "warmup": "0.5m",
    "cooldown": "true", "accumulate": "yes", "outputdir": "o",
}  # fmt: skip


def server(name: str) -> dict[str, str]:
    return {key: text.format(name) for key, text in SERVER.items()}


FULL: dict[str, dict[str, dict[str, str]]] = {
    "testbed": {
        "host": server("host") | HOST,
        "guest": server("guest") | GUEST | {"netns": "hn"},
        "loadgen": server("loadgen") | {"netns": "ln", "test_iface_mac": "52:54:00:00:00:04"},
        "local": {"moonprogs_dir": "p", "notify_command": "mail -s 'a b' me"},
        "lab": LAB,
    },
    "tests": {"load-latency": LISTS},
}
PLACES = {kind: [(section, key) for section, keys in FULL[kind].items() for key in keys] for kind in FULL}


def only(kind: str) -> dict[str, bool]:
    """The loader that such a file is for."""
    return {name: name == kind for name in FULL}


def whole(kind: str, changed: Mapping[tuple[str, str], str]) -> str:
    """A testbed, or tests, that would be right but for the changed values."""
    rows = []
    for section, keys in FULL[kind].items():
        rows.append(f"[{section}]")
        rows += [f"{key} = {changed.get((section, key), text)}" for key, text in keys.items()]
    return "\n".join(rows)


MARKS = "[]=:#;$(){}%'\"`\\|&<> \n\r\t\0\v\f\x1b\x1c\x85\u00a0\u2028\ufeff\ud800a0-_.,@/é٣🙂"


@st.composite
def mutated(draw: st.DrawFn, originals: list[str]) -> str:
    """A real file with a few changes such as hands and editors make, and worse ones."""
    text = draw(st.sampled_from(originals))
    number = st.integers(0, 1 << 16)
    changes = st.lists(st.tuples(st.integers(0, 5), number, number, value), min_size=1, max_size=6)
    for change, where, other, what in draw(changes):
        rows = text.split("\n")
        row, second = where % len(rows), other % len(rows)
        at = where % (len(text) + 1)
        if change == 0:
            text = text[:at] + text[at + 1 + other % 3 :]
        elif change == 1:
            text = text[:at] + what + text[at:]
        elif change == 2:
            rows[row], rows[second] = rows[second], rows[row]
            text = "\n".join(rows)
        elif change == 3:
            text = "\n".join([*rows[:row], rows[second], *rows[row:]])
        elif change == 4:
            text = "\n".join([*rows[:row], *rows[row + 1 :]])
        else:  # only lines that have a value
            having = [index for index, content in enumerate(rows) if re.match(r"\w+ =", content)]
            if having:
                index = having[where % len(having)]
                rows[index] = f"{rows[index].partition('=')[0]}= {what}"
                text = "\n".join(rows)
    return text


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# -- what must be true of all that comes out ---------------------------------------------------------------


def assert_is_clear(error: ConfigError, file: Path) -> None:
    assert error.problems
    assert len(set(error.problems)) == len(error.problems)
    for problem in error.problems:
        assert problem.file == file
        for name in (problem.section, problem.key):
            assert name is None or (name.isprintable() and 0 < len(name) <= lines.LONGEST_NAME)
        # One line that a terminal shows as it is, of a length that somebody reads.
        assert problem.message and problem.message.isprintable() and len(problem.message) < 600
        assert problem.message == problem.message.strip()


def assert_is_harmless(testbed: Testbed) -> None:
    """Written without the loader's own rules: what a shell, ssh, tmux, QEMU or the kernel get to see is a name."""
    for section in ("host", "guest", "loadgen"):
        server = getattr(testbed, section)
        assert re.fullmatch(r"[^\s'\"`$;&<>|(){}*?!#~-][^\s'\"`$;&<>|(){}*?!#~]*", server.fqdn)
        for key in ("netns", "test_iface_driv", "test_iface_dpdk_driv"):
            name = getattr(server, key)
            assert name is None or (shlex.quote(name) == name and "/" not in name and name[0] not in "-.")
        socket = server.tmux_socket
        assert shlex.quote(socket) == socket and ":" not in socket and ".." not in socket.split("/")
        assert socket.startswith("/") or "/" not in socket
    names = [name for key in LINKS if (name := getattr(testbed.host, key)) is not None]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"(?!\.\.?$)[^-\s/:%,][^\s/:%,]{0,14}", name, re.ASCII) for name in names)
    macs = [testbed.host.test_iface_mac, testbed.guest.test_iface_mac, testbed.guest.admin_iface_mac]
    assert all(int(mac[:2], 16) % 2 == 0 for mac in macs if mac)
    for config in (testbed.host, testbed.guest, testbed.loadgen, testbed.local, testbed.lab):
        for text in vars(config).values() if config else ():
            if isinstance(text, str):
                assert text.isprintable() and (text[:1] != "-" or text == testbed.guest.kernel_args)
    for tag, folder in testbed.host.fsdevs:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}", tag) and not folder.startswith("-")
    if testbed.lab:
        assert shlex.quote(testbed.lab.directory) == testbed.lab.directory and ".." not in testbed.lab.directory
        assert testbed.lab.directory.startswith(("/run/", "/tmp/", "/var/tmp/"))
        assert testbed.lab.host_netns != testbed.lab.loadgen_netns


def assert_is_whole(sections: list[Section]) -> None:
    assert sections
    for section in sections:
        assert set(section.lists) == {parameter.name for parameter in KIND.parameters}
        assert all(values and len(set(values)) == len(values) for values in section.lists.values())
        assert all(re.fullmatch(r"[A-Za-z0-9][\w.+=@,:~-]*", name) for name, _ in section.lists["qemu"])
        assert all(path.isprintable() and not path.startswith("-") for _, path in section.lists["qemu"])
        assert all(number >= 1 for key in ("rate", "runtime", "guests") for number in section.lists[key])
        assert all(re.fullmatch(r"even|[1-9]\d*(:[1-9]\d*)+", weights) for weights in section.lists["weights"])
        for sizes in map(FrameSizes.of, section.lists["size"]):
            assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+:~-]*", sizes.name)
            assert all(60 <= size <= 1514 and weight >= 1 for guest in sizes.distributions for size, weight in guest)
        assert all(0 <= section.settings[key] <= 3600 for key in ("warmup", "cooldown"))
        assert str(section.settings["outputdir"]).isprintable()


Load = Callable[..., None]


@pytest.fixture
def load(watch, tmp_path_factory: pytest.TempPathFactory) -> Load:  # type: ignore[no-untyped-def]
    """Loads a file's content as a testbed, as tests, or as both, and checks whatever comes out."""
    file = tmp_path_factory.mktemp("fuzz") / "file.conf"

    def load(content: str | bytes, testbed: bool = True, tests: bool = True) -> None:
        file.write_bytes(content if isinstance(content, bytes) else as_bytes(content))
        with watch.nothing_happens():
            try:
                if testbed:
                    assert_is_harmless(load_testbed(file, REPOSITORY))
            except ConfigError as error:
                assert_is_clear(error, file)
            try:
                if tests:
                    assert_is_whole(load_sections(file, REPOSITORY, KIND.parameters, KIND.settings))
            except ConfigError as error:
                assert_is_clear(error, file)

    load("[hots]\nx = y\n")  # imports what is imported late
    return load


_PART = 25  # of the hostile values, where a part is tried


def fuzz(strategy: st.SearchStrategy[Any], many: int, check: Callable[..., None], **options: bool) -> None:
    @settings(max_examples=examples(many))
    @given(strategy)
    def example(drawn: Any) -> None:
        check(drawn, **options)

    example()


# -- 10 000 files ------------------------------------------------------------------------------------------


def test_any_text(load: Load) -> None:
    fuzz(st.one_of(st.text(max_size=100), st.text(MARKS, max_size=60)), 2500, load)


def test_any_bytes(load: Load) -> None:
    begins = st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"[host]\n", b"a=b\r\n", b""])
    fuzz(st.builds(bytes.__add__, begins, st.binary(max_size=60)), 1500, load)


def test_known_sections_and_keys_with_hostile_values(load: Load) -> None:
    fuzz(structured, 1500, load)


@pytest.mark.parametrize("kind", ["testbed", "tests"])
def test_whole_files_with_several_hostile_values(load: Load, kind: str) -> None:
    changes = st.dictionaries(st.sampled_from(PLACES[kind]), value, min_size=2, max_size=4)
    fuzz(changes.map(lambda changed: whole(kind, changed)), 1000, load, **only(kind))


@pytest.mark.parametrize("kind", ["testbed", "tests"])
def test_the_real_files_with_mistakes_in_them(load: Load, kind: str) -> None:
    fuzz(mutated([file.read_text() for file in REAL[kind]]), 1500, load, **only(kind))


def test_very_long_lines_and_very_many(load: Load) -> None:
    """Sizes at which anything that grows with their square would take minutes."""
    piece = st.sampled_from(
        ["a", " ", "\t", "a = b\n", "[a]\n", "=", "a,", "${", "${a}", "#", "\n", "  x\n", "$$", "é", "a = ${b}\n"]
    )
    start = st.sampled_from(["", "[t]\nrates = ", "[host]\nfqdn = ", "[host]\nb = x\na = ", "[common]\n"])
    times = st.sampled_from([5_000, 20_000] if is_few() else [5_000, 50_000, 600_000])
    fuzz(st.builds(lambda start, piece, times: start + piece * times, start, piece, times), 40, load)


@pytest.mark.parametrize("kind", ["testbed", "tests"])
def test_each_key_with_each_hostile_value(load: Load, kind: str) -> None:
    """Pairs of which a random choice would miss most; keys that all servers have, in one of them.

    A part of the pairs where few examples are wanted: each key with some values, and each value with some keys.
    """
    places = [(section, key) for section, key in PLACES[kind] if section not in ("guest", "loadgen") or key not in SERVER]
    for number, place in enumerate(places):
        for text in HOSTILE[number % _PART :: _PART] if is_few() else HOSTILE:
            load(whole(kind, {place: text}), **only(kind))


def test_the_whole_files_are_right_and_have_every_key(tmp_path: Path) -> None:
    testbed, tests = tmp_path / "autotest.conf", tmp_path / "tests.conf"
    testbed.write_text(whole("testbed", {}))
    tests.write_text(whole("tests", {}))
    loaded = load_testbed(testbed, tmp_path)
    for section, keys in FULL["testbed"].items():
        config = getattr(loaded, section)
        assert set(keys) == set(vars(config)) and None not in vars(config).values()
    assert load_sections(tests, tmp_path, KIND.parameters, KIND.settings)


# -- from the command line ---------------------------------------------------------------------------------


def test_a_dry_run_of_any_files_shows_the_tree_or_the_problems(  # type: ignore[no-untyped-def]
    watch, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy  # noqa: F401  # of the estimate: it sets environment variables when it is imported

    from autotest.cli.program import main

    folder = tmp_path_factory.mktemp("fuzz")
    testbed, tests = folder / "autotest.conf", folder / "tests.conf"
    arguments = ["-c", str(testbed), "test-load-lat-file", "--dry-run", str(tests)]
    codes = set()

    def run(testbed_text: str, tests_text: str) -> None:
        testbed.write_bytes(as_bytes(testbed_text))
        tests.write_bytes(as_bytes(tests_text))
        with watch.nothing_happens(writable=folder):
            code = main(arguments)
        output = capsys.readouterr()
        codes.add(code)
        assert "Traceback" not in output.err and "Error(" not in output.err
        if code == 0:
            assert re.search(r"^all: \d+ trials?, \d+ done, \d+ to do$", output.out, re.MULTILINE)
        else:
            assert code == 2 and output.out == ""
            shown = [row for row in output.err.splitlines() if str(testbed) in row or str(tests) in row]
            assert shown and all(len(row) < 1000 for row in shown)
        assert sorted(path.name for path in folder.iterdir()) == ["autotest.conf", "tests.conf"]

    programs = f"moonprogs_dir = {REPOSITORY}/moonprogs\n"
    testbed_texts = [re.sub(r"moonprogs_dir = (\.\./)?moonprogs\n", programs, file.read_text()) for file in REAL["testbed"]]
    tests_texts = [file.read_text() for file in REAL["tests"]]
    run(testbed_texts[0], tests_texts[0])
    run(
        testbed_texts[0],
        "[t]\nmachines = pcvm\ninterfaces = bridge\nreflectors = xdp\nrates = 1\nsizes = 60\nruntimes = 1\noutputdir = o\n",
    )
    assert codes == {0}
    run("[hots]", "[x]\nx = y")
    one_of_the_two = st.one_of(
        st.tuples(mutated(testbed_texts), st.just(tests_texts[0])),
        st.tuples(st.just(testbed_texts[0]), mutated(tests_texts)),
        st.tuples(mutated(testbed_texts), structured),
        st.tuples(st.text(MARKS, max_size=30), st.text(MARKS, max_size=30)),
    )
    fuzz(one_of_the_two, 300, lambda texts: run(*texts))
    assert codes == {0, 2}
