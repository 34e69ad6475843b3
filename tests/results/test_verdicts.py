"""What a verdict allows, and the tolerances it depends on."""

from dataclasses import FrozenInstanceError, fields

import pytest

from autotest.results.verdicts import DEFAULT_TOLERANCES, TOLERANCE_PREFIX, Tolerances, Verdict

#: Of each verdict: the word in a trial's record, whether measuring again brings nothing new, and whether it may be merged.
ALLOWED = {
    Verdict.VALID: ("valid", True, True),
    Verdict.UNDER_SENT: ("under-sent", True, False),
    Verdict.TOO_FEW_SAMPLES: ("too-few-samples", False, False),
    Verdict.COUNTER_MISMATCH: ("counter-mismatch", False, False),
    Verdict.NO_REFLECTION: ("no-reflection", False, False),
    Verdict.DISTURBED: ("disturbed", False, False),
    Verdict.MISSING_GUESTS: ("missing-guests", False, False),
    Verdict.INCOMPLETE: ("incomplete", False, False),
}


@pytest.mark.parametrize(("verdict", "word", "is_done", "is_mergeable"), [(key, *value) for key, value in ALLOWED.items()])
def test_each_verdict_has_its_word_and_says_whether_it_is_done_and_whether_it_is_merged(verdict, word, is_done, is_mergeable):
    assert (verdict.value, str(verdict), Verdict(word)) == (word, word, verdict)
    assert verdict.is_done is is_done
    assert verdict.is_mergeable is is_mergeable


def test_there_are_no_other_verdicts_and_their_order_is_kept():
    assert list(Verdict) == list(ALLOWED)
    with pytest.raises(ValueError, match="'good' is not a valid Verdict"):
        Verdict("good")


def test_the_default_tolerances_are_the_ones_that_users_were_told():
    assert {field.name: getattr(DEFAULT_TOLERANCES, field.name) for field in fields(Tolerances)} == {
        "under_sent": 0.01,
        "over_sent": 0.1,
        "stopped_early": 0.02,
        "dropout_seconds": 0,
        "min_samples": 100,
        "in_flight_frames": 64,
        "in_flight_share": 0.00001,
        "no_reflection": 0.01,
    }


@pytest.mark.parametrize("name", [field.name for field in fields(Tolerances)])
def test_each_tolerance_is_read_from_its_own_setting_and_the_others_stay(name):
    found = Tolerances.of({f"tolerance_{name}": 7, name: 8, "tolerance_other": 9})
    assert {field.name: getattr(found, field.name) for field in fields(Tolerances)} == {
        **{field.name: getattr(DEFAULT_TOLERANCES, field.name) for field in fields(Tolerances)},
        name: 7,
    }


def test_a_tolerance_of_zero_that_is_stated_is_not_taken_for_one_that_is_not():
    assert Tolerances.of({TOLERANCE_PREFIX + "min_samples": 0, TOLERANCE_PREFIX + "over_sent": 0.0}) == Tolerances(
        min_samples=0, over_sent=0.0
    )


def test_tolerances_can_be_shared_because_nothing_changes_them():
    with pytest.raises(FrozenInstanceError):
        DEFAULT_TOLERANCES.min_samples = 1
    assert hash(Tolerances()) == hash(DEFAULT_TOLERANCES) and DEFAULT_TOLERANCES.min_samples == 100
