"""What an administrator types on a simulated machine: `nvidia-smi` with the two options that need an idle driver.

    python -m sandbox.driver.smi STATE.json -i INDEX -mig 0|1
    python -m sandbox.driver.smi STATE.json -i INDEX --gpu-reset

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

IN_USE = 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="nvidia-smi")
    parser.add_argument("machine", type=Path)
    parser.add_argument("-i", dest="index", type=int, required=True)
    parser.add_argument("-mig", type=int, choices=[0, 1])
    parser.add_argument("--gpu-reset", action="store_true")
    wanted = parser.parse_args(arguments)
    held = clients.any_open(wanted.machine)
    with Store(wanted.machine).writing() as machine:
        gpu = machine["gpus"][wanted.index]
        held = held or busy(gpu)
        line, code = _reset(gpu, held=held) if wanted.gpu_reset else _mig(gpu, on=bool(wanted.mig), held=held)
    print(line)
    return code


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
