#!/bin/sh
# Installs the locked dependencies into PREFIX/lib: exactly requirements/product.txt, each file checked against its hash.
# Usage: deploy/image/dependencies.sh PREFIX. PYTHON is the interpreter that will run them (default: python3).
set -eu
prefix=${1:?"usage: $0 PREFIX"}
cd "$(dirname "$0")/../.."
# Wheels only: nothing is compiled, and no build backend, which the lock file does not pin, is run.
"${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: --no-deps \
  --require-hashes --target "$prefix/lib" --requirement requirements/product.txt
# Command line tools of the dependencies, and of the Kubernetes client what nothing loads: its asynchronous copy (64 MB) and
# a class for each API group (34 MB) and type (23 MB); kube/transport.py sends its requests and reads the answers by itself.
rm -rf "$prefix/lib/bin" "$prefix/lib/kubernetes/aio" "$prefix/lib/kubernetes/client/api"
find "$prefix/lib/kubernetes/client/models" -name '*.py' ! -name __init__.py -delete
