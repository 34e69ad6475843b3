"""Counts the test frames on a link of this network namespace, by addresses and size, and prints the counts when it is told to end.

``FrameCounts`` runs that within a namespace of the lab, beside whatever sends the frames.
"""

import json
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

_ALL = 3  # ETH_P_ALL
_TEST_FRAMES = (0x1234, 0x88F7)  # load, samples
_PACKET_STATISTICS = 6  # of SOL_PACKET; include/uapi/linux/if_packet.h
_SOL_PACKET = 263
_SO_RCVBUFFORCE = 33
_BUFFER = 64 << 20  # bytes: on a busy machine this program waits for its turn


class FrameCounts:
    """Counts as long as the context lasts; afterwards ``counts`` has frames by (destination, source, bytes without CRC)."""

    def __init__(self, namespace: str, link: str) -> None:
        self._command = ["ip", "netns", "exec", namespace, sys.executable, "-I", str(Path(__file__)), link]
        self.counts: Counter[tuple[str, str, int]] = Counter()

    def __enter__(self) -> "FrameCounts":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout and self._process.stdout.readline() == "counting\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            printed, _ = self._process.communicate(timeout=60)
        finally:
            self._process.kill()
            self._process.wait()
        found = json.loads(printed)
        assert found["dropped"] == 0, "the capture itself lost frames"
        self.counts.update({(to, by, size): count for to, by, size, count in found["frames"]})

    def sizes_to(self, *macs: str) -> Counter[int]:
        """Frames to these addresses by size."""
        found: Counter[int] = Counter()
        for (to, _, size), count in self.counts.items():
            if to in macs:
                found[size] += count
        return found

    def sizes_from(self, *macs: str) -> Counter[int]:
        """Frames from these addresses by size."""
        found: Counter[int] = Counter()
        for (_, by, size), count in self.counts.items():
            if by in macs:
                found[size] += count
        return found


def count(link: str) -> None:
    counts: Counter[tuple[bytes, int]] = Counter()
    dropped = 0
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as packets:
        packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        packets.bind((link, _ALL))
        packets.settimeout(0.2)
        print("counting", flush=True)
        while True:
            try:
                frame = packets.recv(1 << 16)
            except TimeoutError:  # what was on the way when this was told to end has come
                if ended:
                    break
                continue
            if struct.unpack_from("!H", frame, 12)[0] in _TEST_FRAMES:
                counts[frame[:12], len(frame)] += 1
        dropped = struct.unpack("II", packets.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
    frames = [[key[:6].hex(":"), key[6:].hex(":"), size, number] for (key, size), number in counts.items()]
    print(json.dumps({"frames": frames, "dropped": dropped}))


if __name__ == "__main__":
    count(sys.argv[1])
