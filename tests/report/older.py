"""Output directories as the older tool left them: output and histogram, no JSON."""

from __future__ import annotations

from pathlib import Path

import sample_output as sample

from autotest.results.names import LoadLatencyCase, TrialName

SET_UP = {"machine": "pcvm", "interface": "bridge", "reflector": "xdp", "size": 60, "runtime": 30}
SET_UP |= {"qemu": "normal", "vhost": True, "ioregionfd": False}


def name(rate: int = 10, repetition: int = 0, **set_up: object) -> TrialName:
    return TrialName(LoadLatencyCase(**{"rate": rate, **SET_UP, **set_up}).infix, repetition)


def write(directory: Path, trial: TrialName, *, rate: int = 10, first_ns: int = 10_000, samples: int = 200) -> TrialName:
    """A whole trial of 30 s without loss: so many latency samples, one ns apart."""
    histogram = sample.histogram(samples, first_ns)
    directory.mkdir(exist_ok=True)
    (directory / trial.output).write_text(sample.output(rate * 30_000, rate * 30_000, samples=sample.samples_line(histogram)))
    (directory / trial.histogram).write_text(histogram)
    return trial
