"""l2-load-latency.lua with several guests, load tasks and mixes of frame sizes, over a veth pair with real frames."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from moonwire import DUT_MAC, MOONPROGS, ROOT, Wire, wait_until

GUEST = re.compile(
    r"^\x1b\[1;37m\[INFO\]  Guest (\d+) \(([0-9a-f:]{17})\): sent (\d+) frames with (\d+) bytes, "
    r"received (\d+) frames with (\d+) bytes \(incl\. CRC\), (\d+) latency samples\x1b\[0m$",
    re.MULTILINE,
)
TOTAL = re.compile(r"(RX|TX)\x1b\[0m: .*, total (\d+) packets with (\d+) bytes")
TEST_FRAMES = re.compile(r"Test frames: sent (\d+) in ([\d.]+) s, received (\d+), (\d+) of them in a drain of ([\d.]+) s")
FIRST = "52:54:00:fa:00:60"
IMIX = {60: 7, 590: 4, 1514: 1}
PART = 24  # an imix of at least 16 frames: twice 7 + 4 + 1

# Of the offered load: enough to tell. How much of it can be sent on a busy machine is not the question here.
MOST = 0.3


@dataclass(frozen=True)
class Guest:
    mac: str
    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    samples: int


class Output(str):
    """What a run printed."""

    @property
    def guests(self) -> list[Guest]:
        found = GUEST.findall(self)
        assert [int(number) for number, *_ in found] == list(range(1, len(found) + 1))
        return [Guest(mac, *map(int, figures)) for _, mac, *figures in found]

    @property
    def totals(self) -> dict[str, tuple[int, int]]:
        return {direction: (int(frames), int(size)) for direction, frames, size in TOTAL.findall(self)}


def measure(
    wire: Wire, histogram: Path, addresses: str, *options: object, program: str | Path = "l2-load-latency.lua", status: int = 0
) -> Output:
    """Run the load for half a second at 5 kpps, unless the options say otherwise."""
    result = wire.loadgen.moongen(program, 0, addresses, "-r", 5, "-T", 0.5, "-f", histogram, *options)
    assert result.returncode == status, result.stdout + result.stderr
    return Output(result.stdout)


class Peer:
    """The Python program at the other end."""

    def __init__(self, wire: Wire, directory: Path, *options: str) -> None:
        self._record, log = directory / "record.txt", directory / "peer.log"
        self._dut = wire.dut
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    wire.dut.namespace,
                    sys.executable,
                    str(Path(__file__).parent / "capturing_peer.py"),
                    str(self._record),
                    *options,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wire.dut.processes.append(process)
        wait_until(lambda: "peer ready" in log.read_text(), "peer ready", 10)

    def frames(self) -> list[tuple[str, int]]:
        """Ends it; destinations and sizes of the frames that were on the wire, in order."""
        self._dut.end_processes()
        return [(line.split()[0], int(line.split()[1])) for line in self._record.read_text().splitlines()]


def reflect(wire: Wire, directory: Path) -> None:
    wire.dut.attach_xdp(ROOT / "autotest" / "traffic" / "reflector.bpf.c", directory)


def by_guest(frames: list[tuple[str, int]]) -> dict[str, list[int]]:
    sizes = defaultdict(list)
    for destination, size in frames:
        sizes[destination].append(size)
    return sizes


def assert_in_proportion(sizes: list[int], weights: dict[int, int], tasks: int = 1) -> None:
    """What is off is part of a part, of each load task."""
    counts, total = Counter(sizes), sum(weights.values())
    assert set(counts) <= set(weights)
    for size, weight in weights.items():
        assert abs(counts[size] - len(sizes) * weight / total) <= PART * tasks, counts


def test_each_guest_gets_its_frames_and_its_line_tells_them(wire: Wire, tmp_path: Path) -> None:
    peer = Peer(wire, tmp_path)

    output = measure(wire, tmp_path / "h.csv", "52:54:00:FA:00:60,52:54:00:fa:00:07,52:54:00:fa:00:62")

    guests, on_wire = output.guests, by_guest(peer.frames())
    assert [guest.mac for guest in guests] == [FIRST, "52:54:00:fa:00:07", "52:54:00:fa:00:62"]
    assert {guest.mac: guest.sent for guest in guests} == {mac: len(sizes) for mac, sizes in on_wire.items()}
    assert all(guest.received == guest.sent == guest.samples and guest.sent_bytes == 64 * guest.sent for guest in guests)
    assert max(guest.sent for guest in guests) - min(guest.sent for guest in guests) <= 1
    assert sum(guest.sent for guest in guests) == output.totals["TX"][0] >= MOST * 2500


def test_frames_that_one_guest_drops_are_its_loss_and_only_its(wire: Wire, tmp_path: Path) -> None:
    Peer(wire, tmp_path, "dropped=52:54:00:fa:00:61,10")

    guests = measure(wire, tmp_path / "h.csv", FIRST, "--count", 3, "-s", 100, "--drain", 0.2).guests

    assert [guest.received for guest in guests] == [guests[0].sent, guests[1].sent - guests[1].sent // 10, guests[2].sent]
    assert guests[1].sent // 10 > 10
    assert [guest.received_bytes for guest in guests] == [guest.received * 104 for guest in guests]
    assert [guest.samples for guest in guests] == [guest.received for guest in guests]


def test_sizes_on_the_wire_are_in_proportion_for_every_guest(wire: Wire, tmp_path: Path) -> None:
    peer = Peer(wire, tmp_path)

    output = measure(wire, tmp_path / "h.csv", FIRST, "--count", 3, "-s", "imix~60:7+590:4+1514:1~200", "-T", 1.5)

    frames = peer.frames()
    sizes = by_guest(frames)
    first, second, third = (guest.mac for guest in output.guests)
    assert_in_proportion(sizes[first], IMIX)
    assert_in_proportion(sizes[second], IMIX)
    assert set(sizes[third]) == {200}
    assert sizes[first] != sizes[second]  # shuffled, each in its own way
    assert output.totals["TX"][1] == sum(size + 4 for _, size in frames)
    assert [guest.sent_bytes for guest in output.guests] == [
        sum(size + 4 for size in sizes[mac]) for mac in (first, second, third)
    ]
    assert [guest.received_bytes for guest in output.guests] == [guest.sent_bytes for guest in output.guests]


def test_sizes_of_a_mix_are_within_one_percent_on_the_wire(wire: Wire, tmp_path: Path) -> None:
    peer = Peer(wire, tmp_path)

    measure(wire, tmp_path / "h.csv", DUT_MAC, "-s", "imix", "-T", 3)

    counts, total = Counter(size for _, size in peer.frames()), 0
    total = sum(counts.values())
    assert total >= MOST * 15000
    for size, weight in IMIX.items():
        assert counts[size] == pytest.approx(total * weight / 12, rel=0.01)


def test_two_runs_send_the_same_sequence_and_another_seed_another(wire: Wire, tmp_path: Path) -> None:
    sequences = []
    for seed in ((), (), ("--seed", 2)):
        peer = Peer(wire, tmp_path)
        measure(wire, tmp_path / "h.csv", FIRST, "--count", 4, "-s", "imix", *seed)
        sequences.append(peer.frames())
    length = min(map(len, sequences))
    first, second, other = (sequence[:length] for sequence in sequences)

    assert length >= MOST * 2500
    assert first == second != other
    assert [destination for destination, _ in first] == [destination for destination, _ in other]


def test_a_guests_sizes_are_the_same_in_two_runs_wherever_the_samples_fall(wire: Wire, tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        peer = Peer(wire, tmp_path)
        measure(wire, tmp_path / "h.csv", FIRST, "--count", 3, "-s", "imix", "-r", 15)
        runs.append(by_guest(peer.frames()))

    assert set(runs[0]) == set(runs[1]) and len(runs[0]) == 3
    for mac, sizes in runs[0].items():
        common = min(len(sizes), len(runs[1][mac]))
        assert common > 500
        assert sizes[:common] == runs[1][mac][:common]


def test_weights_share_the_load_and_the_samples(wire: Wire, tmp_path: Path) -> None:
    reflect(wire, tmp_path)

    output = measure(wire, tmp_path / "h.csv", FIRST, "--count", 3, "--weights", "6:2:2", "-r", 20)

    sent = [guest.sent for guest in output.guests]
    assert abs(sent[0] - 3 * sent[1]) <= 6 and abs(sent[1] - sent[2]) <= 2
    samples = [guest.samples for guest in output.guests]
    assert sum(samples) < sum(sent)
    assert abs(samples[0] - 3 * samples[1]) <= 6 and abs(samples[1] - samples[2]) <= 2 < samples[2]


def test_guests_file_holds_the_samples_of_each_guest_ascending(wire: Wire, tmp_path: Path) -> None:
    reflect(wire, tmp_path)
    path, histogram = tmp_path / "guests.csv", tmp_path / "h.csv"

    output = measure(wire, histogram, FIRST, "--count", 12, "--guests-file", path)

    rows = [tuple(map(int, line.split(","))) for line in path.read_text().splitlines()]
    assert [row[:2] for row in rows] == sorted({row[:2] for row in rows})
    total: Counter[int] = Counter()
    own: Counter[int] = Counter()
    for guest, nanoseconds, count in rows:
        own[guest] += count
        total[nanoseconds] += count
    assert own == {number: guest.samples for number, guest in enumerate(output.guests, 1)}
    assert total == dict(tuple(map(int, line.split(","))) for line in histogram.read_text().splitlines())


def test_with_one_address_nothing_is_told_of_guests(wire: Wire, tmp_path: Path) -> None:
    reflect(wire, tmp_path)
    path = tmp_path / "guests.csv"

    for options in ((), ("--count", 1)):
        output = measure(wire, tmp_path / "h.csv", DUT_MAC, "--guests-file", path, *options)
        assert "uest" not in output
        assert not path.exists()


@pytest.mark.parametrize("address", [DUT_MAC, "ff:ff:ff:ff:ff:ff"])
def test_one_address_gets_frames_of_the_one_size_in_bursts_too(wire: Wire, tmp_path: Path, address: str) -> None:
    peer = Peer(wire, tmp_path)

    output = measure(wire, tmp_path / "h.csv", address, "-s", 100, "-r", 300, "-T", 0.2)

    frames, size = output.totals["TX"]
    assert size == 104 * frames and frames > 1000
    assert set(peer.frames()) == {(address, 100)}


@pytest.mark.parametrize("tasks", [2, 3])
def test_the_totals_are_those_of_all_load_tasks_and_the_drain_ends_when_all_is_back(
    wire: Wire, tmp_path: Path, tasks: int
) -> None:
    reflect(wire, tmp_path)

    output = measure(wire, tmp_path / "h.csv", FIRST, "--count", 2, "-s", "imix", "-t", tasks, "--drain", 5)

    sent, _, received, _drained, drain = TEST_FRAMES.search(output).groups()
    assert (int(sent), int(received)) == (output.totals["TX"][0], output.totals["RX"][0])
    assert MOST * 2500 <= int(sent) == int(received) <= 2500
    assert float(drain) < 4
    assert sum(guest.sent for guest in output.guests) == sum(guest.received for guest in output.guests) == int(sent)
    assert sum(guest.sent_bytes for guest in output.guests) == output.totals["TX"][1]
    assert all(guest.sent >= MOST * 1250 for guest in output.guests)


LATE = """
-- The second load task begins this many milliseconds late.
local mg = require "moongen"
dofile("%s/l2-load-latency.lua")
local send = loadTask
function loadTask(...)
    mg.sleepMillisIdle(%d)
    return send(...)
