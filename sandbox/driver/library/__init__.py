"""A real `libnvidia-ml.so.1` over a simulated machine, for programs that load the driver's library themselves.

build      compiles the library        serve      answers its calls from the machine's state
__main__   runs a program with it

The library is `shim.c` and one line for each symbol: it passes the registers of a call on, and reads and writes its
caller's memory as the answer says. What a call means, and the types of its arguments, is in `sandbox.driver.abi` alone.
"""
