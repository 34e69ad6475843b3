"""``tests.conf``: lists keep their order, older files load, everything wrong is found at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from autotest.config.tests import load_all, load_sections
from autotest.errors import ConfigError
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Section
from autotest.plan.tree import Tree

GOOD = {
    "machines": "pcvm",
    "interfaces": "bridge",
    "reflectors": "xdp",
    "rates": "10",
    "sizes": "60",
    "runtimes": "2",
    "outputdir": "out",
}


def text(section: str = "t", **changes: str | None) -> str:
    keys = {key: value for key, value in (GOOD | changes).items() if value is not None}
    return f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())


def load(tmp_path: Path, content: str) -> list[Section]:
    file = tmp_path / "tests.conf"
    file.write_text(content)
    return load_sections(file, tmp_path, KIND.parameters, KIND.settings)


def test_examples_of_the_repository_load(repository: Path) -> None:
    files = [repository / "tests.conf", *(repository / "configs").glob("*.conf")]
    files = [file for file in files if "\nmachines = " in file.read_text()]
    assert len(files) > 1
    assert load_all(files, repository, KIND.parameters, KIND.settings)


def test_an_older_section_loads(tmp_path: Path) -> None:
    content = "accumulate = true\noutputdir = ${projectDirectory}/outputs\n" + text(
        "test1", sizes=None, size="64", qemus="normal:/opt/qemu,brick:", vhosts="true,false", ioregionfds="false",
        repetitions="3", warmup="false", cooldown="true", outputdir=None,
    )  # fmt: skip
    (section,) = load(tmp_path, content)
    assert section.lists["size"] == (64,)
    assert section.lists["qemu"] == (("normal", "/opt/qemu"), ("brick", ""))
    assert section.lists["vhost"] == (True, False)
    assert section.settings["warmup"] == 0 and section.settings["cooldown"] == 20
    assert section.settings["repetitions"] == 3 and section.settings["accumulate"] is True
    assert section.settings["outputdir"] == tmp_path / "outputs"


def test_queues_and_ring_sizes_are_left_to_qemu_where_nothing_is_said(tmp_path: Path) -> None:
    (section,) = load(tmp_path, text())
    assert [section.lists[name] for name in ("queues", "rx_queue_size", "tx_queue_size")] == [(None,)] * 3
    (section,) = load(tmp_path, text(queues="4, default, 1", rx_queue_sizes="256,1024", tx_queue_sizes="default"))
    assert [section.lists[name] for name in ("queues", "rx_queue_size", "tx_queue_size")] == [(4, None, 1), (256, 1024), (None,)]
    (section,) = load(tmp_path, text(rx_queue_size="512", tx_queue_size="256"))
    assert [section.lists[name] for name in ("rx_queue_size", "tx_queue_size")] == [(512,), (256,)]


def test_there_is_one_guest_with_all_the_load_where_nothing_is_said(tmp_path: Path) -> None:
    (section,) = load(tmp_path, text())
    assert section.lists["guests"] == (1,) and section.lists["weights"] == ("even",)
    (section,) = load(tmp_path, text(guests="1, 2,4", weights="even, 3 : 1, 6:2:2:2"))
    assert section.lists["guests"] == (1, 2, 4) and section.lists["weights"] == ("even", "3:1", "3:1:1:1")
    (section,) = load(tmp_path, text(num_vms="8"))
    assert section.lists["guests"] == (8,)


def test_a_mix_of_sizes_is_one_entry_and_its_file_counts_from_the_folder_of_the_tests(tmp_path: Path) -> None:
    (tmp_path / "traffic.csv").write_text("size,count\n60,10\n1514,30\n")
    (section,) = load(tmp_path, text(sizes="60, imix, 60:7 590:4 1514:1, 60 | imix, dc:traffic.csv\n  dc:./traffic.csv|60, 1514"))
    names = [str(size) for size in section.lists["size"]]
    assert names[:4] == ["60", "imix", "60:7+590:4+1514:1", "60~imix"] and names[6] == "1514"
    assert names[4].startswith("dc-") and names[5] == f"{names[4]}~60"
    assert section.lists["size"][0] == 60 and section.lists["size"][4].distributions == (((60, 1), (1514, 3)),)


def test_values_keep_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    (section,) = load(tmp_path, text(rates="80, 2, 10", machines="microvm,pcvm\n  host"))
    assert section.lists["rate"] == (80, 2, 10)
    assert section.lists["machine"] == ("microvm", "pcvm", "host")


def test_numbers_have_ranges_and_units(tmp_path: Path) -> None:
    (section,) = load(tmp_path, text(
        rates="10-40*2, 500k, 1M-2M/0.5M", runtimes="90s, 2m", sizes="60, 64-192/64, imix, 60:7 590:4, 60 | 1514", guests="1-3",
        queues="default, 1-4*2", rx_queue_sizes="256-1024*2", warmup="1.5m", cooldown="90s", tolerance_dropout_seconds="1m",
    ))  # fmt: skip
    assert section.lists["rate"] == (10, 20, 40, 500, 1000, 1500, 2000)
    assert section.lists["runtime"] == (90, 120) and section.lists["guests"] == (1, 2, 3)
    assert list(map(str, section.lists["size"])) == ["60", "64", "128", "192", "imix", "60:7+590:4", "60~1514"]
    assert section.lists["queues"] == (None, 1, 2, 4) and section.lists["rx_queue_size"] == (256, 512, 1024)
    assert (section.settings["warmup"], section.settings["cooldown"]) == (90, 90)
    assert section.settings["tolerance_dropout_seconds"] == 60


def test_dashes_in_names_and_paths_are_no_ranges(tmp_path: Path) -> None:
    (tmp_path / "1-4.csv").write_text("60,1\n1514,1\n")
    (section,) = load(tmp_path, text(sizes="dc-1:1-4.csv, dc-2:./1-4.csv | 60", qemus="8-2:/opt/1-2/3, 9-1:"))
    assert [name for name, _ in section.lists["qemu"]] == ["8-2", "9-1"]
    assert [str(size).rpartition("-")[0] for size in section.lists["size"]] == ["dc-1", "dc-2"]


def test_the_same_numbers_written_in_another_way_are_the_same_cases_with_the_same_names(tmp_path: Path) -> None:
    numbers = {"rates": "1500, 1500000, 20".replace("1500000", "2000"), "sizes": "60, 124, 188", "runtimes": "60, 3600"}
    in_words = {"rates": "1.5M, 2Mpps, 20k", "sizes": "60-188/64", "runtimes": "1m, 1h"}
    named = []
    for keys in (numbers, in_words):
        (section,) = load(tmp_path, text(**keys))
        tree = Tree(KIND.parameters, KIND.rules, section)
        named.append([KIND.infix(case) for case in tree.cases()])
    assert named[0] == named[1] and len(named[0]) == 18
    assert named[0][0].endswith("_1500kpps_60B_60s")


def test_a_list_goes_over_lines_with_comments_between_and_behind(tmp_path: Path) -> None:
    rates = "\n    # low load\n    10-40*2,    # doubling\n\n    ; and the knee\n    100-120/10\n# at the margin\n    200 # last"
    (section,) = load(tmp_path, text(rates=rates, outputdir="${projectDirectory}/o  # ${not} a reference"))
    assert section.lists["rate"] == (10, 20, 40, 100, 110, 120, 200)
    assert section.settings["outputdir"] == tmp_path / "o"


@pytest.mark.parametrize("header", ["", "[DEFAULT]\n"])
def test_defaults_of_a_file_hold_in_every_section_and_can_be_ranges_and_refer(tmp_path: Path, header: str) -> None:
    defaults = "rates = ${low}, 100  # of all\nlow = 10-40*2\nrepetitions = 5\nbase = ${projectDirectory}/of\n"
    sections = text("a", rates=None, outputdir="${base}/a") + text("b", rates="${low}", outputdir="${base}/b", repetitions="2")
    first, second = load(tmp_path, header + defaults + sections)
    assert (first.lists["rate"], second.lists["rate"]) == ((10, 20, 40, 100), (10, 20, 40))
    assert (first.settings["repetitions"], second.settings["repetitions"]) == (5, 2)
    assert (first.settings["outputdir"], second.settings["outputdir"]) == (tmp_path / "of/a", tmp_path / "of/b")


@pytest.mark.parametrize("header", ["", "[DEFAULT]\n"])
def test_a_mistyped_default_is_found_and_a_variable_that_is_referred_to_is_none(tmp_path: Path, header: str) -> None:
    defaults = "reptitions = 5\npause = 1\nbase = o\nof_a = ${base}\n"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, header + defaults + text("a", outputdir="${b:of_a}") + text("b", base="p"))
    assert [(problem.section, problem.key) for problem in caught.value.problems] == [(None, "reptitions"), (None, "pause")]
    assert "unknown key (did you mean 'repetitions'?)" in caught.value.problems[0].message
    assert "no ${pause} refers to it" in caught.value.problems[1].message


def test_sections_keep_their_order_over_several_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(text(name))
    sections = load_all([tmp_path / "b", tmp_path / "a"], tmp_path, KIND.parameters, KIND.settings)
    assert [section.name for section in sections] == ["b", "a"]


def test_a_relative_output_directory_counts_from_the_file(tmp_path: Path) -> None:
    (section,) = load(tmp_path, text(outputdir="sub/out"))
    assert section.settings["outputdir"] == tmp_path / "sub/out"


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"machnes": "host"}, "machnes", "did you mean 'machines'"),
        ({"rates": None}, "rates", "is missing"),
        ({"outputdir": None}, "outputdir", "is missing"),
        ({"outputdir": ""}, "outputdir", "is missing"),
        ({"rates": "1, fast"}, "rates", "not a whole number"),
        ({"rates": ""}, "rates", "empty list"),
        ({"rates": ", ,"}, "rates", "empty list"),
        ({"rates": "0"}, "rates", "out of range"),
        ({"rates": "-5"}, "rates", "out of range"),
        ({"rates": "1_0"}, "rates", "not a whole number"),
        ({"rates": "10, 20, 10"}, "rates", "twice"),
        ({"rates": "10-30/10, 20"}, "rates", "20 is there twice"),
        ({"rates": "20, 10-30/10"}, "rates", "20 is there twice"),
        ({"rates": "500, 0.5M"}, "rates", "500 is there twice"),
        ({"rates": "10-155/10"}, "rates", "expected 10-150/10 or 10-160/10"),
        ({"rates": "150-10/10"}, "rates", "runs backwards: expected 10-150/10"),
        ({"rates": "1-200000"}, "rates", "is 200000 numbers: expected a larger step"),
        ({"rates": "1.5k"}, "rates", "not a whole number of kpps"),
        ({"rates": "1.5m"}, "rates", "unknown unit 'm' (did you mean 'M'?)"),
        ({"runtimes": "2d"}, "runtimes", "unknown unit 'd': expected one of s, m, h"),
        ({"sizes": "60-64 | imix"}, "sizes", "'60-64' is not a whole number"),
        ({"sizes": "60-1515/1455"}, "sizes", "expected 60 to 1514"),
        ({"rx_queue_sizes": "256-1024/256"}, "rx_queue_sizes", "'256-1024/256': '768' is not a power of two"),
        ({"warmup": "1d"}, "warmup", "neither seconds, like 90, 1.5 or 2m"),
        ({"rates": "10, 010"}, "rates", "twice"),
        ({"vhosts": "yes, on"}, "vhosts", "twice"),
        ({"qemus": "a:/x, a:/y"}, "qemus", "twice"),
        ({"qemus": "a/b:/x"}, "qemus", "file's name"),
        ({"qemus": "b(1):/x"}, "qemus", "file"),
        ({"qemus": "bücher:/x"}, "qemus", "file"),
        ({"qemus": "x" * 300}, "qemus", "long"),
        ({"qemus": "-a:/x"}, "qemus", "leading dash"),
        ({"qemus": "$$(x):/x"}, "qemus", "file's name"),
        ({"qemus": "a:-x"}, "qemus", "not a path"),
        ({"qemus": "a:/x\0"}, "qemus", "cannot be printed"),
        ({"outputdir": "-x"}, "outputdir", "not a path"),
        ({"outputdir": "a\n b"}, "outputdir", "line break"),
        ({"outputdir": "~nobody-has-this/x"}, "outputdir", "home folder of nobody"),
        ({"machines": "pcwm"}, "machines", "did you mean 'pcvm'"),
        ({"interfaces": "brige"}, "interfaces", "did you mean 'bridge'"),
        ({"interfaces": "bridge-vhost"}, "interfaces", "write bridge, and vhosts = yes"),
        ({"interfaces": "x-vhost"}, "interfaces", "unknown value 'x-vhost'"),
        ({"queues": "0"}, "queues", "expected 1 to 256; 'default' is taken, too"),
        ({"queues": "257"}, "queues", "expected 1 to 256"),
        ({"queues": "1, two"}, "queues", "not a whole number"),
        ({"queues": "default, 4, default"}, "queues", "default is there twice"),
        ({"queues": ""}, "queues", "empty list"),
        ({"rx_queue_sizes": "300"}, "rx_queue_sizes", "not a power of two: expected 256, 512, 1024"),
        ({"rx_queue_sizes": "128"}, "rx_queue_sizes", "expected 256 to 1024 descriptors"),
        ({"tx_queue_sizes": "2048"}, "tx_queue_sizes", "expected 256 to 1024 descriptors"),
        ({"tx_queue_sizes": "256", "tx_queue_size": "256"}, "tx_queue_size", "only one of them"),
        ({"rx_queues": "2"}, "rx_queues", "did you mean"),
        ({"reflectors": "xpd"}, "reflectors", "did you mean 'xdp'"),
        ({"sizes": "59"}, "sizes", "60 to 1514"),
        ({"sizes": "1515"}, "sizes", "60 to 1514"),
        ({"size": "60"}, "size", "only one of them"),
        ({"sizes": "60, 60:1"}, "sizes", "60 is there twice"),
        ({"sizes": "60:1 61:1, 61:2 60:2"}, "sizes", "60:1+61:1 is there twice"),
        ({"sizes": "imix, 60:7 590"}, "sizes", "'590' has no weight"),
        ({"sizes": "60:7 9000:1"}, "sizes", "60 to 1514 bytes without CRC"),
        ({"sizes": "imx"}, "sizes", "did you mean 'imix'"),
        ({"sizes": "dc:nothing.csv"}, "sizes", "nothing.csv: cannot be read: No such file"),
        ({"guests": "0"}, "guests", "expected 1 to 1000"),
        ({"guests": "1001"}, "guests", "expected 1 to 1000"),
        ({"guests": "two"}, "guests", "not a whole number"),
        ({"guests": "2, 2"}, "guests", "2 is there twice"),
        ({"guests": "2", "num_vms": "2"}, "num_vms", "only one of them"),
        ({"weights": "3"}, "weights", "neither even nor a whole number for each guest"),
        ({"weights": "evn"}, "weights", "neither even nor"),
        ({"weights": "3:0"}, "weights", "expected 1 to 1000"),
        ({"weights": "3:x"}, "weights", "'x' is not a whole number"),
        ({"weights": "2:2"}, "weights", "gives all guests the same: write even"),
        ({"weights": "3:1, 6:2"}, "weights", "3:1 is there twice"),
        ({"repetitions": "0"}, "repetitions", "out of range"),
        ({"tolerance_under_sent": "0.01"}, "tolerance_under_sent", "expected a number and %, like 1 %"),
        ({"tolerance_over_sent": "101 %"}, "tolerance_over_sent", "expected 0 % to 100 %"),
        ({"tolerance_min_samples": "0"}, "tolerance_min_samples", "expected 1 to"),
        ({"tolerance_dropout_seconds": "1 %"}, "tolerance_dropout_seconds", "not a whole number"),
        ({"tolerance_undersent": "1 %"}, "tolerance_undersent", "did you mean 'tolerance_under_sent'"),
        ({"warmup": "nan"}, "warmup", "neither seconds"),
        ({"warmup": "3601"}, "warmup", "out of range"),
        ({"warmup": "later"}, "warmup", "neither seconds"),
        ({"accumulate": "maybe"}, "accumulate", "neither yes nor no"),
        ({"rates": "${nope}"}, "rates", "nope"),
    ],
)
def test_each_mistake_is_one_problem_with_file_section_and_key(
    tmp_path: Path, changes: dict[str, str | None], key: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text(**changes))
    (problem,) = caught.value.problems
    assert (problem.file, problem.section, problem.key) == (tmp_path / "tests.conf", "t", key)
    assert says in problem.message


def test_all_mistakes_of_all_files_are_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(text("one", rates="0, x", sizes="1"))
    (tmp_path / "b").write_text(text("two", machines="vm") + text("three", runtimes="0"))
    with pytest.raises(ConfigError) as caught:
        load_all([tmp_path / name for name in ("a", "b", "c")], tmp_path, KIND.parameters, KIND.settings)
    found = [(problem.file.name, problem.section, problem.key) for problem in caught.value.problems]
    assert found == [
        ("a", "one", "rates"),
        ("a", "one", "rates"),
        ("a", "one", "sizes"),
        ("b", "two", "machines"),
        ("b", "three", "runtimes"),
        ("c", None, None),
    ]


def test_mistakes_of_all_sorts_in_all_sections_are_found_at_once(tmp_path: Path) -> None:
    content = text("one", machines="pcvm\nmachines = host", rates="0, x, ${nope}") + "rubbish\n"
    content += text("two", sizes="1", qemus="a:, a:/x", outputdir="${out}") + text("one")
    content += text("three", repetitions="9" * 5000)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, content)
    found = [(problem.section, problem.key) for problem in caught.value.problems]
    assert sorted(map(str, found)) == sorted(
        map(str, [("one", "machines"), ("one", "rates"), (None, None), ("two", "sizes"), ("two", "qemus"),
                  ("two", "outputdir"), ("one", None), ("three", "repetitions")])
    )  # fmt: skip
    assert all(len(problem.message) < 200 for problem in caught.value.problems)


@pytest.mark.default
@pytest.mark.alone
@pytest.mark.parametrize("rates", [",".join(map(str, range(1, 50_000))), ",".join(["7"] * 50_000), ",".join(["1-9999"] * 50_000)])
def test_a_long_list_takes_no_time(tmp_path: Path, rates: str) -> None:
    start = time.monotonic()
    try:
        load(tmp_path, text(rates=rates))
    except ConfigError as error:
        assert len(error.problems) == 1
    assert time.monotonic() - start < 10


def test_a_file_without_sections_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no section"):
        load(tmp_path, "rates = 1\n")
