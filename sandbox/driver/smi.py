"""What an administrator types on a simulated machine: `nvidia-smi` with the two options that need an idle driver.

    python -m sandbox.driver.smi STATE.json -i INDEX -mig 0|1
    python -m sandbox.driver.smi STATE.json -i INDEX --gpu-reset
    python -m sandbox.driver.smi STATE.json -i UUID -c EXCLUSIVE_PROCESS

Takes the words of the real program and refuses as it does: a reset while any client has the driver open or a process
is on the GPU, and a change of MIG mode likewise (Ampere's leaves the mode pending, Hopper's none).
"""

import argparse
import sys
from pathlib import Path

from sandbox.driver import clients
from sandbox.driver.mig_mode import set_mig_mode
from sandbox.driver.state import GpuState, busy
from sandbox.driver.status import Status
from sandbox.driver.store import Store

IN_USE, NOT_SUPPORTED, NOT_FOUND = 1, 3, 6
COMPUTE_MODES = {"DEFAULT": 0, "PROHIBITED": 2, "EXCLUSIVE_PROCESS": 3}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nvidia-smi")
    parser.add_argument("machine", type=Path)
    parser.add_argument("-i", dest="gpu", required=True)
    parser.add_argument("-mig", type=int, choices=[0, 1])
    parser.add_argument("-c", dest="compute", choices=COMPUTE_MODES)
    parser.add_argument("--gpu-reset", action="store_true")
    wanted = parser.parse_args(arguments)
    held = clients.any_open(wanted.machine)
    with Store(wanted.machine).writing() as machine:
        found = [gpu for index, gpu in enumerate(machine["gpus"]) if wanted.gpu in (str(index), gpu["uuid"])]
        if not found:
            print("No devices were found")
            return NOT_FOUND
        held = held or busy(found[0])
        if wanted.compute:
            line, code = _compute(found[0], wanted.compute)
        elif wanted.gpu_reset:
            line, code = _reset(found[0], held=held)
        else:
            line, code = _mig(found[0], on=bool(wanted.mig), held=held)
    print(line)
    return code


def _compute(gpu: GpuState, mode: str) -> tuple[str, int]:
    if gpu["mig_mode"] and COMPUTE_MODES[mode]:
        return f"Setting compute mode to {mode} is not supported for GPU {gpu['uuid']}", NOT_SUPPORTED
    gpu["compute_mode"] = COMPUTE_MODES[mode]
    return f"Set compute mode to {mode} for GPU {gpu['uuid']}.", 0


def _reset(gpu: GpuState, *, held: bool) -> tuple[str, int]:
    if held:
        return f"GPU {gpu['uuid']} could not be reset: In use by another client", IN_USE
    gpu["lost"] = False
    gpu["remapped_rows"][2] = 0
    gpu["gpu_instances"] = []
    gpu["mig_mode"] = gpu["mig_mode_pending"]
    return f"GPU {gpu['uuid']} was successfully reset.", 0


def _mig(gpu: GpuState, *, on: bool, held: bool) -> tuple[str, int]:
    word = "Enable" if on else "Disable"
    if set_mig_mode(gpu, on=on, held=held) is Status.SUCCESS:
        return f"{word}d MIG Mode for GPU {gpu['uuid']}", 0
    if gpu["mig_mode_pending"] is on:
        return (
            f"Warning: MIG mode is in pending {word.lower()} state for GPU {gpu['uuid']}: In use by another client",
            0,
        )
    return f"Unable to {word.lower()} MIG mode for GPU {gpu['uuid']}: In use by another client", IN_USE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
