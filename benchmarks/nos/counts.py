"""Counts as people write them in nos' files: whole numbers, sometimes as text, by slice.

Takes raw values of JSON or YAML, returns integers and counts by resource name; anything else is a ValueError that names
what was found where. Slices may go by their bare name (1g.5gb, 10gb) or as resources (mig-1g.5gb, nvidia.com/gpu-10gb).
"""

from collections.abc import Mapping

from partitioning.resources import mps_gb_of_resource, profile_of_resource

DOMAIN = "nvidia.com/"


def whole_number(value: object, of: str) -> int:
    """7, "7" and 7.0 are seven."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{of} is {value!r}, a whole number is needed")
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{of} is {value!r}, a whole number is needed") from None
    if number != int(number):
        raise ValueError(f"{of} is {value!r}, a whole number is needed")
    return int(number)


def counts_of(raw: object, of: str) -> dict[str, int]:
    """Counts by slice; nothing at all where there is nothing."""
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise ValueError(f"{of} is {raw!r}, counts by slice are needed")
    return {slice_name(str(name)): whole_number(count, f"{of}: {name}") for name, count in raw.items()}


def slice_name(name: str) -> str:
    """The bare name of a slice, however it is given."""
    resource = name if name.startswith(DOMAIN) else DOMAIN + name
    profile = profile_of_resource(resource)
    if profile is not None:
        return profile
    gigabytes = mps_gb_of_resource(resource)
    return name if gigabytes is None else f"{gigabytes}gb"
