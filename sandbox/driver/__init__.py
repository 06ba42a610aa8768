"""A simulated NVIDIA driver for machines without a GPU.

It takes the place of the C library beneath the unmodified `pynvml` binding: the program above calls real C function
pointers and cannot tell. All state of one machine is one JSON file, so it outlives every process that opens it.

machine     makes a machine, reads its state      processes   puts clients on its GPUs
run         runs a module on the simulated driver abi         the C symbols
library     a real libnvidia-ml.so.1, for programs that load it themselves

Not simulated: running anything on a GPU, device nodes, permissions. A symbol that neither the product nor a program in
its tests calls is not there (FunctionNotFound); a test for each such program holds which those are.
"""
