"""The steps that turn a recipe into an image."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from autotest.errors import ImageError
from autotest.lab.guest import initramfs, vmlinux
from autotest.lab.guest.recipe import GuestImage, Recipe
from autotest.lab.guest.run import run

log = logging.getLogger(__name__)

_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "mke2fs": "e2fsprogs",
    "qemu-img": "qemu-utils",
    "clang": "clang",
    "ssh-keygen": "openssh-client",
    "lz4": "lz4",
    "unshare": "util-linux",
}
"""Programs that building needs, and the Debian packages that have them."""

# mmdebstrap and what it starts die with this process, and its mounts are never visible outside: however a build ends,
# its directory can be removed without reaching the host's /dev or /proc.
_CONTAINED = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

_UNUSED_FILES = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*")

_BUSYBOX = "busybox-static"

_FALLBACK_MIRRORS = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")

_XDP_IN_GUEST = Path("opt/autotest/xdp/reflector.bpf.o")
_BOOT_IN_GUEST = Path("opt/autotest/boot")  # init knows the name


def check_host() -> None:
    """Raises ImageError unless this process is root and every program is there; the error names all that are not."""
    missing = sorted({package for program, package in _PROGRAMS.items() if not shutil.which(program)})
    if missing:
        raise ImageError(f"building the lab's images needs more Debian packages: apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise ImageError("building the lab's images needs root (mmdebstrap makes device files and owners)")


def build_image(image: GuestImage, recipe: Recipe) -> None:
    """Makes every file of ``image`` in its directory, which exists and is empty. Raises ImageError."""
    work = image.directory / "work"
    downloads = work / "downloads"
    root = work / "root"
    downloads.mkdir(parents=True)
    compile_reflector(recipe.reflector, image.xdp_reflector)
    log.info("installing Debian %s with mmdebstrap", recipe.suite)
    install_debian(recipe, root, downloads)
    log.info("unpacking the kernel")
    modules = install_kernel(image, downloads, work / "kernel", root)
    make_initramfs(image, recipe, downloads, work / "busybox", modules)
    configure(image, recipe, root)
    record_packages(image, root, downloads)
    log.info("packing the disk")
    pack_disk(image, recipe, root, work / "disk.raw")
    shutil.rmtree(work)


def compile_reflector(source: Path, target: Path) -> None:
    """Compiles the XDP program for BPF with its BTF, which libbpf wants for its maps. Raises ImageError."""
    # linux/types.h includes asm/types.h, which Debian keeps in a directory per architecture that clang leaves out for BPF.
    multiarch = f"/usr/include/{os.uname().machine}-linux-gnu"
    run(["clang", "-O2", "-g", "-Wall", "-target", "bpf", "-idirafter", multiarch, "-c", source, "-o", target])


def install_debian(recipe: Recipe, root: Path, downloads: Path) -> None:
    """Installs the packages into ``root``; puts those of the kernel and busybox, not installed, into ``downloads``."""
    packages = read_list((recipe.own_files / "packages.txt").read_text())
    fetch = shlex.join(["sh", str(recipe.files / "fetch.sh"), str(downloads), recipe.kernel, _BUSYBOX])
    options = [
        "--variant=minbase",
        "--mode=root",
        "--format=directory",
        f"--include={','.join(packages)}",
        f"--customize-hook={fetch}",
        # Its own user may not enter our private directory.
        '--aptopt=APT::Sandbox::User "root"',
        '--aptopt=Acquire::Languages "none"',
        *(f"--aptopt={line}" for line in apt_proxies()),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED_FILES),
    ]
    run([*_CONTAINED, "mmdebstrap", *options, recipe.suite, root, *mirrors(recipe.suite)], timeout_s=900)


def mirrors(suite: str) -> list[str]:
    """One-line apt sources for ``suite`` as this machine has them, else of Debian's own servers."""
    wanted = "$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = run(["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"]).decode()
    found = parse_targets(listed, suite)
    if found:
        return found
    log.info("apt has no source for Debian %s on this machine: using deb.debian.org", suite)
    debian, security = _FALLBACK_MIRRORS
    return [
        f"deb {debian} {suite} main",
        f"deb {debian} {suite}-updates main",
        f"deb {security} {suite}-security main",
    ]


def parse_targets(listed: str, suite: str) -> list[str]:
    """The sources among lines of ``ORIGIN URI RELEASE COMPONENT`` that are Debian's own and of ``suite``.

    Empty when the suite itself is not among them: its updates alone install nothing.
    """
    releases = (suite, f"{suite}-updates", f"{suite}-security")
    found = {}
    for line in listed.splitlines():
        origin, *source = line.split() or [""]
        if origin == "Debian" and len(source) == 3 and source[1] in releases and source[2] == "main":
            found[tuple(source)] = f"deb {source[0]} {source[1]} {source[2]}"
    return list(found.values()) if any(release == suite for _, release, _ in found) else []


def apt_proxies() -> list[str]:
    """apt options for the proxies that this machine's apt goes through; mmdebstrap's own apt does not read them."""
    output = run(["apt-config", "dump", "--format", '%f "%v";%n', "Acquire::http::Proxy", "Acquire::https::Proxy"])
    return [line for line in output.decode().splitlines() if line and not line.endswith('"";')]


