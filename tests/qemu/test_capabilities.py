"""What a QEMU build says of itself: the real one, builds made of it, and programs that are no QEMU."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import fake_qemu
import pytest
from examples import examples
from hostile import FakeMachine, json_values
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import AutotestError, CommandError, QemuError, TestbedError
from autotest.qemu.capabilities import inquire
from autotest.remote.local import LocalTransport

pytestmark = pytest.mark.default

HERE = LocalTransport("host")


def test_the_real_qemu_says_its_version_machines_and_devices() -> None:
    known = inquire(HERE, "qemu-system-x86_64")
    printed = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    assert f"version {known.version}\n" in printed
    assert known.program.startswith("/") and known.program.endswith("/qemu-system-x86_64")
    assert {"pc", "q35", "microvm", "none"} <= known.machines and "no-such-machine" not in known.machines
    assert {"virtio-net-pci", "virtio-net-device", "e1000", "rtl8139", "vfio-pci"} <= known.devices
    assert not {"no-such-device", "pci-device"} & known.devices


def test_properties_are_those_that_command_line_help_lists() -> None:
    devices = ("virtio-net-pci", "virtio-net-device", "e1000")
    known = inquire(HERE, "qemu-system-x86_64", devices)
    for device in devices:
        helped = subprocess.run(["qemu-system-x86_64", "-device", f"{device},help"], capture_output=True, text=True, check=True)
        listed = {line.strip().partition("=")[0] for line in helped.stdout.splitlines()[1:]}
        assert listed and listed <= (known.properties(device) or set())  # QMP lists old names, too


def test_a_device_that_is_not_there_or_cannot_be_made_has_no_properties_and_is_no_error() -> None:
    names = ["no-such-device", "pci-device", "microvm-machine", "", "a b", "$(x)", "-", "é", '"', "e1000,help"]
    known = inquire(HERE, "qemu-system-x86_64", names)
    assert [known.properties(name) for name in names] == [None] * len(names)


def test_objects_are_asked_about_like_devices() -> None:
    known = inquire(HERE, "qemu-system-x86_64", ["e1000"], ["memory-backend-memfd", "no-such-object"])
    assert {"size", "share", "hugetlb", "prealloc"} <= (known.properties("memory-backend-memfd") or set())
    assert known.properties("no-such-object") is None and "mac" in (known.properties("e1000") or set())


def test_nobody_takes_properties_that_were_not_asked_for_for_absent() -> None:
    known = inquire(HERE, "qemu-system-x86_64", ["e1000"])
    assert known.properties("no-such-device") is None
    with pytest.raises(LookupError, match="rtl8139"):
        known.properties("rtl8139")


def test_a_build_with_ioregionfd_is_told_from_one_without(tmp_path: Path) -> None:
    devices = ("virtio-net-device", "virtio-net-pci")
    plain = inquire(HERE, "qemu-system-x86_64", devices)
    patched = inquire(HERE, fake_qemu.build(tmp_path, more=fake_qemu.IOREGIONFD, package="v6.2.0-ioregionfd"), devices)
    for device in devices:
        without, having = plain.properties(device), patched.properties(device)
        assert without and having and having - without == {"use-ioregionfd"}
    assert patched.version.endswith(" (v6.2.0-ioregionfd)") and patched.machines == plain.machines


def test_a_build_for_vmux_is_told_from_one_without_and_one_that_lacks_something_from_a_full_one(tmp_path: Path) -> None:
    program = fake_qemu.build(tmp_path, more=fake_qemu.VFIO_USER, less=["microvm", "rtl8139"], package="")
    known = inquire(HERE, program, ["vfio-user-pci", "rtl8139"])
    assert "vfio-user-pci" in known.devices and "socket" in (known.properties("vfio-user-pci") or ())
    assert "microvm" not in known.machines and "pc" in known.machines
    assert "rtl8139" not in known.devices and known.properties("rtl8139") is None
    assert "(" not in known.version


def test_a_build_made_of_the_real_one_runs_guests_with_what_it_has_more(tmp_path: Path) -> None:
    options = ["-nodefaults", "-machine", "microvm", "-display", "none", "-S", "-monitor", "stdio"]
    options += ["-netdev", "hubport,id=n,hubid=0", "-device", "virtio-net-device,netdev=n,use-new=on"]

    def run(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *options], input="quit\n", capture_output=True, text=True, check=False, timeout=20)

    assert "use-new' not found" in run("qemu-system-x86_64").stderr
    made = run(fake_qemu.build(tmp_path, more={"virtio-net-device": ["use-new"]}))
    assert made.returncode == 0 and "(qemu)" in made.stdout


def test_a_script_around_qemu_may_speak_first_and_end_as_it_likes(tmp_path: Path) -> None:
    speaking = ["echo starting QEMU", "echo '{}'; echo '5'; echo", 'qemu-system-x86_64 "$@"', "exit 3"]
    assert "pc" in inquire(HERE, fake_qemu.script(tmp_path, *speaking)).machines


class AsUser(LocalTransport):
    """This machine with a login that is not root's, and may become root."""

    def argv(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        sudo: bool = False,
    ) -> list[str]:
        user = [] if sudo else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        return [*user, *super().argv(command, env=env, cwd=cwd)]


