import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.names import (
    MAX_INFIX_BYTES,
    UNSAID,
    UNSAID_OF_SET_UP,
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


# -- each limit, from both sides -----------------------------------------------------------------------------


def test_the_longest_infix_still_makes_names_that_every_file_system_takes():
    """Also those that an earlier attempt's files get in ``invalid/``, of the 999th attempt."""
    assert len("histogram_" + "x" * MAX_INFIX_BYTES + "_rep999999999.json.999") == 255
    longest = "x" * MAX_INFIX_BYTES
    assert TrialName(longest, 999_999_999).histogram == f"histogram_{longest}_rep999999999.csv"
    assert acc_histogram_file(longest) == f"acc_histogram_{longest}.csv"
    too_long = longest + "x"
    says = f"^'{too_long}' is too long for a file name: {MAX_INFIX_BYTES + 1} bytes, at most {MAX_INFIX_BYTES}$"
    for refuses in (lambda: TrialName(too_long, 0), lambda: acc_histogram_file(too_long)):
        with pytest.raises(ResultsError, match=says):
            refuses()


@pytest.mark.parametrize(("more", "is_one"), [(-1, True), (0, True), (1, False), (2, False)])
def test_a_file_name_with_a_longer_infix_is_none_of_autotests(more, is_one):
    infix = "x" * (MAX_INFIX_BYTES + more)
    assert parse_file_name(f"trial_{infix}_rep7.json") == (ResultFile("trial", infix, 7) if is_one else None)
    assert parse_file_name(f"acc_histogram_{infix}.csv") == (ResultFile("acc_histogram", infix, None) if is_one else None)


@pytest.mark.parametrize("length", [MAX_INFIX_BYTES, MAX_INFIX_BYTES + 1])
def test_the_infix_of_a_case_is_as_long_as_a_file_name_allows(length):
    rest = len(load_latency_infix("pcvm", "bridge", "xdp", 1, 60, 1, "q", True, False)) - 1
    case = ("pcvm", "bridge", "xdp", 1, 60, 1, "q" * (length - rest), True, False)
    if length > MAX_INFIX_BYTES:
        with pytest.raises(ResultsError, match=f"too long for a file name: {length} bytes, at most"):
            load_latency_infix(*case)
    else:
        assert len(load_latency_infix(*case)) == length


@pytest.mark.parametrize("repetition", [0, 1, 999_999_998, 999_999_999])
def test_a_repetition_has_nine_digits_at_most(repetition):
    name = TrialName("x", repetition)
    assert name.trial == f"trial_x_rep{repetition}.json" and parse_file_name(name.trial) == ResultFile("trial", "x", repetition)


@pytest.mark.parametrize("repetition", [-2, -1, 1_000_000_000, 10**12])
def test_other_repetitions_make_no_name(repetition):
    with pytest.raises(ResultsError, match=f"^x: repetition {repetition} is not a number from 0 to 999999999$"):
        TrialName("x", repetition)
    assert parse_file_name(f"trial_x_rep{repetition}.json") is None


def test_a_trials_files_are_named_by_kind():
    name = TrialName("a_b", 12)
    assert {kind: name.file(kind) for kind in ("output", "histogram", "guests", "trial")} == {
        "output": "output_a_b_rep12.log",
        "histogram": "histogram_a_b_rep12.csv",
        "guests": "guests_a_b_rep12.csv",
        "trial": "trial_a_b_rep12.json",
    }
    assert (name.output, name.histogram, name.trial) == (name.file("output"), name.file("histogram"), name.file("trial"))
    assert str(name) == "a_b_rep12"
    with pytest.raises(KeyError):
        name.file("acc_histogram")


def test_a_file_of_one_kind_has_no_other_ending():
    suffixes = {"output": "log", "histogram": "csv", "guests": "csv", "trial": "json"}
    for kind, own in suffixes.items():
        for suffix in ("log", "csv", "json", "txt", "", "csvx"):
            found = parse_file_name(f"{kind}_x_rep3.{suffix}")
            assert found == (ResultFile(kind, "x", 3) if suffix == own else None)
    assert parse_file_name("acc_histogram_x.log") is None and parse_file_name("acc_histogram_.csv") is None


def test_names_and_cases_are_values_that_nobody_changes():
    case = LoadLatencyCase("host", "pnic", "xdp", 1, 60, 1)
    for value, name in ((TrialName("x", 1), "repetition"), (case, "rate")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 2)
    assert len({TrialName("x", 1), TrialName("x", 1), TrialName("x", 2), TrialName("y", 1)}) == 3
    assert len({case, LoadLatencyCase("host", "pnic", "xdp", 1, 60, 1), LoadLatencyCase("host", "pnic", "xdp", 2, 60, 1)}) == 2


def test_what_a_name_does_not_say_is_qemus_choice_one_guest_and_even_weights():
    assert dict(UNSAID_OF_SET_UP) == {"queues": "default", "rx_queue_size": "default", "tx_queue_size": "default", "guests": 1}
    assert dict(UNSAID) == {**UNSAID_OF_SET_UP, "weights": "even"}


def test_weights_that_are_even_are_not_named_however_the_word_came_to_be():
    even = "".join(["ev", "en"])
    case = ("pcvm", "bridge", "xdp", 10, 60, 5, "q", True, False)
    assert load_latency_infix(*case, guests=2, weights=even) == load_latency_infix(*case, guests=2)
    parts = ("pcvm", "bridge", "q", True, False, "xdp", 10, 60, 5)
    assert render_infix(*parts, guests=2, weights=even) == render_infix(*parts, guests=2, weights=None)
    assert (
        render_infix(*parts, guests=2, weights="3:1")
        == "pcvm_bridge_q_vhoston_ioregionfdoff_guests2_xdp_weights3:1_10kpps_60B_5s"
    )


@pytest.mark.parametrize(
    ("vhost", "ioregionfd", "flags"),
    [(True, True, "vhoston_ioregionfdon"), (True, False, "vhoston_ioregionfdoff"),
     (False, True, "vhostoff_ioregionfdon"), (False, False, "vhostoff_ioregionfdoff")],
)  # fmt: skip
def test_flags_are_on_or_off(vhost, ioregionfd, flags):
    infix = load_latency_infix("pcvm", "bridge", "xdp", 0, 60, 5, "q", vhost, ioregionfd)
    assert infix == f"pcvm_bridge_q_{flags}_xdp_0kpps_60B_5s"
    found = parse_load_latency_infix(infix)
    assert found is not None and (found.vhost, found.ioregionfd) == (vhost, ioregionfd)


@pytest.mark.parametrize(
    ("chosen", "marks"),
    [
        ((None, None, None), ""), ((4, None, None), "_queues4"), ((None, 512, None), "_rxq512"), ((None, None, 256), "_txq256"),
        ((4, 512, None), "_queues4_rxq512"), ((4, None, 256), "_queues4_txq256"), ((4, 512, 256), "_queues4_rxq512_txq256"),
    ],
)  # fmt: skip
def test_each_choice_has_its_own_mark(chosen, marks):
    infix = load_latency_infix("pcvm", "bridge", "xdp", 10, 60, 5, "q", True, False, *chosen)
    assert infix == f"pcvm_bridge_q_vhoston_ioregionfdoff{marks}_xdp_10kpps_60B_5s"
    found = parse_load_latency_infix(infix)
    assert found is not None and (found.queues, found.rx_queue_size, found.tx_queue_size) == chosen


@pytest.mark.parametrize("guests", [None, 0, 1])
def test_a_plan_with_one_guest_names_neither_it_nor_its_weights(guests):
    parts = ("pcvm", "bridge", "q", True, False, "xdp", 10, 60, 5)
    assert render_infix(*parts, guests=guests, weights="3:1") == "pcvm_bridge_q_vhoston_ioregionfdoff_xdp_10kpps_60B_5s"
    assert render_infix("host", "pnic", None, None, None, "xdp", 10, 60, 5, guests=guests) == "host_pnic_xdp_10kpps_60B_5s"


def case_with(**values):
    usual = {"machine": "pcvm", "interface": "bridge", "reflector": "xdp", "rate": 1, "size": 60, "runtime": 1}
    return LoadLatencyCase(**{**usual, "qemu": "q", "vhost": True, "ioregionfd": False, **values})


@pytest.mark.parametrize(
    ("key", "least"),
    [("rate", 0), ("size", 1), ("runtime", 1), ("queues", 1), ("rx_queue_size", 1), ("tx_queue_size", 1), ("guests", 2)],
)
def test_numbers_are_whole_and_within_their_limits(key, least):
    for value in (least, least + 1, 999_999_999):
        case = case_with(**{key: value})
        assert getattr(case, key) == value and parse_load_latency_infix(case.infix) == case
    for value in (least - 1, -5, 1_000_000_000, 1.0, 2.5, True, b"4"):
        with pytest.raises(ResultsError) as raised:
            case_with(**{key: value})
        assert str(raised.value) == f"{key} {value!r} is not a whole number from {least} to 999999999"


@pytest.mark.parametrize("key", ["rate", "size", "runtime"])
def test_numbers_that_every_case_needs_are_not_left_out(key):
    with pytest.raises(ResultsError, match=f"^{key} None is not a whole number"):
        case_with(**{key: None})


@pytest.mark.parametrize("key", ["machine", "interface", "reflector"])
def test_what_cannot_be_a_part_of_a_name_is_refused_with_what_could(key):
    with pytest.raises(ResultsError) as raised:
        case_with(**{key: "a_b"})
    assert str(raised.value) == (
        f"{key} 'a_b' cannot be part of a result file's name: use letters, digits and . + = @ , : ~ -, "
        "beginning with a letter or digit"
    )
    assert getattr(case_with(**{key: "a.+=@,:~-Z9"}), key) == "a.+=@,:~-Z9"


def test_what_cannot_be_an_infix_or_a_build_is_refused_with_what_could():
    use = "cannot be part of a result file's name: use letters, digits and _ . + = @ , : ~ -, beginning with a letter or digit"
    for infix in ("_a", "a/b", ""):
        with pytest.raises(ResultsError) as raised:
            TrialName(infix, 0)
        assert str(raised.value) == f"{infix!r} {use}"
        with pytest.raises(ResultsError) as raised:
            case_with(qemu=infix)
        assert str(raised.value) == f"qemu {infix!r} {use}"
    assert acc_histogram_file("a_b.+=@,:~-Z9") == "acc_histogram_a_b.+=@,:~-Z9.csv"
    with pytest.raises(ResultsError, match="^'a b' cannot be part"):
        acc_histogram_file("a b")


@pytest.mark.parametrize("missing", ["qemu", "vhost", "ioregionfd"])
def test_a_guest_needs_all_of_its_parameters_and_the_host_has_none(missing):
    with pytest.raises(ResultsError) as raised:
        case_with(**{missing: None})
    assert str(raised.value) == "machine 'pcvm' needs qemu, vhost and ioregionfd"
    values = {"qemu": "q", "vhost": False, "ioregionfd": False}
    none = {"qemu": None, "vhost": None, "ioregionfd": None}
    for wrong in (values, none | {missing: values[missing]}):
        with pytest.raises(ResultsError) as raised:
            case_with(machine="host", **wrong)
        assert str(raised.value) == "machine 'host' has no qemu, vhost or ioregionfd, no queues, no ring sizes and no guests"
    for host in ("host", "".join(["ho", "st"])):
        assert case_with(machine=host, **none).infix == "host_bridge_xdp_1kpps_60B_1s"


@pytest.mark.parametrize("key", ["queues", "rx_queue_size", "tx_queue_size", "guests"])
def test_the_host_has_no_choices_of_a_guest(key):
    with pytest.raises(ResultsError, match="^machine 'host' has no qemu"):
        case_with(machine="host", qemu=None, vhost=None, ioregionfd=None, **{key: 2})


@pytest.mark.parametrize(
    ("guests", "weights", "of"),
    [(None, "3:1", 1), (2, "3", 2), (2, "3:1:1", 2), (3, "3:1", 3), (2, "3:", 2), (2, "3:0", 2),
     (2, "3:1 ", 2), (2, "", 2), (2, "even", 2)],
)  # fmt: skip
def test_weights_are_one_number_for_each_guest(guests, weights, of):
    with pytest.raises(ResultsError) as raised:
        case_with(guests=guests, weights=weights)
    assert str(raised.value) == f"weights {weights!r} are not a number for each of {of} guests, like 3:1 for 2"


@pytest.mark.parametrize("size", ["60", "a_b", ""])
def test_a_size_that_is_no_mix_is_refused_with_what_would_be_one(size):
    with pytest.raises(ResultsError) as raised:
        case_with(size=size)
    assert str(raised.value) == f"size {size!r} is neither a number nor the name of a mix, like imix or 60:7+590:4+1514:1"


def test_a_reflector_that_reads_like_weights_is_refused_behind_a_guest_only():
    with pytest.raises(ResultsError) as raised:
        case_with(reflector="weights3:1")
    assert str(raised.value) == "reflector 'weights3:1' would be taken for weights in a result file's name"
    host = case_with(machine="host", qemu=None, vhost=None, ioregionfd=None, reflector="weights3:1")
    assert parse_load_latency_infix(host.infix) == host
    for other in ("weights3", "weights", "weights3:0", "xweights3:1"):
        case = case_with(reflector=other)
        assert parse_load_latency_infix(case.infix) == case


@pytest.mark.parametrize("infix", ["host_pnic_xdp_1kpps_60B_0s", "pcvm_bridge_q_vhoston_ioregionfdoff_xdp_1kpps_60B_0s"])
def test_an_infix_that_no_case_could_have_is_none(infix):
    assert parse_load_latency_infix(infix) is None
    assert parse_load_latency_infix(infix.replace("_0s", "_1s")) is not None
