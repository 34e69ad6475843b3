"""The kinds of interfaces that can be tested, a module for each family. A kind is added in its family's module alone."""

from autotest.interfaces import kernel, vfio, vhost_user, vmux
from autotest.interfaces.kind import InterfaceKind, InterfaceOptions, by_name

__all__ = ["INTERFACE_KINDS", "InterfaceKind", "InterfaceOptions"]

INTERFACE_KINDS: dict[str, InterfaceKind] = by_name((*kernel.KINDS, *vhost_user.KINDS, *vfio.KINDS, *vmux.KINDS))
