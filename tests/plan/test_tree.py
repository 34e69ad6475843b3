"""The tree: every valid case once, in the user's order, lazily, and a reason for what is left out."""

from __future__ import annotations

import time
from itertools import islice, product
from typing import Any

import pytest

from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case, Parameter, Rule, Section
from autotest.plan.tree import Tree

LISTS: dict[str, tuple[Any, ...]] = {
    "machine": ("host", "pcvm", "microvm"),
    "interface": ("pnic", "bridge", "macvtap"),
    "qemu": (("default", ""), ("new", "/opt/qemu")),
    "vhost": (True, False),
    "ioregionfd": (False, True),
    "queues": (None,),
    "rx_queue_size": (None,),
    "tx_queue_size": (None,),
    "reflector": ("moongen", "xdp"),
    "rate": (20, 10),
    "size": (60,),
    "runtime": (30,),
}


LEFT = dict.fromkeys(("queues", "rx_queue_size", "tx_queue_size"))


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
    if values["reflector"] == "moongen":
        if values["machine"] == "microvm" or (not guest and values["interface"] != "pnic"):
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


@pytest.mark.parametrize("chosen", [{}, CHOSEN], ids=["left to QEMU", "chosen"])
def test_exactly_the_valid_combinations_are_generated(chosen: dict[str, tuple[Any, ...]]) -> None:
    expected = set()
    for combination in product(*(LISTS | chosen).values()):
        values = dict(zip(LISTS, combination, strict=True))
        if values["machine"] == "host":
            values |= dict.fromkeys(("qemu", "vhost", "ioregionfd", *CHOSEN))
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
             "reflector": "moongen"},
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
    for name, values in (LISTS | {"machine": ("microvm", "pcvm")}).items():
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
    (guest,) = [stage for stage in KIND.stages if stage.name == "guest"]
    assert order.index("ioregionfd") < order.index("queues") <= order.index(guest.parameter) < order.index("reflector")
    assert guest.parameter == "tx_queue_size", "a guest with other queues or rings is another guest"


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
