"""A simulated NVIDIA driver for machines without a GPU.

It takes the place of the C library beneath the unmodified `pynvml` binding: the program above calls real C function
pointers and cannot tell. All state of one machine is one JSON file, so it outlives every process that opens it.

machine     makes a machine, reads its state      processes   puts clients on its GPUs
run         runs a module on the simulated driver abi         the C symbols

Not simulated: running anything on a GPU, symbols that the product does not call (FunctionNotFound), the driver's own
choice of a placement, events, ECC counters, compute modes, resets, engine counts beyond a rough figure, vGPU, device
nodes, utilisation and power, NVLink, and permissions.
"""
