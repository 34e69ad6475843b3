"""What a reader of a page has in front of them: the folder in which its commands are run, and the machines that they reach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from doc_pages import PROJECT
from labtest import LabCommand, own_lab

for rooms in ("results", "report"):  # where tests of theirs make synthetic results
    sys.path.insert(0, str(PROJECT / "tests" / rooms))

SMALL_CAMPAIGN = """\
[load-latency]
machines = pcvm
interfaces = bridge, macvtap
reflectors = xdp
rates = 5, 10, 20
sizes = 60
runtimes = 1
repetitions = 2
outputdir = results
"""
MEASURED_CAMPAIGN = """\
[load-latency]
machines = pcvm, microvm
interfaces = bridge, macvtap
qemus = normal:
vhosts = no, yes
reflectors = xdp, moongen
rates = 10, 20, 50, 100, 200, 400, 700, 1000
sizes = 60, 1514
runtimes = 30
repetitions = 3
outputdir = results
"""
"""The campaign of the synthetic results."""


@dataclass(frozen=True)
class World:
    """What differs from an empty folder.

    Attributes:
        environment: variables.
        replaced: texts of the page's commands that stand for something of the tests'.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    replaced: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


Fill = Callable[[Path, LabCommand], World]
"""Makes the world in an empty folder beside a lab, which may be brought up; beside the folder is room for more."""


def nothing(folder: Path, lab: LabCommand) -> World:
    name = lab.config.stem
    return World(replaced={"/run/autotest-lab": f"/run/{name}-lab", "autotest-host": f"{name}-host"})


def small_lab(folder: Path, lab: LabCommand) -> World:
    """A lab and a small campaign, nothing measured."""
    shutil.copy(lab.config, folder / "autotest.conf")
    (folder / "tests.conf").write_text(SMALL_CAMPAIGN)
    return World()


def examples(folder: Path, lab: LabCommand) -> World:
    """A lab, and the examples that lie beside the pages."""
    shutil.copytree(PROJECT / "docs" / "examples", folder, dirs_exist_ok=True)
    return small_lab(folder, lab)


def results(folder: Path, lab: LabCommand) -> World:
    """Results of a campaign, its tests.conf, and those of two nights."""
    from example_campaign import fill_campaign

    shutil.copy(lab.config, folder / "autotest.conf")
    (folder / "tests.conf").write_text(MEASURED_CAMPAIGN)
    fill_campaign(folder / "results")
    for night, samples in (("last-night", 400), ("tonight", 500)):
        fill_campaign(folder / night, machines=["pcvm"], reflectors=["xdp"], sizes=[60], rates=[10, 20, 50], samples=samples)
    return World()


def real_machines(folder: Path, lab: LabCommand) -> World:
    """Two machines that are known by SSH alone: the lab's namespaces with their SSH servers, under the documentation's names.

    The user's home folder is a new one, with a key that the machines know.
    """
    lab.run("lab", "up")
    directory = next(Path("/run").glob(f"{lab.config.stem}-lab-ssh"))
    home, scratch = folder.parent / "home", folder.parent / "scratch"
    scratch.mkdir()
    (home / ".ssh").mkdir(parents=True)
    key = home / ".ssh" / "id_ed25519"
    shutil.copy(directory / "image" / "identity", key)
    key.chmod(0o600)
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], check=True, capture_output=True, text=True).stdout
    key.with_suffix(".pub").write_text(public)
    entries = [
        f"Host {name}.example.org\n  ProxyCommand ip netns exec {lab.config.stem}-ssh-{name} socat - TCP:127.0.0.1:22,nodelay\n"
        for name in ("host", "loadgen")
    ]
    entries.append(f"Match all\n  IdentityFile {key}\n  UserKnownHostsFile {home}/.ssh/known_hosts\n")
    (home / ".ssh" / "config").write_text("".join(entries))
    return World({"HOME": str(home)}, {"/scratch": str(scratch)})


def real_machines_with_image(folder: Path, lab: LabCommand) -> World:
    """The same, and a guest image that boots within seconds: the lab's, with the kernel's arguments that it needs."""
    world = real_machines(folder, lab)
    image = Path(f"/run/{lab.config.stem}-lab-ssh/image")
    scratch = Path(world.replaced["/scratch"])
    for name, there in (("guest.qcow2", "guest.qcow2"), ("vmlinuz", "vmlinux"), ("initrd.img", "initrd.img")):
        (scratch / name).symlink_to((image / there).resolve())
    own = "console=ttyS0 autotest.admin=52:54:00:fb:00:60,192.168.56.10/24 autotest.test=52:54:00:fa:00:60"
    ours = f"'guest.kernel_args={own}' --set guest.xdp_reflector_dir=/opt/autotest/xdp"
    return World(world.environment, {**world.replaced, "'guest.kernel_args=root=/dev/vda rw console=ttyS0'": ours})


def make_own(file: Path, lab: LabCommand) -> None:
    """Give a configuration that a page's commands have written names of the tests' own, beside those of this machine's user."""
    text = file.read_text()
    if "/run/autotest-lab" in text:
        own_lab(file, file, lab.config.stem)
    elif "data = /var/tmp/" in text:
        file.write_text(text.replace("data = /var/tmp/", f"data = {file.parent}/"))
