"""The kubelet device plugin: a process of its own alongside the agent, driven by the file that the agent writes."""
