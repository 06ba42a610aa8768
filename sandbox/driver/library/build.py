"""Compiles `libnvidia-ml.so.1` with the system's C compiler.

Takes a folder; returns the library's path there, or None without a compiler. It exports every symbol that the binding
knows, simulated or not: a program that calls one that is not simulated gets FunctionNotFound, and the server lists it.
"""

import inspect
import json
import re
import shutil
import subprocess
from pathlib import Path

import pynvml

from sandbox.driver.abi.symbols import EXPORTS
from sandbox.driver.status import Status

NAME = "libnvidia-ml.so.1"
TEXTS = "nvmlErrorString"
FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{NAME}", "-Wl,-z,nodelete", "-pthread")
SHIM = Path(__file__).with_name("shim.c")


def compiler() -> str | None:
    """`cc`, where the system has one."""
    return shutil.which("cc")


def build(folder: Path) -> Path | None:
    """Make the library in the folder."""
    command = compiler()
    if command is None:
        return None
    library = folder / NAME
    unfinished = folder / f".{NAME}.new"  # one that is loaded must not change
    subprocess.run([command, *FLAGS, "-x", "c", "-", "-o", unfinished, "-ldl"], input=source(), text=True, check=True)
    return unfinished.rename(library)


def source() -> str:
    """Of the whole library."""
    lines = [f"SYMBOL({name})" for name in symbols()]
    texts = [f"    case {int(code)}: return {json.dumps(code.text)};" for code in Status]
    otherwise = f"    default: return {json.dumps(Status.UNKNOWN.text)};"
    lines += [f"const char *{TEXTS}(int code)", "{", "    switch (code) {", *texts, otherwise, "    }", "}"]
    return SHIM.read_text() + "\n".join(lines) + "\n"


def symbols() -> list[str]:
    """Those that pass on a call."""
    asked = re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', inspect.getsource(pynvml))
    return sorted({*EXPORTS, *asked} - {TEXTS})
