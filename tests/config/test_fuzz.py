"""Any text is either a configuration or a ConfigError that says where; nothing else ever comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.config.testbed import GuestConfig, HostConfig, load_testbed
from autotest.config.tests import load_sections
from autotest.errors import ConfigError
from autotest.measurements.load_latency import KIND

KEYS = [*HostConfig.__dataclass_fields__, *GuestConfig.__dataclass_fields__]
KEYS += [parameter.key for parameter in KIND.parameters] + [setting.name for setting in KIND.settings]

value = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["${", "${a}", "${host:fqdn}", "${a:b:c}", "$", "$$", "${fqdn}", "%(a)s", "\0", "-", "a:b,c:",
                     "1" * 5000, "1e9", "nan", "inf", "::1/64", "٣", "🙂", "~x/y", "/" * 300]),
    st.integers().map(str),
)  # fmt: skip
line = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(KEYS), value),
    st.builds("[{}]".format, st.one_of(st.sampled_from(["host", "guest", "loadgen", "common", "lab"]), st.text(max_size=5))),
    st.text(max_size=30),
)
document = st.one_of(st.text(max_size=200), st.lists(line, max_size=25).map("\n".join))


def load_as_testbed(file: Path) -> object:
    return load_testbed(file, file.parent)


def load_as_tests(file: Path) -> object:
    return load_sections(file, file.parent, KIND.parameters, KIND.settings)


@pytest.mark.parametrize("load", [load_as_testbed, load_as_tests])
def test_any_text_gives_a_configuration_or_a_config_error(
    load: Callable[[Path], object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "file.conf"

    @settings(max_examples=300, deadline=None, database=None)
    @given(document)
    def check(content: str) -> None:
        file.write_bytes(content.encode("utf-8", "surrogatepass"))
        try:
            load(file)
        except ConfigError as error:
            assert error.problems and all(problem.file == file for problem in error.problems)

    check()


def test_any_bytes_give_a_config_error_or_a_configuration(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "file.conf"

    @settings(max_examples=100, deadline=None, database=None)
    @given(st.binary(max_size=100))
    def check(content: bytes) -> None:
        file.write_bytes(content)
        with pytest.raises(ConfigError):
            load_as_testbed(file)

    check()
