"""How thoroughly property tests draw: `quick` in the inner loop, `thorough` in CI.

pytest's option --hypothesis-profile chooses. No deadline per example: the machine may be busy.
"""

from hypothesis import settings

settings.register_profile("quick", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("quick")
