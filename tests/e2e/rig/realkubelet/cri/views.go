package main

import (
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Readings of the table in the words of the CRI.

func (t *table) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.containers[id]; found != nil {
		t.exit(found, 137)
		found.removed = true
	}
}

func (t *table) listContainers(filter *cri.ContainerFilter) []*cri.Container {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := []*cri.Container{}
	for _, id := range t.order {
		each := t.containers[id]
		if each.removed || !wantsContainer(filter, id, each) {
			continue
		}
		found = append(found, &cri.Container{
			Id: id, PodSandboxId: each.sandbox.id, Metadata: each.config.Metadata, Image: each.config.Image,
			ImageRef: each.config.Image.Image, State: each.state, CreatedAt: each.created.UnixNano(),
			Labels: each.config.Labels, Annotations: each.config.Annotations,
		})
	}
	return found
}

func wantsContainer(filter *cri.ContainerFilter, id string, c *container) bool {
	if filter == nil {
		return true
	}
	return (filter.Id == "" || filter.Id == id) &&
		(filter.State == nil || filter.State.State == c.state) &&
		(filter.PodSandboxId == "" || filter.PodSandboxId == c.sandbox.id) &&
		selects(filter.LabelSelector, c.config.Labels)
}

func (t *table) containerStatus(id string) *cri.ContainerStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.containers[id]
	if c == nil || c.removed {
		return nil
	}
	reason := ""
	if c.state == cri.ContainerState_CONTAINER_EXITED {
		reason = "Completed"
		if c.record.ExitCode != 0 {
			reason = "Error"
		}
	}
	return &cri.ContainerStatus{
		Id: id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created.UnixNano(),
		StartedAt: nanoseconds(c.started), FinishedAt: nanoseconds(c.finished), ExitCode: c.record.ExitCode,
		Image: c.config.Image, ImageRef: c.config.Image.Image, Reason: reason, Labels: c.config.Labels,
		Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.record.LogPath,
	}
}

func (t *table) listSandboxes(filter *cri.PodSandboxFilter) []*cri.PodSandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := []*cri.PodSandbox{}
	for _, each := range t.sandboxes {
		if filter != nil && (filter.Id != "" && filter.Id != each.id ||
			filter.State != nil && filter.State.State != each.state ||
			!selects(filter.LabelSelector, each.config.Labels)) {
			continue
		}
		found = append(found, &cri.PodSandbox{
			Id: each.id, Metadata: each.config.Metadata, State: each.state, CreatedAt: each.created.UnixNano(),
			Labels: each.config.Labels, Annotations: each.config.Annotations,
		})
	}
	return found
}

func (t *table) sandboxStatus(id string) *cri.PodSandboxStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.sandboxes[id]
	if found == nil {
		return nil
	}
	return &cri.PodSandboxStatus{
		Id: found.id, Metadata: found.config.Metadata, State: found.state, CreatedAt: found.created.UnixNano(),
		Labels: found.config.Labels, Annotations: found.config.Annotations,
		Network: &cri.PodSandboxNetworkStatus{Ip: found.ip},
		Linux:   &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: namespaces(found.config)}},
	}
}

// The kubelet makes a pod's sandbox again where its namespaces are not those that it requested.
func namespaces(config *cri.PodSandboxConfig) *cri.NamespaceOption {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func nanoseconds(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}
