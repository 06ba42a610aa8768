#!/bin/sh
# enter.sh FOLDER COMMAND...: runs a command, in a mount namespace of its own, with the files of a simulated machine
# where the kernel has those of a real one, and the folders of its kubelet and of its MPS daemons where NVIDIA's
# programs look for them. Everything else shows through, the kernel's own /proc but for what FOLDER has.
set -eu
folder=$1
shift
root=$folder/root
mkdir -p "$folder/kernel" "$folder/kubelet" "$folder/mps" "$root"
mount --bind /proc "$folder/kernel"
mount -t tmpfs none "$root"
for entry in /*; do
  if [ -L "$entry" ]; then
    cp -P "$entry" "$root/"
  elif [ -d "$entry" ]; then
    mkdir "$root$entry"
    [ "$entry" = /proc ] || mount --rbind "$entry" "$root$entry"
  fi
done
mount -t tmpfs none "$root/proc"
ln -s "$folder"/kernel/[a-z]* "$root/proc/"
for entry in "$folder"/proc/*; do
  ln -sfn "$entry" "$root/proc/"
done
mount --bind "$folder/pci" "$root/sys/bus/pci/devices"
mount -t tmpfs none "$root/var/lib"
mkdir -p "$root/var/lib/kubelet/device-plugins" "$root/mps"
mount --bind "$folder/kubelet" "$root/var/lib/kubelet/device-plugins"
mount --bind "$folder/mps" "$root/mps"
exec chroot "$root" "$@"
