#!/bin/bash
# Runs a command as the only tenant of a machine of its own: mounts, network, IPC, host name and processes are apart from
# those of this machine, and end with the command. Needs root.
# Usage: enter.sh COMMAND [ARGUMENT...]
set -euo pipefail
self=$(realpath "$0")
if [ "${1:-}" != --inside ]; then
  # A kubelet wants its control group in every hierarchy of version 1 before it starts. They are removed at the end.
  group=gpuplan-e2e-$$
  hierarchies=$(awk '$3 == "cgroup" { print $2 }' /proc/mounts)
  cleanup() {
    for hierarchy in $(awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts); do  # of version 2, runc makes one itself
      [ -d "$hierarchy/$group" ] || continue
      for _ in 1 2 3 4 5 6 7 8 9 10; do  # a group can be removed a moment after its last process is gone
        find "$hierarchy/$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.5
      done
    done
    rm -rf "$folder"
  }
  folder=$(mktemp -d /tmp/gpuplan-e2e-node-XXXXXX)
  trap cleanup EXIT
  for hierarchy in $hierarchies; do
    mkdir -p "$hierarchy/$group"
    for setting in cpuset.cpus cpuset.mems; do
      [ ! -e "$hierarchy/$setting" ] || cat "$hierarchy/$setting" >"$hierarchy/$group/$setting"
    done
  done
  unshare --mount --net --ipc --uts --pid --fork --mount-proc --kill-child --propagation private \
    env GPUPLAN_E2E_CGROUP="/$group" GPUPLAN_E2E_FOLDER="$folder" "$self" --inside "$@"
  exit
fi
shift
folder=$GPUPLAN_E2E_FOLDER
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/cdi /run/lock
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for place in /var/lib /var/log; do
  mkdir -p "$folder$place"
  mount --bind "$folder$place" "$place"
done
mkdir -p "$folder"/usr-local "$folder"/usr-local-work  # hooks of container runtimes lie below /usr/local
mount -t overlay -o "lowerdir=/usr/local,upperdir=$folder/usr-local,workdir=$folder/usr-local-work" overlay /usr/local
mount --make-rshared /  # a kubelet wants volumes to be seen in its containers
hostname gpuplan-node
ip link set lo up
ip address add 10.0.0.1/32 dev lo  # the Service of the API server, which no proxy serves here
ip link add node0 type bridge
ip address add 10.99.0.1/24 dev node0
ip link set node0 up
ip route add default dev node0
# Not exec: this shell stays process 1, and takes in the processes whose parents have ended.
"$@" &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM INT
code=0
wait $child || code=$?
exit $code
