"""A commented file as a template: keys get values, and every comment stays."""

from __future__ import annotations

import pytest

from autotest.discovery.configuration import TESTBED_TEMPLATE, TESTS_TEMPLATE
from autotest.discovery.template import fill, literal

TEMPLATE = """\
# An example.
# Of two lines.

[host]
# Its name.
fqdn = example
# Optional, and shown twice:
# speed = 1
# speed = 2
long = one
    two
# the last comment

[guest]
fqdn = guest
"""


def test_a_key_gets_its_value_where_it_stands_and_its_comment_stays() -> None:
    filled = fill(TEMPLATE, {"host": {"fqdn": "river"}})
    assert filled == TEMPLATE.replace("fqdn = example", "fqdn = river")


def test_a_key_of_another_section_is_left_alone() -> None:
    assert fill(TEMPLATE, {"guest": {"fqdn": "vm"}}) == TEMPLATE.replace("fqdn = guest", "fqdn = vm")


def test_a_key_that_is_a_comment_becomes_one_for_real_once() -> None:
    assert fill(TEMPLATE, {"host": {"speed": "25"}}) == TEMPLATE.replace("# speed = 1", "speed = 25")


def test_a_key_without_a_value_becomes_a_comment() -> None:
    assert "# fqdn = example\n" in fill(TEMPLATE, {"host": {"fqdn": None}})
    assert fill(TEMPLATE, {"host": {"speed": None}}) == TEMPLATE


def test_lines_that_go_on_with_a_value_go_with_it() -> None:
    assert "\nlong = x\n# the last comment\n" in fill(TEMPLATE, {"host": {"long": "x"}})
    assert "    two" not in fill(TEMPLATE, {"host": {"long": None}})


def test_a_key_that_the_template_lacks_is_added_to_its_section() -> None:
    assert "# the last comment\nnew = 1\n\n[guest]\n" in fill(TEMPLATE, {"host": {"new": "1"}})
    assert fill(TEMPLATE, {"guest": {"new": "1"}}).endswith("fqdn = guest\nnew = 1\n")


def test_the_introduction_replaces_the_first_comment() -> None:
    assert fill(TEMPLATE, {}, "# Mine.\n").startswith("# Mine.\n\n[host]\n")


def test_a_section_that_the_template_lacks_is_refused() -> None:
    with pytest.raises(KeyError, match="gest"):
        fill(TEMPLATE, {"gest": {"fqdn": "x"}})


@pytest.mark.parametrize("value", ["a #b", "#b", "; b", "a\t# b"])
def test_what_would_be_read_as_a_comment_is_no_value(value: str) -> None:
    with pytest.raises(ValueError, match="begins a comment"):
        literal(value)


@pytest.mark.parametrize("template", [TESTBED_TEMPLATE, TESTS_TEMPLATE], ids=lambda path: path.name)
def test_the_templates_stay_as_they_are_where_nothing_is_filled_in(template) -> None:
    assert fill(template.read_text(), {}) == template.read_text()
