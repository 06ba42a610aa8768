"""A simulated NVIDIA driver for machines without a GPU.

It sits beneath the unmodified `pynvml` binding, where the C library would be: the program above calls real C function
pointers and cannot tell. All state of one machine is one JSON file, so it outlives every process that opens it.

machine     make a machine, look at it            processes   put clients on its GPUs
incidents   what befalls hardware                 faults      make single calls fail, stall or kill the caller
run         run a module on the simulated driver  abi         the C symbols

Not simulated: running anything on a GPU, engine counts beyond a rough figure, vGPU, device nodes and capabilities,
utilisation and power, NVLink, MIG configuration events, and who is allowed what beyond one switch for the machine.
"""
