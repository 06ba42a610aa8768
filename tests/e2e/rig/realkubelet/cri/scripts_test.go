package main

import (
	"strings"
	"testing"
	"time"
)

func TestRunningTime(t *testing.T) {
	for command, want := range map[string]time.Duration{
		"sleep 3":                          3 * time.Second,
		"sh -c sleep 0.5; sleep 1m":        60500 * time.Millisecond,
		"sleep 1 2s":                       3 * time.Second,
		"sleep infinity":                   forever,
		"while true; do sleep 1; done":     forever,
		"train --epochs 3":                 forever,
		"":                                 forever,
		"echo oversleep 3 && sleep 2 && x": 2 * time.Second,
	} {
		if found := runningTime(strings.Fields(command), nil); found != want {
			t.Errorf("%q runs %v, not %v", command, found, want)
		}
	}
}

func TestStopping(t *testing.T) {
	for _, each := range []struct {
		script script
		grace  time.Duration
		after  time.Duration
		code   int32
	}{
		{script{stop: time.Second}, 5 * time.Second, time.Second, 143},
		{script{stop: 9 * time.Second}, 2 * time.Second, 2 * time.Second, 137},
		{script{unkillable: time.Minute}, time.Second, time.Minute, 137},
		{script{stop: 9 * time.Second, unkillable: time.Minute}, time.Second, 61 * time.Second, 137},
	} {
		after, code := each.script.stopping(each.grace)
		if after != each.after || code != each.code {
			t.Errorf("%+v with grace %v ends after %v with %d", each.script, each.grace, after, code)
		}
	}
}

func TestUnreadableAnnotationsChangeNothing(t *testing.T) {
	found := scriptOf(map[string]string{prefix + "stop-seconds": "soon", prefix + "exit-code": "-1"}, nil, nil)
	if found.stop != 0 || found.exitCode != 0 {
		t.Errorf("%+v", found)
	}
	if scriptOf(map[string]string{prefix + "unkillable-seconds": "inf"}, nil, nil).unkillable != forever {
		t.Error("inf is for ever")
	}
}
