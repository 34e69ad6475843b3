"""Who holds a testbed: taken, given back and asked for on the host itself, by this very file.

It runs on the host, which may be another machine, and so imports nothing but Python's own library. Its argument is a JSON
object, and so is what it prints.

A testbed is held by records in a folder, one for each thing of the host that only one run can use. A record names a
process of the host that lives as long as its holder does: the holder itself, or the SSH server's process that serves its
connection. So the record of a dead holder is known as such by everybody.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from typing import Any

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def take(folder: str, things: list[str], record: dict[str, Any], force: bool, dead: list[str]) -> dict[str, Any]:
    """Hold all the things or none; ``replaced`` are the records of dead holders, ``held`` is the one in the way.

    ``dead`` are the ids of holders that are known to be dead, whatever their witness says; ``force`` takes it from
    anyone. A holder on the machine of who asks is in the way until that machine says that it is dead: its connection
    may be cut while it lives.
    """
    replaced = {}
    for thing in things:
        found = _read(_path(folder, thing))
        if found is None or found.get("id") == record["id"]:
            continue
        is_neighbour = found.get("machine") == record["machine"]
        if not force and found["id"] not in dead and (is_neighbour or _lives(found)):
            return {"held": found, "thing": thing}
        replaced[found["id"]] = found
    witness = record["witness"] or _connection()
    content = json.dumps({**record, "witness": witness, "boot": _boot()})
    for thing in things:
        temporary = _path(folder, thing) + ".new"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content)
        os.replace(temporary, _path(folder, thing))
    return {"replaced": list(replaced.values())}


def give_back(folder: str, things: list[str], record: dict[str, Any]) -> dict[str, Any]:
    """Let go of what this holder has."""
    for thing in things:
        found = _read(_path(folder, thing))
        if found is not None and found.get("id") == record["id"]:
            os.unlink(_path(folder, thing))
    return {}


def _path(folder: str, thing: str) -> str:
    return os.path.join(folder, thing.encode().hex() + ".held")


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path) as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:  # cut off by a crash of the machine
        return {"id": "damaged"}
    return found if isinstance(found, dict) and isinstance(found.get("id"), str) else {"id": "damaged"}


def _lives(record: dict[str, Any]) -> bool:
    witness = record.get("witness")
    if not witness or record.get("boot") != _boot():
        return record.get("boot") == _boot()  # without a witness only the machine's next boot tells
    return bool(_start(witness["pid"]) == witness["start"])


def _boot() -> str:
    with open(BOOT_ID) as file:
        return file.read().strip()


def _connection() -> dict[str, int] | None:
    """The SSH server's process that serves the connection over which this runs."""
    pid = os.getppid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as file:
            before, _, rest = file.read().rpartition(")")
        if before.partition("(")[2].startswith("sshd"):
            return {"pid": pid, "start": int(rest.split()[19])}
        pid = int(rest.split()[1])
    return None


def _start(pid: int) -> int | None:
    """When that process started; None when there is none, or it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def main() -> None:
    asked = json.loads(sys.argv[1])
    folder = asked["folder"]
    os.makedirs(folder, 0o700, exist_ok=True)
    guard = os.open(os.path.join(folder, "guard"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(guard, fcntl.LOCK_EX)  # given back by the kernel when this ends
    if asked["action"] == "take":
        answer = take(folder, asked["things"], asked["record"], asked["force"], asked["dead"])
    else:
        answer = give_back(folder, asked["things"], asked["record"])
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
