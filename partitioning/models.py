"""Knows the GPU models: what NVIDIA's cards can be partitioned into, and how to find the model of a node.

Takes a node's `nvidia.com/gpu.product` label, an NVML name, or NVML's own report; returns a `GpuModel`. The built-in
facts are in `catalogue.json`, with their sources. On a real node NVML is the authority (`model_from_report`): names,
memory and instance counts change with the driver. A model that is not `confirmed` must not be planned with.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from partitioning.profiles import never_together

UNKNOWN_ID = -1
"""`profile_id` of a profile whose NVML id is not published."""

Geometry = tuple[tuple[str, int], ...]
"""Instances per profile of one GPU, sorted by name."""

_SHARED_SUFFIX = "-SHARED"
_MIG_SUFFIX = re.compile(r"-MIG-.+$")
_OLDEST_WITH_MIG = (8, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSpec:
    """One MIG profile of one model. `size` and `starts` count memory slices (the model's `slots`)."""

    name: str
    profile_id: int
    """NVML's `nvmlGpuInstanceProfileInfo.id`, as nvidia-smi shows it; UNKNOWN_ID where not published."""
    nvml_index: int
    """The NVML_GPU_INSTANCE_PROFILE_* constant."""
    compute_slices: int
    size: int
    """Memory slices that an instance covers; 0 where not published."""
    memory_mib: int | None
    sm_count: int | None
    max_instances: int
    starts: tuple[int, ...]
    aliases: tuple[str, ...] = ()
    """Names of the same profile under other driver versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One GPU model. Without profiles it has no MIG, and can be shared by MPS only."""

    key: str
    names: tuple[str, ...]
    """NVML device names; the first gives the canonical product label."""
    architecture: str
    compute_capability: tuple[int, int]
    """(0, 0) where unknown."""
    memory_mib: int
    """Total memory as NVML reports it. Where nothing is published, the least that the profile names allow."""
    slots: int
    """Width of the placement axis: memory slices, 12 units on RTX PRO 6000; 0 without placements."""
    compute_slices: int
    profiles: tuple[ProfileSpec, ...]
    exclusive: tuple[frozenset[str], ...]
    """At most one instance of each group exists on a GPU: the profiles that own its media engines."""
    confirmed: bool
    """The placements were seen on hardware, or follow a family that was."""
    geometries: tuple[Geometry, ...] | None = None
    """Where given, only layouts that are one of these or a part of one may be made; None: whatever is possible."""

    def __hash__(self) -> int:
        # Tables are cached per model; hashing every profile at each lookup would cost more than the lookup.
        return hash((self.key, self.names, self.memory_mib))

    @property
    def mig_capable(self) -> bool:
        return bool(self.profiles)

    @property
    def product(self) -> str:
        """The value of the node label `nvidia.com/gpu.product` that GPU feature discovery writes for this model."""
        return self.names[0].replace(" ", "-")

    def profile(self, name: str) -> ProfileSpec | None:
        for spec in self.profiles:
            if spec.name == name:
                return spec
        return next((spec for spec in self.profiles if name in spec.aliases), None)

    def excludes(self, one: str, other: str) -> bool:
        """True when instances of these two profiles can never share one GPU, wherever they are placed."""
        return any(one in group and other in group for group in self.exclusive) or never_together(one, other)


def known_models() -> tuple[GpuModel, ...]:
    """Every catalogued model, those with MIG first."""
    return tuple(model for model, _ in _catalogue())


def known_products() -> tuple[str, ...]:
    """One product label per catalogued model, for error messages."""
    return tuple(model.product for model in known_models())


def model_for_product(label: str) -> GpuModel | None:
    """The model of a `nvidia.com/gpu.product` label, whose suffixes -SHARED and -MIG-<profile> are cut."""
    plain = _MIG_SUFFIX.sub("", label.removesuffix(_SHARED_SUFFIX))
    for model, products in _catalogue():
        if any(pattern.fullmatch(plain) for pattern in products):
            return model
    return None


def model_for_name(nvml_name: str) -> GpuModel | None:
    """The model of an NVML device name, such as `NVIDIA H100 80GB HBM3`."""
    return next((model for model in known_models() if nvml_name in model.names), None)


def model_from_report(
    name: str,
    memory_mib: int,
    profiles: Iterable[ProfileSpec],
    compute_capability: tuple[int, int] | None = None,
) -> GpuModel:
    """The model as one node's NVML reported it; the catalogue adds what NVML does not report.

    `name` is an NVML device name or a product label (spaces written as dashes).
    """
    return _reported(
        name, memory_mib, tuple(sorted(profiles, key=lambda spec: (spec.nvml_index, spec.name))), compute_capability
    )


@lru_cache(maxsize=1024)
def _reported(
    name: str, memory_mib: int, specs: tuple[ProfileSpec, ...], compute_capability: tuple[int, int] | None
) -> GpuModel:
    # Equal reports of a thousand nodes become one object, which the tables then find by identity.
    catalogued = model_for_name(name) or model_for_product(name.replace(" ", "-"))
    capability = compute_capability or (catalogued.compute_capability if catalogued else None)
    media = frozenset(spec.name for spec in specs if never_together(spec.name, spec.name))
    return GpuModel(
        key=catalogued.key if catalogued else name,
        names=(name,),
        architecture=catalogued.architecture if catalogued else "unknown",
        compute_capability=capability or (_OLDEST_WITH_MIG if specs else (0, 0)),
        memory_mib=memory_mib,
        slots=max((start + spec.size for spec in specs for start in spec.starts), default=0),
        compute_slices=max((spec.compute_slices for spec in specs), default=0),
        profiles=tuple(_with_catalogued_names(spec, catalogued) for spec in specs),
        exclusive=(media,) if media else (),
        confirmed=all(spec.starts for spec in specs),
    )


def _with_catalogued_names(spec: ProfileSpec, catalogued: GpuModel | None) -> ProfileSpec:
    """Driver versions name one profile differently; a plan written with the other name must still be understood."""
    if catalogued is None:
        return spec
    names = set(spec.aliases)
    for twin in catalogued.profiles:
        if twin.nvml_index == spec.nvml_index and twin.size == spec.size:
            names.update((twin.name, *twin.aliases))
    return replace(spec, starts=tuple(sorted(spec.starts)), aliases=tuple(sorted(names - {spec.name})))


@lru_cache(maxsize=1)
def _catalogue() -> tuple[tuple[GpuModel, tuple[re.Pattern[str], ...]], ...]:
    text = resources.files("partitioning").joinpath("catalogue.json").read_text(encoding="utf-8")
    facts: Mapping[str, Any] = json.loads(text)
    entries = [*facts["mig_models"], *facts["models_without_mig"]]
    return tuple((_model(entry), tuple(re.compile(text) for text in entry["products"])) for entry in entries)


def _model(entry: Mapping[str, Any]) -> GpuModel:
    major, minor = entry["compute_capability"]
    return GpuModel(
        key=entry["key"],
        names=tuple(entry["names"]),
        architecture=entry["architecture"],
        compute_capability=(major, minor),
        # Names are built from the total rounded up to GiB, so more than one GiB less is there.
        memory_mib=entry["memory_mib"] or (entry["name_memory_gib"] - 1) * 1024 + 1,
        slots=entry.get("slots") or 0,
        compute_slices=entry.get("compute_slices", 0),
        profiles=tuple(_profile(row) for row in entry.get("profiles", ())),
        exclusive=tuple(frozenset(group) for group in entry.get("exclusive", ())),
        confirmed=entry.get("placements", "high") in ("high", "medium"),
    )


def _profile(row: Mapping[str, Any]) -> ProfileSpec:
    return ProfileSpec(
        name=row["name"],
        profile_id=UNKNOWN_ID if row["id"] is None else row["id"],
        nvml_index=row["nvml"],
        compute_slices=row["compute"],
        size=row["size"] or 0,
        memory_mib=row["memory"],
        sm_count=row["sm"],
        max_instances=row["max"],
        starts=tuple(row["starts"]),
        aliases=tuple(row.get("aliases", ())),
    )
