"""What a QEMU build must be able to do: taken from the very command line of the guest, asked from the program itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotest.errors import QemuError, TestbedError
from autotest.preflight.requirement import Finding, Requirement, failed, passed, warned
from autotest.preflight.survey import Survey
from autotest.qemu import accelerator
from autotest.qemu.capabilities import Capabilities, inquire

# Of -device; all others are properties of the device itself. qdev_device_help and qdev_device_add of QEMU, system/qdev-monitor.c
_NO_PROPERTIES = ("driver", "id", "bus")
_NO_PROPERTIES_OF_OBJECTS = ("qom-type", "id")
_OTHER_BUILDS = "name a build that has it: qemus in tests.conf, or qemu_path in [host]"
_PATCHED = {
    "use-ioregionfd": "this needs the QEMU that is patched for ioregionfd: name its path in qemus of tests.conf",
    "vfio-user-pci": "this needs a QEMU with vfio-user: name its path in vmux_qemu_path of [host], or in qemus of tests.conf",
}


@dataclass(frozen=True)
class Build:
    """A QEMU build: its name in ``qemus`` or a key that names it, and its program."""

    name: str
    program: str

    def __str__(self) -> str:
        return f"QEMU {self.name}"


@dataclass(frozen=True)
class QemuProgram(Requirement):
    """A build that starts and answers."""

    build: Build

    @property
    def subject(self) -> str:
        return str(self.build)

    def look(self, survey: Survey) -> Finding:
        try:
            known = capabilities(survey, self.server, self.build.program)
        except TestbedError as error:  # what a terminal's user is told ends with the remedy
            detail, _, remedy = str(error).removeprefix(f"{self.server}: ").rpartition(": ")
            return failed(detail, remedy)
        except QemuError as error:
            return failed(str(error).removeprefix(f"{self.server}: "), f"see whether it starts by hand; {_OTHER_BUILDS}")
        return passed(f"{known.version}, {known.program}")


@dataclass(frozen=True)
class QemuMachine(Requirement):
    """A machine type of a build."""

    build: Build
    machine: str

    @property
    def subject(self) -> str:
        return f"{self.build}: machine"

    def look(self, survey: Survey) -> Finding:
        if self.machine in capabilities(survey, self.server, self.build.program).machines:
            return passed(self.machine)
        return failed(f"{self.build.program} has no machine type {self.machine}", _OTHER_BUILDS)


@dataclass(frozen=True)
class QemuType(Requirement):
    """A device (or with ``is_object`` another object) of a build, and those of its properties that are set."""

    build: Build
    name: str
    properties: tuple[str, ...]
    is_object: bool = False

    @property
    def subject(self) -> str:
        return f"{self.build}: {'object' if self.is_object else 'device'}"

    def look(self, survey: Survey) -> Finding:
        found = capabilities(survey, self.server, self.build.program).properties(self.name)
        if found is None:
            what = "object type" if self.is_object else "device"
            return failed(f"{self.build.program} has no {what} {self.name}", _PATCHED.get(self.name, _OTHER_BUILDS))
        missing = [name for name in self.properties if name not in found]
        if missing:
            remedy = next((_PATCHED[name] for name in missing if name in _PATCHED), _OTHER_BUILDS)
            return failed(f"{self.build.program}: {self.name} has no property {', '.join(missing)}", remedy)
        return passed(self.name)


def capabilities(survey: Survey, server: str, program: str) -> Capabilities:
    """What the build can do: asked once, about all that any requirement needs of it."""

    def ask() -> Capabilities:
        wanted = [each for each in survey.requirements if isinstance(each, QemuType) and each.build.program == program]
        devices = {each.name for each in wanted if not each.is_object}
        objects = {each.name for each in wanted if each.is_object}
        return inquire(survey.server(server).transport, program, devices, objects)

    return survey.once(("qemu", server, program), ask)


@dataclass(frozen=True)
class Accelerator(Requirement):
    """The accelerator that is configured; KVM is proved by booting ``kernel``, the machine's own where that is None."""

    program: str
    wanted: str
    kernel: str | None

    @property
    def subject(self) -> str:
        return "accelerator"

    def look(self, survey: Survey) -> Finding:
        server = survey.server(self.server)

        def choose(wanted: str) -> str:
            return accelerator.choose(wanted, server.transport, self.program, self.kernel, server.memory_dir)

        if self.wanted == "tcg":
            return passed("tcg, as configured")
        if self.wanted == "kvm":
            choose("kvm")  # raises where there is none
            if choose("auto") == "kvm":
                return passed("kvm, proved by booting once")
            return warned(
                "/dev/kvm is there, but no guest was seen to boot with it", "accelerator = auto in [host] takes TCG then"
            )
        if choose("auto") == "kvm":
            return passed("kvm, proved by booting once")
        if survey.testbed.lab:
            return passed("tcg: KVM does not work here")
        return warned(
            "KVM does not work: guests are emulated, many times slower", "turn virtualisation on in the firmware; load kvm"
        )


def needs_of_qemu(server: str, build: Build, command: Sequence[str]) -> Iterator[Requirement]:
    """What a command line needs of the build that it is for."""
    program = QemuProgram(server, build)
    yield program
    for option, value in pairwise(command):
        if option == "-machine":
            yield QemuMachine(server, build, split_options(value)[0][0], after=(program,))
        if option in ("-device", "-object"):
            (name, _), *given = split_options(value)
            left_out = _NO_PROPERTIES if option == "-device" else _NO_PROPERTIES_OF_OBJECTS
            names = tuple(key for key, _ in given if key not in left_out)
            yield QemuType(server, build, name, names, option == "-object", after=(program,))


def split_options(text: str) -> list[tuple[str, str]]:
    """``head,key=value,...`` as QEMU reads it, where two commas stand for one (util/keyval.c); the head without a value.

    >>> split_options("local,path=/a,,b,id=x")
    [('local', ''), ('path', '/a,b'), ('id', 'x')]
    """
    words = [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")]
    return [(key, value) for key, _, value in (word.partition("=") for word in words)]
