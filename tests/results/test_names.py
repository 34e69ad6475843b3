import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.names import (
    MAX_INFIX_BYTES,
    LoadLatencyCase,
    ResultFile,
    TrialName,
    acc_histogram_file,
    load_latency_infix,
    parse_file_name,
    parse_load_latency_infix,
    render_infix,
)

TOKENS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.-]{0,12}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,16}", fullmatch=True)
NUMBERS = st.integers(1, 999_999)
CHOSEN = st.none() | NUMBERS
#: Parts of a name that also are names of QEMU builds, machines and so on: what a parser could take them for.
PART = st.sampled_from(
    [
        "queues4",
        "rxq512",
        "txq256",
        "vhoston",
        "vhostoff",
        "ioregionfdoff",
        "ioregionfdon",
        "xdp",
        "10kpps",
        "60B",
        "5s",
        "host",
        "guests2",
        "weights3",
        "imixB",
        "60:7+590:4",
    ]
)
MIXES = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=4).map(lambda mix: "+".join(f"{a}:{b}" for a, b in mix))
WORDS = st.sampled_from(["imix", "dc-0123abcd", "B", "kpps", "s", "x.B"])
SIZES = NUMBERS | MIXES | WORDS | st.lists(NUMBERS.map(str) | MIXES | WORDS, min_size=2, max_size=4).map("~".join)
#: How many guests, and their weights.
GUESTS = st.sampled_from([(None, None), (2, None), (3, None), (1000, None)]) | st.lists(NUMBERS, min_size=2, max_size=5).map(
    lambda weights: (len(weights), ":".join(map(str, weights)))
)
LOOKALIKES = st.lists(PART, min_size=1, max_size=6).map("_".join)


@given(NAMES, st.integers(0, 10**8), st.sampled_from(["output", "histogram", "trial"]))
def test_a_trial_file_name_is_parsed_back_to_what_it_was_made_of(infix, repetition, kind):
    name = TrialName(infix, repetition)
    assert parse_file_name(name.file(kind)) == ResultFile(kind, infix, repetition)
    assert getattr(name, kind) == name.file(kind)
    assert parse_file_name(acc_histogram_file(infix)) == ResultFile("acc_histogram", infix, None)


@given(
    TOKENS | PART, TOKENS | PART, NAMES | LOOKALIKES, st.booleans(), st.booleans(), TOKENS | PART,
    st.tuples(NUMBERS, SIZES, NUMBERS), st.tuples(CHOSEN, CHOSEN, CHOSEN), GUESTS,
)  # fmt: skip
def test_a_guest_infix_is_parsed_back(machine, interface, qemu, vhost, ioregionfd, reflector, load, chosen, guests):
    if machine == "host":
        return
    asked = machine, interface, qemu, vhost, ioregionfd, reflector, *load, *chosen, *guests
    assume(len(render_infix(*asked)) <= MAX_INFIX_BYTES)
    case = LoadLatencyCase(machine, interface, reflector, *load, qemu, vhost, ioregionfd, *chosen, *guests)
    assert parse_load_latency_infix(case.infix) == case


@given(TOKENS | PART, TOKENS | PART, st.tuples(NUMBERS, SIZES, NUMBERS))
def test_a_host_infix_is_parsed_back(interface, reflector, load):
    case = LoadLatencyCase("host", interface, reflector, *load)
    assert parse_load_latency_infix(case.infix) == case


@pytest.mark.parametrize(
    "qemu", ["q_queues4", "q_rxq512_txq256", "q_vhoston_ioregionfdoff_queues4", "queues4", "a_vhoston_ioregionfdoff_xdp_1kpps"]
)
@pytest.mark.parametrize("chosen", [{}, {"queues": 2}, {"queues": 1, "rx_queue_size": 1024, "tx_queue_size": 256}], ids=str)
def test_a_qemu_build_that_is_named_like_queues_is_not_taken_for_them(qemu, chosen):
    case = LoadLatencyCase("pcvm", "bridge", "xdp", 10, 60, 5, qemu, True, False, **chosen)
    assert parse_load_latency_infix(case.infix) == case


