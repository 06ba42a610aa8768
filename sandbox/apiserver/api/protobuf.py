"""The few protobuf bodies that kubectl sends and does not send as JSON when refused.

`kubectl create configmap|namespace|priorityclass|secret|serviceaccount` and `auth can-i` encode a runtime.Unknown
envelope around one small message. Comes in: such a body. Goes out: the object, or None for every other kind (the answer
is then 415).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from sandbox.apiserver.objects import Obj

MAGIC: Final = b"k8s\0"
_TEXT, _BOOL, _INT, _TEXT_MAP, _BYTES_MAP = "text", "bool", "int", "text map", "bytes map"

Message = dict[int, tuple[str, Any]]  # field number -> JSON name and type, or a message of its own
_METADATA: Final[Message] = {
    1: ("name", _TEXT),
    2: ("generateName", _TEXT),
    3: ("namespace", _TEXT),
    11: ("labels", _TEXT_MAP),
    12: ("annotations", _TEXT_MAP),
}
_RESOURCE_ATTRIBUTES: Final[Message] = {
    1: ("namespace", _TEXT),
    2: ("verb", _TEXT),
    3: ("group", _TEXT),
    4: ("version", _TEXT),
    5: ("resource", _TEXT),
    6: ("subresource", _TEXT),
    7: ("name", _TEXT),
}
_PATH_ATTRIBUTES: Final[Message] = {1: ("path", _TEXT), 2: ("verb", _TEXT)}
_REVIEW_SPEC: Final[Message] = {
    1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
    2: ("nonResourceAttributes", _PATH_ATTRIBUTES),
}
_MESSAGES: Final[dict[str, Message]] = {
    "ConfigMap": {
        1: ("metadata", _METADATA),
        2: ("data", _TEXT_MAP),
        3: ("binaryData", _BYTES_MAP),
        4: ("immutable", _BOOL),
    },
    "PriorityClass": {
        1: ("metadata", _METADATA),
        2: ("value", _INT),
        3: ("globalDefault", _BOOL),
        4: ("description", _TEXT),
        5: ("preemptionPolicy", _TEXT),
    },
    "Secret": {1: ("metadata", _METADATA), 2: ("data", _BYTES_MAP), 3: ("type", _TEXT), 5: ("immutable", _BOOL)},
    "Namespace": {1: ("metadata", _METADATA)},
    "ServiceAccount": {1: ("metadata", _METADATA)},
    "SelfSubjectAccessReview": {1: ("metadata", _METADATA), 2: ("spec", _REVIEW_SPEC)},
    "SelfSubjectRulesReview": {1: ("metadata", _METADATA), 2: ("spec", {1: ("namespace", _TEXT)})},
    "SelfSubjectReview": {1: ("metadata", _METADATA)},
}


def decode(body: bytes) -> Obj | None:
    envelope = dict(_fields(body[len(MAGIC) :]))
    type_meta = dict(_fields(envelope[1]))
    api_version, kind = type_meta[1].decode(), type_meta[2].decode()
    message = _MESSAGES.get(kind)
    if message is None:
        return None
    return {"apiVersion": api_version, "kind": kind, **_message(envelope.get(2, b""), message)}


def _message(data: bytes, message: Message) -> Obj:
    decoded: Obj = {}
    for number, value in _fields(data):
        name, kind = message.get(number, ("", None))
        if kind == _TEXT:
            if value:
                decoded[name] = value.decode()
        elif kind == _BOOL:
            decoded[name] = bool(value)
        elif kind == _INT:
            decoded[name] = value - (1 << 64) if value >> 63 else value  # negative numbers come as 64 bits
        elif kind in (_TEXT_MAP, _BYTES_MAP):
            pair = dict(_fields(value))
            raw = pair.get(2, b"")
            text = raw.decode() if kind == _TEXT_MAP else base64.b64encode(raw).decode()
            decoded.setdefault(name, {})[pair.get(1, b"").decode()] = text
        elif isinstance(kind, dict):
            decoded[name] = _message(value, kind)
    return decoded


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field number and raw value: bytes for wire type 2, an integer for 0."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == 0:
            number, position = _varint(data, position)
            yield tag >> 3, number
            continue
        length = {1: 8, 5: 4}.get(wire_type)
        if length is None:
            length, position = _varint(data, position)
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if byte < 0x80:
            return value, position
