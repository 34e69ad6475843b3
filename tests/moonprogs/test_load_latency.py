"""l2-load-latency.lua and reflector.lua, end to end over a veth pair with real frames."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from moonwire import DUT_MAC, ROOT, Machine, Wire, wait_until

PER_SECOND = re.compile(
    r"^\x1b\[(?:1;36|0;34)m\[Device: id=(\d+)\] (RX|TX)\x1b\[0m: "
    r"([\d.]+) Mpps, (\d+) Mbit/s \((\d+) Mbit/s with framing\)$",
    re.MULTILINE,
)
FINAL = re.compile(
    r"^\x1b\[(?:1;36|0;34)m\[Device: id=(?P<id>\d+)\] (?P<direction>RX|TX)\x1b\[0m: "
    r"(?:[\d.]+|nan) \(StdDev (?:[\d.]+|nan)\) Mpps, (?:\d+|nan) \(StdDev (?:\d+|nan)\) Mbit/s "
    r"\((?:\d+|nan) Mbit/s with framing\), "
    r"total (?P<packets>\d+) packets with (?P<bytes>\d+) bytes \(incl\. CRC\)$",
    re.MULTILINE,
)
SAMPLES = re.compile(
    r"^Samples: (\d+), Average: ([\d.]+) ns, StdDev: ([\d.]+) ns, Quartiles: ([\d.]+)/([\d.]+)/([\d.]+) ns$", re.MULTILINE
)
SAVING = re.compile(r"^\x1b\[1;37m\[INFO\]  Saving histogram to '(.*)'\x1b\[0m$", re.MULTILINE)

# Of the offered load; a busy machine may take the generator off its CPU at the very end of a run of a second.
MOST = 0.9

HOLD_TAP = """
import fcntl, os, struct, sys
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
fcntl.ioctl(os.open("/dev/net/tun", os.O_RDWR), TUNSETIFF, struct.pack("16sH", b"tap0", IFF_TAP | IFF_NO_PI))
print("held", flush=True)
sys.stdin.read()
"""


def totals(output: str) -> dict[str, tuple[int, int]]:
    """Frames and bytes per direction, from the last lines."""
    found = {match["direction"]: (int(match["packets"]), int(match["bytes"])) for match in FINAL.finditer(output)}
    assert set(found) == {"RX", "TX"}, output
    return found


def measure(machine: Machine, histogram: Path, *options: object, status: int = 0) -> str:
    """Run the load for one second at 5 kpps, unless the options say otherwise; returns the output."""
    result = machine.moongen("l2-load-latency.lua", 0, DUT_MAC, "-r", 5, "-T", 1, "-f", histogram, *options)
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout


def histogram_counts(path: Path) -> dict[int, int]:
    pairs = [line.split(",") for line in path.read_text().splitlines()]
    return {int(value): int(count) for value, count in pairs}


def test_every_sent_frame_is_on_the_wire_and_comes_back_from_the_reflector(wire: Wire, tmp_path: Path) -> None:
    wire.dut.start_reflector(tmp_path / "reflector.log")
    before = {name: wire.loadgen.counter(name) for name in ("tx_packets", "rx_packets")}

    output = measure(wire.loadgen, tmp_path / "histogram.csv")

    sent, received = totals(output)["TX"][0], totals(output)["RX"][0]
    assert sent == received
    assert MOST * 5000 <= sent <= 5000
    assert wire.loadgen.counter("tx_packets") - before["tx_packets"] == sent
    assert wire.loadgen.counter("rx_packets") - before["rx_packets"] == received
    assert wire.dut.counter("rx_packets") == wire.dut.counter("tx_packets") == sent


def test_output_and_histogram_have_moongens_form(wire: Wire, tmp_path: Path) -> None:
    wire.dut.attach_xdp(ROOT / "autotest" / "traffic" / "reflector.bpf.c", tmp_path)
    path, csv = tmp_path / "histogram.csv", tmp_path / "statistics.csv"

    output = measure(wire.loadgen, path, "-T", 2.2, "-s", 128, "-c", csv)

    sent, sent_bytes = totals(output)["TX"]
    assert MOST * 11000 <= sent <= 11000 and sent_bytes == sent * 132
    samples = SAMPLES.search(output)
    assert samples and int(samples[1]) == sent  # at 5 kpps every frame is one
    counts = histogram_counts(path)
    assert sum(counts.values()) == sent
    assert list(counts) == sorted(counts)
    assert SAVING.findall(output) == [str(path)]
    assert output.count("Latency by software timestamps, load paced by software") == 1
    assert [match[1] for match in PER_SECOND.findall(output)][:2] == ["RX", "TX"]
    header, *rows = csv.read_text().splitlines()
    assert header == "Time,Device,Direction,PacketRate,Mbit,MbitWithFraming,TotalPackets,TotalBytes"
    assert rows[-1].split(",")[1:3] == ["Device: id=0", "TX"] and rows[-1].endswith(f",{sent},{sent_bytes}")


def test_path_that_drops_every_tenth_frame_reads_ten_percent_loss(wire: Wire, tmp_path: Path) -> None:
    wire.dut.attach_xdp(Path(__file__).parent / "lossy_reflector.bpf.c", tmp_path)

    output = measure(wire.loadgen, tmp_path / "histogram.csv")

    sent, received = totals(output)["TX"][0], totals(output)["RX"][0]
    assert MOST * 5000 <= sent <= 5000
    assert received == sent - sent // 10


def test_without_a_reflector_the_run_fails_and_says_that_there_are_no_samples(wire: Wire, tmp_path: Path) -> None:
    path = tmp_path / "histogram.csv"

    output = measure(wire.loadgen, path, "-T", 0.3, "--drain", 0.1, status=1)

    assert "no latency samples" in output
    assert not path.exists()
    assert 0 < totals(output)["TX"][0] <= 1500 and totals(output)["RX"][0] == 0


@pytest.mark.parametrize(("rate", "expected"), [(0.5, 500), (20, 20000), (100, 100000)])
def test_offered_load_is_sent_and_never_more(wire: Wire, tmp_path: Path, rate: float, expected: int) -> None:
    wire.dut.attach_xdp(ROOT / "autotest" / "traffic" / "reflector.bpf.c", tmp_path)

    output = measure(wire.loadgen, tmp_path / "histogram.csv", "-r", rate)

    assert MOST * expected <= totals(output)["TX"][0] <= expected


def test_frames_larger_than_the_default_buffers_are_sent(wire: Wire, tmp_path: Path) -> None:
    wire.dut.attach_xdp(ROOT / "autotest" / "traffic" / "reflector.bpf.c", tmp_path)
    wire.loadgen.ip("link", "set", "veth0", "mtu", "4000")
    wire.dut.ip("link", "set", "veth0", "mtu", "4000")

    output = measure(wire.loadgen, tmp_path / "histogram.csv", "-s", 3000, "-T", 0.2)

    frames = totals(output)["TX"][0]
    assert frames > 0
    assert totals(output)["RX"] == totals(output)["TX"] == (frames, frames * 3004)


def test_only_what_the_driver_accepted_is_reported_and_a_full_interface_does_not_delay_the_end(
    wire: Wire, tmp_path: Path
) -> None:
    # nobody reads this tap: its queue takes 1000 frames (txqueuelen) and the driver refuses the rest
    holder = subprocess.Popen(
        ["ip", "netns", "exec", wire.loadgen.namespace, sys.executable, "-c", HOLD_TAP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        wire.loadgen.ip("link", "set", "tap0", "up")
        wire.loadgen.config = tmp_path / "tap.lua"
        wire.loadgen.config.write_text('DPDKConfig { cli = { "--vdev", "net_af_packet0,iface=tap0" } }')
        started = time.monotonic()

        output = measure(wire.loadgen, tmp_path / "histogram.csv", "-r", 1000, "-T", 0.5, "--drain", 0.1, status=1)

        assert time.monotonic() - started < 5
        assert totals(output)["TX"] == (1000, 64000)
    finally:
        holder.communicate()  # end of its input


def test_several_load_tasks_share_the_rate(wire: Wire, tmp_path: Path) -> None:
    wire.dut.attach_xdp(ROOT / "autotest" / "traffic" / "reflector.bpf.c", tmp_path)

    output = measure(wire.loadgen, tmp_path / "histogram.csv", "-r", 10, "-t", 2, "-T", 0.5, "--drain", 0.2)

    frames = totals(output)
    assert 2500 < frames["TX"][0] <= 5000  # more than one of the two can send
    assert frames["RX"] == frames["TX"]


def test_sigint_ends_the_load_in_order_with_final_lines_and_histogram(wire: Wire, tmp_path: Path) -> None:
    wire.dut.attach_xdp(ROOT / "autotest" / "traffic" / "reflector.bpf.c", tmp_path)
    log, path = tmp_path / "load.log", tmp_path / "histogram.csv"
    process = wire.loadgen.start("l2-load-latency.lua", 0, DUT_MAC, "-r", 5, "-T", 60, "-f", path, log=log)
    wait_until(lambda: PER_SECOND.search(log.read_text()), "load under way")

    process.send_signal(signal.SIGINT)

    assert process.wait(5) == 0
    frames = totals(log.read_text())
    assert 0 < frames["TX"][0] == frames["RX"][0]
    assert sum(histogram_counts(path).values()) == int(SAMPLES.search(log.read_text())[1])


def test_second_sigint_aborts(wire: Wire, tmp_path: Path, program) -> None:
    log = tmp_path / "stubborn.log"
    path = program(
        "local mg = require 'moongen'\nfunction master() print('started') while true do mg.sleepMillisIdle(10) end end\n"
    )
    process = wire.loadgen.start(path, log=log)
    wait_until(lambda: "started" in log.read_text(), "program started")

    process.send_signal(signal.SIGINT)
    time.sleep(0.1)  # two pending signals of a kind are one
    assert process.poll() is None
    process.send_signal(signal.SIGINT)

    assert process.wait(5) == -signal.SIGABRT


def test_reflector_leaves_other_frames_alone(wire: Wire, tmp_path: Path, program) -> None:
    wire.dut.start_reflector(tmp_path / "reflector.log")
    sender = program("""
