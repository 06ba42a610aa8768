"""Stands in for NVIDIA's DRA driver at a real kubelet: registers by its sockets and prepares every claim.

Speaks the kubelet's own gRPC, of which it needs so little that the messages are written by hand. It hands out one
device under a name that the test chooses, and has no hardware. Never talks to the API server.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from kube.kubelet_api.paths import unix_target

DRIVER = "gpu.nvidia.com"
FIELD, TEXT = 3, 2
"""Bits of a key of the wire format; every field here has the type of texts and messages."""


class DraDriver:
    """Between `start` and `stop` it is registered; its socket files stay, as those of a killed process do."""

    def __init__(self, kubelet_dir: Path, device: str) -> None:
        self._registry = kubelet_dir / "plugins_registry" / f"{DRIVER}-reg.sock"
        self._service = kubelet_dir / "plugins" / DRIVER / "dra.sock"
        self.device = device
        self.registered: list[bytes] = []
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            (
                _handlers(
                    "pluginregistration.Registration", GetInfo=self._info, NotifyRegistrationStatus=self._notified
                ),
                _handlers(
                    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
                    NodePrepareResources=lambda request: self._each(request, self._prepared()),
                    NodeUnprepareResources=lambda request: self._each(request, b""),
                ),
            )
        )
        for path in (self._service, self._registry):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._server.add_insecure_port(unix_target(path))
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        # The server takes its files away; those of a process that was killed would stay, and change nothing.
        self._registry.unlink(missing_ok=True)

    def _info(self, _request: bytes) -> bytes:
        texts = (b"DRAPlugin", DRIVER.encode(), str(self._service).encode(), b"v1.DRAPlugin")
        return b"".join(_field(number, text) for number, text in enumerate(texts, 1))

    def _notified(self, request: bytes) -> bytes:
        self.registered.append(request)
        return b""

    def _prepared(self) -> bytes:
        return _field(1, _field(2, b"pool") + _field(3, self.device.encode()))

    def _each(self, request: bytes, answer: bytes) -> bytes:
        """A map by the claims' UIDs."""
        uids = [dict(_fields(claim))[2] for number, claim in _fields(request) if number == 1]
        return b"".join(_field(1, _field(1, uid) + _field(2, answer)) for uid in uids)


def _handlers(service: str, **methods: object) -> "grpc.GenericRpcHandler[bytes, bytes]":
    found = {
        name: grpc.unary_unary_rpc_method_handler(lambda request, _context, method=method: method(request))
        for name, method in methods.items()
    }
    return grpc.method_handlers_generic_handler(service, found)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << FIELD | TEXT]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 1 << 7:
        return bytes([value])
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(message):
        number, at = message[at] >> FIELD, at + 1
        length = shift = 0
        while True:
            byte, at = message[at], at + 1
            length, shift = length | (byte & 0x7F) << shift, shift + 7
            if byte < 1 << 7:
                break
        yield number, message[at : at + length]
        at += length