end
"""


@pytest.mark.parametrize(("late", "least", "most"), [(150, 0.5, 0.64), (1500, 1.5, 4)], ids=["in time", "too late"])
def test_load_tasks_begin_together_or_the_time_is_that_from_the_first_to_the_last(
    wire: Wire, tmp_path: Path, late: int, least: float, most: float
) -> None:
    reflect(wire, tmp_path)
    program = tmp_path / "late.lua"
    program.write_text(LATE % (MOONPROGS, late))
    for name in MOONPROGS.glob("load-*.lua"):
        (tmp_path / name.name).symlink_to(name)

    output = measure(wire, tmp_path / "h.csv", FIRST, "-t", 2, program=program)

    assert least <= float(TEST_FRAMES.search(output)[2]) < most


def test_every_load_task_sends_the_mix_to_all_guests(wire: Wire, tmp_path: Path) -> None:
    peer = Peer(wire, tmp_path)

    measure(wire, tmp_path / "h.csv", FIRST, "--count", 2, "-s", "imix", "-t", 2, "-T", 1)

    sizes = by_guest(peer.frames())
    assert len(sizes) == 2
    for own in sizes.values():
        assert len(own) >= MOST * 2500
        assert_in_proportion(own, IMIX, tasks=2)


def test_frames_that_are_of_no_guest_count_in_the_total_only(wire: Wire, tmp_path: Path) -> None:
    Peer(wire, tmp_path, "foreign=10")

    output = measure(wire, tmp_path / "h.csv", FIRST, "--count", 2)

    sent, received = output.totals["TX"][0], output.totals["RX"][0]
    assert sent == received
    assert sum(guest.received for guest in output.guests) == sent - sent // 10
    assert f"[WARN]  {sent // 10} of the received frames are of no guest of this run" in output


def test_a_thousand_guests_are_told_apart(wire: Wire, tmp_path: Path) -> None:
    reflect(wire, tmp_path)

    output = measure(wire, tmp_path / "h.csv", "52:54:00:fa:ff:00", "--count", 1000, "-s", "60~imix", "-r", 10, "-t", 2)

    guests = output.guests
    assert len({guest.mac for guest in guests}) == 1000 and guests[-1].mac == "52:54:00:fb:02:e7"
    assert sum(guest.sent for guest in guests) == output.totals["TX"][0]
    assert all(guest.received == guest.sent > 0 for guest in guests)
    assert guests[0].sent_bytes == 64 * guests[0].sent and guests[1].sent_bytes > 64 * guests[1].sent


def test_only_accepted_frames_are_a_guests(wire: Wire, tmp_path: Path) -> None:
    # nobody reads this tap: its queue takes 1000 frames (txqueuelen) and the driver refuses the rest
    hold = (
        "import fcntl, os, struct, sys\n"
        "fcntl.ioctl(os.open('/dev/net/tun', os.O_RDWR), 0x400454CA, struct.pack('16sH', b'tap0', 0x1002))\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        ["ip", "netns", "exec", wire.loadgen.namespace, sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        wire.loadgen.ip("link", "set", "tap0", "up")
        wire.loadgen.config = tmp_path / "tap.lua"
        wire.loadgen.config.write_text('DPDKConfig { cli = { "--vdev", "net_af_packet0,iface=tap0" } }')

        output = measure(wire, tmp_path / "h.csv", FIRST, "--count", 3, "-s", "imix", "-r", 1000, "--drain", 0.1, status=1)

        assert output.totals["TX"][0] == 1000
        # a third of 1000 each; 332 was seen for 333 once in a full run, and why is not known
        assert all(332 <= guest.sent <= 335 for guest in output.guests)
        assert sum(guest.sent for guest in output.guests) == 1000
        assert sum(guest.sent_bytes for guest in output.guests) == output.totals["TX"][1]
    finally:
        holder.communicate()  # end of its input


HARDWARE = """
-- A device that seems to have time stamps of its own: the latency of guest n is n us.
local device, mg = require "device", require "moongen"
local configure = device.config
function device.config(...)
    local dev = configure(...)
    dev.enableTxTimestamps, dev.enableRxTimestamps = function() end, function() end
    return dev
