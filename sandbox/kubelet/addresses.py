"""IP addresses of a simulated node and its pods: nothing listens on them, they are there to be looked at.

In: the node's name. Out: the same addresses at every start, different ones for nodes with different names (as far as
a 32-bit checksum goes) and for the pods of one node.
"""

import itertools
import zlib

_POD_NUMBERS = 2046


def invented_node_ip(node_name: str) -> str:
    """For a manifest without addresses."""
    number = zlib.crc32(node_name.encode())
    return f"10.{number >> 16 & 127}.{number >> 8 & 255}.{number % 253 + 1}"


class PodAddresses:
    """Pod addresses of one node, out of 10.128.0.0/9, in turn."""

    def __init__(self, node_name: str) -> None:
        self._block = zlib.crc32(node_name.encode()) & 0xFFF
        self._numbers = itertools.cycle(range(2, _POD_NUMBERS))

    def take(self) -> str:
        number = self._block << 11 | next(self._numbers)
        return f"10.{128 | number >> 16}.{number >> 8 & 255}.{number & 255}"
