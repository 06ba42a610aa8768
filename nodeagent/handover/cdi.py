"""How agent and device plugin name a device to the container runtime, by the Container Device Interface (CDI).

The agent writes one specification file, the plugin answers Allocate with names of it, and the container runtime reads
it when it creates a container: a name that no file has keeps the container from starting. So the plugin lists a device
as healthy only while the file names it. Takes a directory or an id, returns names; writes nothing.
"""

import json
from pathlib import Path

from crds.v1alpha1.names import GROUP
from nodeagent.handover.files import Unreadable

KIND = f"{GROUP}/gpu"
"""Our own: NVIDIA's kinds are rewritten by its toolkit and its device plugin at any time."""
FILE_NAME = f"{GROUP}-gpu.json"
DEFAULT_DIRECTORY = Path("/var/run/cdi")
"""Where container runtimes look for generated files; it is empty after a boot."""


def qualified_name(device_id: str) -> str:
    return f"{KIND}={device_id}"


def named_devices(directory: Path) -> frozenset[str] | Unreadable:
    """Ids of the devices that our file names; none where there is no file."""
    path = directory / FILE_NAME
    try:
        return frozenset(str(device["name"]) for device in json.loads(path.read_bytes())["devices"])
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Unreadable(path=path, reason=f"not a CDI specification: {error!r}")
