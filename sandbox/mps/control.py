"""What `nvidia-cuda-mps-control` answers, without a GPU. In: arguments, environment, commands on stdin; out: its texts.

Runs as a script of its own, once a command, so it imports nothing of ours and little of the standard library. Most of
what looks odd here is the real command's way: a bad value is ignored with status 0, a UUID clears device 0's limit.
"""

from __future__ import annotations

import fcntl
import json
import os
import time

TYPE_CHECKING = False  # `typing` would be a quarter of this command's start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TextIO

    State = dict[str, Any]

STATE_FILE = ".sandbox-mps.json"
LOCK_FILE = ".sandbox-mps.lock"
LONGEST_PIPE_DIRECTORY = 99
DEVICES = 32
POLL_SECONDS = 0.05


def main(arguments: list[str], environment: Mapping[str, str], stdin: TextIO, stdout: TextIO, stderr: TextIO) -> int:
    pipe = environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if "-d" in arguments or "-f" in arguments:
        problem, status = start(pipe, environment)
        if problem:
            print(problem, file=stdout)
        if status == 0 and "-f" in arguments:
            wait_while_running(pipe)
        return status
    state = load(pipe)
    if state is None:
        print("Cannot find MPS control daemon process", file=stderr)
        return 1
    time.sleep(state.get("hang_seconds", 0))
    for line in stdin.read().splitlines():
        answer = execute(pipe, line)
        if answer is None:
            break
        for text in answer:
            print(text, file=stdout)
    return 0


