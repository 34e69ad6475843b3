"""How many examples a property is tried with: few where speed counts, many in the largest tier."""

from hypothesis import settings

FEW = "few"
"""The profile of the fast and the default tier; the largest one has ``--hypothesis-profile=many``."""
_SHARE, _LEAST = 10, 5


def examples(many: int) -> int:
    """Return the number of examples for a test that takes ``many`` in the largest tier: a tenth of them elsewhere."""
    return many if settings.get_current_profile_name() != FEW else max(_LEAST, min(many, many // _SHARE))


def is_few() -> bool:
    """Return whether a test is to try a part of its cases."""
    return settings.get_current_profile_name() == FEW