def test_a_build_in_a_folder_that_only_root_may_read_is_found(tmp_path: Path) -> None:
    program = fake_qemu.build(tmp_path)
    tmp_path.chmod(0o700)
    user = AsUser("host")
    assert user.run(["cat", program], check=False).code != 0
    assert inquire(user, program).program == program


# -- no QEMU, or none that works ---------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["/no/such/qemu-system-x86_64", "no-such-qemu", "-x", "$(true)", "a b"])
def test_a_program_that_is_absent_is_named_with_the_keys_that_name_it(program: str) -> None:
    with pytest.raises(TestbedError) as caught:
        inquire(HERE, program)
    assert str(caught.value).startswith(f"host: {program}: there is no such program: ")
    assert "qemu_path" in str(caught.value) and "qemus" in str(caught.value)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_may_not_be_executed_is_no_qemu(tmp_path: Path, kind: str) -> None:
    program = tmp_path / "qemu-system-x86_64"
    program.mkdir() if kind == "folder" else program.write_text("#!/bin/sh\n")
    with pytest.raises(TestbedError, match="may be executed"):
        inquire(HERE, str(program))


def test_a_build_that_misses_a_library_is_told_from_one_that_is_absent(tmp_path: Path) -> None:
    reason = "qemu-system-x86_64: error while loading shared libraries: libslirp.so.9: cannot open shared object file"
    with pytest.raises(QemuError, match=f"exit code 127: {reason}"):
        inquire(HERE, fake_qemu.dying(tmp_path, reason, code=127))


def test_one_that_dies_after_its_greeting_says_at_what(tmp_path: Path) -> None:
    said = spoken("{}", PC, "[]").splitlines()
    program = fake_qemu.script(tmp_path, *(f"echo '{line}'" for line in said), "echo Assertion failed >&2; kill -ABRT $$")
    with pytest.raises(QemuError, match="exit code 134 when it was asked device-list-properties e1000: Assertion failed"):
        inquire(HERE, program, ["e1000"])


def test_one_that_hangs_is_given_up_at_the_deadline_and_ended(tmp_path: Path) -> None:
    program = fake_qemu.script(tmp_path, f'echo $$ >"{tmp_path}/pid"', "sleep 1000")
    start = time.monotonic()
    with pytest.raises(QemuError, match="host: .*: it did not answer .*within 0.5 s"):
        inquire(HERE, program, timeout=0.5)
    assert time.monotonic() - start < 5
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


GREETING = '{"QMP": {"version": {"qemu": {"micro": 0, "minor": 0, "major": 8}, "package": ""}, "capabilities": []}}'
EVENT = '{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "SHUTDOWN"}'
PC = '[{"name": "pc-i440fx-8.0", "alias": "pc"}, {"name": "microvm"}]'


def spoken(*returned: str, greeting: str = GREETING) -> str:
    """A conversation with these values returned to one command after the other."""
    return "\n".join([greeting, *(f'{{"return": {text}, "id": {number}}}' for number, text in enumerate(returned))]) + "\n"


