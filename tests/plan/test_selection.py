"""The language of selections, and what it leaves of a plan: exactly the cases that meet the conditions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotest.config.tests import load_sections
from autotest.errors import ConfigError, UsageError
from autotest.measurements.load_latency import KIND
from autotest.plan.narrowing import Narrowed, Narrowing, Vocabulary, narrow
from autotest.plan.parameters import Case, Parameter, Section
from autotest.plan.selection import parse_conditions, written
from autotest.plan.tree import Tree
from autotest.report.listing import _parameters as parameters_of_names
from autotest.report.selection import parse_selection
from autotest.traffic.frame_sizes import FrameSizes

MIX = FrameSizes("imix", (((60, 7), (590, 4), (1514, 1)),))
IN_TURN = FrameSizes("60~590", (((60, 1),), ((590, 1),)))
LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("host", "pcvm", "microvm"), "interface": ("pnic", "bridge", "macvtap", "vmux-emu"),
    "qemu": (("default", ""), ("new", "/opt/qemu")), "vhost": (True, False), "ioregionfd": (False,),
    "queues": (None, 4), "rx_queue_size": (None,), "tx_queue_size": (None,), "guests": (1, 2), "reflector": ("xdp",),
    "weights": ("even", "3:1"), "rate": (20, 10, 1500), "size": (60, MIX, 590, IN_TURN), "runtime": (30, 60),
}  # fmt: skip
CONDITIONS = [
    "machine=pcvm", "machine!=pcvm", "machine=host,microvm", "machine=*vm", "interface=vmux-*", "interface=bridge,macvtap",
    "interface!=pnic", "qemu=new", "qemu!=new", "qemu=?ew", "vhost=on", "vhost=no", "vhost!=true", "vhost=*", "ioregionfd=off",
    "queues=default", "queues!=default", "queues=4", "queues>=2", "queues=*", "rx_queue_size=default", "guests=1", "guests>1",
    "guests=1..", "reflector=xdp", "weights=even", "weights=3:1", "weights!=3:1", "weights=*", "rate<=20", "rate>20", "rate=1.5M",
    "rate<1.5M", "rate=10..40", "rate=..20,1500", "rate=15-40", "rate!=10", "rate!=..15", "rate=1*", "size=60", "size=imix",
    "size>60", "size<=590", "size!=60", "size=..600", "size=60~590", "size!=imix", "size=*i*", "runtime=1m", "runtime<60",
    "rate=15-2M", "rate=.5M-1.5M",
]  # fmt: skip


def section(**lists: Any) -> Section:
    return Section("s", LISTS | lists, {"repetitions": 2})


def tree(of: Section) -> Tree:
    return Tree(KIND.parameters, KIND.rules, of)


FULL = list(tree(section()).cases())
NAMED = {(infix := KIND.infix(case)): parameters_of_names(infix) or {} for case in FULL}


def narrowed(
    select: tuple[str, ...] = (), exclude: tuple[str, ...] = (), *sections: Section, only: tuple[str, ...] = ()
) -> Narrowed:
    return narrow(sections or [section()], KIND.parameters, KIND.rules, Narrowing(only, select, exclude))


# -- what is meant, written a second time --------------------------------------------------------------------


def seen(case: Mapping[str, Any], key: str) -> Any:
    """What a user takes a value for; None where the case has no such parameter."""
    value = case[key]
    if case["machine"] == "host" and key not in ("machine", "interface", "reflector", "rate", "size", "runtime"):
        return None
    if key == "qemu":
        return value[0]
    if value is None:
        return {"weights": "even"}.get(key, "default")
    return value.name if isinstance(value, FrameSizes) else value


MEANT: dict[str, Callable[[Any], bool]] = {
    "machine=*vm": lambda v: v in ("pcvm", "microvm"), "interface=vmux-*": lambda v: v == "vmux-emu",
    "qemu=?ew": lambda v: v == "new", "vhost=on": lambda v: v is True, "vhost=no": lambda v: v is False,
    "vhost!=true": lambda v: v is not True, "vhost=*": lambda v: v is not None, "ioregionfd=off": lambda v: v is False,
    "queues>=2": lambda v: v == 4, "queues=*": lambda v: v is not None, "queues=4": lambda v: v == 4,
    "guests>1": lambda v: v == 2, "guests=1": lambda v: v == 1, "guests=1..": lambda v: v in (1, 2),
    "weights=*": lambda v: v is not None, "rate<=20": lambda v: v <= 20, "rate>20": lambda v: v > 20,
    "rate=1.5M": lambda v: v == 1500, "rate<1.5M": lambda v: v < 1500, "rate=10..40": lambda v: v < 50,
    "rate=..20,1500": lambda v: v in (10, 20, 1500), "rate=15-40": lambda v: v == 20, "rate=15-2M": lambda v: v > 10,
    "rate=.5M-1.5M": lambda v: v == 1500, "rate!=10": lambda v: v != 10,
    "rate!=..15": lambda v: v != 10, "rate=1*": lambda v: v in (10, 1500), "size=60": lambda v: v == 60,
    "size>60": lambda v: v == 590, "size<=590": lambda v: v in (60, 590), "size!=60": lambda v: v != 60,
    "size=..600": lambda v: v in (60, 590), "size=*i*": lambda v: v == "imix", "runtime=1m": lambda v: v == 60,
    "runtime<60": lambda v: v == 30,
}  # fmt: skip


def meets(case: Mapping[str, Any], condition: str) -> bool:
    key = condition.partition("=")[0].partition("<")[0].partition(">")[0].rstrip("!")
    value = seen(case, key)
    if condition in MEANT:
        return MEANT[condition](value)
    names = condition.partition("=")[2].split(",")
    return (value in names) is ("!=" not in condition)


SOME = st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=3, unique=True)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(CONDITIONS), max_size=2), st.lists(SOME, max_size=3), st.lists(SOME, max_size=2))
def test_what_is_left_of_a_plan_is_exactly_what_meets_the_conditions_and_the_rest_is_counted(
    select: list[str], exclude: list[list[str]], of_file: list[list[str]]
) -> None:
    expected = [
        case
        for case in FULL
        if all(meets(case, text) for text in select)
        and not any(all(meets(case, text) for text in rule) for rule in exclude + of_file)
    ]
    vocabulary = Vocabulary(KIND.parameters, [section()])
    own = replace(section(), excludes=tuple(vocabulary.exclude(" ".join(rule), "exclude rule") for rule in of_file))
    try:
        found = narrowed(tuple(select), tuple(map(" ".join, exclude)), own)
    except UsageError as error:
        assert not expected and str(error).startswith("no trial meets")
        return
    (left,) = found.sections + found.left_out
    assert list(tree(left).cases()) == expected
    assert bool(found.sections) is bool(expected) or not (select or exclude)
    trials = sum(exclusion.trials for exclusion in tree(left).exclusions() if exclusion.asked_for)
    assert trials == 2 * (len(FULL) - len(expected))
    for depth in (1, 3, 10, 12, len(KIND.parameters)):
        assert list(tree(left).prefixes(depth)) == list(dict.fromkeys(case.prefix(depth) for case in expected))


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=3), st.lists(st.sampled_from(CONDITIONS), max_size=2))
def test_plans_and_results_understand_the_same(select: list[str], exclude: list[str]) -> None:
    selection = parse_selection(select, exclude)
    expected = {infix for infix, parameters in NAMED.items() if selection.matches(parameters)}
    try:
        found = narrowed(tuple(select), tuple(exclude)).sections
    except UsageError:
        found = ()
    assert {KIND.infix(case) for one in found for case in tree(one).cases()} == expected


# -- the language ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate=10", "rate=10"),
        ("  machine=pcvm   rate<=20 ", "machine=pcvm rate<=20"),
        (" rate = 5 , 20 ", "rate=5,20"),
        ("rate=5,,20,", "rate=5,20"),
        ("rate == 5", "rate=5"),
        ("rate != 5 size >= 60", "rate!=5 size>=60"),
        ("testbed=\"a b\",'c,d' rate<1.5M", 'testbed="a b","c,d" rate<1.5M'),
        ("qemu=a=b:c", "qemu=a=b:c"),
        ("size=60:7+590:4,60~imix", "size=60:7+590:4,60~imix"),
        ("interface=vmux-*,?", "interface=vmux-*,?"),
        ("rate=10..", "rate=10.."),
        ("testbed='\"'", "testbed='\"'"),
    ],
)
def test_conditions_are_read_whatever_the_white_space_and_written_in_one_form(text: str, expected: str) -> None:
    found = parse_conditions(text)
    assert written(found) == expected and parse_conditions(expected) == found


@pytest.mark.parametrize(
    ("text", "at"),
    [("", ""), ("rate", "rate"), ("=5", "=5"), ("rate=", "rate="), ("rate=,", "rate=,"), ("rate=10 20", "20"),
     ("rate=<20", "rate=<20"), ("rate!5", "rate!5"), ("rate=5 'size=60'", "'size=60'"), ("testbed=\"a", "testbed=\"a"),
     ("a=\"x\"y", "a=\"x\"y"), ("r\u0430te=5", "r\u0430te=5")],
)  # fmt: skip
def test_what_is_no_condition_is_told_from_where_it_begins_with_an_example(text: str, at: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_conditions(text)
    assert str(caught.value).startswith(f"{at!r} selects nothing: expected parameter=value, like interface=bridge,macvtap")


def test_a_comparison_takes_one_number() -> None:
    with pytest.raises(ValueError, match="'rate<20,30' has several values: expected one number behind <"):
        parse_conditions("machine=pcvm rate<20,30")


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("x<0.1", 0.05, True), ("x<0.1", 0.1, False), ("x<=0.1", 0.1, True), ("x=0.1", 0.1, True), ("x=0.5..1.5", 1.5, True),
        ("x>3", "10", False), ("x<3", "imix", False), ("x=10", "10", True), ("x=1..3", "2", False), ("x=1..3", "1..3", True),
        ("x=10-40", "10-40", True), ("x>0", True, False), ("x=1", True, True), ("x=on", True, True), ("x=on", "on", True),
        ("x=*", "", True), ("x!=a", None, True),
        ("x=0.5-1.5", 1.5, True), ("x=0.5-1.5", 1.6, False), ("x=5-", 5, False), ("x=-5", -5, True), ("x=1-2-3", 2, False),
        ("x=1.2.3-4", 3, False), ("x=1-2M", 1, False), ("x=my-build", "my-build", True), ("x=1k-2M", "1k-2M", True),
        ("x=bridge-e1000", "bridge-e1000", True), ("x=bridge-e*", "bridge-e1000", True), ("x=1-*", "1-2", True),
        ("x=*", None, False), ("x<1", None, False), ("x=a.c", "abc", False), ("x=[ab]", "a", False),
    ],
)  # fmt: skip
def test_values_are_compared_as_what_they_are(text: str, value: Any, expected: bool) -> None:
    (condition,) = parse_conditions(text)
    assert condition.test()(value) is expected


@given(
    st.text(alphabet="ab=<>!,.*?\"' 0190-\\[:µ\n", max_size=30),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
)
def test_whatever_is_written_is_a_condition_or_an_error(text: str, value: Any) -> None:
    try:
        conditions = parse_conditions(text)
    except ValueError:
        return
    assert parse_conditions(written(conditions)) == conditions
    for condition in conditions:
        if not condition.problem({"a": [10, "b"], "b": ["x"]}):
            assert condition.test()(value) in (True, False)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    (condition,) = parse_conditions("a=" + "*a" * 60 + "b")
    start = time.process_time()
    assert condition.test()("a" * 250) is False and time.process_time() - start < 0.5


# -- what there is not -----------------------------------------------------------------------------------------


def refusal(select: tuple[str, ...] = (), exclude: tuple[str, ...] = (), *sections: Section, only: tuple[str, ...] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        narrowed(select, exclude, *sections, only=only)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interfaces=bridge", "no parameter 'interfaces' (did you mean 'interface'?); there are\n"),
        ("rate=25", "rate is nowhere 25; there are\n"),
        ("rate=20,25", "rate is nowhere 25; there are\n"),
        ("rate!=25", "rate is nowhere 25; there are\n"),
        ("interface=brigde", "interface is nowhere brigde (did you mean 'bridge'?); there are\n"),
        ("interface=e1000*", "interface is nowhere e1000*; there are\n"),
        ("rate=2000..", "rate is nowhere 2000..; there are\n"),
        ("vhost=maybe", "vhost is nowhere maybe; there are\n"),
        ("machine<4", "machine<4: machine is no number; there are\n"),
        ("vhost<1", "vhost<1: vhost is no number; there are\n"),
        ("rate<20q", "rate<20q: '20q' has the unknown unit 'q'"),
        ("rate<ten", "rate<ten: 'ten' is not a whole number of kpps"),
        ("testbed=a", "no parameter 'testbed'"),
        ("rate", "'rate' selects nothing: expected parameter=value"),
    ],
)
@pytest.mark.parametrize("option", ["--select", "--exclude"])
def test_what_there_is_not_is_an_error_with_what_there_is(option: str, text: str, expected: str) -> None:
    message = refusal((text,)) if option == "--select" else refusal((), (text,))
    assert message.startswith(f"{option}: {expected}")
    if "there are" in expected:
        assert "\n  interface: pnic, bridge, macvtap, vmux-emu\n" in message and "\n  rate: 20, 10, 1500\n" in message
        assert "rx_queue_size" not in message, "nobody named it"


def test_where_nothing_is_left_it_says_of_what_and_what_there_is() -> None:
    message = refusal(("machine=host vhost=on",), ("rate>20",))
    assert message.startswith("no trial meets --select 'machine=host vhost=on' --exclude 'rate>20'; there are\n  machine: host,")
    assert message.endswith("\nbut not in every combination")
    hint = "\nrate=10 and rate=20 must both hold: what may be either is written rate=10,20"
    assert refusal(("rate=10", "rate=20")).endswith(hint)
    assert refusal(("machine=host rate>2M",)).endswith("\nrate>2M holds for none of them")
    assert refusal((), ("rate>0",)).splitlines()[-1].startswith("  "), "no combination is to blame"


def test_a_plan_that_has_no_valid_case_anyway_is_not_the_fault_of_the_selection() -> None:
    invalid = section(machine=("pcvm",), interface=("pnic",))
    found = narrowed(("rate=10",), (), invalid)
    assert found.sections == () and len(found.left_out) == 1


def test_very_many_values_are_not_all_told() -> None:
    message = refusal(("rate=5000",), (), section(rate=tuple(range(1, 1001))))
    assert "\n  rate: 1, 2, 3, " in message and ", 20, ... (1000 in all), 981, " in message and message.count(",") < 100


def test_sections_are_chosen_by_name_and_only_theirs_are_narrowed() -> None:
    a, b = replace(section(rate=(10,)), name="a"), replace(section(rate=(20,)), name="b")
    found = narrowed((), (), a, b, only=("b",))
    assert [one.name for one in found.sections] == ["b"] and [one.name for one in found.left_out] == ["a"]
    (exclusion, *_) = tree(found.left_out[0]).exclusions()
    assert exclusion.reason == "--section b"
    assert sum(one.trials for one in tree(found.left_out[0]).exclusions()) == 2 * sum(1 for _ in tree(a).cases())
    assert "rate is nowhere 10" in refusal(("rate=10",), (), a, b, only=("b",))
    assert refusal((), (), a, b, only=("c",)) == "--section c: there is none; there are a, b"


def test_a_section_of_which_nothing_is_left_is_left_out_and_the_others_stay() -> None:
    a, b = replace(section(rate=(10,)), name="a"), replace(section(rate=(20,)), name="b")
    found = narrowed(("rate=20",), (), a, b)
    assert [one.name for one in found.sections] == ["b"] and [one.name for one in found.left_out] == ["a"]


def test_without_a_selection_sections_stay_as_they_are() -> None:
    sections = [section(), section(machine=("pcvm",), interface=("pnic",))]
    assert narrowed((), (), *sections) == (tuple(sections), ())


def test_any_measurement_kind_is_selected_from() -> None:
    parameters = [
        Parameter("path", "paths", str),
        Parameter("streams", "streams", int, applies=lambda prefix: prefix["path"] != "none"),
        Parameter("share", "shares", float),
    ]
    own = Section("s", {"path": ("none", "tcp", "udp"), "streams": (1, 8), "share": (0.5, 0.25)}, {"repetitions": 1})
    found = narrow([own], parameters, (), Narrowing(select=("streams!=8 share<0.3",), exclude=("path=u* streams=1",)))
    assert [case.values_ for case in Tree(parameters, (), found.sections[0]).cases()] == [("none", None, 0.25), ("tcp", 1, 0.25)]


# -- exclude in tests.conf -------------------------------------------------------------------------------------

CONF = """\
[lat]
machines = pcvm, host
interfaces = bridge, macvtap, pnic
reflectors = xdp
rates = 10, 20, 1.5M
sizes = 60, 590
runtimes = 1
outputdir = out
"""


def load(folder: Path, text: str) -> list[Section]:
    (folder / "tests.conf").write_text(text)
    return load_sections(folder / "tests.conf", folder, KIND.parameters, KIND.settings)


def loads(of: Section) -> list[tuple[Any, ...]]:
    return [tuple(case[name] for name in ("machine", "interface", "rate", "size")) for case in tree(of).cases()]


def test_each_line_of_exclude_leaves_out_what_meets_all_of_its_conditions(tmp_path: Path) -> None:
    (full,) = load(tmp_path, CONF)
    rules = "interface=macvtap rate>=1M  # it never gets there\n    size=590 rate=10,20\n\n    machine=host\n"
    (found,) = load(tmp_path, f"{CONF}exclude = {rules}")
    assert loads(found) == [
        case for case in loads(full)
        if not ((case[1] == "macvtap" and case[2] >= 1000) or (case[3] == 590 and case[2] < 30) or case[0] == "host")
    ]  # fmt: skip
    reasons = {exclusion.reason for exclusion in tree(found).exclusions() if exclusion.asked_for}
    expected = ["interface=macvtap rate>=1M", "size=590 rate=10,20", "machine=host"]
    assert reasons == {f"exclude rule '{rule}'" for rule in expected}
    assert full.settings == found.settings, "nothing of it is recorded, or tells results apart"
    assert {KIND.infix(case) for case in tree(found).cases()} < {KIND.infix(case) for case in tree(full).cases()}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("interfce=bridge", "no parameter 'interfce' (did you mean 'interface'?); there are machine, interface, "),
        ("interface=brigde", "interface is nowhere brigde (did you mean 'bridge'?); there are bridge, macvtap, pnic"),
        ("rate=25", "rate is nowhere 25; there are 10, 20, 1500"),
        ("interface", "'interface' selects nothing: expected parameter=value, like "),
        ("rate<ten", "rate<ten: 'ten' is not a whole number of kpps"),
    ],
)
def test_what_is_wrong_with_an_exclusion_names_file_section_and_key(tmp_path: Path, rule: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, CONF + f"exclude = machine=pcvm rate=10\n    {rule}\n")
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{tmp_path / 'tests.conf'} [lat] exclude: {expected}")


def test_an_exclusion_of_the_whole_file_may_name_what_only_some_sections_have(tmp_path: Path) -> None:
    other = CONF.replace("[lat]", "[other]").replace("bridge, macvtap, pnic", "bridge")
    lat, only_bridge = load(tmp_path, "exclude = interface=macvtap\n" + CONF + other)
    assert {case[1] for case in loads(lat)} == {"bridge", "pnic"} and {case[1] for case in loads(only_bridge)} == {"bridge"}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "exclude = interface=macvtop\n" + CONF + other)
    assert len(caught.value.problems) == 1 and "interface is nowhere macvtop" in str(caught.value)
    with pytest.raises(ConfigError, match=r"\[other\] exclude: interface is nowhere macvtap; there are bridge"):
        load(tmp_path, CONF + other + "exclude = interface=macvtap\n")


def test_a_list_that_is_wrong_is_told_and_not_what_an_exclusion_makes_of_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, CONF.replace("rates = 10, 20, 1.5M", "rates = many") + "exclude = rate=10\n")
    assert [problem.key for problem in caught.value.problems] == ["rates"]


# -- size ------------------------------------------------------------------------------------------------------


@pytest.mark.default
@pytest.mark.alone
def test_half_a_million_cases_are_walked_about_as_fast_with_exclusions_as_without() -> None:
    large = section(
        machine=("pcvm", "microvm"), interface=("bridge", "macvtap"), queues=(None,), guests=(1,), weights=("even",),
        ioregionfd=(False,), rate=tuple(range(1, 314)), size=tuple(range(60, 160)), runtime=(30, 60),
    )  # fmt: skip
    rules = (
        "rate>300 size=61", "interface=macvtap rate>200", "size=60,70..80 runtime=1m",
        "vhost=on rate=100..110 size>150 runtime=30",
    )  # fmt: skip

    def seconds_a_case(of: Section) -> float:
        fastest = 9e9
        for _ in range(3):
            start = time.process_time()
            count = sum(1 for _ in tree(of).cases())
            fastest = min(fastest, (time.process_time() - start) / count)
        assert count > 350_000
        return fastest

    (excluded,) = narrowed((), rules, large).sections
    assert seconds_a_case(excluded) < 2 * seconds_a_case(large)
    start = time.process_time()
    counted = sum(exclusion.trials for exclusion in tree(excluded).exclusions() if exclusion.asked_for)
    assert counted > 100_000 and time.process_time() - start < 1


def test_the_first_case_of_a_huge_selection_comes_at_once() -> None:
    names = [f"p{number}" for number in range(9)]
    parameters = [Parameter(name, f"{name}s", int) for name in names]
    huge = Section("s", {name: tuple(range(10)) for name in names}, {"repetitions": 1})
    start = time.process_time()
    found = narrow([huge], parameters, (), Narrowing(select=("p0>3 p8=7",), exclude=("p1=0 p7=0 p8>5", "p2<9 p5=3"))).sections[0]
    first = next(Tree(parameters, (), found).cases())
    assert first.values_ == (4, 0, 0, 0, 0, 0, 0, 1, 7) and time.process_time() - start < 0.5


def test_a_case_that_is_left_has_the_name_that_it_has_without_a_selection() -> None:
    (left,) = narrowed(("rate=20 machine=pcvm",), ("interface=macvtap",)).sections
    found = {KIND.infix(case) for case in tree(left).cases()}
    assert found < NAMED.keys() and all(isinstance(case, Case) for case in tree(left).cases())
