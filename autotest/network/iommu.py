"""Whether the kernel gives a device away to a guest or a user's process: that depends on its whole IOMMU group.

See https://docs.kernel.org/driver-api/vfio.html, Groups, Devices, and IOMMUs.
"""

from __future__ import annotations

from autotest.network.pci_device import PciBus, PciDevice


def group_problem(device: PciDevice, bus: PciBus) -> str | None:
    """Why the device cannot be given away, and what would help; None where it can be.

    Every other device of its group must be without a driver or with one of vfio's; bridges and root ports do not count.
    """
    if device.iommu_group is None:
        if bus.has_iommu:
            return f"{device.address} is in no IOMMU group, though others are: the IOMMU that it is behind is not in use"
        return (
            "there is no IOMMU: switch VT-d or AMD-Vi on in the firmware's settings, and boot the kernel with intel_iommu=on "
            "(amd_iommu=on with AMD), iommu=pt"
        )
    others = [member for member in device.group if member.name != device.address]
    if in_the_way := [member for member in others if member.is_in_the_way]:
        named = ", ".join(map(str, in_the_way))
        everyone = ", ".join(map(str, device.group))
        return (
            f"IOMMU group {device.iommu_group} can only be given away as a whole, but the kernel uses {named}: "
            f"take the driver away, or use a slot with a group of its own; all its members are {everyone}"
        )
    return None
