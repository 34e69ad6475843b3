"""MoonGen output of our own making, shaped like the real thing: colours, EAL noise, several devices."""

from __future__ import annotations

RX, TX, OFF = "\x1b[1;36m", "\x1b[0;34m", "\x1b[0m"

HEAD = f"""\
EAL: Detected CPU lcores: 24
EAL: Probe PCI driver: net_ice (8086:1592) device: 0000:51:00.0 (socket 0)
PMD: ixgbe_dev_link_status_print():  Port 1: Link Down
\x1b[1;33m[WARN]  malloc() allocates objects >= 1 MiB from LuaJIT memory space.{OFF}
\x1b[1;37m[INFO]  Found 2 usable devices:{OFF}
   Device 0: 02:00:00:00:00:01 (\x1b[0;32mIntel Corporation I350 Gigabit Network Connection{OFF})
\x1b[1;37m[INFO]  \x1b[0;32m1 device is up.{OFF}{OFF}
"""
SAMPLES = "Samples: 11336, Average: 32474.0 ns, StdDev: 1370.4 ns, Quartiles: 31654.0/32282.0/32885.0 ns\n"


def rate_line(device: int, direction: str, mpps: str = "19.49", mbit: str = "9979") -> str:
    colour = RX if direction == "RX" else TX
    return f"{colour}[Device: id={device}] {direction}{OFF}: {mpps} Mpps, {mbit} Mbit/s (13098 Mbit/s with framing)\n"


def second(received: str = "19.49 9979", sent: str = "19.49 9979", device: int = 0) -> str:
    """The lines of one second; of each direction Mpps and Mbit/s."""
    return rate_line(device, "RX", *received.split()) + rate_line(device, "TX", *sent.split())


def total_line(device: int, direction: str, packets: int, rate: str = "19.42") -> str:
    colour = RX if direction == "RX" else TX
    return (
        f"{colour}[Device: id={device}] {direction}{OFF}: {rate} (StdDev {rate}) Mpps, {rate} (StdDev {rate}) Mbit/s "
        f"({rate} Mbit/s with framing), total {packets} packets with {packets * 64} bytes (incl. CRC)\n"
    )


def samples_line(histogram: str, scale: float = 1) -> str:
    """What MoonGen prints of the samples that are in a histogram file; its values times ``scale`` are nanoseconds."""
    pairs = [(int(value) * scale, int(count)) for value, count in (line.split(",") for line in histogram.splitlines())]
    samples = sum(count for _, count in pairs)
    mean = f"{sum(value * count for value, count in pairs) / samples:.1f}" if samples else "nan"
    return f"Samples: {samples}, Average: {mean} ns, StdDev: 1370.4 ns, Quartiles: 31654.0/32282.0/32885.0 ns\n"


def mac(number: int) -> str:
    return "52:54:00:fa:{:02x}:{:02x}".format(*divmod(0x5F + number, 256))


def guest_line(number: int, sent: int, received: int, samples: int = 100, size: int = 60) -> str:
    """The line about one of several guests."""
    return (
        f"\x1b[1;37m[INFO]  Guest {number} ({mac(number)}): sent {sent} frames with {sent * (size + 4)} bytes, "
        f"received {received} frames with {received * (size + 4)} bytes (incl. CRC), {samples} latency samples\x1b[0m\n"
    )


def of_guests(*totals: tuple[int, int], samples: int = 100) -> str:
    """A whole run of 30 s to several guests, of each what was sent and received."""
    sent, received = (sum(column) for column in zip(*totals, strict=True))
    return output(sent, received) + "".join(guest_line(number, *each, samples) for number, each in enumerate(totals, 1))


def output(
    sent: int = 300_000,
    received: int = 300_000,
    device: int = 0,
    *,
    seconds: str = "",
    samples: str = "",
) -> str:
    """A whole run on one device; of 30 s, where no other lines of ``seconds`` are given.

    Its line about the samples is left out where none is given: one that is there must belong to the histogram.
    """
    return (
        HEAD
        + (seconds or second(device=device) * 30)
        + samples
        + "\x1b[1;37m[INFO]  Saving histogram to '/tmp/histogram.csv'\x1b[0m\n"
        + total_line(device, "RX", received)
        + total_line(device, "TX", sent)
    )


def histogram(samples: int = 200, first: int = 10_000) -> str:
    """A histogram file with one sample at each of so many values."""
    return "".join(f"{first + index},1\n" for index in range(samples))


def guest_histograms(guests: int, samples: int = 100, first: int = 10_000) -> str:
    """A file of the guests' histograms: those of one after those of the other, which together are ``histogram``."""
    each = (histogram(samples, first + index * samples).splitlines() for index in range(guests))
    return "".join(f"{number},{line}\n" for number, lines in enumerate(each, 1) for line in lines)
