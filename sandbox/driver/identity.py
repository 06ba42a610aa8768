"""UUIDs of GPUs and MIG devices, made the way NVIDIA's driver makes them.

A UUID is the SHA-1 (version 5 bits) of a fixed prefix, the chip, the chip's own serial number and, for a MIG device,
its GPU instance id and engine. Nothing else goes in: an instance that returns to its place has its old UUID again, and
a 3g and a 4g instance in the same half share one. Layout: `gpu_uuid.c` of NVIDIA's open GPU kernel modules (MIT).
"""

import hashlib
import struct

PREFIX = bytes.fromhex("c816c9a3522456bf9d9aac7ea703fb5b")


def gpu_uuid(chip: int, serial: int) -> str:
    return "GPU-" + _uuid(_gpu_message(chip, serial))


def mig_uuid(chip: int, serial: int, gpu_instance: int, engine: int) -> str:
    return "MIG-" + _uuid(_gpu_message(chip, serial) + b"\x0bSMC" + struct.pack("<II", gpu_instance, engine))


def serial_of(seed: str | int, index: int) -> int:
    """A chip serial number that depends on nothing but the seed and the GPU's index."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:8], "little")


def _gpu_message(chip: int, serial: int) -> bytes:
    return PREFIX + b"NVIDIA GPU\x02" + struct.pack("<H", chip) + b"\x08" + struct.pack("<Q", serial)


def _uuid(message: bytes) -> str:
    digest = bytearray(hashlib.sha1(message, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
