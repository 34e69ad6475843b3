"""A process between wire and guest is tried once without a guest, and nothing of it stays."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from preflight_bed import Bed, ip

from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.interfaces.kind import InterfaceOptions
from autotest.preflight.needs import needs_of_guest
from autotest.preflight.rehearsal import Rehearsal
from autotest.preflight.requirement import Status
from autotest.preflight.survey import Survey
from autotest.run.journal import UndoFailed
from autotest.servers import undoing
from autotest.servers.guest import GuestSettings

VMUX = Rehearsal("host", "vmux-emu", InterfaceOptions())
LISTENING = """\
#!{python}
import pathlib, socket, sys, time
path = sys.argv[sys.argv.index("-s") + 1]
pathlib.Path({seen!r}).write_text(open("/sys/class/net/nic/operstate").read())
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
time.sleep(60)
"""


def vmux(bed: Bed, folder: Path, text: str) -> None:
    program = folder / "vmux"
    program.write_text(text)
    program.chmod(0o755)
    bed.change(host={"vmux_path": str(program)})


def test_a_process_that_starts_passes_and_is_ended_with_all_that_was_set_up(bed: Bed, tmp_path: Path) -> None:
    ip(bed.loadgen, "link", "set", "nic", "down")
    seen = tmp_path / "seen"
    vmux(bed, tmp_path, LISTENING.format(python=sys.executable, seen=str(seen)))
    servers = bed.servers
    before = bed.links()
    finding = VMUX.look(Survey(servers))
    assert finding.status is Status.PASS, finding
    assert seen.read_text() == "up\n"  # the other end was brought up for it
    assert bed.links() == before
    assert not servers.host.session("vmux").is_running() and servers.journal.standing == ()


def test_a_process_that_dies_is_named_with_what_it_wrote(bed: Bed, tmp_path: Path) -> None:
    vmux(bed, tmp_path, "#!/bin/sh\necho one\necho two >&2\nexit 3\n")
    servers = bed.servers
    finding = VMUX.look(Survey(servers))
    first, *rest = finding.detail.splitlines()
    assert finding.status is Status.FAIL and first == "vmux ended with exit code 3:"
    assert {"one", "two"} <= set(rest) and "-v shows" in finding.remedy
    assert servers.journal.standing == ()


@pytest.mark.parametrize("text", [LISTENING, "#!/bin/sh\nexit 3\n"], ids=["starts", "dies"])
def test_what_cannot_be_undone_after_it_is_no_failed_check_but_the_end(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def stuck(server: object, **details: str) -> str:
        raise TestbedError("not given back")

    vmux(bed, tmp_path, text.format(python=sys.executable, seen=str(tmp_path / "seen")))
    servers = bed.servers
    with monkeypatch.context() as patched:
        patched.setitem(undoing._UNDOINGS, "link", stuck)
        with pytest.raises(UndoFailed, match="cannot undo host: link ") as raised:
            VMUX.look(Survey(servers))
    assert {change.kind for change, _ in raised.value.problems} == {"link"}
    assert servers.journal.standing and not servers.host.session("vmux").is_running()
    servers.journal.undo()


def test_nothing_is_tried_beside_a_guest_that_runs(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vmux(bed, tmp_path, "#!/bin/sh\ntouch started\n")
    servers = bed.servers
    monkeypatch.setattr(servers.host, "guest_is_running", lambda: True)
    finding = VMUX.look(Survey(servers))
    assert finding.status is Status.WARN and "kill-guest" in finding.remedy
    assert not servers.host.session("vmux").is_running()


@pytest.mark.parametrize("interface", list(INTERFACE_KINDS))
def test_just_the_kinds_with_a_process_are_rehearsed_once_whatever_the_ring_sizes(bed: Bed, interface: str) -> None:
    kind = INTERFACE_KINDS[interface]
    if kind.nic is None:
        return
    bed.change(host={"test_iface_addr": "0000:01:00.0", "test_iface_vfio_driv": "vfio-pci", "vmux_path": "/opt/vmux"})

    def rehearsals(**options: int) -> set[Rehearsal]:
        settings = GuestSettings(kind.machines[-1], kind, "", InterfaceOptions(**options))  # type: ignore[arg-type]
        needed = needs_of_guest(bed.testbed, settings, "default")
        return {each for each in needed if isinstance(each, Rehearsal)}

    assert rehearsals() == rehearsals(rx_queue_size=1024) and len(rehearsals()) == kind.has_process
