"""Prints every frame on links of this network namespace: when it came, as seconds since 1970, where, and what it is."""

import socket
import struct
import sys
import time

_ETHERTYPES = {0x0800: "IPv4", 0x0806: "ARP", 0x86DD: "IPv6"}
_ALL = 3  # ETH_P_ALL


def described(frame: bytes) -> str:
    ethertype = struct.unpack_from("!H", frame, 12)[0]
    name = _ETHERTYPES.get(ethertype, f"{ethertype:#06x}")
    if name == "IPv4" and len(frame) > 37:
        start = 14 + (frame[14] & 15) * 4
        ports = struct.unpack_from("!HH", frame, start)
        addresses = [".".join(map(str, frame[at : at + 4])) for at in (26, 30)]
        return f"IPv4 protocol {frame[23]} {addresses[0]}:{ports[0]} > {addresses[1]}:{ports[1]} {len(frame)} bytes"
    return f"{name} {frame[:12].hex()} {len(frame)} bytes"


def main(links: list[str]) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as packets:
        print("capturing", flush=True)
        while True:
            frame, (link, *_) = packets.recvfrom(1 << 16)
            if link in links:
                print(time.time(), link, described(frame), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
