"""The uncompressed kernel inside a bzImage.

QEMU starts an uncompressed ELF kernel with a PVH note directly on ``pc`` and on ``microvm``: no boot loader and no
decompression in the guest, which costs half a second under emulation.

Format: the kernel's Documentation/arch/x86/boot.rst ("The Real-Mode Kernel Header").
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable

_SETUP_SECTORS_AT = 0x1F1
_MAGIC_AT = 0x202
_VERSION_AT = 0x206
_PAYLOAD_AT = 0x248  # payload_offset and payload_length, 32 bits each; since version 2.08
_HEADER_END = 0x250
_SECTOR_BYTES = 512
_SIZE_BYTES = 4

Pipe = Callable[[list[str], bytes], bytes]
"""Runs a command with this standard input and gives its standard output."""


class VmlinuxError(ValueError):
    """This is not a bzImage, or what is inside is not an ELF kernel."""


def extract_vmlinux(image: bytes, pipe: Pipe) -> bytes:
    """The ELF kernel that ``image``, a bzImage, unpacks at boot.

    ``pipe`` runs ``lz4`` or ``zstd`` where the kernel is packed with one of them; the other formats need no program.

    Raises:
        VmlinuxError: not a bzImage, unknown compression, or damaged.
    """
    payload = _payload(image)
    (size,) = struct.unpack("<I", payload[-_SIZE_BYTES:])
    try:
        kernel = _decompress(payload, pipe)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise VmlinuxError(f"the packed kernel is damaged: {error}") from error
    if len(kernel) != size:
        raise VmlinuxError(f"the packed kernel is damaged: {len(kernel)} bytes instead of {size}")
    if not kernel.startswith(b"\x7fELF"):
        raise VmlinuxError("what is packed in the bzImage is not an ELF file")
    return kernel


def _payload(image: bytes) -> bytes:
    """The packed kernel, with its unpacked size in the last four bytes."""
    if len(image) < _HEADER_END or image[_MAGIC_AT : _MAGIC_AT + 4] != b"HdrS":
        raise VmlinuxError("not a bzImage: the boot header is missing")
    (version,) = struct.unpack_from("<H", image, _VERSION_AT)
    if version < 0x208:
        raise VmlinuxError(f"boot protocol {version >> 8}.{version & 0xFF:02} is too old, 2.08 is needed")
    setup_sectors = image[_SETUP_SECTORS_AT] or 4  # 0 means 4, for historical reasons
    offset, length = struct.unpack_from("<II", image, _PAYLOAD_AT)
    start = (setup_sectors + 1) * _SECTOR_BYTES + offset
    payload = image[start : start + length]
    if len(payload) != length or length <= _SIZE_BYTES:
        raise VmlinuxError("the bzImage is cut off")
    return payload


def _decompress(payload: bytes, pipe: Pipe) -> bytes:
    # gzip's own trailer ends in the size; to every other format the kernel's build appends it.
    packed = payload[:-_SIZE_BYTES]
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompress(payload, wbits=zlib.MAX_WBITS | 16)
    if packed.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return lzma.decompress(packed)
    if packed.startswith(b"BZh"):
        return bz2.decompress(packed)
    if packed.startswith(b"\x02\x21\x4c\x18"):  # the legacy frame
        return pipe(["lz4", "-d", "-c"], packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        return pipe(["zstd", "-d", "-c", "--long=31"], packed)
    raise VmlinuxError(f"unknown compression, the packed kernel begins with {packed[:4].hex()}")
