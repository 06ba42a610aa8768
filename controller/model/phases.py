"""Phases of a pod that the controller compares with."""

from typing import Final

FINISHED: Final = ("Succeeded", "Failed")
"""The pod holds nothing any more, and never will again."""
