import os

import pytest
from junitparser import JUnitXml

from autotest.errors import UsageError
from autotest.report.junit import Check, require_junit_path, write_junit

CHECKS = [
    Check("pcvm, bridge, 10 kpps", "repetition 0", "passed", "valid", seconds=31.25),
    Check("pcvm, bridge, 10 kpps", "repetition 1", "failed", "disturbed: link went down", "what\nit printed"),
    Check("pcvm, bridge, 20 kpps", "repetition 0", "error", "no answer within 3 s"),
    Check("pcvm, bridge, 20 kpps", "repetition 1", "skipped", "not tried"),
]


def test_a_file_reads_back_as_it_was_written(tmp_path):
    file = tmp_path / "junit.xml"
    write_junit(file, "autotest", CHECKS, {"testbed": "lab"})
    document = JUnitXml.fromfile(str(file))
    (suite,) = document
    for found in (document, suite):
        assert (found.tests, found.failures, found.errors, found.skipped) == (4, 1, 1, 1)
    assert [(one.name, one.value) for one in suite.properties()] == [("testbed", "lab")]
    passed, failed, error, skipped = suite
    assert (passed.classname, passed.name, passed.time, passed.system_out) == (
        "pcvm, bridge, 10 kpps",
        "repetition 0",
        31.25,
        "valid",
    )
    assert passed.is_passed and failed.is_failure and error.is_error and skipped.is_skipped
    assert (failed.result[0].message, failed.result[0].text) == ("disturbed: link went down", "what\nit printed")
    assert skipped.result[0].message == "not tried"


def test_what_a_machine_printed_cannot_break_the_file(tmp_path):
    file = tmp_path / "junit.xml"
    hostile = "\x1b[31mred\x1b[0m \x00\x08 ]]></failure> <&\"' \udce4 \ufffe µ\n"
    for state in ("passed", "failed", "error", "skipped"):
        write_junit(file, hostile, [Check(hostile, hostile, state, hostile, hostile)], {hostile: hostile})
        (suite,) = JUnitXml.fromfile(str(file))
        (case,) = suite
        assert "red" in case.name and "</failure> <&\"'" in case.name and "µ" in case.name
        assert "\x1b" not in file.read_text(encoding="utf-8")


def test_a_suite_without_checks_is_a_whole_file(tmp_path):
    write_junit(tmp_path / "junit.xml", "nothing to do", [])
    assert JUnitXml.fromfile(str(tmp_path / "junit.xml")).tests == 0


def test_a_path_that_cannot_be_a_junit_file_is_refused(tmp_path):
    require_junit_path(tmp_path / "junit.xml")
    (tmp_path / "folder.xml").mkdir()
    for path, message in (
        (tmp_path / "acc_histogram_x.csv", "ends in .xml"),
        (tmp_path / "folder.xml", "is a directory"),
        (tmp_path / "none" / "junit.xml", "there is no directory"),
    ):
        with pytest.raises(UsageError, match=message):
            require_junit_path(path)


def test_a_folder_that_cannot_be_written_is_found_out_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode & os.W_OK))
    with pytest.raises(UsageError, match="nothing can be written into"):
        require_junit_path(tmp_path / "junit.xml")
