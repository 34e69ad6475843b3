"""``autotest.conf``: what users have loads, and everything wrong is found at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotest.config.testbed import Testbed, load_testbed
from autotest.errors import ConfigError, Problem

OLDER_FILE = """\
# keys before the first section, as older files have them
moongen_dir = /opt/moongen
site = lab7

[common]
whatever = 10.0.7
nic = enp81s0f0

[local]
moonprogs_dir = ${projectDirectory}/moonprogs

[host]
fqdn = ${username}@${common:whatever}.1
admin_bridge = br0
test_iface = ${common:nic}
test_iface_addr = 51:00.0
test_iface_mac = 64:9D:99:B1:0B:59
test_iface_driv = ice
qemu_path =
fsdevs = home:/home,nix:/nix/store

[guest]
fqdn = 10.0.7.2

[loadgen]
fqdn = river.example.org
test_iface_addr = 0000:51:00.0
"""


def problems_of(tmp_path: Path, content: str) -> tuple[Problem, ...]:
    file = tmp_path / "autotest.conf"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_testbed(file, tmp_path)
    assert all(problem.file == file for problem in caught.value.problems)
    return caught.value.problems


def where(problems: tuple[Problem, ...]) -> list[tuple[str | None, str | None]]:
    return [(problem.section, problem.key) for problem in problems]


def minimal(host: str = "", guest: str = "", loadgen: str = "") -> str:
    sections = (("host", host), ("guest", guest), ("loadgen", loadgen))
    return "".join(f"[{name}]\nfqdn = {name}.example\n{more}\n" for name, more in sections)


def load(tmp_path: Path, content: str) -> Testbed:
    file = tmp_path / "autotest.conf"
    file.write_text(content)
    return load_testbed(file, tmp_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "example" in metafunc.fixturenames:
        root = Path(__file__).resolve().parents[2]
        examples = [root / "autotest.conf", *sorted((root / "configs").glob("*.conf"))]
        examples = [file for file in examples if "[host]" in file.read_text()]
        assert len(examples) >= 2
        metafunc.parametrize("example", examples, ids=lambda file: file.name)


def test_examples_of_the_repository_load(example: Path, repository: Path) -> None:
    testbed = load_testbed(example, repository)
    assert testbed.host.fqdn and testbed.guest.fqdn and testbed.loadgen.fqdn


def test_an_older_file_loads_with_its_keys_before_the_first_section(tmp_path: Path) -> None:
    testbed = load(tmp_path, OLDER_FILE)
    assert testbed.host.fqdn.endswith("@10.0.7.1")
    assert testbed.host.moongen_dir == testbed.loadgen.moongen_dir == "/opt/moongen"
    assert testbed.host.test_iface == "enp81s0f0"
    assert testbed.host.test_iface_addr == testbed.loadgen.test_iface_addr == "0000:51:00.0"
    assert testbed.host.test_iface_mac == "64:9d:99:b1:0b:59"
    assert testbed.host.fsdevs == (("home", "/home"), ("nix", "/nix/store"))
    assert testbed.host.qemu_path == "" and testbed.lab is None
    assert testbed.local.moonprogs_dir == f"{tmp_path}/moonprogs"


def test_threads_have_cpus_and_scheduling(tmp_path: Path) -> None:
    host = load(tmp_path, minimal(host="cpus_vcpus = 8, 2-4\nscheduling_vcpus = fifo:01")).host
    assert (host.cpus_vcpus, host.scheduling_vcpus) == ((2, 3, 4, 8), "fifo:1")
    assert (host.cpus_qemu, host.scheduling_qemu) == ((), None)


@pytest.mark.parametrize(("text", "memory"), [("768", 768), ("512M", 512), ("2G", 2048), ("0.5 GiB", 512)])
def test_memory_and_times_have_units(tmp_path: Path, text: str, memory: int) -> None:
    guest = load(tmp_path, minimal(guest=f"memory = {text}\nboot_timeout = 2m")).guest
    assert (guest.memory, guest.boot_timeout) == (memory, 120)


def test_every_key_but_fqdn_may_be_missing(tmp_path: Path) -> None:
    testbed = load(tmp_path, minimal())
    assert testbed.guest.vcpus == 2 and testbed.host.test_iface is None


def test_a_file_with_byte_order_mark_loads(tmp_path: Path) -> None:
    file = tmp_path / "autotest.conf"
    file.write_text("\ufeff" + minimal(), encoding="utf-8")
    assert load_testbed(file, tmp_path).host.fqdn == "host.example"


def test_injected_variables_are_there_even_with_dollar_signs(tmp_path: Path) -> None:
    folder = tmp_path / "a$b"
    folder.mkdir()
    content = minimal(
        host="moongen_dir = ${projectDirectory}/x\nxdp_reflector_dir = ${projectDirectoryParent}/${projectDirectoryName}"
    )
    file = tmp_path / "autotest.conf"
    file.write_text(content)
    host = load_testbed(file, folder).host
    assert host.moongen_dir == f"{folder}/x" and host.xdp_reflector_dir == str(folder)


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "no ini", "empty"])
def test_a_file_that_is_no_configuration_is_one_problem_that_names_it(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "autotest.conf"
    if kind == "folder":
        file.mkdir()
    elif kind != "missing":
        file.write_bytes({"binary": b"\xff\xfe\x00", "no ini": b"[host\nfqdn", "empty": b""}[kind])
    with pytest.raises(ConfigError, match="autotest.conf"):
        load_testbed(file, tmp_path)


@pytest.mark.parametrize(
    ("content", "section", "key", "says"),
    [
        (minimal(host="admin_brige = br0"), "host", "admin_brige", "did you mean 'admin_bridge'"),
        (minimal() + "[hots]\nfqdn = x", "hots", None, "did you mean 'host'"),
        ("[host]\nfqdn=a\n[guest]\nfqdn=b\n", "loadgen", None, "missing"),
        (minimal().replace("fqdn = guest.example", ""), "guest", "fqdn", "missing"),
        (minimal(guest="vcpus = two"), "guest", "vcpus", "not a whole number"),
        (minimal(guest="memory = 8"), "guest", "memory", "out of range"),
        (minimal(guest="memory = 1.5M"), "guest", "memory", "out of range: expected 32 to"),
        (minimal(guest="memory = 2GB"), "guest", "memory", "unknown unit 'GB' (did you mean 'GiB'?)"),
        (minimal(guest="memory = 0.6G"), "guest", "memory", "not a whole number of MiB"),
        ("memroy = 512\n" + minimal(), None, "memroy", "did you mean 'memory'"),
        (minimal(host="root_disk_snapshot = perhaps"), "host", "root_disk_snapshot", "neither yes nor no"),
        (minimal(host="accelerator = kwm"), "host", "accelerator", "did you mean 'kvm'"),
        (minimal(host="test_iface_mac = 52:54:00:fa:00"), "host", "test_iface_mac", "six pairs"),
        (minimal(host="test_iface_mac = 53:54:00:fa:00:60"), "host", "test_iface_mac", "multicast"),
        (minimal(host="test_iface_mac = 00:00:00:00:00:00"), "host", "test_iface_mac", "no usable"),
        (minimal(host="test_iface = abcdefghijklmnop"), "host", "test_iface", "at most 15"),
        (minimal(host="test_iface = a/b"), "host", "test_iface", "not an interface name"),
        (minimal(host="test_iface = --all"), "host", "test_iface", "leading dash"),
        (minimal(host="test_iface_addr = 5100.0"), "host", "test_iface_addr", "not a PCI address"),
        (minimal(host="admin_bridge_ip_net = 10.0.0.1"), "host", "admin_bridge_ip_net", "prefix length"),
        (minimal(host="admin_bridge_ip_net = 10.0.0.300/24"), "host", "admin_bridge_ip_net", "not an address"),
        (minimal(host="fsdevs = home"), "host", "fsdevs", "name:path"),
        (minimal(host="fsdevs = home:/a,home:/b"), "host", "fsdevs", "twice"),
        (minimal(host="cpus_vcpus = 2-"), "host", "cpus_vcpus", "not a list of CPUs"),
        (minimal(host="cpus_vhost = 9-2"), "host", "cpus_vhost", "runs backwards"),
        (minimal(host="cpus_qemu = 9999"), "host", "cpus_qemu", "highest number"),
        (minimal(host="cpus_switch = 1-3,2"), "host", "cpus_switch", "CPU 2 twice"),
        (minimal(host="cpu_vcpus = 2"), "host", "cpu_vcpus", "did you mean 'cpus_vcpus'"),
        (minimal(guest="cpus_vcpus = 2"), "guest", "cpus_vcpus", "unknown key"),
        (minimal(host="scheduling_vcpus = fifo"), "host", "scheduling_vcpus", "expected other, batch, idle, fifo:PRIORITY"),
        (minimal(host="scheduling_qemu = rr:0"), "host", "scheduling_qemu", "priorities are 1 to 99"),
        (minimal(host="scheduling_switch = nice:20"), "host", "scheduling_switch", "nice values are -20"),
        (minimal(guest="initrd = /i"), "guest", "kernel", "initrd needs it"),
        (minimal(host="test_iface = ${common:nope}"), "host", "test_iface", "nope"),
        (minimal(host="test_iface = ${test_iface}"), "host", "test_iface", "refers to itself"),
        (minimal(host="test_iface = a\ntest_iface = b"), "host", "test_iface", "already exists"),
        (minimal() + "[host]\nfqdn = x", "host", None, "already exists"),
        ("nic = ${common:nope}\n" + minimal(), None, "nic", "nope"),
        (minimal().replace("fqdn = guest.example", "fqdn = ${nope}"), "guest", "fqdn", "nope"),
    ],
)
def test_each_mistake_is_one_problem_with_section_and_key(
    tmp_path: Path, content: str, section: str | None, key: str | None, says: str
) -> None:
    problems = problems_of(tmp_path, content)
    assert where(problems) == [(section, key)]
    assert says.lower() in problems[0].message.lower()


def test_all_mistakes_are_found_at_once(tmp_path: Path) -> None:
    content = minimal(
        host="admin_brige = br0\ntest_iface_mac = zz\ntest_tap = x\ntest_bridge = x",
        guest="vcpus = 0\nadmin_iface_mac = 52:54:00:00:00:01\ntest_iface_mac = 52:54:00:00:00:01",
        loadgen="tmux_socket = a b",
    )
    assert set(where(problems_of(tmp_path, content))) == {
        ("host", "admin_brige"),
        ("host", "test_iface_mac"),
        ("host", "test_tap"),
        ("guest", "vcpus"),
        ("guest", "admin_iface_mac"),
        ("loadgen", "tmux_socket"),
    }


def test_a_line_that_is_no_ini_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    problem, *others = problems_of(tmp_path, "site = x\n[host]\nfqdn = a\nrubbish\n")
    assert problem.message.startswith("line 4: ") and "'rubbish'" in problem.message
    assert [other.message for other in others] == ["section is missing"] * 2


LAB = (
    "[lab]\nhost_netns = hn\nloadgen_netns = ln\n"
    "[host]\nfqdn = localhost\nnetns = ${lab:host_netns}\n[guest]\nfqdn = g\nnetns = hn\n"
    "[loadgen]\nfqdn = localhost\nnetns = ${lab:loadgen_netns}\n"
)
LAB_OVER_SSH = "[lab]\nsshd = yes\n[host]\nfqdn = h\ntmux_socket = th\n[guest]\nfqdn = g\n[loadgen]\nfqdn = l\ntmux_socket = tl\n"


@pytest.mark.parametrize(
    ("content", "section", "key", "says"),
    [
        (minimal(host="admin_bridge = br\ntest_bridge = br"), "host", "test_bridge", "br is already [host] admin_bridge"),
        (minimal(host="admin_tap = t\ntest_tap = t"), "host", "test_tap", "t is already [host] admin_tap"),
        (minimal(host="test_iface = t\ntest_macvtap = t"), "host", "test_macvtap", "t is already [host] test_iface"),
        (minimal(host="admin_bridge = t\nadmin_tap = t"), "host", "admin_tap", "t is already [host] admin_bridge"),
        (
            minimal(host="test_iface_mac = 52:54:00:00:00:01", loadgen="test_iface_mac = 52:54:00:00:00:01"),
            "loadgen", "test_iface_mac", "52:54:00:00:00:01 is already [host] test_iface_mac",
        ),
        (
            minimal(host="admin_bridge_ip_net = 10.0.0.1/24\ntest_bridge_ip_net = 10.0.0.1/16"),
            "host", "test_bridge_ip_net", "10.0.0.1 is already [host] admin_bridge_ip_net",
        ),
        (
            minimal(host="test_iface = n", loadgen="test_iface = n").replace("loadgen.example", "host.example"),
            "loadgen", "test_iface", "n is already [host] test_iface",
        ),
        (minimal().replace("guest.example", "host.example"), "guest", "fqdn", "host.example is already [host] fqdn"),
        (LAB.replace("[guest]\nfqdn = g\nnetns = hn", "[guest]\nfqdn = g"), "guest", "netns", "must be hn"),
        (LAB.replace("= ln", "= hn"), "lab", "loadgen_netns", "hn is already [lab] host_netns"),
        (LAB.replace("netns = ${lab:host_netns}", ""), "host", "netns", "must be hn"),
        (LAB.replace("netns = ${lab:loadgen_netns}", "netns = other"), "loadgen", "netns", "must be ln"),
        (LAB + "[lab]\n", "lab", None, "already exists"),
        (
            LAB.replace("host_netns = hn", "host_netns = -n").replace("${lab:host_netns}", "hn"),
            "lab", "host_netns", "leading dash",
        ),
        (LAB.replace("[lab]", "[lab]\ndirectory = /home"), "lab", "directory", "expected a folder"),
        (LAB_OVER_SSH.replace("= l\n", "= h\n"), "loadgen", "fqdn", "h is already [host] fqdn"),
        (LAB_OVER_SSH.replace("= tl", "= th"), "loadgen", "tmux_socket", "th is already [host] tmux_socket"),
        (LAB_OVER_SSH.replace("= h\n", "= localhost\n"), "host", "netns", "must be autotest-host"),
    ],
)  # fmt: skip
def test_what_is_given_to_two_things_is_one_problem_that_names_the_other(
    tmp_path: Path, content: str, section: str, key: str | None, says: str
) -> None:
    problems = problems_of(tmp_path, content)
    assert where(problems) == [(section, key)]
    assert says in problems[0].message


def test_what_may_be_alike_is_no_problem(tmp_path: Path) -> None:
    """Two machines have interfaces of the same name, host and loadgen may be one machine, each namespace is one."""
    load(tmp_path, minimal(host="test_iface = n", guest="test_iface = n", loadgen="test_iface = n"))
    load(tmp_path, minimal().replace("loadgen.example", "localhost").replace("host.example", "localhost"))
    two_namespaces = minimal(host="netns = a\ntest_iface = n", loadgen="netns = b\ntest_iface = n")
    load(tmp_path, two_namespaces.replace("loadgen.example", "host.example"))
    load(tmp_path, LAB)
    load(tmp_path, LAB_OVER_SSH)


def test_an_inherited_value_that_is_wrong_is_one_problem(tmp_path: Path) -> None:
    assert where(problems_of(tmp_path, "tmux_socket = a b\n" + minimal())) == [(None, "tmux_socket")]


def test_mistakes_of_all_sorts_in_all_sections_are_found_at_once(tmp_path: Path) -> None:
    """Of the form, of references, of names, of values, and of values in combination."""
    content = """\