def test_queues_and_ring_sizes_are_named_only_where_they_are_said():
    def name(**chosen):
        return load_latency_infix("pcvm", "bridge", "xdp", 10, 60, 5, "q", True, False, **chosen)

    assert name() == "pcvm_bridge_q_vhoston_ioregionfdoff_xdp_10kpps_60B_5s"
    assert name(queues=4) == "pcvm_bridge_q_vhoston_ioregionfdoff_queues4_xdp_10kpps_60B_5s"
    assert name(tx_queue_size=256, rx_queue_size=512) == "pcvm_bridge_q_vhoston_ioregionfdoff_rxq512_txq256_xdp_10kpps_60B_5s"
    assert name(queues=1) != name(), "what is said decides, not what it comes to"


def test_guests_weights_and_mixes_are_named_only_where_they_are_more_than_usual():
    def name(size=60, **several):
        return load_latency_infix("pcvm", "bridge", "xdp", 10, size, 5, "q", True, False, **several)

    assert name(guests=1, weights="even") == name() == "pcvm_bridge_q_vhoston_ioregionfdoff_xdp_10kpps_60B_5s"
    assert name(guests=4, weights="even") == "pcvm_bridge_q_vhoston_ioregionfdoff_guests4_xdp_10kpps_60B_5s"
    whole = name("imix~60:7+590:4", guests=2, weights="3:1", queues=4, tx_queue_size=256)
    flags = "vhoston_ioregionfdoff_queues4_txq256_guests2"
    assert whole == f"pcvm_bridge_q_{flags}_xdp_weights3:1_10kpps_imix~60:7+590:4B_5s"
    found = parse_load_latency_infix(whole)
    assert found is not None and (found.guests, found.weights, found.size) == (2, "3:1", "imix~60:7+590:4")
    assert load_latency_infix("host", "pnic", "xdp", 1, "imix", 5) == "host_pnic_xdp_1kpps_imixB_5s"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"guests": 0}, "guests 0"), ({"guests": "2"}, "guests '2'"), ({"guests": 2.0}, "guests 2.0"),
        ({"weights": "3:1"}, "each of 1 guests"), ({"guests": 3, "weights": "3:1"}, "each of 3 guests"),
        ({"guests": 2, "weights": "3:0"}, "weights '3:0'"), ({"guests": 2, "weights": "03:1"}, "weights"),
        ({"guests": 1000, "weights": ":".join(["1"] * 999 + ["2"])}, "too long"),
        *(({"size": size}, "name of a mix")
          for size in ("60", "60:1", "a_b", "60:1+", "~imix", "60:0+61:1", "-x", "60:1|61:1", "", "60.5", "6:1+imix")),
        ({"size": 0}, "size 0"), ({"reflector": "weights3:1"}, "taken for weights"),
    ],
)  # fmt: skip
def test_guests_weights_and_mixes_that_make_no_name_are_refused(wrong, says):
    values = {"reflector": "xdp", "rate": 1, "size": 60, "runtime": 1} | wrong
    with pytest.raises(ResultsError, match=says):
        load_latency_infix("pcvm", "bridge", qemu="q", vhost=True, ioregionfd=False, **values)


def test_the_infix_is_the_one_the_older_tool_used():
    assert load_latency_infix("host", "pnic", "moongen", 9000, 60, 30) == "host_pnic_moongen_9000kpps_60B_30s"
    guest = load_latency_infix("pcvm", "vfio", "moongen", 20000, 60, 30, "normal", False, False)
    assert guest == "pcvm_vfio_normal_vhostoff_ioregionfdoff_moongen_20000kpps_60B_30s"
    odd = parse_load_latency_infix("pcvm_bridge-e1000_my_vhoston_b-2_vhoston_ioregionfdoff_xdp_1kpps_60B_5s")
    assert odd is not None and (odd.interface, odd.qemu, odd.vhost) == ("bridge-e1000", "my_vhoston_b-2", True)


