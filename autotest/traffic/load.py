"""The load: what is sent to whom, and how the load program is told so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotest.config.guests import mac_plus
from autotest.servers.loadgen import LoadGen
from autotest.traffic.frame_sizes import FrameSizes
from autotest.traffic.moongen import Hear, ProgramEnd, unheard

PROGRAM = "l2-load-latency.lua"
_START_AND_DRAIN = 20.0  # seconds beyond the runtime after which a generator counts as hanging


@dataclass(frozen=True)
class Load:
    """A constant load, whatever its rate.

    Attributes:
        addresses: MAC addresses that it is sent to.
        weights: in which proportion they share it, one for each.
        sizes: of the frames.
        threads: how many tasks send it.
    """

    addresses: tuple[str, ...]
    weights: tuple[int, ...]
    sizes: FrameSizes
    threads: int = 1

    @property
    def is_shared(self) -> bool:
        """Whether there are several addresses, which are counted apart."""
        return len(self.addresses) > 1

    def arguments(self, rate: int, seconds: float) -> list[str]:
        """The load program's, behind the port.

        Args:
            rate: in kpps, over all addresses.
        """
        found = [*_written(self.addresses), "--rate", str(rate), "--time", str(seconds), "--file", "{histogram}"]
        found += ["--size", self.sizes.spec] if self.sizes.single is not None else ["--size", "@{sizes}"]
        if self.is_shared:
            found += ["--guests-file", "{guests}"]
        if len(set(self.weights)) > 1:
            found += ["--weights", ":".join(map(str, self.weights))]
        return [*found, *(("--threads", str(self.threads)) if self.threads > 1 else ())]

    @property
    def frame_bytes(self) -> float:
        """How large the frames are on average, over all addresses with their shares, without CRC."""
        means = [self.sizes.mean(number) for number in range(1, len(self.weights) + 1)]
        return sum(mean * weight for mean, weight in zip(means, self.weights, strict=True)) / sum(self.weights)

    def run(self, loadgen: LoadGen, rate: int, seconds: float, fetch: Mapping[str, Path], hear: Hear = unheard) -> ProgramEnd:
        """Send it, and wait until all that comes back is back.

        Args:
            rate: in kpps, over all addresses.
            fetch: where the files go: ``histogram``, and ``guests`` where it is shared.
            hear: told once a second of what the load program has written.

        Raises:
            TrafficError: as for :meth:`autotest.traffic.moongen.MoonGen.run`.
        """
        return loadgen.run_load(
            PROGRAM,
            self.arguments(rate, seconds),
            # as a file: the list of a measured distribution is too long for a command line
            give={"sizes": self.sizes.spec} if self.sizes.single is None else {},
            fetch=fetch,
            seconds=seconds,
            timeout=seconds + _START_AND_DRAIN,
            hear=hear,
        )


def _written(addresses: Sequence[str]) -> list[str]:
    """The first and their count where they follow each other, which takes little room; else all."""
    try:
        row = [mac_plus(addresses[0], number) for number in range(len(addresses))]
    except ValueError:
        row = []
    if len(addresses) > 1 and row == list(addresses):
        return [addresses[0], "--count", str(len(addresses))]
    return [",".join(addresses)]
