// A container runtime (CRI v1) whose containers are entries in a table: no images, no processes, no cgroups.
//
// Takes the calls of a real kubelet on one unix socket; returns what a runtime answers, and on a second socket (HTTP) a
// record of each container with everything that the kubelet gave it, and switches for tests. What containers do is
// written in their pods' annotations and commands (scripts.go), in the words of the kubelet stand-in.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	socket := flag.String("socket", "", "unix socket of the runtime and image services")
	control := flag.String("control", "", "unix socket on which records are read and containers ended")
	flag.Parse()
	ended, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()

	table := newTable()
	services := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(services, &runtimeService{table: table})
	cri.RegisterImageServiceServer(services, imageService{})
	web := &http.Server{Handler: controls(table)}
	go func() { log.Print(web.Serve(listen(*control))) }()
	go func() { log.Print(services.Serve(listen(*socket))) }()
	<-ended.Done()
	// Calls that are still open are those of slow containers; nothing waits for them any more.
	services.Stop()
	_ = web.Close()
}

func listen(path string) net.Listener {
	_ = os.Remove(path)
	found, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	return found
}
