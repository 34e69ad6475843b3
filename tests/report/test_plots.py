import example
import pytest

from autotest.report.cases import load_cases
from autotest.report.plots import label, plot_load_latency, tidy
from autotest.results.names import LoadLatencyCase


def test_both_plots_are_written_as_png_and_pdf_and_nothing_else(tmp_path):
    example.fill(tmp_path)
    before = set(tmp_path.iterdir())
    written = plot_load_latency(tmp_path)
    assert [path.name for path in written] == ["load_latency.png", "load_latency.pdf", "packet_loss.png", "packet_loss.pdf"]
    assert set(tmp_path.iterdir()) - before == set(written)
    assert all(path.read_bytes()[:4] in (b"\x89PNG", b"%PDF") for path in written)
    first = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in plot_load_latency(tmp_path)] == first


def test_tidy_data_has_a_row_per_case_with_figures_and_marks_under_sent(tmp_path):
    example.fill(tmp_path)
    frame = tidy(load_cases(tmp_path))
    assert len(frame) == 6
    row = frame[(frame.offered_kpps == 40) & frame.setup.str.contains("macvtap")].iloc[0]
    assert row.under_sent and row.achieved_kpps == pytest.approx(30)
    assert row.p50_us == pytest.approx(100.499)


def test_many_series_and_a_single_point_can_be_drawn(tmp_path):
    for index in range(20):
        example.add(tmp_path, {**example.BRIDGE, "qemu": f"build-{index}"}, 10, 0)
    assert len(plot_load_latency(tmp_path)) == 4


def test_nothing_is_drawn_without_figures(tmp_path):
    example.add(tmp_path, example.HOST, 10, 0, disturbed="x")
    assert plot_load_latency(tmp_path) == []


def test_a_label_names_what_differs():
    setup = LoadLatencyCase(rate=0, **example.BRIDGE)
    assert label(setup, ["interface", "vhost", "size"]) == "bridge, vhost on, 60 B"
    assert label(LoadLatencyCase(rate=0, **example.HOST), ["interface", "vhost"]) == "pnic"
