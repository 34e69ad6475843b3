from autotest.config.testbed import GuestConfig, HostConfig
from autotest.interfaces.kernel import TUN, attach_tap, set_up_bridge
from autotest.interfaces.kind import HostNeeds, InterfaceKind, InterfaceOptions, given
from autotest.qemu.parts import EmulatedNic, TapBackend


def _nic(host: HostConfig, guest: GuestConfig, options: InterfaceOptions) -> EmulatedNic:
    return EmulatedNic("test", "pcnet", given(guest.test_iface_mac), TapBackend(host.test_tap))


KIND = InterfaceKind(
    name="bridge-pcnet",
    description="an emulated AMD PCnet over a tap in a bridge with the host's NIC",
    machines=("pcvm",),
    host_keys=("test_iface", "test_bridge"),
    host_keys_of_guest=("test_tap",),
    set_up=set_up_bridge,
    attach=attach_tap,
    needs=HostNeeds(modules=("bridge", "tun"), devices=(TUN,)),
    nic=_nic,
    guest_driver="pcnet32",
)
