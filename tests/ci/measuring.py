"""Stands for ``autotest test-load-lat-file``: writes what of six repetitions is not there into tonight's folder.

MEASURED_US is their median, MEASURED_SENT the share of frames that was sent, MEASURED_TRIALS how many there are in all,
MEASURED_RATES at which rates, MEASURED_CODE the exit code, MEASURED_SAYS is printed.
MEASURED_SECONDS is how long it takes; with MEASURED_HANGS it cannot be interrupted.
"""

import os
import signal
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "report"), str(TESTS / "results")]

import example  # noqa: E402

#: Of what was asked for so much is sent.
SENT = float(os.environ.get("MEASURED_SENT", "1"))


def measure(results: Path) -> int:
    print(os.environ.get("MEASURED_SAYS", "measuring"), flush=True)
    if "MEASURED_HANGS" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(float(os.environ.get("MEASURED_SECONDS", "0")))
    results.mkdir(exist_ok=True)
    base = round(float(os.environ.get("MEASURED_US", "100")) * 1000)
    for rate in map(int, os.environ.get("MEASURED_RATES", "10").split()):
        for repetition in range(int(os.environ.get("MEASURED_TRIALS", "6"))):
            if not list(results.glob(f"trial_*_{rate}kpps_*_rep{repetition}.json")):
                trials = len(list(Path("nightly/nights").rglob("trial_*.json")))
                latency = base + trials * 397 % 997  # no two trials print the same, or they would be taken for copies
                example.add(results, example.BRIDGE, rate, repetition, latency_ns=latency, sent_kpps=SENT * rate)
    return int(os.environ.get("MEASURED_CODE", "0"))


if __name__ == "__main__":
    sys.exit(measure(Path("nightly/tonight/results")))