[common]
nic = ${nope}
nic = eth1
rubbish
[host]
fqdn = h;reboot
admin_brige = br0
admin_tap = t
test_tap = t
test_iface = ${common:nic}
test_macvtap = ${a
root_disk_file = -drive
[guest
[guest]
fqdn = g
vcpus = 0
memory = lots
admin_iface_mac = 01:00:5e:00:00:01
[host]
[hots]
[loadgen]
fqdn = -oProxyCommand=x
netns = a/b
tmux_socket = ../x
"""
    assert sorted(map(str, where(problems_of(tmp_path, content)))) == sorted(
        map(str, [
            ("common", "nic"), ("common", "nic"), (None, None), ("host", "fqdn"), ("host", "admin_brige"),
            ("host", "test_tap"), ("host", "test_macvtap"), ("host", "root_disk_file"), (None, None), ("guest", "vcpus"),
            ("guest", "memory"), ("guest", "admin_iface_mac"), ("host", None), ("hots", None), ("loadgen", "fqdn"),
            ("loadgen", "netns"), ("loadgen", "tmux_socket"),
        ])
    )  # fmt: skip


def test_missing_names_file_section_key_and_what_needs_it(tmp_path: Path) -> None:
    testbed = load(tmp_path, minimal(host="test_tap = tap0"))
    problems = testbed.missing("host", ("test_tap", "test_bridge"), "interface bridge")
    assert [str(problem) for problem in problems] == [
        f"{tmp_path}/autotest.conf [host] test_bridge: is missing: interface bridge needs it"
    ]
