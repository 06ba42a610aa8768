"""Records what this revision's agent and device plugin write, and how they read it: `python -m tests.skew.record`.

For a release, whose state is what later versions are held to. Leaves the plans and their schema as they are.
"""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from nodeagent.handover import config
from nodeagent.observed import memory
from nodeagent.steps import journal
from partitioning.layouts import Instance
from tests.nodeagent.conftest import cut, plain
from tests.nodeagent.items import mig, mps
from tests.nodeagent.world import World

EARLIER = Path(__file__).parent / "earlier"
INTERRUPTED = journal.Intent(
    action=journal.Action.DESTROY,
    placed=Instance(start=4, size=4, profile="3g.40gb"),
    spec_version=("0d1e5f0a-5b7e-4c55-9c52-0a4a8f0c3d11", 3),
)
READERS: dict[str, TypeAdapter[Any]] = {
    "config": config._CONFIG,
    "loaded": config._LOADED,
    "ledger": config._LEDGER,
    "holdings": memory.MEMORY,
    "journal": journal._FILE,
}


def record(path: Path, world: World, *resources: str) -> None:
    """Each resource has a pod."""
    world.settle()
    for resource in resources:
        world.pod(resource)
    world.settle()
    files = world.state.plugin
    for file in (files.config, files.loaded, files.ledger, world.state.holdings):
        shutil.copy(file, path)


def main() -> None:
    with TemporaryDirectory() as folder:
        for name, gpus in (("h100", [cut(("3g.40gb", 0))]), ("mps", [plain(), plain()])):
            place = Path(folder) / name
            place.mkdir()
            world = World(place, gpus)
            if name == "h100":
                world.apply(mig(0, ("3g.40gb", 0)))
                record(EARLIER / name, world, "nvidia.com/mig-3g.40gb")
                journal.Journal(world.state.journal).begin(world.gpu().uuid, INTERRUPTED)
                shutil.copy(next(world.state.journal.iterdir()), EARLIER / name / "journal/journal.json")
            else:
                world.apply(mps(0, 10))
                record(EARLIER / name, world, "nvidia.com/gpu-10gb", "nvidia.com/gpu")
            world.undo()
    path = EARLIER / "readers.json"
    schemas = {name: kind.json_schema() for name, kind in READERS.items()}
    schemas["plan"] = json.loads(path.read_text())["plan"]
    path.write_text(json.dumps(schemas, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
