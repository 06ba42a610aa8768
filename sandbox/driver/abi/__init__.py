"""Exports the C symbols of libnvidia-ml.so.1 over the simulated driver.

Every symbol is a real C function pointer (a ctypes callback), reached by the binding exactly as it reaches the symbols
of the library: untyped and by address. Arguments arrive as raw integers and addresses, answers leave through pointers.
A symbol that nothing here calls is missing, and the binding raises FunctionNotFound for it.
"""
