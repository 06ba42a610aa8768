"""What pods can get: advertised by the device plugin, confirmed at the kubelet, guarded by a taint while it changes."""
