"""NVIDIA's own programs, built from pinned Go modules, on a simulated machine that they take for a real one.

programs   builds them once           host   the machine: the driver's library, and its files in a mount namespace
"""
