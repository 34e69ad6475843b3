"""What an image is made of, and where its parts lie once it is built: the guest's, and the emulated host's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from autotest.errors import ImageError

RECIPE_VERSION = 3
"""To be raised when a change of the code makes an image come out differently."""

GUEST_NAME = "autotest-guest"
"""The name under which ``known_hosts`` lists the guest: for ssh's ``HostKeyAlias``, as guests differ in address only."""

_FILES = Path(__file__).resolve().parent
_PACKAGE = _FILES.parent.parent


@dataclass(frozen=True)
class Recipe:
    """What an image is made of; two equal recipes share one image.

    Attributes:
        name: the machine's own name, under which ``known_hosts`` lists it.
        suite: Debian release.
        kernel: metapackage of the kernel. The generic one has the drivers of all NICs; the cloud kernel has virtio only.
        files: directory of what all images share: ``init``, ``sshd_config``, ``fetch.sh``.
        own_files: directory of what makes the one image: ``packages.txt``, ``modules.txt``, and ``boot`` where there is one, a
            program that is run when all is mounted and ends by becoming sshd.
        reflector: C source of the XDP reflector; headers beside it belong to the recipe too.
        disk_mib: virtual size of the root disk in MiB; what is not used takes no space.
    """

    name: str = GUEST_NAME
    suite: str = "bookworm"
    kernel: str = "linux-image-amd64"
    files: Path = field(default=_FILES)
    own_files: Path = field(default=_FILES)
    reflector: Path = field(default=_PACKAGE / "traffic" / "reflector.bpf.c")
    disk_mib: int = 2048
    version: int = RECIPE_VERSION

    @property
    def boot(self) -> Path | None:
        """The program that is run when all is mounted, None where sshd is."""
        found = self.own_files / "boot"
        return found if found.exists() else None

    def digest(self) -> str:
        """16 hexadecimal digits that change with every part. Raises ImageError when a part is missing."""
        digest = hashlib.sha256(repr((self.name, self.suite, self.kernel, self.disk_mib, self.version)).encode())
        try:
            for path in self._parts():
                content = path.read_bytes()
                digest.update(f"\n{path.name} {len(content)}\n".encode())
                digest.update(content)
        except OSError as error:
            raise ImageError(f"the recipe of the image {self.name} is incomplete: {error}") from error
        return digest.hexdigest()[:16]

    def _parts(self) -> list[Path]:
        # Code changes more often than what it makes: RECIPE_VERSION speaks for it.
        shared = [self.files / name for name in ("fetch.sh", "init", "sshd_config")]
        own = [self.own_files / name for name in ("modules.txt", "packages.txt")]
        headers = sorted(self.reflector.parent.glob("*.h"))
        return [*shared, *own, *([self.boot] if self.boot else []), self.reflector, *headers]


@dataclass(frozen=True)
class GuestImage:
    """A complete image. All files lie in one directory that only its owner can read.

    Attributes:
        disk: root disk, qcow2; to be used with ``snapshot=on``, it is shared by all guests.
        kernel: uncompressed kernel for QEMU's ``-kernel`` (PVH: ``pc``, ``q35`` and ``microvm``).
        initrd: initramfs for ``-initrd``.
        identity: private ed25519 key that logs in as root.
        known_hosts: the guest's host key under the recipe's name.
        xdp_reflector: the XDP object that is also in the guest, at ``/opt/autotest/xdp/reflector.bpf.o``.
        packages: name and version of every package, one a line, for the record.
        digest: what the image was built from.
    """

    directory: Path
    digest: str

    @property
    def disk(self) -> Path:
        return self.directory / "guest.qcow2"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinux"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd.img"

    @property
    def identity(self) -> Path:
        return self.directory / "identity"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def xdp_reflector(self) -> Path:
        return self.directory / "reflector.bpf.o"

    @property
    def packages(self) -> Path:
        return self.directory / "packages.txt"

    def missing(self) -> list[str]:
        """Names of files that are not there or empty."""
        files = (self.disk, self.kernel, self.initrd, self.identity, self.known_hosts, self.xdp_reflector, self.packages)
        return [path.name for path in files if not path.is_file() or path.stat().st_size == 0]
