"""The kubelet's two gRPC APIs: device plugin v1beta1 and pod-resources v1, and the paths they are served on.

The `.proto` files are written by hand with the official field numbers; the `*_pb2*` modules are generated from them by
`python -m kube.kubelet_api --write` and committed, so that nothing but grpcio and protobuf is needed at run time.
"""
