"""Reads job traces and the size of the cluster; a bad one is refused with a sentence that names line and field.

A trace is CSV with the columns name, arrival_ms, profile and duration_ms, and perhaps priority; other columns are
ignored. A profile is that of a MIG instance (1g.10gb), or the memory of an MPS slice (10gb); a job whose profile the
GPUs lack just waits. A pod list of Alibaba's cluster-trace-gpu-v2023, known by its columns, is read too: of it the pods
of one GPU, with the profiles that `benchmarks.trace` reads from their shares.
"""

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.trace import profile_of
from crds.v1alpha1.names import Partitioning
from partitioning.models import GpuModel, known_models, model_for_product
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB, shareable_mib

COLUMNS = ("name", "arrival_ms", "profile", "duration_ms")
ALIBABA = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
DEFAULT_MODEL = "H100-80GB"
_PROFILE = re.compile(r"(?:MIG )?([1-9]\d*g\.[1-9]\d*gb(?:[+-][a-z.]+)*|[1-9]\d*gb)")
_LONGEST_MS = 100 * 366 * 86_400_000


class TraceError(ValueError):
    """The text is one sentence for the person who gave the file or the argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A pod that requests one partition and ends by itself."""

    name: str
    arrival: float
    """Seconds."""
    profile: str
    duration: float
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The cluster: all of its GPUs are alike."""

    nodes: int = 4
    gpus: int = 4
    model: GpuModel
    shared: bool = False
    """By MPS; else divided by MIG."""

    @property
    def gigabytes(self) -> int:
        """What MPS slices of one GPU can have together."""
        return shareable_mib(self.model.memory_mib) * BYTES_PER_MIB // BYTES_PER_GB

    @property
    def capacity(self) -> int:
        """Of all GPUs together, in what `weights` count."""
        return self.nodes * self.gpus * (self.gigabytes if self.shared else self.model.compute_slices)

    @property
    def weights(self) -> Mapping[str, int]:
        """Compute slices by profile, or GB of each slice that fits."""
        if self.shared:
            return {f"{number}gb": number for number in range(1, self.gigabytes + 1)}
        return {spec.name: spec.compute_slices for spec in self.model.profiles}

    @property
    def profiles(self) -> Mapping[int, str]:
        """By sevenths of a GPU the plain profile with least memory; of slices, those with as much memory."""
        found: dict[int, str] = {}
        # Slices of a GPU without MIG are such parts of it as those of an H100.
        like = self.model if self.model.mig_capable else next(one for one in known_models() if one.key == DEFAULT_MODEL)
        for spec in sorted((one for one in like.profiles if "+" not in one.name), key=lambda one: -one.size):
            memory = f"{spec.size * self.gigabytes // like.slots}gb"
            found[spec.compute_slices] = memory if self.shared else spec.name
        return found


def read_jobs(path: Path) -> list[Job]:
    """In order of arrival; raises TraceError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = reader.fieldnames or ()
            jobs = list((_alibaba if set(ALIBABA) <= set(columns) else _plain)(reader, columns, path))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: is no CSV file in UTF-8: {error}") from error
    if not jobs:
        raise TraceError(f"{path}: has no jobs: give at least one line below {','.join(COLUMNS)}")
    return sorted(jobs, key=lambda job: (job.arrival, job.name))


def read_size(text: str) -> Size:
    """From `nodes=4,gpus=4,model=H100-80GB,partitioning=mig`; what is left out is that."""
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key not in ("nodes", "gpus", "model", "partitioning") or not value or key in given:
            raise TraceError(f"--cluster: {part!r} is not understood: write nodes=4,gpus=4,model=H100-80GB")
        given[key] = value
    name = given.get("model", DEFAULT_MODEL)
    model = next((one for one in known_models() if one.key == name), None) or model_for_product(name)
    partitioning = given.get("partitioning", Partitioning.MIG)
    if partitioning not in (Partitioning.MIG, Partitioning.MPS):
        raise TraceError(f"--cluster: partitioning is {partitioning!r}: give mig or mps")
    shared = partitioning == Partitioning.MPS
    if model is None or not (model.mig_capable or shared):
        names = ", ".join(one.key for one in known_models() if one.mig_capable or shared)
        why = "unknown" if shared else "unknown or has no MIG"
        raise TraceError(f"--cluster: model {name!r} is {why}: give one of {names}")
    return Size(nodes=_count(given, "nodes"), gpus=_count(given, "gpus"), model=model, shared=shared)


def _count(given: Mapping[str, str], key: str) -> int:
    value = given.get(key, "4")
    if not re.fullmatch(r"[1-9]\d{0,3}", value):
        raise TraceError(f"--cluster: {key} is {value!r}: give a whole number from 1 to 9999")
    return int(value)


def _plain(rows: "csv.DictReader[str]", columns: Sequence[str], path: Path) -> Iterable[Job]:
    for column in COLUMNS:
        if column not in columns:
            raise TraceError(f"{path}: line 1: column {column} is missing: the first line is {','.join(COLUMNS)}")
    lines: dict[str, int] = {}
    for row in rows:
        line = _Line(path, rows.line_num, row)
        name, profile = line.text("name"), _PROFILE.fullmatch(line.text("profile"))
        if name in lines:
            line.refuse("name", f"is on line {lines[name]}, too: each job needs a name of its own")
        lines[name] = rows.line_num
        if profile is None:
            line.refuse("profile", "is no MIG profile: write 1g.10gb, as nvidia-smi prints it, or 10gb for a slice")
        yield Job(
            name=name,
            arrival=line.milliseconds("arrival_ms") / 1000,
            profile=profile[1],
            duration=line.milliseconds("duration_ms") / 1000,
            priority=line.priority(),
        )


def _alibaba(rows: "csv.DictReader[str]", _: Sequence[str], path: Path) -> Iterable[Job]:
    for row in rows:
        line = _Line(path, rows.line_num, row)
        if line.text("num_gpu") != "1":
            continue
        began, ended = (line.milliseconds(column) for column in ("creation_time", "deletion_time"))
        if ended < began:
            line.refuse("deletion_time", "is before creation_time")
        profile = profile_of(int(line.milliseconds("gpu_milli")))
        yield Job(name=line.text("name"), arrival=began, profile=profile, duration=ended - began)


class _Line:
    """One line of a file, to read fields from."""

    def __init__(self, path: Path, number: int, row: Mapping[str, str | None]) -> None:
        self._path, self._number, self._row = path, number, row
        if None in row:
            raise TraceError(f"{path}: line {number}: has more fields than the first line has columns")

    def refuse(self, field: str, why: str) -> NoReturn:
        raise TraceError(f"{self._path}: line {self._number}: {field} {(self._row.get(field) or '')!r} {why}")

    def text(self, field: str) -> str:
        value = (self._row.get(field) or "").strip()
        if not value:
            self.refuse(field, "is empty: each line needs it")
        return value

    def milliseconds(self, field: str) -> float:
        """A number of the file's unit; never negative, infinite or beyond a century."""
        text = self.text(field)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= _LONGEST_MS:
            self.refuse(field, f"is no number from 0 to {_LONGEST_MS}")
        return value

    def priority(self) -> int:
        value = (self._row.get("priority") or "0").strip() or "0"
        if not re.fullmatch(r"[+-]?\d{1,10}", value) or abs(int(value)) > 2_000_001_000:
            self.refuse("priority", "is no whole number that Kubernetes takes as a priority")
        return int(value)
