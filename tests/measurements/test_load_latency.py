"""Load latency: result names, what the configuration lacks, and what is refused before anything is touched."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.measurements.load_latency import KIND, infix, missing
from autotest.plan.parameters import Case, Section
from autotest.results.names import TrialName, parse_file_name, parse_load_latency_infix
from autotest.results.verdicts import DEFAULT_TOLERANCES, Tolerances, Verdict
from autotest.traffic.frame_sizes import FrameSizes

NAMES = (*(parameter.name for parameter in KIND.parameters), "repetition")


def case(machine: str, interface: str, reflector: str = "xdp", **more: Any) -> Case:
    guest = machine != "host"
    values = {
        "machine": machine,
        "interface": interface,
        "qemu": ("default", "") if guest else None,
        "vhost": False if guest else None,
        "ioregionfd": False if guest else None,
        "queues": None,
        "rx_queue_size": None,
        "tx_queue_size": None,
        "guests": 1 if guest else None,
        "reflector": reflector,
        "weights": None,
        "rate": 10,
        "size": 60,
        "runtime": 30,
        "repetition": 0,
    } | more
    return Case(NAMES, tuple(values[name] for name in NAMES))


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        (case("host", "pnic", "moongen"), "host_pnic_moongen_10kpps_60B_30s"),
        (case("host", "bridge", rate=200), "host_bridge_xdp_200kpps_60B_30s"),
        (case("pcvm", "bridge"), "pcvm_bridge_default_vhostoff_ioregionfdoff_xdp_10kpps_60B_30s"),
        (
            case("microvm", "macvtap", qemu=("my-qemu_8.2", "/q"), vhost=True, ioregionfd=True, size=1514, runtime=2),
            "microvm_macvtap_my-qemu_8.2_vhoston_ioregionfdon_xdp_10kpps_1514B_2s",
        ),
        (case("pcvm", "bridge", queues=1), "pcvm_bridge_default_vhostoff_ioregionfdoff_queues1_xdp_10kpps_60B_30s"),
        (
            case("pcvm", "bridge", queues=4, rx_queue_size=512, tx_queue_size=256),
            "pcvm_bridge_default_vhostoff_ioregionfdoff_queues4_rxq512_txq256_xdp_10kpps_60B_30s",
        ),
        (
            case("pcvm", "bridge", queues=4, guests=4, weights="even"),
            "pcvm_bridge_default_vhostoff_ioregionfdoff_queues4_guests4_xdp_10kpps_60B_30s",
        ),
        (
            case("pcvm", "bridge", guests=2, weights="3:1", size=FrameSizes("60~imix", ())),
            "pcvm_bridge_default_vhostoff_ioregionfdoff_guests2_xdp_weights3:1_10kpps_60~imixB_30s",
        ),
    ],
)
def test_result_names_are_the_promised_ones(planned: Case, expected: str) -> None:
    assert infix(planned) == expected
    assert infix(planned.prefix(len(KIND.parameters))) == expected
    of_the_case = parse_load_latency_infix(expected)
    assert of_the_case is not None and of_the_case.queues == planned["queues"]
    assert (of_the_case.guests or 1) == (planned["guests"] or 1) and str(of_the_case.size) == str(planned["size"])
    assert (of_the_case.weights or "even") == (planned["weights"] or "even")
    assert (of_the_case.rx_queue_size, of_the_case.tx_queue_size) == (planned["rx_queue_size"], planned["tx_queue_size"])
    parsed = parse_file_name(TrialName(expected, 3).file("histogram"))
    assert parsed is not None and parsed.infix == expected and parsed.repetition == 3


def bare() -> Testbed:
    return Testbed(Path("a.conf"), HostConfig(fqdn="h"), GuestConfig(fqdn="g"), LoadGenConfig(fqdn="l"))


LOADGEN = {("loadgen", key) for key in ("test_iface", "test_iface_mac", "moongen_dir", "moonprogs_dir")}
GUEST = {("host", key) for key in ("admin_bridge", "admin_bridge_ip_net", "admin_tap", "root_disk_file")}
GUEST |= {("guest", "admin_iface_mac"), ("guest", "test_iface_mac")}
XDP = ("test_iface", "test_iface_mac", "xdp_reflector_dir")
MOONGEN = ("test_iface", "test_iface_mac", "moongen_dir", "moonprogs_dir")


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        (case("host", "pnic", "moongen"), {("host", key) for key in MOONGEN}),
        (case("host", "pnic"), {("host", key) for key in XDP}),
        (case("host", "bridge"), {("host", key) for key in (*XDP, "test_bridge")}),
        (
            case("host", "macvtap"),  # the macvtap has the MAC of the guest, and the load is sent to it
            {("host", key) for key in (*XDP, "test_macvtap")} | {("guest", "test_iface_mac")},
        ),
        (
            case("pcvm", "bridge", "moongen"),
            GUEST | {("host", key) for key in ("test_iface", "test_bridge", "test_tap")}
            | {("guest", key) for key in MOONGEN},
        ),
        (
            case("microvm", "macvtap"),
            GUEST | {("host", "test_iface"), ("host", "test_macvtap")} | {("guest", key) for key in XDP},
        ),
    ],
)  # fmt: skip
def test_exactly_the_keys_that_a_case_needs_are_missing(planned: Case, expected: set[tuple[str, str]]) -> None:
    problems = missing(bare(), [planned, planned])
    assert {(problem.section, problem.key) for problem in problems} == expected | LOADGEN
    assert all(problem.file == Path("a.conf") and "needs it" in problem.message for problem in problems)


def test_each_missing_key_is_named_once_with_what_needs_it() -> None:
    problems = missing(bare(), [case("pcvm", "bridge"), case("microvm", "bridge")])
    texts = [str(problem) for problem in problems]
    assert "a.conf [host] test_tap: is missing: interface bridge needs it" in texts
    assert "a.conf [loadgen] moongen_dir: is missing: the load generator needs it" in texts
    keys = [(problem.section, problem.key) for problem in problems]
    assert len(keys) == len(set(keys))


def test_nothing_is_missing_in_the_examples(repository: Path) -> None:
    from autotest.config.testbed import load_testbed
    from autotest.config.tests import load_sections
    from autotest.plan.tree import Tree

    (section, *_) = load_sections(repository / "tests.conf", repository, KIND.parameters, KIND.settings)
    cases = list(Tree(KIND.parameters, KIND.rules, section).leaves())
    for file in (repository / "autotest.conf", repository / "configs/lab-ssh.conf"):
        assert missing(load_testbed(file, repository), cases) == []


def test_every_tolerance_is_a_setting_whose_default_it_is() -> None:
    settings = {setting.name: setting.default for setting in KIND.settings}
    tolerances = {f"tolerance_{name}": value for name, value in dataclasses.asdict(DEFAULT_TOLERANCES).items()}
    assert {name: value for name, value in settings.items() if name.startswith("tolerance_")} == tolerances
    assert Tolerances.of(settings) == DEFAULT_TOLERANCES


def test_the_examples_and_the_page_name_every_tolerance_with_its_default(repository: Path) -> None:
    example, page = (repository / "tests.conf").read_text(), (repository / "docs/verdicts.md").read_text()
    for field in dataclasses.fields(Tolerances):
        shown = (
            f"{Decimal(str(field.default)) * 100:f}".rstrip("0").rstrip(".") + " %"
            if field.type == "float"
            else str(field.default)
        )
        assert f"# tolerance_{field.name} = {shown}\n" in example
        assert f"| `tolerance_{field.name}` | {shown} |" in page
    for verdict in Verdict:
        assert f"`{verdict}`" in page


@pytest.mark.parametrize(
    ("text", "value"), [("normal:/opt/q", ("normal", "/opt/q")), ("normal:", ("normal", "")), ("n", ("n", "")),
                        ("v8.2-rc1:/a:b/c", ("v8.2-rc1", "/a:b/c"))]
)  # fmt: skip
def test_a_qemu_build_is_a_name_and_a_path_that_may_be_empty(text: str, value: tuple[str, str]) -> None:
    (qemu,) = [parameter for parameter in KIND.parameters if parameter.name == "qemu"]
    assert qemu.parse(text) == value
    assert qemu.show(value) == value[0]


def test_what_is_left_to_qemu_is_labelled_only_where_a_section_has_other_values_too() -> None:
    guest = ["machine pcvm", "interface bridge", "qemu default", "vhost off", "ioregionfd off"]
    left, chosen, bare_metal = case("pcvm", "bridge"), case("pcvm", "bridge", queues=4), case("host", "bridge")
    rest = {"rx_queue_size": (None,), "tx_queue_size": (None,), "guests": (1,), "weights": ("even",)}
    one, several = ({"queues": queues, **rest} for queues in ((None,), (4, None)))
    reflected = ["reflector xdp", "rate 10", "size 60", "runtime 30"]
    for section in (None, Section("s", one)):
        assert KIND.labels(left, section) == guest + reflected
        assert KIND.labels(chosen, section) == [*guest, "queues 4", *reflected]
    assert KIND.labels(left, Section("s", several)) == [*guest, "queues default", *reflected]
    assert KIND.labels(bare_metal, Section("s", several)) == ["machine host", "interface bridge", *reflected]


def test_one_guest_and_even_weights_are_labelled_only_where_a_section_has_other_values_too() -> None:
    left = dict.fromkeys(("queues", "rx_queue_size", "tx_queue_size"), (None,))
    alone, pair = case("pcvm", "bridge"), case("pcvm", "bridge", guests=2, weights="even")
    uneven, bare_metal = case("pcvm", "bridge", guests=2, weights="3:1"), case("host", "bridge")

    def labels(of: Case, *guests: int, weights: tuple[str, ...] = ("even",)) -> list[str]:
        found = KIND.labels(of, Section("s", {**left, "guests": guests, "weights": weights}) if guests else None)
        return [label for label in found if label.startswith(("guests", "weights"))]

    assert labels(alone) == labels(alone, 1) == [] and labels(pair) == labels(pair, 2) == ["guests 2"]
    assert labels(uneven) == ["guests 2", "weights 3:1"]
    both = {"weights": ("even", "3:1")}
    assert labels(alone, 1, 2, **both) == ["guests 1"] and labels(pair, 1, 2, **both) == ["guests 2", "weights even"]
    assert labels(bare_metal, 1, 2, **both) == []


@pytest.mark.parametrize("text", [":/opt/q", "a b:/x", "-x:/x", "a:-x", "../a:/x", "a\x00:/x", "_a:/x"])
def test_a_qemu_build_that_cannot_name_files_is_refused(text: str) -> None:
    (qemu,) = [parameter for parameter in KIND.parameters if parameter.name == "qemu"]
    with pytest.raises(ValueError):
        qemu.parse(text)
