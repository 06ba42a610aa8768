"""Answers single commands: functions from the daemon's state and the arguments to the lines that are printed.

Measured on nvidia-cuda-mps-control 535.261.03. A bad value is ignored without an error, a UUID where an ordinal
belongs clears device 0's limit, and memory units are G or else M: callers must read back what they set. Commands that
the product does not send are unknown here.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would be a quarter of the command's start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox.mps.statefile import State

DEVICES = 32


def percentage_of(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 100 else None


def _bytes(text: str) -> int:
    """Leading digits and one unit letter, G or else M: `10` is 10M, `1.5G` is 1M, `100K` is 100M."""
    digits = len(text) - len(text.lstrip("0123456789"))
    if digits == 0:
        return 0
    return int(text[:digits]) << (30 if text[digits : digits + 1] in ("G", "g") else 20)


def _on_server(action: Callable[[State, dict[str, Any], list[str]], list[str]]) -> Callable[..., list[str]]:
    """A command whose first argument is a server's pid."""

    def command(state: State, arguments: list[str]) -> list[str]:
        pid = arguments[0] if arguments else "0"
        server = state["servers"].get(pid)
        return [f"Server {pid} not found"] if server is None else action(state, server, arguments[1:])

    return command


def _server_list(state: State, _: list[str]) -> list[str]:
    return list(state["servers"])


@_on_server
def _client_list(_: State, server: dict[str, Any], __: list[str]) -> list[str]:
    return [str(client["pid"]) for client in server["clients"]]


def _get_default_percentage(state: State, _: list[str]) -> list[str]:
    return [f"{state['percentage']:.1f}"]


def _set_default_percentage(state: State, arguments: list[str]) -> list[str]:
    state["percentage"] = percentage_of(arguments[0] if arguments else "") or state["percentage"]
    return [f"{state['percentage']:.1f}"]


@_on_server
def _get_percentage(state: State, server: dict[str, Any], _: list[str]) -> list[str]:
    return [f"{server.get('percentage', state['percentage']):.1f}"]


@_on_server
def _set_percentage(state: State, server: dict[str, Any], arguments: list[str]) -> list[str]:
    before = server.get("percentage", state["percentage"])
    server["percentage"] = percentage_of(arguments[0] if arguments else "") or before
    return [f"{server['percentage']:.1f}"]


def _get_default_limit(state: State, arguments: list[str]) -> list[str]:
    limit = state["limits"].get(arguments[0]) if arguments else None
    if limit is None:
        return []
    return [f"{limit >> 30}G" if limit >= 1 << 30 else f"{limit >> 20}M"]


def _set_default_limit(state: State, arguments: list[str]) -> list[str]:
    if len(arguments) < 2:
        return []
    ordinal = arguments[0].isdigit()
    device = arguments[0] if ordinal else "0"
    limit = _bytes(arguments[1]) if ordinal else 0
    if int(device) >= DEVICES:
        return []
    if limit:
        state["limits"][device] = limit
    else:
        state["limits"].pop(device, None)
    return []


_server_limit = _on_server(lambda *_: [])


COMMANDS: dict[str, Callable[[State, list[str]], list[str]]] = {
    "get_server_list": _server_list,
    "get_client_list": _client_list,
    "get_default_active_thread_percentage": _get_default_percentage,
    "set_default_active_thread_percentage": _set_default_percentage,
    "get_active_thread_percentage": _get_percentage,
    "set_active_thread_percentage": _set_percentage,
    "get_default_device_pinned_mem_limit": _get_default_limit,
    "set_default_device_pinned_mem_limit": _set_default_limit,
    "get_device_pinned_mem_limit": _server_limit,
    "set_device_pinned_mem_limit": _server_limit,
}
