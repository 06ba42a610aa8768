"""The number of examples of a property test, scaled by the chosen hypothesis profile."""

from hypothesis import settings

FULL = 100
LEAST = 5


def examples(thorough: int) -> int:
    """So many where 100 are drawn by default, else as much fewer as the profile draws."""
    profile = settings.default
    assert profile is not None, "tests/conftest.py loads a profile"
    return max(LEAST, thorough * profile.max_examples // FULL)
