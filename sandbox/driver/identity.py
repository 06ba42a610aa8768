"""UUIDs of GPUs and MIG devices, with the one property of NVIDIA's that matters: they depend on the place alone.

Takes a chip's serial number and, for a MIG device, its GPU instance id and engine. Nothing else goes in: an instance
that returns to its place has its old UUID again, and a 3g and a 4g instance in the same half share one.
"""

import hashlib
from uuid import NAMESPACE_OID, uuid5


def gpu_uuid(serial: int) -> str:
    return f"GPU-{uuid5(NAMESPACE_OID, f'{serial}')}"


def mig_uuid(serial: int, gpu_instance: int, engine: int) -> str:
    return f"MIG-{uuid5(NAMESPACE_OID, f'{serial}/{gpu_instance}/{engine}')}"


def serial_of(seed: str | int, index: int) -> int:
    """A chip serial number that depends on nothing but the seed and the GPU's index."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:8], "little")
