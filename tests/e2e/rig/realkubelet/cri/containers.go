package main

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeService answers the calls that a kubelet makes; what is not here answers "unimplemented".
type runtimeService struct {
	cri.UnimplementedRuntimeServiceServer
	table *table
}

func (s *runtimeService) CreateContainer(
	_ context.Context, r *cri.CreateContainerRequest,
) (*cri.CreateContainerResponse, error) {
	id, err := s.table.create(r.PodSandboxId, r.Config)
	return &cri.CreateContainerResponse{ContainerId: id}, err
}

func (s *runtimeService) StartContainer(
	ctx context.Context, r *cri.StartContainerRequest,
) (*cri.StartContainerResponse, error) {
	found := s.table.find(r.ContainerId)
	if found == nil {
		return nil, notFound("container", r.ContainerId)
	}
	select {
	case <-time.After(found.script.start):
	case <-found.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.table.start(found)
	return &cri.StartContainerResponse{}, nil
}

// StopContainer returns when the container has ended, as runtimes do; a caller that gave up changes nothing.
func (s *runtimeService) StopContainer(
	ctx context.Context, r *cri.StopContainerRequest,
) (*cri.StopContainerResponse, error) {
	found := s.table.find(r.ContainerId)
	if found == nil {
		return &cri.StopContainerResponse{}, nil
	}
	s.table.stopAsked(found, r.Timeout)
	after, code := found.script.stopping(time.Duration(r.Timeout) * time.Second)
	go func() {
		select {
		case <-time.After(after):
		case <-found.release:
			code = 137
		case <-found.ended:
		}
		s.table.end(found, code)
	}()
	select {
	case <-found.ended:
		return &cri.StopContainerResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *runtimeService) RemoveContainer(
	_ context.Context, r *cri.RemoveContainerRequest,
) (*cri.RemoveContainerResponse, error) {
	s.table.remove(r.ContainerId)
	return &cri.RemoveContainerResponse{}, nil
}

func (s *runtimeService) ListContainers(
	_ context.Context, r *cri.ListContainersRequest,
) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: s.table.listContainers(r.Filter)}, nil
}

func (s *runtimeService) ContainerStatus(
	_ context.Context, r *cri.ContainerStatusRequest,
) (*cri.ContainerStatusResponse, error) {
	found := s.table.containerStatus(r.ContainerId)
	if found == nil {
		return nil, notFound("container", r.ContainerId)
	}
	return &cri.ContainerStatusResponse{Status: found}, nil
}

func (s *runtimeService) UpdateContainerResources(
	context.Context, *cri.UpdateContainerResourcesRequest,
) (*cri.UpdateContainerResourcesResponse, error) {
	return &cri.UpdateContainerResourcesResponse{}, nil
}

func (s *runtimeService) ListContainerStats(
	context.Context, *cri.ListContainerStatsRequest,
) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

// ReopenContainerLog is asked for every container whose log file is not there, which is all of them.
func (s *runtimeService) ReopenContainerLog(
	context.Context, *cri.ReopenContainerLogRequest,
) (*cri.ReopenContainerLogResponse, error) {
	return &cri.ReopenContainerLogResponse{}, nil
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %s not found", kind, id)
}
