#!/bin/sh
# enter.sh FOLDER COMMAND...: runs a command, in a mount namespace of its own, with the files of a simulated machine
# where the kernel has those of a real one. The kernel's own /proc is kept, and shows through but for what FOLDER has.
set -eu
folder=$1
shift
mkdir -p "$folder/kernel"
mount --bind /proc "$folder/kernel"
mount -t tmpfs none /proc
ln -s "$folder"/kernel/[a-z]* /proc/
for entry in "$folder"/proc/*; do
  ln -sfn "$entry" /proc/
done
mount --bind "$folder/pci" /sys/bus/pci/devices
exec "$@"
