"""QEMU programs for tests: the one of this machine as another build would be, and programs that are none."""

import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

REAL = "qemu-system-x86_64"
IOREGIONFD = {"virtio-net-device": ["use-ioregionfd"], "virtio-net-pci": ["use-ioregionfd"]}
"""What builds with ioregionfd have more."""
VFIO_USER = {"vfio-user-pci": ["socket", "host", "bootindex"]}
"""What builds for vMux have more."""

# Asked over QMP on its standard input and output, it gives the real QEMU's answers, with what that build has more or less. On
# any other command line it is the real QEMU, which does not get the properties that it does not know.
_BUILD = """\
#!{python} -IS
import json, os, subprocess, sys

REAL, MORE, LESS, PACKAGE = {settings!r}
arguments = sys.argv[1:]
if arguments[-2:] != ["-qmp", "stdio"]:
    added = [name for names in MORE.values() for name in names]
    kept = [",".join(word for word in argument.split(",") if word.partition("=")[0] not in added) for argument in arguments]
    os.execvp(REAL, [REAL, *kept])

asked = sys.stdin.read()
commands = {{command.get("id"): command for command in map(json.loads, asked.splitlines())}}
ended = subprocess.run([REAL, *arguments], input=asked, stdout=subprocess.PIPE, text=True)
for line in ended.stdout.splitlines():
    said = json.loads(line)
    command = commands.get(said.get("id"), {{}})
    about = command.get("arguments", {{}}).get("typename")
    if "QMP" in said and PACKAGE is not None:
        said["QMP"]["version"]["package"] = PACKAGE
    elif about in LESS:
        said = {{"id": said["id"], "error": {{"class": "DeviceNotFound", "desc": f"Device '{{about}}' not found"}}}}
    elif about in MORE:
        names = said.get("return", []) + [{{"name": name, "type": "str"}} for name in MORE[about]]
        said = {{"id": said["id"], "return": names}}
    elif command.get("execute") in ("qom-list-types", "query-machines"):
        said["return"] = [each for each in said["return"] if not {{each["name"], each.get("alias")}} & set(LESS)]
    if command.get("execute") == "qom-list-types":
        there = [each["name"] for each in said["return"]]
        said["return"] += [{{"name": name, "parent": "device"}} for name in MORE if name not in there]
    print(json.dumps(said), flush=True)
sys.exit(ended.returncode)
"""


def build(folder: Path, *, more: Mapping[str, Iterable[str]] = {}, less: Iterable[str] = (), package: str | None = None) -> str:
    """A QEMU that has further devices and properties (``more``), or lacks devices and machine types (``less``).

    It runs guests, too, as the real QEMU does that it is made of. Returns the program's path.
    """
    real = shutil.which(REAL)
    assert real, f"these tests need {REAL}"
    settings = (real, {device: list(names) for device, names in more.items()}, list(less), package)
    return _program(folder, _BUILD.format(python=sys.executable, settings=settings))


def script(folder: Path, *lines: str) -> str:
    """A shell script under QEMU's name; returns its path."""
    return _program(folder, "\n".join(["#!/bin/sh", *lines, ""]))


def dying(folder: Path, says: str, code: int = 1) -> str:
    """A QEMU that ends at once, like one that misses a library."""
    return script(folder, f"echo {shlex.quote(says)} >&2", f"exit {code}")


def hanging(folder: Path) -> str:
    """A QEMU that never says anything."""
    return script(folder, "exec sleep 1000")


def saying(folder: Path, text: str) -> str:
    """A program that reads what it is asked and says always the same."""
    (folder / "says").write_text(text)
    return script(folder, "cat >/dev/null", f"cat {shlex.quote(str(folder / 'says'))}")


def _program(folder: Path, text: str) -> str:
    path = folder / REAL
    path.write_text(text)
    path.chmod(0o755)
    return str(path)
