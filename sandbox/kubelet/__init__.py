"""A kubelet for each node of the sandbox: device plugins, pod-resources, pods that run and finish, node status.

`Kubelet` is one of them; `ClusterApi` connects it to an API server, `ScriptedRuntime` holds its containers and
outlives it, and `ContainerHooks` is how simulated hardware sees processes come and go. What it must do is what
kubelet 1.36 was measured to do, false answers included; it runs no process and mounts nothing.

Not simulated: restart policies, probes, activeDeadlineSeconds, device nodes and annotations in Allocate answers,
topology, other versions of the kubelet.
"""
