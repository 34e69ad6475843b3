import math

import sample_output as sample
from hypothesis import given
from hypothesis import strategies as st

from autotest.results.moongen import parse_moongen_output


def test_totals_rates_samples_warnings_and_notes_are_found_in_coloured_output():
    found = parse_moongen_output(sample.output(631407502, 585731518))
    assert (found.sent, found.received, found.device, found.complete) == (631407502, 585731518, 0, True)
    assert found.counters[0].rates_mpps == (19.49, 19.49)
    assert found.counters[1].bytes == 631407502 * 64
    assert found.samples is not None and found.samples.quartiles_ns == (31654.0, 32282.0, 32885.0)
    assert found.warnings == ("malloc() allocates objects >= 1 MiB from LuaJIT memory space.",)
    assert found.notes == ("Found 2 usable devices:", "1 device is up.", "Saving histogram to '/tmp/histogram.csv'")


def test_the_device_with_the_traffic_is_chosen():
    text = sample.total_line(0, "RX", 999_999) + sample.total_line(0, "TX", 3)
    text += sample.total_line(1, "RX", 990) + sample.total_line(1, "TX", 1000)
    found = parse_moongen_output(text)
    assert (found.device, found.sent, found.received) == (1, 1000, 990)


def test_the_noise_of_another_device_is_not_the_load_coming_back():
    text = sample.total_line(0, "RX", 50) + sample.total_line(0, "TX", 0)
    text += sample.total_line(1, "RX", 0) + sample.total_line(1, "TX", 1000)
    assert parse_moongen_output(text).received == 0


def test_nan_and_carriage_returns_are_understood():
    text = sample.total_line(0, "RX", 5, "-nan") + sample.total_line(0, "TX", 6, "nan")
    text += "Samples: 0, Average: nan ns, StdDev: -nan ns, Quartiles: nan/nan/nan ns\n"
    found = parse_moongen_output(text.replace("\n", "\r\n"))
    assert found.complete and (found.sent, found.received) == (6, 5)
    assert found.samples is not None and math.isnan(found.samples.average_ns)


def test_a_task_that_died_is_reported():
    found = parse_moongen_output("\x1b[1;31m[FATAL] Lua error in task loadSlave\x1b[0m\n[ERROR] no\n" + sample.output())
    assert found.errors == ("no", "Lua error in task loadSlave")


@given(st.integers(0, len(sample.output()) - 2))
def test_output_that_was_cut_off_anywhere_is_not_complete(length):
    found = parse_moongen_output(sample.output()[:length])
    assert not found.complete
    assert found.sent is None


@given(st.text())
def test_any_text_is_survived(text):
    assert not parse_moongen_output(text).complete
