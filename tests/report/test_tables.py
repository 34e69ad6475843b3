import doctest

from autotest.report import tables
from autotest.results import names


def test_examples_in_docstrings_hold():
    for module in (tables, names):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed


def test_columns_are_as_wide_as_their_widest_cell():
    assert tables.render_table(["a", "long"], [["123", "x"], ["1", "yy"]], align="rl") == ["  a  long", "123  x", "  1  yy"]
