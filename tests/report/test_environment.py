import doctest
import json

from autotest.report import environment as module
from autotest.report.environment import differences, environment, in_common


def test_examples_in_docstrings_hold():
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


def test_both_versions_of_a_record_give_the_same_keys():
    old = {"version": 1, "testbed": {"host": {"fqdn": "a"}}, "versions": {"autotest": "1"}, "guest": {"vcpus": 2}}
    new = {"version": 2, "testbed": {"name": "t", "configuration": {"host": {"fqdn": "a"}}}}
    new["identity"] = {"hash": "z", "determines": {"qemu.hash": "x"}}
    assert environment(old) == {"testbed.host.fqdn": "a", "versions.autotest": "1", "guest.vcpus": "2"}
    assert environment(new) == {"identity.qemu.hash": "x", "testbed.name": "t", "testbed.host.fqdn": "a"}


def test_whatever_is_in_a_record_it_has_an_environment():
    assert environment(None) == environment([]) == environment({"versions": {}}) == {}
    odd = environment({"versions": 7, "machines": None, "settings": ["a"]})
    assert odd == {"versions": "7", "machines": "null", "settings": '["a"]'}
    deep = json.loads('{"a":' * 100 + "1" + "}" * 100)
    (key,) = environment({"versions": deep})
    assert key.startswith("versions.a.a")


def test_what_differs_is_told_with_its_values_the_ones_within_a_case_first():
    trials = [{"a": "1", "b": "x", "c": "0"}, {"a": "1", "b": "x", "c": "1"}, {"b": "x", "c": "0"}, None]
    assert in_common(trials) == {"b": "x"}
    by_case, by_set_up = differences(trials, [0, 0, 1, 1])
    assert (by_case.key, by_case.values, by_case.chosen, by_case.within_case) == ("c", ("0", "1"), (0, 1, 0, None), True)
    assert (by_set_up.key, by_set_up.values, by_set_up.chosen) == ("a", ("1", None), (0, 0, 1, None))
    assert not by_set_up.within_case


def test_without_any_record_nothing_is_known():
    assert in_common([None, None]) == {} and differences([None, None], [0, 0]) == []
