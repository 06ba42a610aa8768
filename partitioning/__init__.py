"""What a GPU can be partitioned into: profiles, models, layouts, packing, MPS slices, resource names, change steps.

Pure functions over values. Uses the standard library only; does no I/O except reading the catalogue's data file, reads
no clock and logs nothing.
"""

__version__ = "0.1.0"