@pytest.mark.parametrize("bad", ["", "a/b", "-x", "../x", "a\nb", "a b", ".x", "a\0", "é", "a_b", "*"])
def test_values_that_make_ambiguous_or_dangerous_names_are_refused(bad):
    for key in ("machine", "interface", "reflector"):
        values = {"machine": "pcvm", "interface": "bridge", "reflector": "xdp", key: bad}
        with pytest.raises(ResultsError, match=key):
            load_latency_infix(**values, rate=1, size=60, runtime=1, qemu="q", vhost=True, ioregionfd=False)
    if bad != "a_b":
        with pytest.raises(ResultsError):
            TrialName(bad, 0)
        with pytest.raises(ResultsError, match="qemu"):
            load_latency_infix("pcvm", "bridge", "xdp", 1, 60, 1, bad, True, False)


def test_too_long_and_contradictory_names_are_refused():
    with pytest.raises(ResultsError, match="too long"):
        TrialName("x" * 240, 0)
    with pytest.raises(ResultsError, match="has no qemu"):
        load_latency_infix("host", "pnic", "xdp", 1, 60, 1, qemu="q")
    for several in ({"queues": 1}, {"guests": 2}, {"guests": 2, "weights": "3:1"}):
        with pytest.raises(ResultsError, match="no queues, no ring sizes and no guests"):
            load_latency_infix("host", "pnic", "xdp", 1, 60, 1, **several)
    for value in (0, True, "4"):
        with pytest.raises(ResultsError, match="tx_queue_size"):
            load_latency_infix("pcvm", "bridge", "xdp", 1, 60, 1, "q", True, False, tx_queue_size=value)
    with pytest.raises(ResultsError, match="needs qemu"):
        load_latency_infix("pcvm", "bridge", "xdp", 1, 60, 1)
    with pytest.raises(ResultsError, match="rate"):
        load_latency_infix("host", "pnic", "xdp", -1, 60, 1)


@pytest.mark.parametrize(
    "name",
    ["output_x_rep1.csv", "output_x_rep01.log", "output_x.log", "histogram_x_rep1.1.csv", "notes.txt", ".output_x_rep1.log"],
)
def test_other_files_are_not_taken_for_results(name):
    assert parse_file_name(name) is None


@pytest.mark.parametrize(
    "infix",
    [
        "host_pnic_xdp_01kpps_60B_5s", "host_pnic_q_vhoston_ioregionfdon_xdp_1kpps_60B_5s", "x",
        "host_pnic_queues4_xdp_1kpps_60B_5s",
        *(f"pcvm_bridge_q_vhoston_ioregionfdon_{marks}_xdp_1kpps_60B_5s"
          for marks in ("queues0", "queues04", "queues", "txq256_rxq256", "rxq256_queues4", "queues4_queues4", "queues4__rxq9",
                        "guests1", "guests02", "guests2_queues4", "guests", "guests1001x_weights3:1")),
        *(f"pcvm_bridge_q_vhoston_ioregionfdon_{marks}_1kpps_60B_5s"
          for marks in ("xdp_weights3:1", "guests3_xdp_weights3:1", "guests2_xdp_weights2", "guests2_weights3:1_xdp")),
        "host_pnic_xdp_weights3:1_1kpps_60B_5s", "host_pnic_guests2_xdp_1kpps_60B_5s",
        *(f"host_pnic_xdp_1kpps_{size}B_5s" for size in ("060", "60:1", "imix~", "60:01+61:1", "60_imix", "0")),
    ],
)  # fmt: skip
def test_other_infixes_are_not_taken_for_load_latency(infix):
    assert parse_load_latency_infix(infix) is None


def test_asking_what_is_done_imports_no_numeric_library():
    code = (
        "import sys, autotest.results.names, autotest.results.store; print({'numpy', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
