from pathlib import Path

import older
import pytest

from autotest.errors import UsageError
from autotest.report.selection import parse_selection, split_source
from autotest.report.trials import Results, Trial
from autotest.results.verdicts import Verdict

GUEST = {"machine": "pcvm", "interface": "bridge", "qemu": "normal", "vhost": True, "ioregionfd": False, "reflector": "xdp"}
HOST = {"machine": "host", "interface": "pnic", "reflector": "moongen"}


def trial(rate, testbed="", **parameters):
    named = {**GUEST, **parameters} if parameters.get("machine") != "host" else parameters
    return Trial(Path("d"), older.name(rate), {**named, "rate": rate, "size": 60, "runtime": 30}, Verdict.VALID, testbed=testbed)


TRIALS = (
    trial(10),
    trial(20),
    trial(40),
    trial(10, vhost=False),
    trial(10, interface="macvtap", vhost=False),
    trial(100, interface="bridge-e1000", vhost=False, qemu="10"),
    trial(5, **HOST),
)
RESULTS = Results(Path("d"), TRIALS)


def chosen(*texts, results=RESULTS):
    return [(t.parameters["interface"], t.parameters["rate"]) for t in parse_selection(texts).apply(results)]


def test_nothing_selected_is_everything():
    assert len(chosen()) == len(TRIALS)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("rate=10", [10, 10, 10]),
        ("rate=10..40", [10, 20, 40, 10, 10]),
        ("rate=11..40", [20, 40]),
        ("rate=..10", [10, 10, 10, 5]),
        ("rate=40..", [40, 100]),
        ("rate=..", [10, 20, 40, 10, 10, 100, 5]),
        ("rate=5,20,90..", [20, 100, 5]),
        ("rate=010", [10, 10, 10]),
        (" rate = 5 , 20 ", [20, 5]),
    ],
)
def test_numbers_are_selected_by_value_and_range(text, rates):
    assert [rate for _, rate in chosen(text)] == rates


@pytest.mark.parametrize("on", ["on", "yes", "true", "ON", "True", "1"])
@pytest.mark.parametrize(("off"), ["off", "no", "false", "Off", "0"])
def test_switches_are_on_or_off_and_a_host_has_none(on, off):
    assert chosen(f"vhost={on}") == [("bridge", 10), ("bridge", 20), ("bridge", 40)]
    assert chosen(f"vhost={off}") == [("bridge", 10), ("macvtap", 10), ("bridge-e1000", 100)]
    assert ("pnic", 5) not in chosen(f"vhost={on},{off}") and len(chosen(f"vhost={on},{off}")) == 6


def test_names_are_selected_as_they_are_and_not_by_their_beginning():
    assert {interface for interface, _ in chosen("interface=bridge")} == {"bridge"}
    assert chosen("qemu=10") == [("bridge-e1000", 100)]
    assert chosen("interface=pnic,macvtap") == [("macvtap", 10), ("pnic", 5)]


def test_several_parameters_all_limit():
    assert chosen("interface=bridge", "vhost=off") == [("bridge", 10)]
    assert chosen("machine=host", "rate=1..9") == [("pnic", 5)]


def refusal(*texts, results=RESULTS):
    with pytest.raises(UsageError) as error:
        chosen(*texts, results=results)
    return str(error.value)


def test_an_unknown_parameter_is_told_with_the_nearest_and_what_there_is():
    message = refusal("interfaces=bridge")
    assert message.startswith("d: no parameter 'interfaces' (did you mean 'interface'?); there are\n  machine: host, pcvm\n")
    assert "\n  rate: 5, 10, 20, 40, 100\n" in message and "\n  vhost: off, on\n" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interface=brigde", "interface is nowhere brigde (did you mean 'bridge'?); there are"),
        ("interface=bridge,x", "interface is nowhere x; there are"),
        ("rate=41..99", "rate is nowhere 41..99; there are"),
        ("rate=40..10", "rate is nowhere 40..10; there are"),
        ("rate=ten", "rate is nowhere ten; there are"),
        ("rate=-10", "rate is nowhere -10"),
        ("rate=１０", "rate is nowhere １０"),
        ("rate=10...20", "rate is nowhere 10...20"),
        ("vhost=maybe", "vhost is nowhere maybe; there are"),
        ("ioregionfd=on", "ioregionfd is nowhere on"),
    ],
)
def test_a_value_that_is_nowhere_is_told_with_what_there_is(text, expected):
    message = refusal(text)
    assert expected in message and "\n  interface: bridge, bridge-e1000, macvtap, pnic\n" in message


def test_values_that_never_come_together_are_told():
    message = refusal("interface=macvtap", "rate=40")
    assert message.startswith("d: no trial has interface=macvtap rate=40 together; there are\n")
    assert message.endswith("\nbut not in every combination")


def test_a_bound_that_no_value_meets_is_told():
    assert refusal("rate>1M").endswith("\nrate>1M holds for none of them")


@pytest.mark.parametrize("text", ["", "rate", "=5", "rate=", "rate=,", " = ", ":"])
def test_what_is_no_selection_is_told_with_an_example(text):
    with pytest.raises(UsageError, match="expected parameter=value, like"):
        parse_selection([text])


