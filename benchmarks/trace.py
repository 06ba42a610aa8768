"""Manifests from a real trace: `python -m benchmarks.trace FILE.csv --rows 300 --nodes 10 > cluster.yaml`.

Reads a pod list of Alibaba's cluster-trace-gpu-v2023 (Weng et al., USENIX ATC 2023) and prints nodes of 8 H100-80GB
and the first rows that request one GPU or a fraction of one, as manifests for `gpuplan sandbox run -f`. A
share of a GPU is read as a share of a 24 GB card: up to 10 GB is 1g.10gb, up to 20 GB 2g.20gb, else 3g.40gb.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

CARD_GB = 24.0
PROFILES = ((10.0, "1g.10gb"), (20.0, "2g.20gb"), (40.0, "3g.40gb"))
NODE_LABELS = {
    "gpuplan.dev/gpu-partitioning": "mig",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
}


def profile_of(gpu_milli: int) -> str:
    """The MIG profile for thousandths of a 24 GB card."""
    gigabytes = CARD_GB * gpu_milli / 1000
    return next(profile for most, profile in PROFILES if gigabytes <= most)


def pods(path: Path, rows: int) -> Iterator[dict[str, Any]]:
    """The first `rows` pods that request one GPU or a fraction of one."""
    with path.open(newline="") as file:
        single = (row for row in csv.DictReader(file) if row["num_gpu"] == "1")
        for row in islice(single, rows):
            resources = {
                "cpu": f"{row['cpu_milli']}m",
                "memory": f"{row['memory_mib']}Mi",
                f"nvidia.com/mig-{profile_of(int(row['gpu_milli']))}": 1,
            }
            container = {
                "name": "main",
                "image": "busybox",
                "command": ["sleep", "infinity"],
                "resources": {"limits": resources, "requests": resources},
            }
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": row["name"]},
                "spec": {"containers": [container]},
            }


def nodes(count: int) -> Iterator[dict[str, Any]]:
    """Nodes of the usual H100 server's size."""
    size = {"cpu": "192", "memory": "2Ti", "pods": "110"}
    for number in range(count):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"h100-{number:02}", "labels": NODE_LABELS},
            "status": {"capacity": size, "allocatable": size},
        }


def main() -> None:
    """Print the manifests."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trace", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=10)
    arguments = parser.parse_args()
    documents = [*nodes(arguments.nodes), *pods(arguments.file, arguments.rows)]
    yaml.safe_dump_all(documents, sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()
