"""What a GPU can be cut into: profiles, models, layouts, packing, MPS slices, resource names, change steps.

Pure: the standard library only, no I/O but the catalogue's own data file, no clock, no logging. Values come in, values
go out.
"""

__version__ = "0.1.0"
