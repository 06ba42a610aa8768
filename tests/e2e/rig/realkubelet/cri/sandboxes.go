package main

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *runtimeService) RunPodSandbox(
	_ context.Context, r *cri.RunPodSandboxRequest,
) (*cri.RunPodSandboxResponse, error) {
	return &cri.RunPodSandboxResponse{PodSandboxId: s.table.runSandbox(r.Config)}, nil
}

func (s *runtimeService) StopPodSandbox(
	_ context.Context, r *cri.StopPodSandboxRequest,
) (*cri.StopPodSandboxResponse, error) {
	s.table.stopSandbox(r.PodSandboxId)
	return &cri.StopPodSandboxResponse{}, nil
}

func (s *runtimeService) RemovePodSandbox(
	_ context.Context, r *cri.RemovePodSandboxRequest,
) (*cri.RemovePodSandboxResponse, error) {
	s.table.removeSandbox(r.PodSandboxId)
	return &cri.RemovePodSandboxResponse{}, nil
}

func (s *runtimeService) ListPodSandbox(
	_ context.Context, r *cri.ListPodSandboxRequest,
) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: s.table.listSandboxes(r.Filter)}, nil
}

func (s *runtimeService) PodSandboxStatus(
	_ context.Context, r *cri.PodSandboxStatusRequest,
) (*cri.PodSandboxStatusResponse, error) {
	found := s.table.sandboxStatus(r.PodSandboxId)
	if found == nil {
		return nil, notFound("pod sandbox", r.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: found}, nil
}

func (s *runtimeService) ListPodSandboxStats(
	context.Context, *cri.ListPodSandboxStatsRequest,
) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}
