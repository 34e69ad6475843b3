"""KVM or TCG: ``/dev/kvm`` may be there and still not run a stock kernel, so KVM is proved by booting once."""

from __future__ import annotations

import hashlib
import logging
import posixpath

from autotest.errors import AutotestError, TestbedError
from autotest.qemu.parts import CommandLine, Kernel, Machine
from autotest.remote.transport import Transport

log = logging.getLogger(__name__)

_PROOF_TIMEOUT = 6.0  # seconds; a stock kernel reaches its panic for want of a root disk in less than 2
_PROOF = "Linux version"


def choose(wanted: str, transport: Transport, program: str, kernel: str | None, memory_folder: str) -> str:
    """The accelerator to use on that machine.

    Args:
        wanted: ``kvm`` or ``tcg`` to have just that, ``auto`` for KVM where it is proved to work.
        program: the QEMU program.
        kernel: a kernel to boot for the proof; None for the machine's own.
        memory_folder: a folder there in which the answer is remembered until the next boot of that machine.

    Raises:
        TestbedError: KVM is asked for and there is none.
    """
    if wanted == "tcg":
        return "tcg"
    usable = transport.run(["test", "-r", "/dev/kvm", "-a", "-w", "/dev/kvm"], sudo=True, check=False).code == 0
    if wanted == "kvm":
        if not usable:
            raise TestbedError(f"{transport.name}: accelerator = kvm, but /dev/kvm cannot be used: use auto or tcg")
        return "kvm"
    if not usable:
        return "tcg"
    key = hashlib.sha256(program.encode()).hexdigest()[:16]
    memory = posixpath.join(memory_folder, f"kvm-{key}")
    answer = (transport.read(memory) or "").strip()
    if answer not in ("kvm", "tcg"):
        answer = "kvm" if _boots(transport, program, kernel) else "tcg"
        transport.write(memory, answer + "\n")
        log.info("%s: accelerator %s (proved by booting once)", transport.name, answer)
    return answer


def _boots(transport: Transport, program: str, kernel: str | None) -> bool:
    """Boot a kernel without any disk under KVM: it must print its banner and then panic, which ends QEMU."""
    if kernel is None:
        release = transport.run(["uname", "-r"]).stdout.strip()
        kernel = f"/boot/vmlinuz-{release}"
        if transport.run(["test", "-r", kernel], sudo=True, check=False).code != 0:
            log.warning("%s: no kernel to prove KVM with, so TCG is used; accelerator = kvm forces it", transport.name)
            return False
    command = CommandLine(program, Machine("pc", "kvm", "host", 1, 256), [Kernel(kernel, None, "console=ttyS0 panic=-1")])
    try:
        result = transport.run([*command.render(), "-serial", "stdio"], sudo=True, timeout=_PROOF_TIMEOUT, check=False)
    except AutotestError as error:
        log.debug("KVM does not work: %s", error)
        return False
    return _PROOF in result.stdout
