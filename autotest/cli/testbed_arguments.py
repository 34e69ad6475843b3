"""The parsers of the commands on a testbed."""

from __future__ import annotations

from pathlib import Path

from autotest.cli import commands, initialising, shell
from autotest.cli.options import Adder, memory, positive


def add_guest_commands(add: Adder) -> None:
    parser = add(
        "run-guest",
        commands.run_guest,
        "Set the networks up, start a guest, or several, and wait until it takes logins.",
        "autotest run-guest -m microvm -i macvtap -M 512",
    )
    parser.add_argument("-i", "--interface", default="bridge", help="interface to test (default bridge)")
    parser.add_argument("-m", "--machine", default="pcvm", help="pcvm or microvm (default pcvm)")
    parser.add_argument("-n", "--guests", type=positive, default=1, metavar="N", help="how many guests (default 1)")
    parser.add_argument("-C", "--cpus", type=positive, metavar="N", help="vCPUs (default: vcpus of [guest])")
    parser.add_argument("-M", "--memory", type=memory, metavar="MIB", help="memory, also like 2G (default: memory of [guest])")
    parser.add_argument("-D", "--disk", metavar="FILE", help="root disk (default: root_disk_file of [host])")
    parser.add_argument("-d", "--debug", action="store_true", help="with a GDB server for the guest's kernel")
    parser.add_argument("-I", "--ioregionfd", action="store_true", help="use-ioregionfd: needs a patched QEMU")
    parser.add_argument("-V", "--vhost", action="store_true", help="vhost in the kernel")
    parser.add_argument("-Q", "--queues", type=positive, metavar="N", help="pairs of queues")
    parser.add_argument("-r", "--rx-queue-size", type=positive, metavar="N", help="descriptors of a receive queue")
    parser.add_argument("-t", "--tx-queue-size", type=positive, metavar="N", help="descriptors of a transmit queue")
    parser.add_argument("-q", "--qemu-path", default="", metavar="PATH", help="QEMU: the program or its folder")
    add("kill-guest", commands.kill_guest, "End the guest, or all of several.", "autotest kill-guest")
    for name, command, text in (
        ("setup-network", commands.setup_network, "Set up the admin network and the links of an interface."),
        ("teardown-network", commands.teardown_network, "Undo setup-network, for one interface or for all."),
    ):
        parser = add(name, command, text, f"autotest {name} -i macvtap")
        default = "bridge" if name == "setup-network" else None
        parser.add_argument("-i", "--interface", default=default, help="interface to test")


def add_init_command(add: Adder) -> None:
    parser = add(
        "init",
        initialising.init,
        "Write a commented autotest.conf and tests.conf: the lab's, or for real machines, at which it looks over SSH.",
        "autotest init --host river --loadgen lake -o testbed",
    )
    parser.add_argument("--lab", action="store_true", help="for the built-in testbed, which needs no hardware")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write them (default: the current folder)")
    parser.add_argument("--host", metavar="NAME", help="the machine that runs the guests, as ssh knows it, or localhost")
    parser.add_argument("--loadgen", metavar="NAME", help="the machine that sends the load, as ssh knows it, or localhost")
    parser.add_argument("--ssh-config", metavar="FILE", help="how they are reached (default ~/.ssh/config)")
    parser.add_argument("--guest-image", metavar="PATH", help="guests' root disk on the host; none: no guests, only machine host")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="a value that is not asked for then, like host.test_iface=enp81s0f0; may be repeated",
    )
    parser.add_argument("-y", "--yes", action="store_true", help="ask nothing: take what is proposed, or end with what is needed")
    parser.add_argument("--no-check", action="store_true", help="do not look afterwards whether anything is missing")


def add_testbed_commands(add: Adder) -> None:
    add("ping", commands.ping, "Reach each server: how long it takes, or why it cannot be reached.", "autotest ping")
    parser = add(
        "shell",
        shell.shell,
        "A Python shell (IPython where it is installed) with host, guest, loadgen, plan and results as variables.",
        "echo 'print(host.ping())' | autotest shell",
    )
    parser.add_argument(
        "script", nargs="?", type=Path, metavar="FILE.py", help="run this Python program instead, with the same variables"
    )
    parser.add_argument(
        "-t", "--tests", nargs="+", type=Path, default=[], metavar="FILE", help="tests of the plan (default ./tests.conf)"
    )
    for short, name in (("-H", "host"), ("-G", "guest"), ("-L", "loadgen")):
        parser.add_argument(short, f"--no-{name}", action="store_true", help=f"without {name}")
    add(
        "upload-moonprogs",
        commands.upload_moonprogs,
        "Copy the MoonGen programs to the moonprogs_dir of host, guest and loadgen.",
        "autotest upload-moonprogs",
    )
    parser = add(
        "recover",
        commands.recover,
        "Undo what a run that was killed left on the servers, and what setup-network and run-guest set up.",
        "autotest recover",
    )
    parser.add_argument(
        "--take-over", action="store_true", help="even if another machine's autotest holds the testbed and may be alive"
    )
    parser.add_argument("--forget", action="store_true", help="forget afterwards what cannot be undone")
    parser = add("lab", commands.lab, "The built-in testbed.", "sudo autotest lab up")
    parser.add_argument("action", choices=("up", "down", "status"), help="bring it up, take it down, or say what there is of it")