local mg, device, memory = require "moongen", require "device", require "memory"
function master()
    local dev = device.config{ port = 0 }
    device.waitForLinks()
    for _, etherType in ipairs{ 0x0800, 0x1234, 0x88b5, 0x88f7 } do
        local pool = memory.createMemPool(function(buf)
            buf:getEthernetPacket():fill{ ethSrc = dev, ethDst = "52:54:00:aa:00:02", ethType = etherType }
        end)
        local bufs = pool:bufArray(10)
        bufs:alloc(60)
        dev:getTxQueue(0):send(bufs)
    end
    local bufs, types, deadline = memory.bufArray(), {}, mg.getTime() + 0.5
    while mg.getTime() < deadline do
        local n = dev:getRxQueue(0):tryRecv(bufs, 1000)
        for i = 1, n do
            local eth = bufs[i]:getEthernetPacket().eth
            assert(eth.src:getString() == "52:54:00:aa:00:02" and eth:getDst() == dev:getMac(true))
            types[eth:getType()] = (types[eth:getType()] or 0) + 1
        end
        bufs:free(n)
    end
    for etherType, n in pairs(types) do printf("came back: %04x %d", etherType, n) end
end
""")

    output = wire.loadgen.moongen(sender).stdout

    assert sorted(re.findall(r"came back: (.*)", output)) == ["1234 10", "88f7 10"], output
    assert wire.dut.counter("rx_packets") == 40


def test_reflector_returns_frames_of_every_size_unchanged_but_for_the_addresses(wire: Wire, tmp_path: Path, program) -> None:
    wire.dut.start_reflector(tmp_path / "reflector.log")
    sender = program("""