def install_kernel(image: GuestImage, downloads: Path, unpacked: Path, root: Path) -> Path:
    """Takes the kernel out of its package; gives the directory of its modules, which the guest has too."""
    run(["dpkg-deb", "-x", _only(downloads, "linux-image-*.deb"), unpacked])
    bzimage = _only(unpacked / "boot", "vmlinuz-*")
    try:
        kernel = vmlinux.extract_vmlinux(bzimage.read_bytes(), lambda command, data: run(command, stdin=data))
    except vmlinux.VmlinuxError as error:
        raise ImageError(f"{bzimage.name}: {error}") from error
    image.kernel.write_bytes(kernel)
    packed = _only(unpacked / "lib" / "modules", "*")
    modules = root / "usr" / "lib" / "modules" / packed.name
    modules.parent.mkdir(exist_ok=True)
    packed.rename(modules)
    run(["chroot", root, "/usr/sbin/depmod", packed.name])
    return modules


def make_initramfs(image: GuestImage, recipe: Recipe, downloads: Path, unpacked: Path, modules: Path) -> None:
    run(["dpkg-deb", "-x", _only(downloads, f"{_BUSYBOX}_*.deb"), unpacked])
    names = read_list((recipe.own_files / "modules.txt").read_text())
    try:
        loaded = initramfs.load_modules(modules, names)
    except initramfs.ModuleError as error:
        raise ImageError(f"{recipe.kernel}: {error}") from error
    init = (recipe.files / "init").read_bytes()
    busybox = (unpacked / "bin" / "busybox").read_bytes()
    image.initrd.write_bytes(initramfs.build_initramfs(init, busybox, loaded))


def configure(image: GuestImage, recipe: Recipe, root: Path) -> None:
    """Keys, sshd's configuration, names and the XDP object, in ``root`` and beside the image."""
    ssh = root / "etc" / "ssh"
    for old in ssh.glob("ssh_host_*"):
        old.unlink()
    host_key = ssh / "ssh_host_ed25519_key"
    _make_key(host_key, recipe.name)
    public = host_key.with_suffix(".pub").read_text().split()
    image.known_hosts.write_text(f"{recipe.name} {public[0]} {public[1]}\n")
    shutil.copyfile(recipe.files / "sshd_config", ssh / "sshd_config")

    _make_key(image.identity, "autotest")
    public_identity = image.identity.with_suffix(".pub")
    authorized = root / "root" / ".ssh" / "authorized_keys"
    authorized.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.move(public_identity, authorized)
    authorized.chmod(0o600)

    _use_small_shell(root / "etc" / "passwd")
    (root / "etc" / "hostname").write_text(f"{recipe.name}\n")
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost {recipe.name}\n")
    for left in ("etc/resolv.conf", "etc/apt/apt.conf.d/99mmdebstrap"):  # both are of the building machine
        (root / left).unlink(missing_ok=True)
    xdp = root / _XDP_IN_GUEST
    xdp.parent.mkdir(parents=True)
    shutil.copyfile(image.xdp_reflector, xdp)
    if recipe.boot:
        shutil.copyfile(recipe.boot, root / _BOOT_IN_GUEST)
        (root / _BOOT_IN_GUEST).chmod(0o755)


def _use_small_shell(passwd: Path) -> None:
    """Each command over SSH starts the login shell: dash spares a third of its time under emulation."""
    text = passwd.read_text()
    passwd.write_text(text.replace("root:x:0:0:root:/root:/bin/bash", "root:x:0:0:root:/root:/bin/dash"))


def record_packages(image: GuestImage, root: Path, downloads: Path) -> None:
    """Writes name and version of the installed packages and of the downloaded ones, sorted."""
    listed = run(["chroot", root, "dpkg-query", "-W", "-f", "${Package} ${Version}\\n"]).decode().splitlines()
    for package in downloads.glob("*.deb"):
        listed.append(run(["dpkg-deb", "--show", "--showformat", "${Package} ${Version}", package]).decode())
    image.packages.write_text("".join(f"{line}\n" for line in sorted(listed)))


def pack_disk(image: GuestImage, recipe: Recipe, root: Path, raw: Path) -> None:
    """Packs ``root`` as ext4 in qcow2.

    No journal, as the disk is thrown away with the guest; inode tables written now, or the guest's kernel would write
    them in the background, while it is being measured.
    """
    layout = ["-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=0", "-m", "0", "-L", "autotest"]
    run(["mke2fs", "-q", "-F", *layout, "-d", root, raw, f"{recipe.disk_mib}M"], timeout_s=300)
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image.disk], timeout_s=300)


def read_list(text: str) -> list[str]:
    """The words of a recipe file with one word a line and comments after ``#``."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _make_key(path: Path, comment: str) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def _only(directory: Path, pattern: str) -> Path:
    """The one entry of ``directory`` that matches. Raises ImageError when there is none, or more than one."""
    found: Sequence[Path] = sorted(directory.glob(pattern))
    if len(found) != 1:
        raise ImageError(f"{directory.name} has {len(found)} files {pattern}, expected one")
    return found[0]
