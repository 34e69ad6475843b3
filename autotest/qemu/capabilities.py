"""What a QEMU build can do, asked from the program itself: its version, machine types, devices and their properties.

Command-line help is no source: ``-device nosuch,help`` ends with exit code 0. QMP is: its answers have a structure, and a
QEMU without a machine gives them in a few hundredths of a second. The protocol and the commands:
https://www.qemu.org/docs/master/interop/qmp-spec.html and https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotest.errors import CommandError, CommandTimeout, QemuError, TestbedError
from autotest.remote.transport import Result, Transport

_TIMEOUT = 20.0  # seconds; it takes less than 0.1, and a few within an emulated machine
_ARGUMENTS = ("-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio")
_SHOWN = 500  # characters of what a program wrote, in an error

# Says first which file it starts, or why none: exit codes do not tell a missing program from one that misses a library.
_START = """
found=$(command -v -- "$0") || { echo absent; exit; }
[ -f "$found" ] && [ -x "$found" ] || { echo unusable; exit; }
printf '%s\\n' "$found"
exec "$found" "$@"
"""
_NOT_STARTED = {"absent": "there is no such program", "unusable": "this is no file that may be executed"}

_Object = dict[str, Any]


class _NotQmp(Exception):
    """Something was said that a QEMU does not say."""


@dataclass(frozen=True)
class Capabilities:
    """What one QEMU build can do.

    Attributes:
        program: the file that was asked, as the machine found it.
        version: as the build names itself, like ``7.2.22 (Debian 1:7.2+dfsg-7)``.
        machines: names and aliases of machine types: ``pc`` is one of them.
        devices: names of device types, without the aliases that ``-device`` also takes.
        properties_of: names of the properties of each device or object type that was asked about, None where there is none.
    """

    program: str
    version: str
    machines: frozenset[str]
    devices: frozenset[str]
    properties_of: Mapping[str, frozenset[str] | None]

    def properties(self, device: str) -> frozenset[str] | None:
        """The names of the properties of a device or object type, None where this build has none of that name.

        Raises:
            LookupError: it has, but its properties were not asked for.
        """
        if device in self.properties_of:
            return self.properties_of[device]
        if device in self.devices:
            raise LookupError(f"the properties of {device} were not asked for")
        return None


def inquire(
    transport: Transport,
    program: str,
    devices: Collection[str] = (),
    objects: Collection[str] = (),
    *,
    timeout: float = _TIMEOUT,
) -> Capabilities:
    """Ask a QEMU program of that machine in one command, as the one who runs guests with it: root.

    Args:
        program: its path, or a name that is looked up like that of any command.
        devices: the device types whose properties are wanted; they need not exist.
        objects: likewise types of ``-object``.
        timeout: seconds until the program counts as hanging.

    Raises:
        TestbedError: there is no such program, or it may not be executed.
        QemuError: it ends before it has answered, does not answer in time, or what it says is no QMP; with what it wrote.
        CommandError: nothing can be started as root there.
        ConnectError: the machine cannot be reached.
    """
    wanted = [("device-list-properties", name) for name in sorted(set(devices))]
    wanted += [("qom-list-properties", name) for name in sorted(set(objects))]
    commands: list[_Object] = [
        {"execute": "qmp_capabilities"},
        {"execute": "query-machines"},
        {"execute": "qom-list-types", "arguments": {"implements": "device", "abstract": False}},
        *({"execute": command, "arguments": {"typename": name}} for command, name in wanted),
        {"execute": "quit"},
    ]
    found, ended, output = _run(transport, program, commands, timeout)
    try:
        greeting, answers = _conversation(output.split("\n"), len(commands))
        if greeting is None or len(answers) < len(commands):
            raise _NotQmp(_why_silent(ended, output, None if greeting is None else commands[len(answers)]))
        for number in (0, len(commands) - 1):
            _returned(answers[number])
        return Capabilities(
            program=found,
            version=_version(greeting),
            machines=_machines(_returned(answers[1])),
            devices=_names(_returned(answers[2])),
            properties_of={name: _properties(answer) for (_, name), answer in zip(wanted, answers[3:-1], strict=True)},
        )
    except _NotQmp as error:
        raise QemuError(f"{transport.name}: {program}: {error}") from None


def _run(transport: Transport, program: str, commands: Sequence[_Object], timeout: float) -> tuple[str, Result, str]:
    """The file that was started, how it ended, and what it wrote to its output."""
    asked = "".join(json.dumps(command | {"id": number}) + "\n" for number, command in enumerate(commands))
    try:
        ended = transport.run(["sh", "-c", _START, program, *_ARGUMENTS], sudo=True, input=asked, timeout=timeout, check=False)
    except CommandTimeout as error:
        wrote = f": {_tail(error.stderr)}" if error.stderr.strip() else ""
        raise QemuError(f"{transport.name}: {program}: it did not answer QMP and end within {timeout:g} s{wrote}") from None
    if not ended.stdout:  # the shell itself did not start: no right to be root, say
        raise CommandError(transport.name, ended.command[3:], ended.code, ended.stderr)
    found, _, output = ended.stdout.partition("\n")
    if found in _NOT_STARTED:
        remedy = "install it there, or name another (qemu_path, or qemus in tests.conf)"
        raise TestbedError(f"{transport.name}: {program}: {_NOT_STARTED[found]}: {remedy}")
    return found, ended, output


def _why_silent(ended: Result, output: str, unanswered: _Object | None) -> str:
    """Why there is no greeting, or no answer to the command."""
    if unanswered:
        arguments = unanswered.get("arguments", {}).values()
        asked = " ".join([unanswered["execute"], *(value for value in arguments if isinstance(value, str))])
        return f"it ended with exit code {ended.code} when it was asked {asked}: {_tail(ended.stderr)}"
    wrote = _tail(ended.stderr.strip() or output)
    return f"it ended with exit code {ended.code}: {wrote}" if ended.code else f"it does not speak QMP: {wrote}"


def _tail(text: str) -> str:
    return text.strip()[-_SHOWN:] or "it wrote nothing"


def _conversation(lines: Sequence[str], count: int) -> tuple[_Object | None, list[_Object]]:
    """The greeting, None without one, and the answers that came, in the order of the commands.

    What a script around QEMU prints before the greeting is passed over. How QEMU ends does not matter once it has
    answered everything.
    """
    objects = ((line, _object(line)) for line in lines if line.strip())
    greeting = next((said for _, said in objects if said and "QMP" in said), None)
    answers: list[_Object] = []
    for line, said in objects:
        if said is None:
            raise _NotQmp(f"this is no QMP: {line[:_SHOWN]!r}")
        if "event" in said:
            continue
        if len(answers) == count or said.get("id") != len(answers):
            raise _NotQmp(f"this answers nothing that it was asked: {line[:_SHOWN]!r}")
        answers.append(said)
    return greeting, answers


def _object(line: str) -> _Object | None:
    """The JSON object that the line is; None where it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _returned(answer: _Object) -> Any:
    if "return" not in answer:
        raise _NotQmp(f"it refuses what every QEMU answers: {str(answer.get('error'))[:_SHOWN]}")
    return answer["return"]


def _version(greeting: _Object) -> str:
    match greeting["QMP"]:
        case {"version": {"qemu": {"major": int(major), "minor": int(minor), "micro": int(micro)}, "package": str(package)}}:
            return f"{major}.{minor}.{micro}" + (f" ({package})" if package else "")
    raise _NotQmp(f"a greeting without a version: {str(greeting)[:_SHOWN]}")


def _machines(listed: Any) -> frozenset[str]:
    aliases = [each["alias"] for each in _entries(listed) if isinstance(each.get("alias"), str)]
    return _names(listed) | frozenset(aliases)


def _properties(answer: _Object) -> frozenset[str] | None:
    match answer:
        case {"error": {"class": "DeviceNotFound"}}:
            return None
        case {"error": {"desc": str(reason)}} if "expects a" in reason:  # a type, but of no device that can be made
            return None
    return _names(_returned(answer))


def _names(listed: Any) -> frozenset[str]:
    return frozenset(each["name"] for each in _entries(listed))


def _entries(listed: Any) -> list[_Object]:
    """A list of objects that have a name, as the commands for lists return them."""
    if not isinstance(listed, list) or not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in listed):
        raise _NotQmp(f"this is no list of names: {str(listed)[:_SHOWN]}")
    return listed
