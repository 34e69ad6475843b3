"""INI files are read as configparser reads them, but all mistakes are found, and no file takes for ever."""

from __future__ import annotations

import configparser
import re
import time
from pathlib import Path

import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotest.config.ini import MOST_BYTES, IniFile, read_ini
from autotest.config.lines import IniText, Mistake
from autotest.config.references import References
from autotest.errors import ConfigError

name = st.sampled_from(["a", "b", "c c", "DEFAULT", "[", "é"])
piece = st.sampled_from(
    ["1", "x y", "${a}", "${b}", "${c c:a}", "${a:b}", "${DEFAULT:a}", "${", "$$", "$", "${a:b:c}", " # x", " ; x", "#", "=",
     ":", "[b]", "", "\n ", "\n\n  ", "\n"]
)  # fmt: skip
indent = st.sampled_from(["", "", " ", "    "])
line = st.one_of(
    st.builds("{}{}{}{}".format, indent, name, st.sampled_from([" = ", ":", "=", ""]), piece),
    st.builds("{}[{}]{}".format, indent, name, st.sampled_from(["", "", " ; x", " # x", " x"])),
    st.lists(piece, max_size=4).map("".join),
    st.text("ab=:#;[]$ {}\n", max_size=12),
)
document = st.lists(line, max_size=12).map("\n".join)


def by_configparser(text: str, interpolation: configparser.Interpolation | None) -> configparser.ConfigParser:
    """What it makes of the text. To it ``[a] ; b]`` is a section ``a] ; b``, to us one with a comment: not compared."""
    assume("]" not in "".join(re.findall(r"\[(.*)\]", text)))
    parser = configparser.ConfigParser(interpolation=interpolation, inline_comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string("[DEFAULT]\n" + text)
    return parser


@settings(max_examples=examples(1500))
@given(document)
def test_what_configparser_reads_is_read_alike_and_what_it_refuses_is_a_mistake(text: str) -> None:
    found = IniText(text)
    try:
        expected = by_configparser(text, None)
    except configparser.Error:
        assert found.mistakes
        return
    if not found.mistakes:  # we are stricter with what follows a section's name
        assert found.defaults == {key: value.strip() for key, value in expected.defaults().items()}
        read = {section: dict(expected[section]) for section in expected.sections()}
        assert {section: found.defaults | keys for section, keys in found.sections.items()} == {
            section: {key: value.strip() for key, value in keys.items()} for section, keys in read.items()
        }


@settings(max_examples=examples(1500))
@given(document)
def test_references_are_replaced_as_configparser_does(text: str) -> None:
    found = IniText(text)
    if found.mistakes:
        return
    references = References(found.defaults, found.sections)
    parser = by_configparser(text, configparser.ExtendedInterpolation())
    for section in parser.sections():
        for key in parser.options(section):
            value = references.value(section, key)
            try:
                assert value == parser.get(section, key) or str(value).strip() == parser.get(section, key).strip()
            except configparser.InterpolationError:
                assert isinstance(value, Mistake)


def read(tmp_path: Path, content: str | bytes) -> IniFile:
    file = tmp_path / "x.conf"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_ini(file, tmp_path)


def problems(tmp_path: Path, content: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content).raise_problems()
    return [str(problem).removeprefix(f"{tmp_path}/x.conf") for problem in caught.value.problems]


def test_every_mistake_of_the_form_is_found_at_once_with_its_line(tmp_path: Path) -> None:
    content = "[a]\nx = 1\nx = 2\nrubbish\n= 3\n[b\ny = 1\n[a]\nz = ${nope}\n[c] d\nw\0 = 1\n[" + "n" * 101 + "]\n"
    assert problems(tmp_path, content) == [
        " [a] x: line 3: already exists in line 2: only one of them can be there",
        ": line 4: neither a [section] nor key = value: 'rubbish'",
        ": line 5: neither a [section] nor key = value: '= 3'",
        ": line 6: '[b' is not a [section] alone on its line",
        " [a]: line 8: already exists in line 1: only one of them can be there",
        ": line 10: '[c] d' is not a [section] alone on its line",
        ": line 11: 'w\\x00' is not the name of a section or key: expected at most 100 printable characters",
        f": line 12: '{'n' * 60}'... is not the name of a section or key: expected at most 100 printable characters",
        " [a] z: '${nope}' does not exist",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[a]\nx = ${y}\ny = ${x}", [" [a] x: refers to itself: a:x -> a:y -> a:x"]),
        ("[a]\nx = ${b:y}\n[b]\ny = ${nope}", [" [b] y: '${nope}' does not exist"]),
        ("x = ${nope}\n[a]\n[b]", [" x: '${nope}' does not exist"]),
        ("[a]\nx = ${b:c:d}", [" [a] x: '${b:c:d}' does not exist"]),
        ("[a]\nx = ${}", [" [a] x: '${}' does not exist"]),
        ("[a]\nx = 5 $", [" [a] x: a $ must begin ${key} or ${section:key}; $$ stands for the $ itself"]),
        ("[a]\nx = ${y", [" [a] x: a $ must begin ${key} or ${section:key}; $$ stands for the $ itself"]),
    ],
)
def test_a_wrong_reference_is_one_problem_where_it_is_written(tmp_path: Path, content: str, expected: list[str]) -> None:
    assert problems(tmp_path, content) == expected