def test_a_parameter_that_has_to_be_two_values_at_once_is_told_with_what_would_be_right():
    message = refusal("rate=5", "rate=10")
    assert message.startswith("d: no trial has rate=5 rate=10 together; there are\n")
    assert message.endswith("\nrate=5 and rate=10 must both hold: what may be either is written rate=5,10")


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("rate<=20", [10, 20, 10, 10, 5]),
        ("rate<20 rate>5", [10, 10, 10]),
        ("rate>=0.02M", [20, 40, 100]),
        ("rate=10k..40k rate!=20", [10, 40, 10, 10]),
        ("rate=10-40", [10, 20, 40, 10, 10]),
        ("interface=bridge*", [10, 20, 40, 10, 100]),
        ("interface=br?dge vhost=off", [10]),
        ("vhost!=on", [10, 10, 100, 5]),
        ("vhost=*", [10, 20, 40, 10, 10, 100]),
        ("qemu!=10 machine=pcvm", [10, 20, 40, 10, 10]),
        ("machine=pcvm rate<=20 vhost=on", [10, 20]),
    ],
)
def test_the_language_of_plans_selects_results(text, rates):
    assert [rate for _, rate in chosen(text)] == rates
    assert [rate for _, rate in chosen(*text.split())] == rates


def excluded(*texts, select=()):
    return [(t.parameters["interface"], t.parameters["rate"]) for t in parse_selection(select, texts).apply(RESULTS)]


def test_each_exclusion_leaves_out_what_meets_all_of_its_conditions():
    assert excluded("interface=bridge rate>10") == [
        ("bridge", 10), ("bridge", 10), ("macvtap", 10), ("bridge-e1000", 100), ("pnic", 5)
    ]  # fmt: skip
    assert excluded("vhost=on", "machine=host", select=["rate=..50"]) == [("bridge", 10), ("macvtap", 10)]


def test_what_an_exclusion_names_has_to_be_there_and_something_has_to_be_left():
    with pytest.raises(UsageError, match=r"d: interface is nowhere brigde \(did you mean 'bridge'\?\); there are"):
        excluded("interface=brigde")
    with pytest.raises(UsageError, match="d: no trial has all without rate>0; there are"):
        excluded("rate>0")


def test_a_comparison_needs_a_number():
    assert "rate<=ten: 'ten' is not a whole number" in refusal("rate<=ten")
    assert "interface<4: interface is no number; there are" in refusal("interface<4")


def test_a_selection_is_shown_as_it_is_written():
    texts = ["interface=bridge", "rate=10..40", "size=60,124", "vhost=on", 'testbed="a b","c,d"', "rate<=20"]
    assert str(parse_selection(texts)) == " ".join(texts)
    without = parse_selection(texts[:1], ["rate>20 vhost=on", "size=60"])
    assert str(without) == "interface=bridge without rate>20 vhost=on without size=60"


OTHERS = (trial(10, testbed="b"), trial(20, testbed="b", interface="macvtap"))
TWO = Results(Path("d"), (trial(10, testbed="a"), trial(20, testbed="a"), trial(40)), elsewhere=OTHERS)


def test_trials_of_another_testbed_are_selected_only_by_its_name():
    assert chosen(results=TWO) == [("bridge", 10), ("bridge", 20), ("bridge", 40)]
    assert chosen("rate=20", results=TWO) == [("bridge", 20)]
    assert chosen("testbed=b", results=TWO) == [("bridge", 10), ("macvtap", 20)]
    assert chosen("testbed=b", "interface=macvtap", results=TWO) == [("macvtap", 20)]
    assert chosen("testbed=a", results=TWO) == [("bridge", 10), ("bridge", 20)]
    assert chosen("testbed=unrecorded", results=TWO) == [("bridge", 40)]
    assert len(chosen("testbed=a,b", results=TWO)) == 4


def test_what_there_is_names_the_testbeds_where_any_is_recorded():
    assert refusal("interface=macvtap", results=TWO).endswith("\n  testbed: unrecorded, a, b")
    assert "testbed is nowhere c" in refusal("testbed=c", results=TWO)
    assert refusal("testbed=a").startswith("d: no parameter 'testbed'; there are\n")


def test_a_source_is_a_path_with_a_selection_behind_it(tmp_path, monkeypatch):
    assert split_source("results") == (Path("results"), [])
    texts = ["interface=bridge,macvtap", "rate=10..40"]
    assert split_source(":".join(["results", *texts])) == (Path("results"), texts)
    assert split_source("/a:b/c:qemu=x:y") == (Path("/a:b/c"), ["qemu=x:y"])
    monkeypatch.chdir(tmp_path)
    Path("odd:rate=5").mkdir()
    assert split_source("odd:rate=5") == (Path("odd:rate=5"), [])
    assert split_source("odd:rate=5:size=60") == (Path("odd:rate=5"), ["size=60"])


@pytest.mark.parametrize("text", ["rate<=20", "rate<20", "rate>=20 size=60", "machine!=host", "rate = 5"])
def test_a_source_takes_every_condition(text):
    assert split_source(f"results:{text}:vhost=on") == (Path("results"), [text, "vhost=on"])