end
local stamper = {}
function stamper:measureLatency(size, modify)
    self.bufs:alloc(size)
    modify(self.bufs[1])
    local last = tonumber(self.bufs[1]:getEthernetPacket().eth.dst:getString():sub(-2), 16)
    self.bufs:freeAll()
    mg.sleepMillisIdle(1)
    return (last - 0x5f) * 1000
end
package.loaded.timestamping = { newTimestamper = function()
    return setmetatable({ bufs = require "memory".createMemPool():bufArray(1) }, { __index = stamper })
end }
dofile("%s/l2-load-latency.lua")
"""


def test_with_hardware_time_stamps_one_task_samples_all_guests_and_another_counts(wire: Wire, tmp_path: Path) -> None:
    reflect(wire, tmp_path)
    program, path = tmp_path / "hardware.lua", tmp_path / "guests.csv"
    program.write_text(HARDWARE % MOONPROGS)
    for name in MOONPROGS.glob("load-*.lua"):
        (tmp_path / name.name).symlink_to(name)

    output = measure(wire, tmp_path / "h.csv", FIRST, "--count", 3, "-t", 2, "--guests-file", path, program=program)

    assert "Latency by hardware timestamps, load paced by software" in output
    rows = [tuple(map(int, line.split(","))) for line in path.read_text().splitlines()]
    assert rows == [(number, 1000 * number, guest.samples) for number, guest in enumerate(output.guests, 1)]
    samples = [guest.samples for guest in output.guests]
    assert max(samples) - min(samples) <= 1 <= min(samples)
    assert all(guest.sent == guest.received for guest in output.guests)
    # the samples, too, are frames of a guest; here they never were on the wire
    assert sum(guest.sent for guest in output.guests) - sum(samples) == output.totals["TX"][0] == output.totals["RX"][0]
    assert "[WARN]" not in output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([f"{FIRST},{FIRST}"], f"mac has '{FIRST}' twice"),
        ([f"{FIRST},"], "mac must look like 52:54:00:12:34:56, not ''"),
        ([f"{FIRST},53:54:00:00:00:01"], "mac must be the address of one machine, not the group address '53:54:00:00:00:01'"),
        ([f"{FIRST},{DUT_MAC}", "--count", "2"], "count goes with one address, the first; there are 2"),
        ([FIRST, "--count", "1001"], "count must be a whole number from 1 to 1000"),
        (["fe:ff:ff:ff:ff:fe", "--count", "3"], "count 3 is too much: only 2 addresses from fe:ff:ff:ff:ff:fe on"),
        (["52:ff:ff:ff:ff:fe", "--count", "3"], "count 3 is too much: only 2 addresses from 52:ff:ff:ff:ff:fe on"),
        ([FIRST, "--count", "3", "--weights", "2:1"], "weights must be one number for each address: there are 2 numbers"),
        ([FIRST, "--count", "2", "--weights", "2:0"], "weights must be whole numbers of at least 1, like 3:1, not '0'"),
        ([FIRST, "--count", "2", "--weights", "2:1.5"], "weights must be whole numbers of at least 1, like 3:1, not '1.5'"),
        ([FIRST, "--count", "2", "--weights", "65536:1"], "weights must not sum to more than 65536"),
        ([FIRST, "-s", "60:1+59:2"], "size must be a whole number from 60 to 9014, not '59' in '60:1+59:2'"),
        ([FIRST, "-s", "60:0+90:0"], "size needs a weight above 0"),
        ([FIRST, "-s", "60:1+90"], "size must be like 60, imix, 60:7+590:4+1514:1 or @FILE, not '90'"),
        ([FIRST, "-s", "60:-1"], "size must have whole numbers from 0"),
        ([FIRST, "-s", "60~imix"], "size must not have more entries than there are addresses: 2 for 1"),
        ([FIRST, "-s", "@/nosuch/file"], "size cannot be read from the file: /nosuch/file: No such file"),
        ([FIRST, "--seed", "-1"], "seed must be a whole number from 0"),
    ],
)
def test_what_cannot_be_is_told_with_usage_before_anything_is_touched(wire: Wire, arguments: list[str], complaint: str) -> None:
    result = wire.loadgen.moongen("l2-load-latency.lua", 0, *arguments)

    assert result.returncode == 1
    assert result.stderr.startswith("Usage: ") and f"Error: {complaint}" in result.stderr
    assert result.stdout == ""


def test_a_size_file_may_have_spaces_and_lines(wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("\n60:3\n 90:1 \n~ imix\n")
    peer = Peer(wire, tmp_path)

    measure(wire, tmp_path / "h.csv", FIRST, "--count", 2, "-s", f"@{path}")

    sizes = by_guest(peer.frames())
    assert_in_proportion(sizes[FIRST], {60: 3, 90: 1})
    assert_in_proportion(sizes["52:54:00:fa:00:61"], IMIX)
