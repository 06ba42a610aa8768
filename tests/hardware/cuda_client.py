"""A CUDA program on libcuda alone: prints what it sees of the GPU, takes memory until it is refused, and holds it.

    cuda_client.py MIB SECONDS

Two lines of JSON: one when it has its memory, one when it ends. It works on the GPU ten times a second, so that it
notices when its MPS server is gone. It takes at most MIB in plain allocations, and changes no setting.
"""

import ctypes
import json
import sys
import time

STEP_MIB = 64
MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
BYTES_PER_MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")


def end(**line: object) -> None:
    print(json.dumps(line), flush=True)
    sys.exit()


def error(code: int) -> str:
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else str(code)


def call(name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        end(error=f"{name}: {error(code)}")


def main(most_mib: int, seconds: float) -> None:
    began = time.monotonic()
    device, count, processors, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    free, total, memory, used = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    started = time.monotonic() - began
    call("cuDeviceGetAttribute", ctypes.byref(processors), MULTIPROCESSOR_COUNT, device)
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    call("cuMemAlloc_v2", ctypes.byref(used), ctypes.c_size_t(BYTES_PER_MIB))
    got_mib, refused = 0, ""
    while got_mib < most_mib and not refused:
        code = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(STEP_MIB * BYTES_PER_MIB))
        refused = error(code) if code else ""
        got_mib += 0 if code else STEP_MIB
    seen: dict[str, object] = {
        "devices": count.value,
        "multiprocessors": processors.value,
        "freeMiB": free.value // BYTES_PER_MIB,
    }
    seen |= {"totalMiB": total.value // BYTES_PER_MIB, "allocatedMiB": got_mib, "refused": refused}
    print(json.dumps({**seen, "startSeconds": round(started, 3)}), flush=True)
    while time.monotonic() - began < seconds:
        code = cuda.cuMemsetD8_v2(used, 1, ctypes.c_size_t(BYTES_PER_MIB)) or cuda.cuCtxSynchronize()
        if code:
            end(lost=error(code))
        time.sleep(0.1)
    end(ended=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
