package main

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClusterSlow: a process that gets a fifth of its processor is named with its host, by its computation,
// in the run's output and in the cluster's events.
func TestClusterSlow(t *testing.T) {
	v := newVerbs(t)
	v.verb(0, "train", "run.yaml", "--cluster", "test", "--detach", "plan.procs=2", "train.steps=100000",
		"train.global_batch=64", "checkpoint.interval=0")
	require.Eventually(t, func() bool {
		return strings.Contains(v.verb(0, "logs", "1", "--proc", "0"), "step 15/")
	}, time.Minute, 50*time.Millisecond)
	var jobs []struct{ Procs []struct{ Pid int } }
	v.json(&jobs, "ps")
	worker := jobs[0].Procs[1].Pid
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	throttled := make(chan struct{})
	go func() {
		defer close(throttled)
		for ctx.Err() == nil {
			_ = syscall.Kill(worker, syscall.SIGSTOP) // what became of it is seen below
			<-time.After(40 * time.Millisecond)
			_ = syscall.Kill(worker, syscall.SIGCONT)
			<-time.After(10 * time.Millisecond)
		}
	}()
	defer func() { cancel(); <-throttled }()
	named := func() (line string) {
		for _, e := range eventsOf(t, v.dir, v.env) {
			if e.Kind == "slow" && e.Host == "h2" {
				return e.Text
			}
		}
		return ""
	}
	require.Eventually(t, func() bool { return named() != "" }, 50*time.Second, 200*time.Millisecond)
	require.Regexp(t, `^host h2 is slow in job 1: rank [23] .* computes \d+\.\d times as long as it did before`, named())
	cancel()
	<-throttled
	require.Contains(t, v.verb(0, "logs", "1", "--proc", "0"), "! slow: rank ")
	v.verb(0, "stop", "1", "--now")
	t.Log(named())
}