def test_a_right_conversation_is_understood_with_events_anywhere_in_it(tmp_path: Path) -> None:
    lines = spoken("{}", PC, '[{"name": "e1000", "parent": "pci-device"}]', "{}").splitlines()
    talk = "\n".join(part for line in lines for part in (line, EVENT))
    known = inquire(HERE, fake_qemu.saying(tmp_path, talk))
    assert known.version == "8.0.0"
    assert known.machines == {"pc-i440fx-8.0", "pc", "microvm"} and known.devices == {"e1000"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "does not speak QMP: it wrote nothing"),
        ("Usage: qemu [options]", "does not speak QMP: Usage: qemu"),
        (EVENT, "does not speak QMP"),
        (GREETING, "exit code 0 when it was asked qmp_capabilities"),
        (GREETING + "\nhello", "this is no QMP: 'hello'"),
        (GREETING + "\n[1]", "no QMP"),
        (GREETING + "\n" + "[" * 100_000, "no QMP"),
        (GREETING + '\n{"id": 0, "return": ' + "9" * 5000 + "}", "no QMP"),
        (GREETING + '\n{"return": {}}', "answers nothing that it was asked"),
        (spoken("{}", PC, "[]", "{}", "{}"), "answers nothing that it was asked"),
        ('{"QMP": null}\n' + spoken("{}", PC, "[]", "{}"), "answers nothing that it was asked"),
        (spoken("{}", PC, "[]", "{}", greeting='{"QMP": null}'), "without a version"),
        (spoken("{}", PC, "[]", "{}", greeting=GREETING.replace("8", '"8"')), "without a version"),
        (spoken("{}", "{}", "[]", "{}"), "no list of names"),
        (spoken("{}", '[{"name": 5}]', "[]", "{}"), "no list of names"),
        (spoken("{}", '["pc"]', "[]", "{}"), "no list of names"),
        (spoken("{}", PC, "null", "{}"), "no list of names"),
        (spoken("{}", PC, "[]", "{}").replace('"return": [],', '"error": {"desc": "not found"},'), "refuses.*not found"),
        (spoken("{}", PC, "[]", "{}").replace('"return": {},', '"error": 5,'), "refuses"),
    ],
    ids=lambda value: value[-40:],
)
def test_what_qemu_does_not_say_is_an_error_that_shows_it(tmp_path: Path, said: str, reason: str) -> None:
    program = fake_qemu.saying(tmp_path, said)
    with pytest.raises(QemuError, match=reason) as caught:
        inquire(HERE, program)
    assert str(caught.value).startswith(f"host: {program}: ") and len(str(caught.value)) < 1000


def test_an_error_about_a_devices_properties_that_says_something_else_is_not_taken_for_its_absence(tmp_path: Path) -> None:
    said = spoken("{}", PC, "[]", "X", "{}").replace('"return": X', '"error": {"class": "GenericError", "desc": "out of memory"}')
    with pytest.raises(QemuError, match="out of memory"):
        inquire(HERE, fake_qemu.saying(tmp_path, said), ["e1000"])


def test_where_nothing_can_be_started_as_root_the_program_is_not_to_blame() -> None:
    machine = FakeMachine(lambda command: 1)
    with pytest.raises(CommandError, match="far: .*qemu-x"):
        inquire(machine, "qemu-x")


@settings(max_examples=examples(150))
@given(st.lists(st.one_of(json_values, st.just({"id": 0, "return": []}), st.just(json.loads(GREETING))), max_size=5))
def test_any_other_json_is_an_error_of_ours(said: list[object]) -> None:
    machine = FakeMachine(lambda command: "\n".join(["/bin/qemu", *map(json.dumps, said)]))
    with pytest.raises(AutotestError):
        inquire(machine, "qemu", ["e1000"])


def test_types_of_objects_are_asked_for_beside_devices() -> None:
    known = inquire(HERE, "qemu-system-x86_64", ["e1000"], ["memory-backend-memfd", "no-such-object"])
    assert {"share", "size", "hugetlb", "prealloc"} <= (known.properties("memory-backend-memfd") or set())
    assert known.properties("no-such-object") is None and "mac" in (known.properties("e1000") or set())
