"""A macvtap for a QEMU: it opens none by name, but takes open files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autotest.interfaces.kind import MACVTAP_FD
from autotest.servers.server import Server

_OPENER = """\
import os, sys
device, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    opened = os.open(device, os.O_RDWR)
    if opened == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(opened, number)
        os.close(opened)
os.execvp(sys.argv[4], sys.argv[4:])
"""  # each opening of a macvtap is a queue of it


@contextmanager
def macvtap_opener(host: Server, name: str | None, queues: int) -> Iterator[list[str]]:
    """What goes in front of a command that gets the macvtap as open files, one for each queue; nothing without a macvtap.

    Where the kernel made no device file with the macvtap's number, there is one of ours until QEMU has opened it:
    in ``/dev`` and nowhere else, because device files elsewhere may not be opened.
    """
    if name is None:
        yield []
        return
    path, major, minor = host.links.macvtap_device(name)
    opener = ["python3", "-I", "-c", _OPENER]
    behind = [str(MACVTAP_FD), str(queues)]
    if host.run(["stat", "-c", "%t:%T", "--", path], check=False).stdout.strip() == f"{major:x}:{minor:x}":
        yield [*opener, path, *behind]
        return
    node = f"/dev/autotest-{name}"
    host.note("file", path=node)
    try:
        host.run(["rm", "-f", "--", node], sudo=True)
        host.run(["mknod", "-m", "600", "--", node, "c", str(major), str(minor)], sudo=True)
        yield [*opener, node, *behind]
    finally:  # alone: what was started meanwhile stays
        host.transport.outside.run(["rm", "-f", "--", node], sudo=True)
        host.journal.settle(host.name, "file", {"path": node})
