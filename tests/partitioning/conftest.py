"""Property tests have no deadline per example: the first one builds tables, and CI machines stall."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
