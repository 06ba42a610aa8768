from collections.abc import Iterator

import grpc

from kube.kubelet_api import podresources_pb2 as pb

class PodResourcesListerStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    List: grpc.UnaryUnaryMultiCallable[pb.ListPodResourcesRequest, pb.ListPodResourcesResponse]
    GetAllocatableResources: grpc.UnaryUnaryMultiCallable[pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse]
    Get: grpc.UnaryUnaryMultiCallable[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse]

class PodResourcesListerServicer:
    def List(self, request: pb.ListPodResourcesRequest, context: grpc.ServicerContext) -> pb.ListPodResourcesResponse: ...
    def GetAllocatableResources(self, request: pb.AllocatableResourcesRequest, context: grpc.ServicerContext) -> pb.AllocatableResourcesResponse: ...
    def Get(self, request: pb.GetPodResourcesRequest, context: grpc.ServicerContext) -> pb.GetPodResourcesResponse: ...

def add_PodResourcesListerServicer_to_server(servicer: PodResourcesListerServicer, server: grpc.Server) -> None: ...