def test_references_reach_into_sections_and_defaults(tmp_path: Path) -> None:
    ini = read(tmp_path, "base = ${name}/b\n[a]\nname = n\nx = ${base}:${b:y}$$\n[b]\nname = m\ny = ${base}\n")
    assert (ini.value("a", "x"), ini.value("b", "y"), ini.value("a", "nope")) == ("n/b:m/b$", "m/b", None)


BOMB = "[a]\nb0 = xxxxxxxxxx\n" + "".join(f"b{n} = {f'${{b{n - 1}}}' * 10}\n" for n in range(1, 30))
CHAIN = "[a]\n" + "".join(f"b{n} = ${{b{n + 1}}}\n" for n in range(20_000)) + "b20000 = x\n"


@pytest.mark.parametrize(("content", "says"), [(BOMB, "become more than"), (CHAIN, "at the end of more than")])
def test_references_that_grow_without_end_are_a_problem_and_take_no_time(tmp_path: Path, content: str, says: str) -> None:
    start = time.monotonic()
    assert says in problems(tmp_path, content)[0]
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[a]\nx = \xff\n", "line 2 is not text in UTF-8"),
        ("[a]\nx = 1\n".encode("utf-16"), "line 1 is not text in UTF-8"),
        (b"x = 1\n" * MOST_BYTES, "not a configuration"),
    ],
)
def test_what_is_no_text_of_a_configurations_size_is_one_problem(tmp_path: Path, content: bytes, says: str) -> None:
    (problem,) = problems(tmp_path, content)
    assert says in problem


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_on_any_system(tmp_path: Path, end: str) -> None:
    ini = read(tmp_path, end.join(["\ufeff[a]", "x = 1,", "  2", "y = 3", ""]))
    assert (ini.value("a", "x"), ini.value("a", "y")) == ("1,\n2", "3")


def test_a_directory_is_told_from_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory, not a configuration file"):
        read_ini(tmp_path, tmp_path)


def test_a_name_that_is_no_path_is_a_problem() -> None:
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        read_ini(Path("a\0b"), Path("."))


def test_who_has_none_of_the_usual_files_is_told_what_writes_them(tmp_path: Path) -> None:
    for name, hint in (("tests.conf", ": autotest init writes autotest.conf and tests.conf"), ("other.conf", "")):
        with pytest.raises(ConfigError) as caught:
            read_ini(tmp_path / name, tmp_path)
        assert str(caught.value) == f"{tmp_path / name}: no such file{hint}"
