"""The check that nothing is left behind: of each kind of thing that a run could leave, it sees one that is there."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from traces import NAME, TEMPORARY, clear, left_since, traces

JOURNALS = Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "autotest/journals"


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=10)


@contextmanager
def _namespace() -> Iterator[None]:
    _run("ip", "netns", "add", f"{NAME}-trace")
    yield
    _run("ip", "netns", "delete", f"{NAME}-trace")


@contextmanager
def _link(name: str = "br-test") -> Iterator[None]:
    _run("ip", "link", "add", name, "type", "bridge")
    yield
    _run("ip", "link", "delete", name)


@contextmanager
def _process(**options: object) -> Iterator[None]:
    with subprocess.Popen(["sleep", "30"], **options) as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # the program has begun, its memory is not there yet
            pass
        yield
        process.kill()


@contextmanager
def _process_in_a_namespace_without_a_name(*others: str) -> Iterator[None]:
    nameless = {name: value for name, value in os.environ.items() if NAME not in value}
    with subprocess.Popen(["unshare", "--net", *others, "sleep", "30"], env=nameless) as process:
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            pass
        yield
        process.kill()


@contextmanager
def _tmux_server() -> Iterator[None]:
    _run("tmux", "-L", f"{NAME}-trace", "new-session", "-d", "sleep 30")
    yield
    _run("tmux", "-L", f"{NAME}-trace", "kill-server")


@contextmanager
def _mount(folder: Path) -> Iterator[None]:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "tmpfs", folder)
    yield
    _run("umount", folder)
    for each in missing:
        each.rmdir()


@contextmanager
def _file(path: Path) -> Iterator[None]:
    folders = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(NAME)
    yield
    path.unlink()
    for folder in folders:
        folder.rmdir()


@contextmanager
def _xdp_program(tmp_path: Path, name: str = "reflect_nothing") -> Iterator[None]:
    source, target = tmp_path / "pass.c", tmp_path / "pass.o"
    source.write_text(f'__attribute__((section("xdp"), used)) int {name}(void *context) {{ return 2; }} // XDP_PASS\n')
    _run("clang", "-O2", "-g", "-target", "bpf", "-c", source, "-o", target)
    own_mounts = ["unshare", "--mount"]  # ip mounts the file system of BPF where it is not
    _run(*own_mounts, "ip", "link", "set", "dev", "lo", "xdpgeneric", "obj", target, "sec", "xdp")
    yield
    _run("ip", "link", "set", "dev", "lo", "xdpgeneric", "off")


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        ("namespace", lambda _: _namespace()),
        ("link", lambda _: _link()),
        ("mount", lambda _: _mount(TEMPORARY / "mount")),
        ("process", lambda _: _process(env={"AUTOTEST_TEST_LAB": NAME, "PATH": os.environ["PATH"]})),
        ("process", lambda _: _process_in_a_namespace_without_a_name()),
        ("tmux server", lambda _: _tmux_server()),
        ("temporary file", lambda _: _file(Path(f"/tmp/autotest-{NAME}"))),
        ("temporary file", lambda _: _file(TEMPORARY / "trace")),
        ("state", lambda _: _file(Path(f"/run/{NAME}-trace"))),
        ("state", lambda _: _file(Path(f"/run/autotest/{NAME}/guest.pid"))),
        ("state", lambda _: _file(Path(f"/run/autotest/held/{f'tmux socket {NAME}'.encode().hex()}.held"))),
        ("journal", lambda _: _file(JOURNALS / "0123456789abcdef/2026-1.journal")),
        ("device file", lambda _: _file(Path(f"/dev/autotest-{NAME}"))),
        ("XDP program", _xdp_program),
    ],
)
def test_what_is_left_is_seen_and_what_is_gone_is_not(kind: str, left: Callable, tmp_path: Path):
    before = traces()
    with left(tmp_path):
        assert any(trace.startswith(f"{kind} ") for trace in traces() - before)
    assert left_since(before) == []


@pytest.mark.parametrize(
    "others",
    [
        lambda _: _link("trace0"),
        lambda folder: _mount(folder / "mount"),
        lambda _: _process_in_a_namespace_without_a_name("--user"),
        lambda folder: _xdp_program(folder, "dispatcher"),
    ],
    ids=["link", "mount", "container", "XDP program"],
)
def test_what_others_on_the_machine_make_meanwhile_is_not_seen(others: Callable, tmp_path: Path):
    before = traces()
    with others(tmp_path):
        assert traces() - before == set()


def test_what_a_run_left_that_was_ended_halfway_is_cleared():
    before = traces()
    state = Path(f"/run/autotest/{NAME}")
    namespace = f"{NAME}-trace"
    _run("ip", "netns", "add", namespace)
    state.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "tmpfs", state)
    (state / "guest.pid").write_text("1")
    TEMPORARY.mkdir()
    (TEMPORARY / "trace").touch()
    environment = os.environ | {"AUTOTEST_TEST_LAB": NAME, "TMPDIR": str(TEMPORARY)}
    journal = JOURNALS / "0123456789abcdef/2026-1.journal"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text(NAME)
    with (
        subprocess.Popen(["ip", "netns", "exec", namespace, "sleep", "30"]) as inside,
        subprocess.Popen(["sleep", "30"], env=environment) as beside,
    ):
        assert len(traces() - before) >= 6
        clear()
        assert (inside.wait(5), beside.wait(5)) == (-9, -9)
        assert left_since(before) == [] and not TEMPORARY.exists()
    journal.parent.rmdir()
