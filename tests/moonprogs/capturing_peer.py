"""The other end of the wire: notes every test frame and sends it back with its addresses swapped.

    capturing_peer.py RECORD [dropped=ADDRESS,N] [foreign=N]

RECORD gets at the end one line per frame: destination and size without CRC. ``dropped``: every Nth frame to this address does
not go back. ``foreign``: every Nth frame goes back with the index of a guest that does not exist.
"""

from __future__ import annotations

import signal
import socket
import sys

SO_RCVBUFFORCE, PACKET_OUTGOING, GUEST_AT = 33, 4, 20
TEST_TYPES = (b"\x12\x34", b"\x88\xf7")


def main(path: str, *options: str) -> None:
    chosen = dict(option.split("=") for option in options)
    dropped, every = chosen.get("dropped", ",0").split(",")
    target, foreign = bytes.fromhex(dropped.replace(":", "")), int(chosen.get("foreign", 0))
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    wire.bind(("veth0", 3))
    seen = to_target = 0
    record: list[tuple[bytes, int]] = []
    signal.signal(signal.SIGINT, lambda *_: wire.close())
    print("peer ready", flush=True)
    try:
        while True:
            frame, address = wire.recvfrom(2048)
            if address[2] == PACKET_OUTGOING or frame[12:14] not in TEST_TYPES:
                continue
            record.append((frame[:6], len(frame)))
            seen, to_target = seen + 1, to_target + (frame[:6] == target)
            if frame[:6] == target and to_target % int(every) == 0:
                continue
            back = bytearray(frame[6:12] + frame[:6] + frame[12:])
            if foreign and seen % foreign == 0:
                back[GUEST_AT : GUEST_AT + 4] = (1000).to_bytes(4, "little")
            wire.send(back)
    except OSError:  # closed by the signal
        pass
    with open(path, "w") as file:
        file.writelines(f"{destination.hex(':')} {size}\n" for destination, size in record)


if __name__ == "__main__":
    main(*sys.argv[1:])
