"""What is on a machine's PCI bus, who uses it, and changes of its drivers, by this very file on the machine itself.

It runs on the server, which may be another machine, and so imports nothing but Python's own library. Its argument is a
JSON object: ``root``, the folder in which ``sys``, ``proc`` and ``dev`` are, and ``asked``, names of the functions below with
their arguments, which are done in that order. It prints a JSON object: ``answers`` by those names, and ``error`` where
one could not be done. Nothing is understood here: values are the texts that the kernel gives.

Formats: https://docs.kernel.org/admin-guide/abi-testing.html, sysfs-bus-pci, sysfs-class-net and sysfs-kernel-iommu_groups.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import time

TYPE_CHECKING = False  # to import typing, or subprocess before it is needed, takes as long there as all the rest
if TYPE_CHECKING:
    from typing import Any, NoReturn

_ATTRIBUTES = (
    "vendor", "device", "class", "driver_override", "numa_node", "sriov_totalvfs", "sriov_numvfs", "sriov_drivers_autoprobe",
)  # fmt: skip
_INTERFACE_ATTRIBUTES = ("address", "addr_assign_type", "flags", "mtu")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VFIO_CONTAINER = {"/dev/vfio/vfio", "anon_inode:[vfio-device]"}  # open for a device, but of which one they do not tell
_VFIO_GROUP = re.compile(r"/dev/vfio/(noiommu-)?[0-9]+|/dev/vfio/devices/.*")
_SHORT = 10.0  # seconds for a write that the kernel does at once
_LONG = 45.0  # seconds in which a driver lets go of a device, takes one, or makes virtual functions
_MODPROBE = 20.0
_SETTLE = 5  # seconds in which udev gives a new interface its name
_SAID = 3  # lines of the kernel's log


# -- looking -----------------------------------------------------------------------------------------------


def bus(root: str) -> dict[str, Any]:
    """All devices by address, all IOMMU groups by number, the drivers that there are."""
    folder = os.path.join(root, "sys/bus/pci")
    groups = os.path.join(root, "sys/kernel/iommu_groups")
    return {
        "devices": {address: _device(os.path.join(folder, "devices", address)) for address in _names(folder, "devices")},
        "groups": {number: _group(os.path.join(groups, number)) for number in _names(groups)},
        "drivers": _names(folder, "drivers"),
        "drivers_autoprobe": _text(os.path.join(folder, "drivers_autoprobe")),
        "disks": {name: _pci_address(os.path.join(root, "sys/class/block", name)) for name in _names(root, "sys/class/block")},
    }


def _device(path: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: _text(os.path.join(path, name)) for name in _ATTRIBUTES}
    found.update({name: _target(os.path.join(path, name)) for name in ("driver", "iommu_group", "physfn")})
    functions = [name for name in _names(path) if name.startswith("virtfn")]
    found["virtfn"] = {name[len("virtfn") :]: _target(os.path.join(path, name)) for name in functions}
    return found


def _group(path: str) -> dict[str, Any]:
    members = {}
    for name in _names(path, "devices"):
        device = os.path.join(path, "devices", name)
        members[name] = {"class": _text(os.path.join(device, "class")), "driver": _target(os.path.join(device, "driver"))}
    return {"name": _text(os.path.join(path, "name")), "members": members}


def interfaces(root: str) -> dict[str, Any]:
    """The network interfaces of this network namespace, with the PCI device that each belongs to."""
    folder = os.path.join(root, "sys/class/net")
    return {name: _interface(os.path.join(folder, name)) for name in _names(folder) if os.path.isdir(os.path.join(folder, name))}


def _interface(path: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: _text(os.path.join(path, name)) for name in _INTERFACE_ATTRIBUTES}
    found["pci"] = _pci_address(os.path.join(path, "device"))
    found["master"] = _target(os.path.join(path, "master"))
    found["uppers"] = [name[len("upper_") :] for name in _names(path) if name.startswith("upper_")]
    found["bridge"] = os.path.isdir(os.path.join(path, "bridge"))
    return found


def network(root: str) -> dict[str, Any]:
    """What iproute2 says of addresses, default routes and TCP connections; the address that this login came to."""
    routes = _output("ip", "-json", "route", "show", "default", "table", "main")
    has_ipv6 = os.path.exists(os.path.join(root, "proc/net/if_inet6"))
    return {
        "addresses": _output("ip", "-json", "address", "show"),
        "routes": routes,
        "routes6": _output("ip", "-6", "-json", "route", "show", "default", "table", "main") if has_ipv6 else "[]",
        "connections": _output("ss", "-H", "-t", "-n", "-p", "state", "established"),
        "login": _login(),
    }


def _login() -> str | None:
    """The variable SSH_CONNECTION of this process or of one that it comes from: sudo does not hand it on."""
    if "SSH_CONNECTION" in os.environ:
        return os.environ["SSH_CONNECTION"]
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:  # it has ended, or is not ours to read
            return None
        for variable in variables:
            if variable.startswith(b"SSH_CONNECTION="):
                return variable.partition(b"=")[2].decode(errors="replace")
    return None


def holders(root: str, address: str) -> list[dict[str, Any]]:
    """The processes that have the device open through VFIO or UIO; to take its driver away would wait for them."""
    path = os.path.join(root, "sys/bus/pci/devices", address)
    group, driver = _target(os.path.join(path, "iommu_group")), _target(os.path.join(path, "driver"))
    nodes = {f"/dev/{name}" for name in _names(path, "uio")}
    is_vfio = "vfio" in (driver or "")
    if is_vfio:
        nodes |= {f"/dev/vfio/devices/{name}" for name in _names(path, "vfio-dev")}
        nodes |= {f"/dev/vfio/{group}", f"/dev/vfio/noiommu-{group}"}
    if not nodes:  # a driver of the kernel's lets go of whoever uses it
        return []
    found = []
    for pid in _names(root, "proc"):
        if not pid.isdigit():
            continue
        descriptors = os.path.join(root, "proc", pid, "fd")
        try:
            opened = {_link(os.path.join(descriptors, number)) for number in os.listdir(descriptors)}
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        held = sorted(opened & nodes)
        if not held and is_vfio and not any(_VFIO_GROUP.fullmatch(each) for each in opened):
            held = sorted(opened & _VFIO_CONTAINER)
        if held:
            found.append({"pid": int(pid), "command": _command(os.path.join(root, "proc", pid)), "holds": held[0]})
    return found


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except (FileNotFoundError, ProcessLookupError):  # closed meanwhile
        return ""


def _command(process: str) -> str:
    words = (_text(os.path.join(process, "cmdline")) or _text(os.path.join(process, "comm")) or "").split("\0")
    return " ".join(words).strip()[:200]


# -- changing ----------------------------------------------------------------------------------------------


def load(root: str, driver: str) -> str:
    """Load the module of a driver of this bus, and let it take no device by itself; what modprobe says."""
    switch = os.path.join(root, "sys/bus/pci/drivers_autoprobe")
    before = _text(switch)
    if before == "1":
        write(switch, "0", _SHORT)
    try:
        return modprobe(driver)
    finally:
        if before == "1":
            write(switch, before, _SHORT)


def modprobe(module: str) -> str:
    """What it says where it fails."""
    code, _, said = _run(["modprobe", "--", module], _MODPROBE)
    return said.strip() or f"modprobe: exit code {code}" if code else ""


def bind(root: str, address: str, driver: str, named: str, override: str) -> dict[str, Any]:
    """Give the device the driver, none for an empty one, with ``driver_override`` first ``named`` and in the end ``override``.

    Whoever has it open is looked for at the last moment: the kernel would wait for them, and nothing could end that.
    Answers ``holders``, and if there are none the ``driver`` that it has then, why the kernel ``refused`` and what its log
    ``said`` meanwhile.
    """
    found = holders(root, address)
    if found:
        return {"holders": found}
    path = os.path.join(root, "sys/bus/pci/devices", address)
    now = _target(os.path.join(path, "driver"))
    if _text(os.path.join(path, "physfn/sriov_drivers_autoprobe")) == "0":
        named = driver  # else a virtual function would get none
    write(os.path.join(path, "driver_override"), named + "\n", _SHORT)
    if now and now != driver:
        write(os.path.join(path, "driver/unbind"), address, _LONG)
    log, refused = _kernel_log(root), ""
    if driver and now != driver:
        try:
            write(os.path.join(root, "sys/bus/pci/drivers", driver, "bind"), address, _LONG)
        except TimeoutError:
            raise
        except OSError as error:
            refused = os.strerror(error.errno or errno.EIO)
    if override != named:
        write(os.path.join(path, "driver_override"), override + "\n", _SHORT)
    return {"holders": [], "driver": _target(os.path.join(path, "driver")), "refused": refused, "said": _said(log, address)}


def virtual_functions(root: str, address: str, count: int) -> dict[str, Any]:
    """Make so many virtual functions, without drivers, or remove them all with 0."""
    path = os.path.join(root, "sys/bus/pci/devices", address)
    functions = [_target(os.path.join(path, name)) for name in _names(path) if name.startswith("virtfn")]
    found = [holder for function in functions if function for holder in holders(root, function)]
    if found:
        return {"holders": found}
    switch = os.path.join(path, "sriov_drivers_autoprobe")
    before = _text(switch)
    if before == "1" and count:
        write(switch, "0", _SHORT)
    try:
        write(os.path.join(path, "sriov_numvfs"), str(count), _LONG)
    finally:
        if before == "1" and count:
            write(switch, before, _SHORT)
    return {"holders": []}


def store(root: str, path: str, value: str) -> None:
    """Write one value into a file of sysfs."""
    write(os.path.join(root, path), value, _SHORT)


def settle(root: str) -> None:
    """Wait until udev, where there is one, has given new interfaces their names."""
    if root == "/" and os.path.isdir("/run/udev"):
        _run(["udevadm", "settle", f"--timeout={_SETTLE}"], _SETTLE + 5)


def write(path: str, text: str, seconds: float) -> None:
    """Write to a file of sysfs, by a process of its own: one that the kernel lets wait cannot be ended, only left alone."""
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        code = errno.EIO
        try:
            code = _error_of_writing(path, text)
        finally:  # it must never return into what its parent does
            os._exit(code)
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"writing {text.strip()!r} did not end within {seconds:g} s: who holds it?", path)
        time.sleep(0.002)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else errno.EIO
    if code:
        raise OSError(code, f"writing {text.strip()!r}: {os.strerror(code)}", path)


def _error_of_writing(path: str, text: str) -> int:
    """The kernel's error number, 0 where there is none."""
    try:
        kernel_takes(path, text)
    except OSError as error:
        return error.errno if error.errno and error.errno < 256 else errno.EIO
    return 0


