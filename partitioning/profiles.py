"""Reads MIG profile names such as `1g.10gb` or `1g.24gb+me.all`, as NVIDIA writes them.

Takes the text of a profile, returns its meaning: compute slices, the memory figure of the name (GB as NVIDIA prints it,
not an exact size) and the attributes. Also decides which two profiles never share one GPU because of its media engines.
NVML states that rule by kind only (`nvml.h`, the comments on the *_REV1 and *_ALL_ME profiles), so it is read from the
names, on unknown models too. Never decides whether a GPU has a profile; see `models`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_FORM = re.compile(
    r"(?P<compute>[1-9]\d*)g\.(?P<memory>[1-9]\d*)gb(?P<attributes>(?:[+-][a-z]+(?:\.[a-z]+)*)*)", re.ASCII
)
_ATTRIBUTE = re.compile(r"[+-][a-z]+(?:\.[a-z]+)*")
_COMPUTE_INSTANCE = re.compile(r"\d+c\.(?P<profile>\d+g\..+)", re.ASCII)


class ProfileError(ValueError):
    """The text is not the name of a MIG profile."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MigProfile:
    """One profile name, taken apart. Attributes keep their sign: `+me`, `-me`, `+gfx`, `+me.all`."""

    compute_slices: int
    memory_gb: int
    attributes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "MigProfile":
        found = _FORM.fullmatch(text)
        if found is None:
            raise ProfileError(_wrong_form(text))
        return cls(
            compute_slices=int(found["compute"]),
            memory_gb=int(found["memory"]),
            attributes=tuple(_ATTRIBUTE.findall(found["attributes"])),
        )

    def __str__(self) -> str:
        return f"{self.compute_slices}g.{self.memory_gb}gb{''.join(self.attributes)}"

    @property
    def takes_media(self) -> bool:
        """It owns the media engines of which a GPU has one set: `+me` or `+me.all`."""
        return any(attribute in ("+me", "+me.all") for attribute in self.attributes)

    def excludes(self, other: "MigProfile") -> bool:
        """True when the two can never share one GPU, wherever they are placed."""
        if self.takes_media and other.takes_media:
            return True
        return (self._takes_all_media and not other._without_media) or (
            other._takes_all_media and not self._without_media
        )

    @property
    def _takes_all_media(self) -> bool:
        return "+me.all" in self.attributes

    @property
    def _without_media(self) -> bool:
        return "-me" in self.attributes


@lru_cache(maxsize=4096)
def never_together(one: str, other: str) -> bool:
    """`MigProfile.excludes` for names; a name that is no MIG profile excludes nothing."""
    try:
        return MigProfile.parse(one).excludes(MigProfile.parse(other))
    except ProfileError:
        return False


def _wrong_form(text: str) -> str:
    right = "write <compute slices>g.<memory>gb with optional attributes, like 1g.10gb, 1g.10gb+me or 1g.24gb-me"
    compute_instance = _COMPUTE_INSTANCE.fullmatch(text)
    if compute_instance is not None:
        return (
            f"{text!r} names a compute instance, and a plan holds whole GPU instances: "
            f"write {compute_instance['profile']!r}"
        )
    lowered = text.strip().lower()
    if lowered != text and _FORM.fullmatch(lowered):
        return f"{text!r} is not a MIG profile: write {lowered!r}, in lower case and without spaces"
    return f"{text!r} is not a MIG profile: {right}"
