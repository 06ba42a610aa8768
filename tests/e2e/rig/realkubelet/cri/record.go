package main

import (
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// record is a container as tests read it; it outlives the container. Times are epoch seconds, 0 before they come.
type record struct {
	ID          string            `json:"id"`
	PodUID      string            `json:"podUid"`
	Namespace   string            `json:"namespace"`
	Pod         string            `json:"pod"`
	Container   string            `json:"container"`
	Attempt     uint32            `json:"attempt"`
	State       string            `json:"state"` // created, running, exited
	Env         map[string]string `json:"env"`
	Mounts      []mount           `json:"mounts"`
	Devices     []device          `json:"devices"`
	Annotations map[string]string `json:"annotations"`
	CDINames    []string          `json:"cdiNames"`
	LogPath     string            `json:"logPath"`
	CreatedAt   float64           `json:"createdAt"`
	StartedAt   float64           `json:"startedAt"`
	FinishedAt  float64           `json:"finishedAt"`
	ExitCode    int32             `json:"exitCode"`
	Stops       []stop            `json:"stops"` // every StopContainer call
}

type mount struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	ReadOnly      bool   `json:"readOnly"`
}

type device struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	Permissions   string `json:"permissions"`
}

type stop struct {
	At           float64 `json:"at"`
	GraceSeconds int64   `json:"graceSeconds"`
}

func recordOf(id string, config *cri.ContainerConfig, pod *cri.PodSandboxConfig) record {
	made := record{
		ID: id, PodUID: pod.Metadata.Uid, Namespace: pod.Metadata.Namespace, Pod: pod.Metadata.Name,
		Container: config.Metadata.Name, Attempt: config.Metadata.Attempt, State: "created",
		Env: map[string]string{}, Mounts: []mount{}, Devices: []device{}, Stops: []stop{}, CDINames: []string{},
		Annotations: config.Annotations, CreatedAt: epoch(time.Now()),
		// The kubelet deletes everything that begins with this path when it removes the container: never leave it
		// empty, that would be the kubelet's own working directory.
		LogPath: pod.LogDirectory + "/" + config.LogPath,
	}
	for _, each := range config.Envs {
		made.Env[each.Key] = string(each.Value) // the last one of a name counts, as in a process
	}
	for _, each := range config.Mounts {
		made.Mounts = append(made.Mounts, mount{each.ContainerPath, each.HostPath, each.Readonly})
	}
	for _, each := range config.Devices {
		made.Devices = append(made.Devices, device{each.ContainerPath, each.HostPath, each.Permissions})
	}
	for _, each := range config.CDIDevices {
		made.CDINames = append(made.CDINames, each.Name)
	}
	slices.Sort(made.CDINames)
	return made
}

func epoch(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
