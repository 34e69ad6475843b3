"""The tree: every valid case once, in the user's order, lazily, and a reason for what is left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError
from itertools import islice, product
from typing import Any

import pytest

from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case, Exclude, Parameter, Rule, Section
from autotest.plan.tree import REPETITION, Exclusion, Tree
from autotest.traffic.frame_sizes import FrameSizes

LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("host", "pcvm", "microvm"),
    "interface": ("pnic", "bridge", "macvtap"),
    "qemu": (("default", ""), ("new", "/opt/qemu")),
    "vhost": (True, False),
    "ioregionfd": (False, True),
    "queues": (None,),
    "rx_queue_size": (None,),
    "tx_queue_size": (None,),
    "guests": (1,),
    "reflector": ("moongen", "xdp"),
    "weights": ("even",),
    "rate": (20, 10),
    "size": (60,),
    "runtime": (30,),
}


LEFT = {**dict.fromkeys(("queues", "rx_queue_size", "tx_queue_size")), "guests": 1}


def load_latency(repetitions: int = 1, **lists: tuple[Any, ...]) -> Tree:
    return Tree(KIND.parameters, KIND.rules, Section("s", LISTS | lists, {"repetitions": repetitions}))


def tree(rules: tuple[Rule, ...] = (), repetitions: int = 1, **lists: tuple[Any, ...]) -> Tree:
    parameters = [Parameter(name, f"{name}s", str) for name in lists]
    return Tree(parameters, rules, Section("s", lists, {"repetitions": repetitions}))


def valid(**values: Any) -> bool:
    """The rules of the matrix, written a second time."""
    guest = values["machine"] != "host"
    if values["interface"] == "pnic" and guest:
        return False
    needs_pci = values["reflector"] == "moongen"
    if needs_pci and (values["machine"] == "microvm" or (not guest and values["interface"] != "pnic")):
        return False
    if values["guests"] in (None, 1) and values["size"] == IN_TURN:
        return False
    if {"3:1": 2, "3:2:1": 3}.get(values["weights"], values["guests"]) != values["guests"]:
        return False
    return not (values["ioregionfd"] and values["machine"] != "microvm")


def test_values_keep_the_order_of_the_user_and_the_last_parameter_changes_fastest() -> None:
    leaves = list(tree(a=("z", "a"), b=(3, 1, 2)).leaves())
    assert [case.values_[:2] for case in leaves] == list(product(("z", "a"), (3, 1, 2)))


def test_repetitions_come_last_and_count_from_0() -> None:
    leaves = list(tree(repetitions=3, a=("x", "y")).leaves())
    assert [tuple(case.items()) for case in leaves] == [
        (("a", value), ("repetition", number)) for value in ("x", "y") for number in range(3)
    ]


CHOSEN = {"queues": (None, 4, 2), "rx_queue_size": (512, None), "tx_queue_size": (256,)}
IN_TURN = FrameSizes("60~590", (((60, 1),), ((590, 1),)))
SEVERAL = {"guests": (2, 1, 3), "weights": ("3:1", "even", "3:2:1"), "size": (60, IN_TURN)}


@pytest.mark.parametrize("chosen", [{}, CHOSEN, SEVERAL], ids=["left to QEMU", "chosen", "several guests"])
def test_exactly_the_valid_combinations_are_generated(chosen: dict[str, tuple[Any, ...]]) -> None:
    expected = set()
    for combination in product(*(LISTS | chosen).values()):
        values = dict(zip(LISTS, combination, strict=True))
        if values["machine"] == "host":
            values |= dict.fromkeys(("qemu", "vhost", "ioregionfd", *CHOSEN, "guests"))
        if values["guests"] in (None, 1):
            values["weights"] = None
        if valid(**values):
            expected.add(tuple(values.values()))
    leaves = [case.values_[:-1] for case in load_latency(1, **chosen).leaves()]
    assert len(leaves) == len(set(leaves))
    assert set(leaves) == expected


@pytest.mark.parametrize(
    ("lists", "prefix", "trials", "reason"),
    [
        ({"machine": ("pcvm",), "interface": ("pnic",)}, {"machine": "pcvm", "interface": "pnic"}, 32, "machine host"),
        (
            {"machine": ("microvm",), "interface": ("bridge",), "reflector": ("moongen",), "ioregionfd": (False,),
             "vhost": (False,), "qemu": (("q", ""),)},
            {"machine": "microvm", "interface": "bridge", "qemu": ("q", ""), "vhost": False, "ioregionfd": False, **LEFT,
             "reflector": "moongen"},
            2,
            "PCI bus",
        ),
        (
            {"machine": ("host",), "interface": ("bridge",), "reflector": ("moongen",)},
            {"machine": "host", "interface": "bridge", "qemu": None, "vhost": None, "ioregionfd": None, **LEFT,
             "guests": None, "reflector": "moongen"},
            2,
            "only on pnic",
        ),
        (
            {"machine": ("pcvm",), "interface": ("bridge",), "ioregionfd": (True,), "vhost": (False,),
             "qemu": (("q", ""),)},
            {"machine": "pcvm", "interface": "bridge", "qemu": ("q", ""), "vhost": False, "ioregionfd": True},
            4,
            "only on microvm",
        ),
    ],
)  # fmt: skip
def test_a_branch_that_is_left_out_says_where_why_and_how_many(
    lists: dict[str, Any], prefix: dict[str, Any], trials: int, reason: str
) -> None:
    planned = load_latency(**lists)
    (exclusion,) = planned.exclusions()
    assert dict(exclusion.prefix) == prefix
    assert exclusion.trials == trials
    assert reason in exclusion.reason
    assert not list(planned.leaves())


def test_leaves_and_exclusions_make_up_the_whole_product_where_every_parameter_applies() -> None:
    planned = load_latency(machine=("microvm", "pcvm"), repetitions=3)
    total = 3
    for values in (LISTS | {"machine": ("microvm", "pcvm")}).values():
        total *= len(values)
    left_out = sum(exclusion.trials for exclusion in planned.exclusions())
    assert 0 < left_out < total
    assert sum(1 for _ in planned.leaves()) + left_out == total


def test_parameters_that_do_not_apply_are_none_and_do_not_multiply() -> None:
    leaves = list(load_latency(machine=("host",), interface=("pnic",), rate=(1,), reflector=("xdp",)).leaves())
    assert len(leaves) == 1
    assert leaves[0]["qemu"] is leaves[0]["vhost"] is leaves[0]["ioregionfd"] is None


def test_queues_and_ring_sizes_cost_a_boot_and_no_new_network() -> None:
    order = [parameter.name for parameter in KIND.parameters]
    (guest,) = [stage for stage in KIND.stages if stage.name.startswith("guest")]
    assert order.index("ioregionfd") < order.index("queues") < order.index(guest.parameter) < order.index("reflector")
    assert guest.parameter == "guests", "a guest with other queues or rings is another guest"


def test_weights_and_sizes_of_guests_cost_no_set_up() -> None:
    order = [parameter.name for parameter in KIND.parameters]
    last = max(order.index(stage.parameter) for stage in KIND.stages)
    assert order[last:] == ["reflector", "weights", "rate", "size", "runtime"]


def test_combinations_of_guests_that_do_not_fit_are_left_out_with_the_reason() -> None:
    lists = {"machine": ("pcvm",), "interface": ("bridge",), "qemu": (("q", ""),), "vhost": (False,),
             "ioregionfd": (False,), "reflector": ("xdp",)}  # fmt: skip
    planned = load_latency(**lists, guests=(1, 2), weights=("3:1", "3:1:1"), size=(60, IN_TURN))
    found = {tuple(exclusion.prefix.values())[-1]: exclusion for exclusion in planned.exclusions()}
    assert found["3:1:1"].reason == "these weights are for another number of guests"
    assert (found[IN_TURN].reason, found[IN_TURN].prefix["guests"]) == ("these sizes are for more guests", 1)
    assert found[IN_TURN].prefix["rate"] is None and found[IN_TURN].trials == len(LISTS["rate"])
    assert {(case["guests"], case["weights"]) for case in planned.cases()} == {(1, None), (2, "3:1")}


def test_values_that_a_branch_leaves_out_are_left_out_at_once_and_not_under_every_value_before_them() -> None:
    rules = (Rule(("a", "d"), lambda a, d: a == d, "alike"), Rule(("a", "c"), lambda a, c: a == c == 2, "both 2"))
    planned = tree(rules, repetitions=3, a=(1, 2), b=("x", "y"), c=(1, 2), d=(1, 2), e=(7,))
    found = [(tuple(exclusion.prefix.values()), exclusion.reason, exclusion.trials) for exclusion in planned.exclusions()]
    assert found == [
        ((1, None, None, 1), "alike", 2 * 2 * 1 * 3),
        ((2, None, 2), "both 2", 2 * 2 * 1 * 3),
        ((2, None, None, 2), "alike", 2 * 1 * 1 * 3),
    ]
    assert sum(1 for _ in planned.leaves()) + sum(trials for *_, trials in found) == 2 * 2 * 2 * 2 * 3


def test_a_branch_of_which_all_is_left_out_needs_no_set_up() -> None:
    planned = tree((Rule(("a", "c"), lambda a, c: a == 1, "not 1"),), a=(1, 2), b=("x",), c=(1, 2))
    assert [case.values_ for case in planned.prefixes(1)] == [(2,)]
    assert [case.values_ for case in planned.prefixes(2)] == [(2, "x")]


def test_a_million_cases_with_sizes_for_several_guests_come_in_seconds() -> None:
    sizes = (IN_TURN, *range(60, 99))
    planned = load_latency(machine=("pcvm",), guests=(1, 2), rate=tuple(range(1, 1601)), size=sizes, reflector=("xdp",))
    start = time.monotonic()
    total = sum(1 for _ in planned.cases())
    assert total == 8 * 1600 * (39 + 40) and time.monotonic() - start < 5


@pytest.mark.parametrize("at", ["first", "last"])
def test_the_first_leaf_of_a_huge_matrix_comes_at_once(at: str) -> None:
    rule = Rule(("a",) if at == "first" else ("a", "i"), lambda *values: values[-1] == 1, "not 1")
    lists = {name: tuple(range(10)) for name in "abcdefghi"}
    start = time.monotonic()
    leaves = list(islice(tree((rule,), **lists).leaves(), 3))
    assert time.monotonic() - start < 0.5
    assert [case["i"] for case in leaves] == ([0, 1, 2] if at == "first" else [0, 2, 3])


def test_exclusions_of_a_huge_matrix_come_without_walking_its_leaves() -> None:
    rule = Rule(("a",), lambda a: a == 5, "not 5")
    start = time.monotonic()
    (exclusion,) = tree((rule,), **{name: tuple(range(10)) for name in "abcdefghi"}).exclusions()
    assert time.monotonic() - start < 0.5
    assert exclusion.trials == 10**8 and dict(exclusion.prefix) == {"a": 5}


def test_a_case_is_a_read_only_hashable_mapping_of_its_values() -> None:
    case = Case(("a", "b", "c"), (1, None))
    assert dict(case) == {"a": 1, "b": None} and len(case) == 2
    assert case.prefix(1) == Case(("a", "b", "c"), (1,)) != case
    assert len({case, Case(("a", "b", "c"), (1, None))}) == 1
    with pytest.raises(KeyError):
        case["c"]
    with pytest.raises(TypeError):
        case["a"] = 2  # type: ignore[index]


# -- each part of the tree by hand -----------------------------------------------------------------------------


def among(name: str, *values: Any) -> Callable[[Case], bool]:
    return lambda case: case[name] in values


def excluding(*excludes: Exclude, rules: tuple[Rule, ...] = (), repetitions: int = 1, **lists: tuple[Any, ...]) -> Tree:
    parameters = [Parameter(name, f"{name}s", str) for name in lists]
    return Tree(parameters, rules, Section("s", lists, {"repetitions": repetitions}, excludes=excludes))


def told(planned: Tree) -> list[tuple[tuple[Any, ...], str, int, bool]]:
    return [(tuple(each.prefix.values()), each.reason, each.trials, each.asked_for) for each in planned.exclusions()]


def values(cases: Iterable[Case]) -> list[tuple[Any, ...]]:
    return [case.values_ for case in cases]


@pytest.mark.parametrize("repetitions", [1, 2, 5])
def test_what_users_exclude_is_counted_with_its_repetitions(repetitions: int) -> None:
    one = Exclude({"b": among("b", 3, 4)}, "b is 3 or 4")
    both = Exclude({"a": among("a", "x"), "b": among("b", 1, 3)}, "x with 1 or 3")
    planned = excluding(one, both, repetitions=repetitions, a=("x", "y"), b=(1, 2, 3, 4), c=(True,))
    assert told(planned) == [
        ((), "b is 3 or 4", 2 * 2 * repetitions, True),
        ((), "x with 1 or 3", 1 * repetitions, True),
    ]
    assert values(planned.cases()) == [("x", 2, True), ("y", 1, True), ("y", 2, True)]
    assert values(planned.leaves()) == [
        (*case, number) for case in [("x", 2, True), ("y", 1, True), ("y", 2, True)] for number in range(repetitions)
    ]


def test_users_who_exclude_what_is_not_there_exclude_nothing() -> None:
    planned = excluding(Exclude({"a": among("a", "z")}, "no z"), a=("x",), b=(1, 2))
    assert told(planned) == [] and values(planned.cases()) == [("x", 1), ("x", 2)]


def test_users_who_exclude_all_leave_nothing() -> None:
    planned = excluding(Exclude({"a": among("a", "x", "y")}, "all of it"), repetitions=3, a=("x", "y"), b=(1, 2))
    assert told(planned) == [((), "all of it", 12, True)]
    assert values(planned.cases()) == values(planned.leaves()) == values(planned.prefixes(1)) == []


def test_what_is_not_valid_is_not_counted_as_what_users_exclude() -> None:
    rule = Rule(("a", "b"), lambda a, b: (a, b) == ("x", 1), "x never with 1")
    planned = excluding(Exclude({"b": among("b", 1)}, "no 1"), rules=(rule,), repetitions=2, a=("x", "y"), b=(1, 2), c=(7, 8))
    assert told(planned) == [(("x", 1), "x never with 1", 4, False), (("y",), "no 1", 4, True)]
    assert values(planned.cases()) == [("x", 2, 7), ("x", 2, 8), ("y", 2, 7), ("y", 2, 8)]


def test_users_exclude_whole_branches_above_where_rules_decide() -> None:
    rule = Rule(("b", "c"), lambda b, c: b == c, "b is c")
    planned = excluding(
        Exclude({"a": among("a", "x")}, "no x"),
        Exclude({"a": among("a", "y"), "b": among("b", 2)}, "no y2"),
        Exclude({"a": among("a", "y"), "c": among("c", 3)}, "no y3"),
        rules=(rule,), repetitions=2, a=("x", "y"), b=(1, 2), c=(1, 2, 3),
    )  # fmt: skip
    assert told(planned) == [
        (("x",), "no x", (6 - 2) * 2, True),
        (("y", 1, 1), "b is c", 2, False),
        (("y", 1), "no y3", 2, True),
        (("y", 2), "no y2", 2 * 2, True),
    ]
    assert values(planned.cases()) == [("y", 1, 2)]


def test_a_branch_without_valid_cases_is_not_excluded_a_second_time_by_users() -> None:
    rules = (Rule(("a", "b"), lambda a, b: a == "x", "no b with x"), Rule(("b", "c"), lambda b, c: False, "never"))
    planned = excluding(Exclude({"a": among("a", "x")}, "no x"), rules=rules, a=("x", "y"), b=(1,), c=(1,))
    assert told(planned) == [] and values(planned.cases()) == [("y", 1, 1)]


def test_of_two_rules_the_first_gives_the_reason_and_of_two_excludes_too() -> None:
    rules = (Rule(("a",), lambda a: a == 1, "first"), Rule(("a",), lambda a: a in (1, 2), "second"))
    assert told(tree(rules, a=(1, 2, 3))) == [((1,), "first", 1, False), ((2,), "second", 1, False)]
    deep = (Rule(("a", "b"), lambda a, b: b == 1, "first"), Rule(("a", "b"), lambda a, b: b > 0, "second"))
    assert told(tree(deep, a=(1,), b=(0, 1, 2))) == [((1, 1), "first", 1, False), ((1, 2), "second", 1, False)]
    last = Rule(("b", "c"), lambda b, c: False, "never")
    excludes = (Exclude({"a": among("a", 1)}, "first"), Exclude({"a": among("a", 1, 2)}, "second"))
    assert told(excluding(*excludes, rules=(last,), a=(1, 2, 3), b=(1,), c=(1,))) == [
        ((1,), "first", 1, True),
        ((2,), "second", 1, True),
    ]


def test_the_parameters_of_a_rule_may_come_in_any_order() -> None:
    rule = Rule(("c", "a"), lambda c, a: (c, a) == (3, 1), "3 with 1")
    planned = tree((rule,), a=(1, 3), b=(5, 6), c=(1, 3))
    assert told(planned) == [((1, None, 3), "3 with 1", 2, False)]
    assert values(planned.cases()) == [(1, 5, 1), (1, 6, 1), (3, 5, 1), (3, 5, 3), (3, 6, 1), (3, 6, 3)]


def test_a_rule_about_one_parameter_takes_its_value_out_of_the_list() -> None:
    rules = (Rule(("b",), lambda b: b == 2, "not 2"), Rule(("c",), lambda c: c == "q", "not q"))
    planned = tree(rules, repetitions=3, a=(1, 2), b=(1, 2, 3), c=("p", "q"))
    assert told(planned) == [((None, 2), "not 2", 2 * 2 * 3, False), ((None, None, "q"), "not q", 2 * 2 * 3, False)]
    assert values(planned.cases()) == [(a, b, "p") for a in (1, 2) for b in (1, 3)]


def test_a_list_of_which_nothing_is_left_leaves_no_case_and_no_prefix() -> None:
    planned = tree((Rule(("b",), lambda b: True, "none"),), a=(1, 2), b=(1,), c=(1, 2))
    assert told(planned) == [((None, 1), "none", 4, False)]
    assert values(planned.cases()) == values(planned.leaves()) == []
    assert [values(planned.prefixes(depth)) for depth in (0, 1, 2, 3)] == [[], [], [], []]


@pytest.mark.parametrize("rules", [(), (Rule(("a", "b"), lambda a, b: False, ""),), (Rule(("b", "d"), lambda b, d: False, ""),)])
def test_prefixes_of_each_depth_come_once_and_in_order(rules: tuple[Rule, ...]) -> None:
    lists = {"a": ("x", "y"), "b": (1, 2), "c": (True, False), "d": (5, 6)}
    planned = tree(rules, repetitions=2, **lists)
    for depth in range(5):
        found = list(planned.prefixes(depth))
        assert values(found) == list(product(*list(lists.values())[:depth]))
        assert [tuple(case) for case in found] == [tuple(lists)[:depth]] * len(found)
        assert all(type(case.values_) is tuple and len(case.values_) == depth for case in found)


def test_a_prefix_above_the_rules_comes_once_though_they_split_what_is_below() -> None:
    rule = Rule(("a", "b", "d"), lambda a, b, d: a + b == d, "sum")
    planned = tree((rule,), a=(1, 2), b=(1, 2), c=(0, 9), d=(2, 3, 4, 5))
    assert values(planned.prefixes(1)) == [(1,), (2,)]
    assert values(planned.prefixes(2)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert values(planned.prefixes(3)) == [(a, b, c) for a in (1, 2) for b in (1, 2) for c in (0, 9)]
    assert values(planned.prefixes(4)) == values(planned.cases())


def applying() -> Tree:
    parameters = [
        Parameter("machine", "machines", str),
        Parameter("build", "builds", str, applies=lambda case: case["machine"] != "host"),
        Parameter("rate", "rates", str),
    ]
    rule = Rule(("machine", "rate"), lambda machine, rate: machine == "host" and rate > 20, "too fast")
    lists = {"machine": ("host", "vm"), "build": ("a", "b"), "rate": (10, 20, 30)}
    return Tree(parameters, (rule,), Section("s", lists, {"repetitions": 2}))


def test_a_parameter_that_applies_to_some_branches_only_is_none_in_the_others() -> None:
    planned = applying()
    host, guest = [("host", None, 10), ("host", None, 20)], [("vm", build, rate) for build in "ab" for rate in (10, 20, 30)]
    assert values(planned.cases()) == host + guest
    assert told(planned) == [(("host", None, 30), "too fast", 2, False)]
    assert values(planned.prefixes(1)) == [("host",), ("vm",)]
    assert values(planned.prefixes(2)) == [("host", None), ("vm", "a"), ("vm", "b")]


@pytest.mark.parametrize(
    ("beginning", "trials"),
    [((), 16), (("host",), 4), (("vm",), 12), (("host", None), 4), (("vm", "a"), 6)],
)
def test_the_trials_that_begin_with_some_values_are_counted(beginning: tuple[Any, ...], trials: int) -> None:
    assert applying().count_below(beginning) == trials


def test_a_leaf_is_its_case_and_a_repetition() -> None:
    planned = tree(repetitions=2, a=("x",), b=(1, 2))
    case = next(planned.cases())
    assert dict(planned.leaf(case, 7)) == {"a": "x", "b": 1, "repetition": 7}
    assert planned.names == ("a", "b", REPETITION) == ("a", "b", "repetition")
    assert values(planned.leaves()) == [("x", 1, 0), ("x", 1, 1), ("x", 2, 0), ("x", 2, 1)]


def test_an_exclusion_is_not_changed_and_nobody_asked_for_it_unless_it_says_so() -> None:
    exclusion = Exclusion(Case(("a",), (1,)), "why", 3)
    assert exclusion.asked_for is False and exclusion == Exclusion(Case(("a",), (1,)), "why", 3, asked_for=False)
    with pytest.raises(FrozenInstanceError):
        exclusion.trials = 4  # type: ignore[misc]


def test_the_first_prefixes_of_a_huge_matrix_come_without_walking_what_is_below() -> None:
    rule = Rule(("b", "i"), lambda b, i: b == i, "alike")
    planned = tree((rule,), **{name: tuple(range(10)) for name in "abcdefghi"})
    start = time.monotonic()
    assert values(planned.prefixes(1)) == [(number,) for number in range(10)]
    assert len(list(planned.prefixes(2))) == 100 and time.monotonic() - start < 0.5
