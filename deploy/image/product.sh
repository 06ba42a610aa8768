#!/bin/sh
# Copies the product's packages into PREFIX/lib and writes a program for each of pyproject.toml's scripts to PREFIX/bin.
# Usage: deploy/image/product.sh PREFIX, after dependencies.sh. PYTHONPATH=PREFIX/lib is all that the programs need.
# INTERPRETER is what the programs' first line names (default: python3 on PATH); with an empty COMPILE no byte code is made.
# Sandbox, tests and benchmarks are not part of the image.
set -eu
prefix=${1:?"usage: $0 PREFIX"}
cd "$(dirname "$0")/../.."
packages="partitioning kube crds controller nodeagent cli"
mkdir -p "$prefix/lib" "$prefix/bin"
for package in $packages; do
  cp -R "$package" "$prefix/lib/"
done
cp LICENSE "$prefix/"
find "$prefix/lib" -name __pycache__ -prune -exec rm -rf {} +
"${PYTHON:-python3}" - "$prefix/bin" "${INTERPRETER:-/usr/bin/env python3}" <<'PYTHON'
import pathlib, sys, tomllib

folder = pathlib.Path(sys.argv[1])
for name, entry in tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["scripts"].items():
    module, function = entry.split(":")
    program = folder / name
    program.write_text(f"#!{sys.argv[2]}\nimport sys\nfrom {module} import {function}\n\nsys.exit({function}())\n")
    program.chmod(0o755)
PYTHON
# The root file system is read-only, so byte code is made now. It is never checked against its source, whose time changes when it is copied.
[ -z "${COMPILE-yes}" ] || "${PYTHON:-python3}" -m compileall -q --invalidation-mode unchecked-hash "$prefix/lib"
