// Stands in for NVIDIA's bindings of the fabric manager, which no module proxy serves.
module github.com/NVIDIA/go-nvfm

go 1.24