def kernel_takes(path: str, text: str) -> None:
    """One write(2), as the kernel takes a value."""
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, text.encode())
    os.close(descriptor)


def _kernel_log(root: str) -> int | None:
    """The kernel's log, opened behind its last line."""
    try:
        log = os.open(os.path.join(root, "dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # a container has none
        return None
    os.lseek(log, 0, os.SEEK_END)
    return log


def _said(log: int | None, address: str) -> list[str]:
    """The last lines about that device since the log was opened; see Documentation/ABI/testing/dev-kmsg."""
    lines = []
    while log is not None:
        try:
            record = os.read(log, 8192).decode(errors="replace")
        except OSError:  # no more, or lines were overwritten meanwhile
            break
        if not record:
            break
        message = record.partition(";")[2].partition("\n")[0]
        if address in message:
            lines.append(message)
    return lines[-_SAID:]


# -- files -------------------------------------------------------------------------------------------------


def _names(*path: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(*path)))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _text(path: str) -> str | None:
    """What a file holds, None where there is none or the kernel gives an error instead."""
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _target(path: str) -> str | None:
    """The last part of where a link leads."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def _pci_address(path: str) -> str | None:
    """The PCI device that a device of the kernel belongs to, also where another bus is between them."""
    found = [part for part in os.path.realpath(path).split("/") if _ADDRESS.fullmatch(part)]
    return found[-1] if found else None


def _output(*command: str) -> str:
    code, printed, said = _run(list(command), _SHORT)
    if code:
        raise OSError(errno.EIO, f"exit code {code}: {said.strip()}", " ".join(command))
    return printed


def _run(command: list[str], seconds: float) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    import subprocess

    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, f"did not end within {seconds:g} s", " ".join(command)) from None
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


_KNOWN = (bus, interfaces, network, holders, load, bind, virtual_functions, store, settle)


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)  # what is half done is put right on the way out


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    given = json.loads(sys.argv[1])
    known = {function.__name__: function for function in _KNOWN}
    printed: dict[str, Any] = {"answers": {}}
    try:
        for name, arguments in given["asked"].items():
            printed["answers"][name] = known[name](given["root"], **arguments)
    except OSError as error:
        printed["error"] = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    json.dump(printed, sys.stdout)


if __name__ == "__main__":
    main()
