"""The commands of `gpuplan`."""
