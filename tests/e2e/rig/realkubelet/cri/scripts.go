package main

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The same annotations as the kubelet stand-in reads (sandbox/kubelet/scripts.py), so that one pod plays on both.
const prefix = "sandbox.gpuplan.dev/"

// forever is longer than any test, and as a duration still far from overflow.
const forever = 1000 * time.Hour

// script is what a container does when it is started and stopped.
type script struct {
	start, stop, unkillable time.Duration
	run                     time.Duration
	exitCode                int32
}

func scriptOf(annotations map[string]string, command, args []string) script {
	number := func(name string) float64 {
		value, err := strconv.ParseFloat(annotations[prefix+name], 64)
		if err != nil || value < 0 {
			return 0
		}
		return value
	}
	return script{
		start:      seconds(number("start-seconds")),
		stop:       seconds(number("stop-seconds")),
		unkillable: seconds(number("unkillable-seconds")),
		run:        runningTime(command, args),
		exitCode:   int32(number("exit-code")),
	}
}

// stopping is how long a stop with that grace period takes, and the exit code.
func (s script) stopping(grace time.Duration) (time.Duration, int32) {
	if s.stop > grace || s.unkillable > 0 {
		return min(s.stop, grace) + s.unkillable, 137
	}
	return s.stop, 143
}

var (
	sleep = regexp.MustCompile(`\bsleep\b((?:\s+[\d.]+[smhd]?\b)*)`)
	loop  = regexp.MustCompile(`\b(?:while|until|for)\b`)
	units = map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}
)

// runningTime is the sum of all `sleep N`; a command without one, or with a loop, never ends.
func runningTime(command, args []string) time.Duration {
	text := strings.Join(append(append([]string{}, command...), args...), " ")
	found := sleep.FindAllStringSubmatch(text, -1)
	if len(found) == 0 || loop.MatchString(text) {
		return forever
	}
	total := 0.0
	for _, match := range found {
		words := strings.Fields(match[1])
		if len(words) == 0 { // sleep infinity, sleep $N
			return forever
		}
		for _, word := range words {
			unit, ok := units[word[len(word)-1]]
			if ok {
				word = word[:len(word)-1]
			} else {
				unit = 1
			}
			number, _ := strconv.ParseFloat(word, 64)
			total += number * unit
		}
	}
	return seconds(total)
}

func seconds(value float64) time.Duration {
	return time.Duration(math.Min(value, forever.Seconds()) * float64(time.Second))
}
