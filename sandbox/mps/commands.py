"""Answers single commands: functions from the daemon's state and the arguments to the lines that are printed.

The rest of the real command's commands are unknown here: neither the product nor the sandbox sends them.

Measured on nvidia-cuda-mps-control 535.261.03. A bad value is ignored without an error, a UUID where an ordinal
belongs clears device 0's limit, and memory units are G or else M: callers must read back what they set.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would be a quarter of the command's start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

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


def _server_list(state: State, _: list[str]) -> list[str]:
    return list(state["servers"])


def _client_list(state: State, arguments: list[str]) -> list[str]:
    pid = arguments[0] if arguments else "0"
    server = state["servers"].get(pid)
    return [f"Server {pid} not found"] if server is None else [str(client["pid"]) for client in server["clients"]]


def _get_default_percentage(state: State, _: list[str]) -> list[str]:
    return [f"{state['percentage']:.1f}"]


def _set_default_percentage(state: State, arguments: list[str]) -> list[str]:
    state["percentage"] = percentage_of(arguments[0] if arguments else "") or state["percentage"]
    return [f"{state['percentage']:.1f}"]


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


def _start_server(state: State, _: list[str]) -> list[str]:
    state["servers"][str(state["next_server"])] = {"clients": []}
    state["next_server"] += 1
    return []


COMMANDS: dict[str, Callable[[State, list[str]], list[str]]] = {
    "get_server_list": _server_list,
    "get_client_list": _client_list,
    "get_default_active_thread_percentage": _get_default_percentage,
    "set_default_active_thread_percentage": _set_default_percentage,
    "get_default_device_pinned_mem_limit": _get_default_limit,
    "set_default_device_pinned_mem_limit": _set_default_limit,
    "start_server": _start_server,
}
