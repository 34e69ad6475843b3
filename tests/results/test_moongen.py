import math
import re

import pytest
import sample_output as sample
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.results.moongen import parse_moongen_output


def test_totals_rates_samples_warnings_and_notes_are_found_in_coloured_output():
    found = parse_moongen_output(sample.output(631407502, 585731518, seconds=sample.second() * 2, samples=sample.SAMPLES))
    assert (found.sent, found.received, found.device, found.complete) == (631407502, 585731518, 0, True)
    assert list(found.counters[0].rates()) == [(19.49, 9979.0), (19.49, 9979.0)]
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


SHORT = sample.output(seconds=sample.second() * 2)


@given(st.integers(0, len(SHORT) - 2))
def test_output_that_was_cut_off_anywhere_is_not_complete(length):
    found = parse_moongen_output(SHORT[:length])
    assert not found.complete
    assert found.sent is None


@given(st.text())
def test_any_text_is_survived(text):
    assert not parse_moongen_output(text).complete


def test_bytes_are_understood_as_text_is_whatever_they_are():
    text = sample.output(7, 5, samples=sample.SAMPLES)
    assert parse_moongen_output(text.encode()) == parse_moongen_output(text)
    assert parse_moongen_output(b"\xff\xfe[WARN]  \xc3\x28\n" + text.encode()).sent == 7


def test_lines_that_two_tasks_wrote_into_each_other_count_only_where_they_are_whole():
    torn = "\x1b[1;36m[Device: id=0] RX" + sample.rate_line(0, "RX") + sample.total_line(0, "TX", 12)[:-30]
    found = parse_moongen_output(torn + sample.total_line(0, "TX", 99) + sample.total_line(0, "RX", 98))
    assert (found.sent, found.received, found.complete) == (99, 98, True)
    assert [(counter.direction, len(list(counter.rates()))) for counter in found.counters] == [("TX", 0), ("RX", 1)]


def test_a_device_that_only_prints_rates_leaves_the_output_incomplete():
    found = parse_moongen_output(sample.output() + sample.rate_line(3, "RX"))
    assert not found.complete and found.sent == 300_000
    assert (found.counters[-1].device, found.counters[-1].packets) == (3, None)


def test_how_long_was_sent_is_known_where_the_program_says_so():
    said = "[INFO]  Test frames: sent 20000 in 2.001 s, received 20000, 3 of them in a drain of 0.001 s\n"
    assert parse_moongen_output(sample.output() + said).seconds == 2.001
    assert parse_moongen_output(sample.output()).seconds is None


# -- guests ------------------------------------------------------------------------------------------------


def test_the_line_of_each_guest_is_understood():
    found = parse_moongen_output(sample.of_guests((100, 90), (50, 50), samples=7))
    assert [guest.number for guest in found.guests] == [1, 2]
    second = found.guests[1]
    assert (second.mac, second.sent, second.sent_bytes, second.received, second.received_bytes, second.samples) == (
        "52:54:00:fa:00:61", 50, 3200, 50, 3200, 7)  # fmt: skip
    assert (found.sent, found.received, found.sent_bytes, found.received_bytes) == (150, 140, 9600, 8960)
    assert parse_moongen_output(sample.output()).guests == ()


def test_the_promised_form_of_a_guests_line_is_understood():
    line = (
        "[INFO]  Guest 2 (52:54:00:fa:00:61): sent 12345 frames with 790080 bytes, received 12300 frames with 787200 bytes "
        "(incl. CRC), 100 latency samples"
    )
    (guest,) = parse_moongen_output(line).guests
    assert (guest.number, guest.sent, guest.sent_bytes, guest.received, guest.samples) == (2, 12345, 790080, 12300, 100)
    assert parse_moongen_output(line.replace("fa:00", "FA:00") + "\r\n").guests == (guest,)


@given(st.integers(0, len(sample.guest_line(12, 345, 340)) - 1))
def test_a_guests_line_that_was_cut_off_tells_nothing(length):
    line = sample.guest_line(12, 345, 340)
    found = parse_moongen_output(sample.guest_line(1, 5, 5) + line[:length]).guests
    whole = "latency samples" in line[:length]
    assert [guest.number for guest in found] == ([1, 12] if whole else [1])


@pytest.mark.parametrize(
    "spoiled",
    [
        "x[INFO]  Guest 1 (",
        "[WARN]  Guest 1 (",
        "[INFO]  Guest 0 (",
        "[INFO]  Guest 01 (",
        "[INFO]  Guest -1 (",
        "[INFO]  Guest 1 (x",
        "[INFO]\nGuest 1 (",
    ],
)
def test_what_only_looks_like_a_guests_line_is_none(spoiled):
    assert not parse_moongen_output(sample.guest_line(1, 5, 5).replace("[INFO]  Guest 1 (", spoiled)).guests


def test_lines_of_guests_come_in_the_order_of_their_numbers_and_the_last_of_each_counts():
    found = parse_moongen_output(sample.guest_line(10, 1, 1) + sample.guest_line(2, 1, 1) + sample.guest_line(10, 5, 4))
    assert [(guest.number, guest.sent) for guest in found.guests] == [(2, 1), (10, 5)]


