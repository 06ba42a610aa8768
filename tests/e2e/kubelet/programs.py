"""What a real kubelet needs to run: values that the fixtures hand on."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KubeletPrograms:
    """Paths of the kubelet, of the control plane's version, and of the scripted runtime."""

    kubelet: Path
    runtime: Path
