package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/argoproj/gitops-engine/pkg/health"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/yaml"
)

const rulePrefix = "resource.customizations.health."

// luaRules holds scripts by group_Kind, as argocd-cm does.
type luaRules map[string]string

func readRules(file string) (luaRules, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &configMap); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rules := luaRules{}
	for key, script := range configMap.Data {
		rules[strings.TrimPrefix(key, rulePrefix)] = script
	}
	return rules, nil
}

// GetResourceHealth is what the engine calls; nil where no rule is about this kind.
func (r luaRules) GetResourceHealth(object *unstructured.Unstructured) (*health.HealthStatus, error) {
	kind := object.GroupVersionKind()
	script, found := r[kind.Group+"_"+kind.Kind]
	if !found {
		return nil, nil
	}
	machine := lua.NewState()
	defer machine.Close()
	text, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	value, err := luajson.Decode(machine, text)
	if err != nil {
		return nil, err
	}
	machine.SetGlobal("obj", value)
	if err := machine.DoString(script); err != nil {
		return nil, err
	}
	text, err = luajson.Encode(machine.Get(-1))
	if err != nil {
		return nil, err
	}
	status := &health.HealthStatus{}
	return status, json.Unmarshal(text, status)
}
