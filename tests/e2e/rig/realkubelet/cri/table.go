package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is one entry of the table; the kubelet may remove it, its record stays.
type container struct {
	config                     *cri.ContainerConfig
	sandbox                    *sandbox
	script                     script
	state                      cri.ContainerState
	created, started, finished time.Time
	record                     *record
	removed                    bool
	ended                      chan struct{} // closed when it has exited
	release                    chan struct{} // closed to end a stop that would not end
}

type sandbox struct {
	id      string
	config  *cri.PodSandboxConfig
	state   cri.PodSandboxState
	created time.Time
	ip      string
}

// table is all state of the runtime. It lives as long as the process: a new process is a node that rebooted.
type table struct {
	mu         sync.Mutex
	number     int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	order      []string // container ids as they were created
}

func newTable() *table {
	return &table{sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
}

func (t *table) runSandbox(config *cri.PodSandboxConfig) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	id := fmt.Sprintf("sandbox-%06d", t.number)
	t.sandboxes[id] = &sandbox{
		id: id, config: config, created: time.Now(), ip: fmt.Sprintf("10.88.%d.%d", t.number/250%250, t.number%250+1),
	}
	return id
}

// stopSandbox ends what still runs in it at once.
func (t *table) stopSandbox(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.sandboxes[id]
	if found == nil {
		return
	}
	found.state = cri.PodSandboxState_SANDBOX_NOTREADY
	for _, each := range t.containers {
		if each.sandbox == found {
			t.exit(each, 137)
		}
	}
}

func (t *table) removeSandbox(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, each := range t.containers {
		each.removed = each.removed || each.sandbox.id == id
	}
	delete(t.sandboxes, id)
}

func (t *table) create(sandboxID string, config *cri.ContainerConfig) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.sandboxes[sandboxID]
	if in == nil {
		return "", notFound("pod sandbox", sandboxID)
	}
	t.number++
	id := fmt.Sprintf("%s-%06d", config.Metadata.Name, t.number)
	made := recordOf(id, config, in.config)
	t.containers[id] = &container{
		config: config, sandbox: in, record: &made, created: time.Now(),
		script: scriptOf(in.config.Annotations, config.Command, config.Args),
		ended:  make(chan struct{}), release: make(chan struct{}),
	}
	t.order = append(t.order, id)
	return id, nil
}

// find gives nil for a container that the kubelet has removed.
func (t *table) find(id string) *container {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.containers[id]; found != nil && !found.removed {
		return found
	}
	return nil
}

func (t *table) start(c *container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.state != cri.ContainerState_CONTAINER_CREATED {
		return
	}
	c.state, c.started = cri.ContainerState_CONTAINER_RUNNING, time.Now()
	c.record.State, c.record.StartedAt = "running", epoch(c.started)
	if c.script.run < forever {
		time.AfterFunc(c.script.run, func() { t.end(c, c.script.exitCode) })
	}
}

func (t *table) end(c *container, code int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exit(c, code)
}

func (t *table) stopAsked(c *container, graceSeconds int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.record.Stops = append(c.record.Stops, stop{At: epoch(time.Now()), GraceSeconds: graceSeconds})
}

// free ends the running stop of a container, unkillable or not; false where there is no such container.
func (t *table) free(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.containers[id]
	if found == nil {
		return false
	}
	select {
	case <-found.release:
	default:
		close(found.release)
	}
	return true
}

// records is a copy, in the order in which the containers were created.
func (t *table) records() []record {
	t.mu.Lock()
	defer t.mu.Unlock()
	copies := make([]record, 0, len(t.order))
	for _, id := range t.order {
		each := *t.containers[id].record
		each.Stops = slices.Clone(each.Stops)
		copies = append(copies, each)
	}
	return copies
}

// exit needs the lock; the first exit of a container counts.
func (t *table) exit(c *container, code int32) {
	if c.state == cri.ContainerState_CONTAINER_EXITED {
		return
	}
	c.state, c.finished = cri.ContainerState_CONTAINER_EXITED, time.Now()
	c.record.State, c.record.FinishedAt, c.record.ExitCode = "exited", epoch(c.finished), code
	close(c.ended)
}
