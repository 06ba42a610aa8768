#!/bin/sh
# Runs a program of the image as its container would: read-only root, the container's user, no other packages.
# Usage: image_jail.sh ROOT PREFIX PYTHON_PREFIX USER WRITABLE,… READABLE,… PROGRAM ARGUMENTS…
# ROOT is an empty folder, PREFIX what deploy/image made, PYTHON_PREFIX an interpreter's own folder. WRITABLE and READABLE
# are FOLDER:PLACE, where the container has the folder.
# The caller gives it a mount namespace of its own (unshare -m), with which everything here ends.
set -eu
root=$1 prefix=$2 python=$3 user=$4 writable=$5 readable=$6
shift 6
mount -t tmpfs -o mode=755 tmpfs "$root"
shown() {  # FOLDER PLACE OPTIONS
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  mount -o "remount,bind,$3" "$root$2"
}
shown "$prefix" /opt/gpuplan ro
shown "$python" /usr/local ro
for packages in "$root"/usr/local/lib/python3*/site-packages; do mount -t tmpfs tmpfs "$packages"; done
shown /usr/lib /usr/lib ro
shown /usr/lib64 /usr/lib64 ro
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
mkdir "$root/etc" "$root/bin" "$root/proc" "$root/tmp" "$root/dev"
cp /usr/bin/env "$root/bin/"
mkdir -p "$root/usr/bin" && ln -s /bin/env "$root/usr/bin/env"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for pair in $(echo "$readable" | tr , ' '); do shown "${pair%%:*}" "${pair#*:}" ro; done
for pair in $(echo "$writable" | tr , ' '); do shown "${pair%%:*}" "${pair#*:}" rw; done
mount -o remount,ro "$root"
exec chroot --userspec="$user" --groups= "$root" /bin/env -i \
  PATH=/opt/gpuplan/bin:/usr/local/bin PYTHONPATH=/opt/gpuplan/lib PYTHONHOME=/usr/local LD_LIBRARY_PATH=/usr/local/lib \
  PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 NODE_NAME="${NODE_NAME:-}" "$@"
