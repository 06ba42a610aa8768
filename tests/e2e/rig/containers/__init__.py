"""Real containers on one machine: containerd, runc and a kubelet with control groups, in namespaces of their own.

`enter.sh` makes the namespaces, `programs` finds or builds what runs in them, `images` makes images without a
registry, `node` starts containerd and kubelet. Needs root on Linux. Never touches the machine outside `enter.sh`.
"""
