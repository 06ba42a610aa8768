#!/bin/sh
# Lists what the scripts put into PREFIX, largest first, in kB: everything in the image but its base.
# Usage: deploy/image/contents.sh PREFIX
set -eu
cd "${1:?"usage: $0 PREFIX"}"
du --apparent-size -k -d 1 lib bin | sort -k1,1nr -k2