def start(pipe: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """What `-d` prints, and its exit status. Only the last part of the path is created."""
    if len(pipe) > LONGEST_PIPE_DIRECTORY:
        return "", 1  # the socket's path would not fit, and nobody says so
    try:
        if not os.path.isdir(pipe):
            os.mkdir(pipe)
    except OSError:
        return f"Cannot access CUDA_MPS_PIPE_DIRECTORY={pipe}", 1
    if load(pipe) is not None:
        return "An instance of this daemon is already running", 1
    percentage = _percentage(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")) or 100.0
    save(
        pipe,
        {
            "uid": os.geteuid(),
            "percentage": percentage,
            "limits": {},  # device ordinal -> bytes
            "priority": "0",
            "servers": {},  # pid -> {"clients": [...]}
            "next_server": 5000,
        },
    )
    return "", 0


def wait_while_running(pipe: str) -> None:
    """Foreground mode: until `quit`, or until this process is ended, which ends the daemon."""
    try:
        while load(pipe) is not None:
            time.sleep(POLL_SECONDS)
    finally:
        stop(pipe)


def execute(pipe: str, line: str) -> list[str] | None:
    """The lines one command prints; None when the daemon is gone after it."""
    words = line.split()
    name, arguments = (words[0], words[1:]) if words else ("", [])
    if name == "quit":
        return _quit(pipe, arguments)
    command = COMMANDS.get(name)
    if command is None:
        return [f'Unknown command "{name}"']
    with locked(pipe):
        state = load(pipe)
        if state is None:
            return None
        answer = command(state, arguments)
        save(pipe, state)
    return answer


def load(pipe: str) -> State | None:
    try:
        with open(os.path.join(pipe, STATE_FILE), encoding="utf-8") as file:
            state: State = json.load(file)
    except OSError:
        return None
    return state


def save(pipe: str, state: State) -> None:
    path = os.path.join(pipe, STATE_FILE)
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(file.name, path)


def stop(pipe: str) -> None:
    try:
        os.unlink(os.path.join(pipe, STATE_FILE))
    except FileNotFoundError:
        return


class locked:  # noqa: N801 - used as a context manager function; contextlib is not worth its import here
    def __init__(self, pipe: str) -> None:
        self._path = os.path.join(pipe, LOCK_FILE)

    def __enter__(self) -> None:
        self._file = open(self._path, "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _quit(pipe: str, arguments: list[str]) -> list[str] | None:
    """Waits for clients to end, with -t for so many seconds at most."""
    state = load(pipe)
    if state is not None and os.geteuid() not in (0, state["uid"]):
        return ["Not enough privilege to execute quit command"]
    patience = float(arguments[arguments.index("-t") + 1]) if "-t" in arguments else float("inf")
    end = time.monotonic() + patience
    while state is not None and any(server["clients"] for server in state["servers"].values()):
        if time.monotonic() >= end:
            break
        time.sleep(POLL_SECONDS)
        state = load(pipe)
    stop(pipe)
    return None


def _percentage(text: str) -> float | None:
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


def _server(state: State, arguments: list[str]) -> tuple[str, dict[str, Any] | None]:
    pid = arguments[0] if arguments else "0"
    return pid, state["servers"].get(pid)


def _not_found(pid: str) -> str:
    return f"Server {pid} not found"


def _on_server(action: Callable[[State, dict[str, Any], list[str]], list[str]]) -> Callable[..., list[str]]:
    """A command whose first argument is a server's pid."""

    def command(state: State, arguments: list[str]) -> list[str]:
        pid, server = _server(state, arguments)
        return [_not_found(pid)] if server is None else action(state, server, arguments[1:])

    return command


def _server_list(state: State, _: list[str]) -> list[str]:
    return list(state["servers"])


@_on_server
def _client_list(_: State, server: dict[str, Any], __: list[str]) -> list[str]:
    return [str(client["pid"]) for client in server["clients"]]


def _device_client_list(state: State, arguments: list[str]) -> list[str]:
    pid, server = _server(state, arguments)
    if arguments and server is None:
        return [_not_found(pid)]
    chosen = [server] if server is not None else list(state["servers"].values())
    devices: dict[str, list[str]] = {}
    for one in chosen:
        for client in one["clients"]:
            devices.setdefault(client["device"], []).append(str(client["pid"]))
    return [f"Device {device}: {' '.join(pids)}" for device, pids in devices.items()]  # the format was never seen


def _get_default_percentage(state: State, _: list[str]) -> list[str]:
    return [f"{state['percentage']:.1f}"]


def _set_default_percentage(state: State, arguments: list[str]) -> list[str]:
    state["percentage"] = _percentage(arguments[0] if arguments else "") or state["percentage"]
    return [f"{state['percentage']:.1f}"]


@_on_server
def _get_percentage(state: State, server: dict[str, Any], _: list[str]) -> list[str]:
    return [f"{server.get('percentage', state['percentage']):.1f}"]


@_on_server
def _set_percentage(state: State, server: dict[str, Any], arguments: list[str]) -> list[str]:
    before = server.get("percentage", state["percentage"])
    server["percentage"] = _percentage(arguments[0] if arguments else "") or before
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


@_on_server
def _server_limit(_: State, __: dict[str, Any], ___: list[str]) -> list[str]:
    return []


def _get_default_priority(state: State, _: list[str]) -> list[str]:
    return [state["priority"]]


def _set_default_priority(state: State, arguments: list[str]) -> list[str]:
    state["priority"] = arguments[0] if arguments else state["priority"]
    return []


def _start_server(state: State, _: list[str]) -> list[str]:
    state["servers"][str(state["next_server"])] = {"clients": []}
    state["next_server"] += 1
    return []


def _shutdown_server(state: State, arguments: list[str]) -> list[str]:
    pid, server = _server(state, arguments)
    if server is None:
        return [_not_found(pid)]
    if "-f" in arguments or not server["clients"]:
        del state["servers"][pid]
    return []


def _terminate_client(state: State, arguments: list[str]) -> list[str]:
    pid, server = _server(state, arguments)
    if server is None:
        return [_not_found(pid), _not_found(pid) + "!", "1"]
    server["clients"] = [client for client in server["clients"] if str(client["pid"]) != arguments[1]]
    return ["0"]


def _ps(state: State, arguments: list[str]) -> list[str]:
    if "-p" in arguments:
        pid, server = _server(state, arguments[arguments.index("-p") + 1 :])
        if server is None:
            return [_not_found(pid), _not_found(pid), ""]
        return _table({pid: server})
    return _table(state["servers"]) if state["servers"] else ["Server not found"]


def _table(servers: dict[str, Any]) -> list[str]:
    """Columns by the format strings in the binary; nobody captured the text with clients yet."""
    rows = [("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")]
    for pid, server in servers.items():
        for number, client in enumerate(server["clients"]):
            command = client.get("command", "")[:14]
            rows.append((str(client["pid"]), str(number), pid, client["device"], "4026531836", command))
    device_width = max(17, *(len(row[3]) + 2 for row in rows))
    widths = (10, 10, 15, device_width, 15, 15)
    return ["".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]


COMMANDS: dict[str, Callable[[State, list[str]], list[str]]] = {
    "get_server_list": _server_list,
    "get_client_list": _client_list,
    "get_device_client_list": _device_client_list,
    "get_default_active_thread_percentage": _get_default_percentage,
    "set_default_active_thread_percentage": _set_default_percentage,
    "get_active_thread_percentage": _get_percentage,
    "set_active_thread_percentage": _set_percentage,
    "get_default_device_pinned_mem_limit": _get_default_limit,
    "set_default_device_pinned_mem_limit": _set_default_limit,
    "get_device_pinned_mem_limit": _server_limit,
    "set_device_pinned_mem_limit": _server_limit,
    "get_default_client_priority": _get_default_priority,
    "set_default_client_priority": _set_default_priority,
    "start_server": _start_server,
    "shutdown_server": _shutdown_server,
    "terminate_client": _terminate_client,
    "ps": _ps,
}
