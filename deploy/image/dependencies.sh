#!/bin/sh
# Installs the locked dependencies into PREFIX/lib: exactly requirements/image.txt, each file checked against its hash.
# Usage: UV=/path/to/uv deploy/image/dependencies.sh PREFIX. PLATFORM holds uv's options for what will run them: another
# architecture and Python, or `--python` and an interpreter of this machine.
set -eu
prefix=${1:?"usage: $0 PREFIX"}
cd "$(dirname "$0")/../.."
# Wheels only: nothing is compiled, and no build backend, which the lock file does not pin, is run.
# shellcheck disable=SC2086  # several options
"$UV" pip install --quiet --only-binary :all: --no-deps --require-hashes --link-mode copy $PLATFORM \
  --target "$prefix/lib" --requirement requirements/image.txt
rm -f "$prefix/lib/.lock"
find "$prefix/lib" -path '*.dist-info/*' \( -name uv_cache.json -o -name direct_url.json \) -delete
# Command line tools of the dependencies, and of the Kubernetes client what nothing loads: its asynchronous copy (64 MB) and
# a class for each API group (34 MB) and type (23 MB); kube/transport.py sends its requests and reads the answers by itself.
rm -rf "$prefix/lib/bin" "$prefix/lib/kubernetes/aio" "$prefix/lib/kubernetes/client/api"
find "$prefix/lib/kubernetes/client/models" -name '*.py' ! -name __init__.py -delete
