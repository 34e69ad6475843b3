"""The lab with one part exchanged for a variant of it, by nothing but its configuration."""

import shlex
import subprocess
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

from labtest import PROJECT, LabCommand

SOFTMOON = PROJECT / "moonprogs/softmoon/bin/MoonGen"
# Not as a real-time program: of those the kernel takes 50 ms a second (sched_rt_runtime_us), which are 1 % of a trial of 5 s.
_UNDISTURBED = f"exec nice -n -20 {shlex.quote(str(SOFTMOON))}"


def with_keys(lab: LabCommand, target: Path, **sections: Mapping[str, object]) -> LabCommand:
    """The lab with other values for keys of its configuration, by section."""
    parser = ConfigParser(interpolation=None)
    parser.read(lab.config)
    for section, values in sections.items():
        for key, value in values.items():
            assert key in parser[section], f"{section}.{key}"
            parser[section][key] = str(value)
    with target.open("w") as file:
        parser.write(file)
    return LabCommand(target, lab.before)


def moongen_like(folder: Path, script: str) -> Path:
    """A ``moongen_dir`` whose binary is a shell script; its arguments are what MoonGen would be given."""
    binary = folder / "bin/MoonGen"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    return folder


def undisturbed(folder: Path) -> Path:
    """A ``moongen_dir`` with softmoon, which the other programs of this machine do not keep waiting for a CPU."""
    return moongen_like(folder, f'{_UNDISTURBED} "$@"')


def altered(folder: Path, script: Path) -> Path:
    """A ``moongen_dir`` with a script around softmoon, which is given softmoon's command line."""
    return moongen_like(folder, f'exec sh {shlex.quote(str(script))} {shlex.quote(str(SOFTMOON))} "$@"')


def replaced(folder: Path, program: Path, *arguments: object) -> Path:
    """A ``moongen_dir`` with softmoon, undisturbed, that runs this program instead of the one that it is told to run."""
    return moongen_like(folder, f'shift\n{_UNDISTURBED} {shlex.quote(str(program))} "$@" {shlex.join(map(str, arguments))}')


def xdp_reflector(folder: Path, source: Path) -> Path:
    """An ``xdp_reflector_dir`` with that program in it."""
    folder.mkdir()
    command: list[str | Path] = [
        "clang",
        "-O2",
        "-g",
        "-mcpu=v3",
        "-target",
        "bpf",
        "-c",
        source,
        "-o",
        folder / "reflector.bpf.o",
    ]
    subprocess.run(command, check=True, timeout=30)
    return folder
