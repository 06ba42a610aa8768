// Command argo-sync syncs a folder of manifests once, with the engine of Argo CD, and prints what it did as JSON.
//
// It drives the engine as Argo CD's application controller does: compare, take one step, compare again, until the
// operation is completed; two seconds after each wave, so that what was applied is in force. Health rules are those
// of an argocd-cm ConfigMap, run by Argo CD's Lua interpreter. It listens on no address, and never prunes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/health"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	tracking  = "argocd.argoproj.io/tracking-id"
	waveDelay = 2 * time.Second // ARGOCD_SYNC_WAVE_DELAY, when it is not set
	stepPause = time.Second
)

type resource struct {
	Kind    string        `json:"kind"`
	Name    string        `json:"name"`
	Order   int           `json:"order"`
	Result  string        `json:"result"`
	Message string        `json:"message"`
	Health  healthOfAlive `json:"health"`
}

type healthOfAlive struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type outcome struct {
	Phase     string     `json:"phase"`
	Message   string     `json:"message"`
	Resources []resource `json:"resources"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the cluster and its administrator")
	namespace := flag.String("namespace", "default", "namespace of objects without one")
	rules := flag.String("health-rules", "", "patch of argocd-cm with resource.customizations.health.*")
	application := flag.String("application", "app", "name that marks the objects of this folder")
	limit := flag.Duration("timeout", 2*time.Minute, "when to give up")
	flag.Parse()
	found, err := run(*kubeconfig, *namespace, *rules, *application, flag.Arg(0), *limit)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "argo-sync:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, rules, application, folder string, limit time.Duration) (*outcome, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	judge, err := readRules(rules)
	if err != nil {
		return nil, err
	}
	targets, err := manifests(folder)
	if err != nil {
		return nil, err
	}
	for _, target := range targets {
		annotations := target.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = application
		target.SetAnnotations(annotations)
	}
	live := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (interface{}, bool) {
			mark := object.GetAnnotations()[tracking]
			return mark, mark != ""
		}))
	operation := &operation{config: config, cache: live, namespace: namespace, application: application, judge: judge}
	return operation.run(targets, time.Now().Add(limit))
}

func manifests(folder string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%q holds no *.yaml: %v", folder, err)
	}
	sort.Strings(files)
	var found []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		objects, err := kube.SplitYAML(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, object := range objects {
			if !object.IsList() { // Argo CD takes the Lists of a chart apart
				found = append(found, object)
				continue
			}
			err := object.EachListItem(func(item runtime.Object) error {
				found = append(found, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return found, nil
}

type operation struct {
	config      *rest.Config
	cache       cache.ClusterCache
	namespace   string
	application string
	judge       health.HealthOverride
}

func (o *operation) run(targets []*unstructured.Unstructured, deadline time.Time) (*outcome, error) {
	var phase common.OperationPhase = common.OperationRunning
	var message string
	var results []common.ResourceSyncResult
	started := metav1.Now()
	for {
		if err := o.cache.EnsureSynced(); err != nil {
			return nil, err
		}
		managed, err := o.cache.GetManagedLiveObjs(copies(targets), o.mine)
		if err != nil {
			return nil, err
		}
		compared := sync.Reconcile(copies(targets), managed, o.namespace, o.cache)
		if phase.Completed() || time.Now().After(deadline) {
			return o.outcome(phase, message, results, compared.Live)
		}
		kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
		step, cleanup, err := sync.NewSyncContext("revision", compared, o.config, o.config, kubectl, o.namespace,
			o.cache.GetOpenAPISchema(),
			sync.WithLogr(logr.Discard()), sync.WithHealthOverride(o.judge),
			sync.WithInitialState(phase, message, results, started),
			sync.WithSyncWaveHook(func(_ common.SyncPhase, _ int, final bool) error {
				if !final {
					time.Sleep(waveDelay)
				}
				return nil
			}))
		if err != nil {
			return nil, err
		}
		step.Sync()
		phase, message, results = step.GetState()
		cleanup()
		time.Sleep(stepPause) // the cache's watches bring what was applied
	}
}

func (o *operation) mine(found *cache.Resource) bool {
	mark, _ := found.Info.(string)
	return mark == o.application
}

func (o *operation) outcome(
	phase common.OperationPhase, message string, results []common.ResourceSyncResult, live []*unstructured.Unstructured,
) (*outcome, error) {
	states := map[string]healthOfAlive{} // by kind and name: the engine gives cluster-wide targets a namespace, too
	for _, object := range live {
		if object == nil {
			continue
		}
		found, err := health.GetResourceHealth(object, o.judge)
		if err != nil {
			return nil, err
		}
		if found != nil {
			states[object.GetKind()+"/"+object.GetName()] = healthOfAlive{string(found.Status), found.Message}
		}
	}
	sort.Slice(results, func(one, other int) bool { return results[one].Order < results[other].Order })
	printed := &outcome{Phase: string(phase), Message: message}
	for _, result := range results {
		key := result.ResourceKey
		printed.Resources = append(printed.Resources, resource{
			Kind: key.Kind, Name: key.Name, Order: result.Order, Result: string(result.Status),
			Message: result.Message, Health: states[key.Kind+"/"+key.Name],
		})
	}
	return printed, nil
}

// copies keeps the targets as they were read: the engine writes into what it is given.
func copies(targets []*unstructured.Unstructured) []*unstructured.Unstructured {
	found := make([]*unstructured.Unstructured, len(targets))
	for number, target := range targets {
		found[number] = target.DeepCopy()
	}
	return found
}
