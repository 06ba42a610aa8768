"""Our own kubelet device plugin: a process of its own beside the agent, driven by one file that the agent writes."""