# -- against a plain reader, line by line ------------------------------------------------------------------

COUNT = "[0-9]{1,19}"
NUMBER = r"[-+]?(?:[0-9]{1,30}(?:\.[0-9]{1,30})?|nan|inf)"
NAME = r"\[Device: id=(0|[1-9][0-9]{0,18})\] (RX|TX): "
RATE = re.compile(rf"{NAME}({NUMBER}) Mpps, ({NUMBER}) Mbit/s \({NUMBER} Mbit/s with framing\)")
TOTAL = re.compile(
    rf"{NAME}{NUMBER} \(StdDev {NUMBER}\) Mpps, {NUMBER} \(StdDev {NUMBER}\) Mbit/s \({NUMBER} Mbit/s with framing\), "
    rf"total ({COUNT}) packets with ({COUNT}) bytes \(incl\. CRC\)"
)
SAMPLES = re.compile(
    rf"Samples: ({COUNT}), Average: ({NUMBER}) ns, StdDev: ({NUMBER}) ns, Quartiles: ({NUMBER})/({NUMBER})/({NUMBER}) ns"
)
GUEST = re.compile(
    rf"\[INFO\] {{1,4}}Guest ([1-9][0-9]{{0,8}}) \((..:..:..:..:..:..)\): sent ({COUNT}) frames with ({COUNT}) bytes, "
    rf"received ({COUNT}) frames with ({COUNT}) bytes \(incl\. CRC\), ({COUNT}) latency samples"
)
LEVEL = re.compile(r"\[(INFO|WARN|ERROR|FATAL)\]\s+(.*)")


def plainly(text):
    """Rates, totals, samples and levels of an output, by one loop over its lines."""
    rates, totals, samples, guests = {}, {}, None, {}
    said = {"INFO": [], "WARN": [], "ERROR": [], "FATAL": []}
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").split("\n"):
        if match := GUEST.match(line):
            guests[int(match[1])] = [match[2], *map(int, match.groups()[2:])]
        if "[Device: id=" in line:
            for device, direction, mpps, mbit in RATE.findall(line):
                rates.setdefault((int(device), direction), []).append((float(mpps), float(mbit)))
            for device, direction, packets, size in TOTAL.findall(line):
                rates.setdefault((int(device), direction), [])
                totals[int(device), direction] = int(packets), int(size)
        elif match := SAMPLES.search(line):
            samples = match.groups()
        elif match := LEVEL.match(line):
            said[match[1]].append(match[2].strip())
    complete = {direction for _, direction in totals} == {"RX", "TX"} and totals.keys() == rates.keys()
    return rates, totals, samples, said, complete, guests


PIECES = (
    *sample.output(5, 4, seconds=sample.second(), samples=sample.SAMPLES).splitlines(keepends=True),
    sample.second(device=1), sample.second("0.00 0", "nan inf"), sample.total_line(1, "RX", 3, "nan"), sample.total_line(1, "TX", 3),
    sample.total_line(0, "TX", 10**18), "Samples: 0, Average: nan ns, StdDev: -nan ns, Quartiles: nan/nan/nan ns\n",
    "[FATAL] Lua error in task t\r\n", "\x1b[31m[ERROR]\x1b[0m  no\n", "[INFO]\r\n", "[WARN] \n", "x[WARN]  y", "[INFO]  ", "\n", "\r", ", total ",
    "[Device: id=0] RX", "[Device: id=00] TX: ", "Samples: ", "\x1b[", sample.guest_line(1, 5, 4), sample.guest_line(2, 9, 9), "Guest ", "0m", "\u2028",
)  # fmt: skip


@settings(max_examples=examples(400))
@given(
    st.lists(
        st.one_of(
            st.sampled_from(PIECES), st.sampled_from(PIECES).map(lambda piece: piece[: len(piece) // 2]), st.text(max_size=5)
        )
    )
)
def test_searching_the_whole_text_finds_what_a_loop_over_its_lines_finds(pieces):
    text = "".join(pieces)
    found = parse_moongen_output(text)
    rates, totals, samples, said, complete, guests = plainly(text)
    by_name = {(counter.device, counter.direction): counter for counter in found.counters}
    assert by_name.keys() == rates.keys()
    for name, counter in by_name.items():
        assert repr(list(counter.rates())) == repr(rates[name])
        assert (counter.packets, counter.bytes) == totals.get(name, (None, None))
    seen = found.samples and [found.samples.count, found.samples.average_ns, found.samples.std_ns, *found.samples.quartiles_ns]
    assert repr(seen) == repr(samples and [int(samples[0]), *map(float, samples[1:])])
    assert [(g.number, [g.mac, g.sent, g.sent_bytes, g.received, g.received_bytes, g.samples]) for g in found.guests] == sorted(
        guests.items()
    )
    assert (found.notes, found.warnings) == (tuple(said["INFO"]), tuple(said["WARN"]))
    assert (found.errors, found.complete) == (tuple(said["ERROR"] + said["FATAL"]), complete)