local mg, device, memory = require "moongen", require "device", require "memory"
function master()
    local dev = device.config{ port = 0, etherTypes = { 0x1234 } }
    device.waitForLinks()
    local pool = memory.createMemPool(function(buf)
        buf:getEthernetPacket():fill{ ethSrc = dev, ethDst = "52:54:00:aa:00:02", ethType = 0x1234 }
        for i = 14, 1513 do buf:getBytes()[i] = (i * 7 + 3) % 256 end
    end)
    local out, sizes = pool:bufArray(3), { 60, 590, 1514 }
    for _ = 1, 50 do
        out:alloc(60)
        for i, size in ipairs(sizes) do out[i]:setSize(size) end
        assert(dev:getTxQueue(0):send(out) == 3)
    end
    local bufs, back, deadline, n = memory.bufArray(), {}, mg.getTime() + 5, 0
    while n < 150 and mg.getTime() < deadline do
        local got = dev:getRxQueue(0):tryRecv(bufs, 1000)
        for i = 1, got do
            local size, bytes = bufs[i]:getSize(), bufs[i]:getBytes()
            for at = 14, size - 1 do assert(bytes[at] == (at * 7 + 3) % 256, "byte " .. at .. " of " .. size) end
            n = n + 1
            assert(size == sizes[(n - 1) % 3 + 1], "order")
            back[size] = (back[size] or 0) + 1
        end
        bufs:free(got)
    end
    for _, size in ipairs(sizes) do printf("came back: %d %d", size, back[size] or 0) end
end
""")

    output = wire.loadgen.moongen(sender).stdout

    assert re.findall(r"came back: (.*)", output) == ["60 50", "590 50", "1514 50"], output


def test_reflector_ends_on_sigterm_and_tells_its_count(wire: Wire, tmp_path: Path) -> None:
    log = tmp_path / "reflector.log"
    reflector = wire.dut.start_reflector(log)
    output = measure(wire.loadgen, tmp_path / "histogram.csv", "-T", 0.2)

    reflector.send_signal(signal.SIGTERM)

    assert reflector.wait(5) == 0
    assert f"Reflected {totals(output)['RX'][0]} frames" in log.read_text()


def test_reflector_survives_its_interface_going_down_and_up(wire: Wire, tmp_path: Path) -> None:
    wire.dut.start_reflector(tmp_path / "reflector.log")
    wire.dut.ip("link", "set", "veth0", "down")
    wire.dut.ip("link", "set", "veth0", "up")

    output = measure(wire.loadgen, tmp_path / "histogram.csv", "-T", 0.2)

    assert totals(output)["RX"] == totals(output)["TX"]
