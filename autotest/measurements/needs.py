"""What a set-up of load latency needs of the servers; see :mod:`autotest.preflight`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from autotest.config.testbed import Testbed
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.plan.parameters import Case, Section
from autotest.preflight.machine import Files
from autotest.preflight.needs import (
    needs_of_guest,
    needs_of_interface,
    needs_of_loadgen,
    needs_of_moongen,
    needs_of_testbed,
)
from autotest.preflight.nics import FrameRoom, KernelNic
from autotest.preflight.requirement import Requirement
from autotest.servers.guest import GuestSettings
from autotest.traffic.frame_sizes import FrameSizes
from autotest.traffic.reflectors import REFLECTOR_KINDS, XDP_OBJECT


def requirements(testbed: Testbed, case: Case | None) -> Iterator[Requirement]:
    """What the case needs up to its last stage; of None, what every case does. What a guest has itself is not looked at."""
    if case is None:
        yield from needs_of_testbed(testbed)
        return
    yield from needs_of_loadgen(testbed)
    if case["machine"] != "host":
        yield from needs_of_guest(testbed, guest_settings(case), case["qemu"][0], count=case["guests"])
        return
    yield from needs_of_interface(testbed, INTERFACE_KINDS[case["interface"]], guest=False)
    if REFLECTOR_KINDS[case["reflector"]].needs_programs:
        yield from needs_of_moongen("host", testbed.host)
        return
    yield KernelNic("host")
    if testbed.host.xdp_reflector_dir:
        path = posixpath.join(testbed.host.xdp_reflector_dir, XDP_OBJECT)
        yield Files("host", (("xdp_reflector_dir", path),), "the reflector")


def needs_of_load(testbed: Testbed, section: Section) -> Iterator[Requirement]:
    """NICs that take its largest frames."""
    largest = max(FrameSizes.of(value).largest for value in section.lists["size"])
    yield FrameRoom("loadgen", largest)
    yield FrameRoom("host", largest)


def guest_settings(case: Case) -> GuestSettings:
    """The guest of a case."""
    return GuestSettings(
        machine=case["machine"],
        interface=INTERFACE_KINDS[case["interface"]],
        qemu_path=case["qemu"][1],
        options=InterfaceOptions(
            vhost=case["vhost"],
            ioregionfd=case["ioregionfd"],
            queues=case["queues"],
            rx_queue_size=case["rx_queue_size"],
            tx_queue_size=case["tx_queue_size"],
        ),
    )
