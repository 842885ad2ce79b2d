package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// written is a line of a run with its time.
type written struct {
	text string
	at   time.Time
}

// lines sends what a run writes, as it comes.
func lines(r io.Reader, to chan<- written) {
	for s := bufio.NewScanner(r); s.Scan(); {
		to <- written{s.Text(), time.Now()}
	}
	close(to)
}

// TestRecoveryTimes kills a process again and again and prints how long it takes until the loss is known and
// until the next step is committed: a table for people. It fails where no step comes for a minute.
func TestRecoveryTimes(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("50 kills of a process each for three sources of the state: add -long")
	}
	for _, args := range [][]string{{"plan.procs=4"}, {"plan.procs=4", "plan.zero=1", "train.buddy=4"},
		{"plan.procs=2", "train.buddy=4"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { timeKills(t, 50, args) })
	}
}

// TestGoodput prints what recovery costs a run that nothing happens to, in pairs of runs with and without:
// after one another, in alternating order, and both at once, so that other work on the machine hits both
// alike. It compares their steps' time and the processors' time of all their processes.
func TestGoodput(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("two times eight pairs of runs for two plans: add -long")
	}
	for _, plan := range []string{"plan.zero=0", "plan.zero=1"} {
		train := func(args ...string) [2]float64 {
			dir := tinyRun(t)
			c := exec.Command(built(t), append(append([]string{"train", "run.yaml", "plan.procs=2", plan},
				widerArgs...), append(args, "train.steps=200")...)...)
			c.Dir = dir
			out, err := c.CombinedOutput()
			require.NoError(t, err, string(out))
			wall := 0.0
			for _, m := range metrics(t, dir)[20:] { // the first warm up, and show what copies cost
				wall += m.Seconds
			}
			// its children's too
			return [2]float64{wall, (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()}
		}
		for _, how := range []string{"after one another", "at once"} {
			var ratios [2][]float64
			for i := range 8 {
				with, without := pairOf(how == "at once", i%2 == 1, train)
				for k := range ratios {
					ratios[k] = append(ratios[k], without[k]/with[k])
				}
			}
			for k, name := range []string{"time of steps", "processors' time"} {
				v := ratios[k]
				slices.Sort(v)
				t.Logf("%s, %s: without recovery / with, %s, eight pairs: median %.4f, middle four %.4f to %.4f",
					plan, how, name, (v[3]+v[4])/2, v[2], v[5])
			}
		}
	}
}

// pairOf trains with recovery and without, one of them first or both at once.
func pairOf(once, swapped bool, train func(...string) [2]float64) (with, without [2]float64) {
	first, second := func() { with = train() }, func() { without = train("train.restarts=0") }
	if swapped {
		first, second = second, first
	}
	if !once {
		first()
		second()
		return with, without
	}
	var wait sync.WaitGroup
	wait.Go(first)
	second()
	wait.Wait()
	return with, without
}

//lfvet:long a table of cases
func timeKills(t *testing.T, n int, args []string) {
	c := exec.Command(built(t), append(append([]string{"train", "run.yaml", "-o", "jsonl"}, widerArgs...),
		args...)...)
	c.Dir = tinyRun(t)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	errs, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	steps, notes := make(chan written, 1<<16), make(chan written, 1<<16)
	go lines(out, steps)
	go lines(errs, notes)
	var tail []string // of what it has said
	next := func(from chan written, is func(written) bool) written {
		for {
			select {
			case l, ok := <-from:
				if !ok {
					for l := range notes {
						tail = append(tail, l.text)
					}
					require.Fail(t, "the run ended", "%v: %v", c.Wait(),
						strings.Join(tail[max(0, len(tail)-20):], "\n"))
				}
				if from == notes {
					tail = append(tail, l.text)
				}
				if is(l) {
					return l
				}
			case <-time.After(time.Minute):
				require.Fail(t, "nothing for a minute")
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var seconds []float64
	var detected, stepped, again []float64
	number := func(l written) (m run.Metrics) {
		require.NoError(t, json.Unmarshal([]byte(l.text), &m))
		return m
	}
	for range 20 { // what is measured adapts
		seconds = append(seconds, number(next(steps, func(written) bool { return true })).Seconds)
	}
	for range n {
		pause := time.Duration(500+rng.IntN(500)) * time.Millisecond
		began := time.Now()
		last := int64(0)
		next(steps, func(l written) bool { last = number(l).Step; return l.at.Sub(began) > pause })
		kids := children(t, c.Process.Pid)
		at := time.Now()
		require.NoError(t, syscall.Kill(kids[rng.IntN(len(kids))], syscall.SIGKILL))
		detected = append(detected, next(notes, func(l written) bool {
			return strings.Contains(l.text, "lost: process")
		}).at.Sub(at).Seconds())
		back := next(notes, func(l written) bool { return strings.Contains(l.text, "recovered after") })
		first := next(steps, func(l written) bool {
			last =
				max(last, number(l).Step)
			return l.at.After(back.at)
		})
		stepped, again = append(stepped, first.at.Sub(at).Seconds()),
			append(again, float64(last+1-number(first).Step))
	}
	pid, _ := os.FindProcess(c.Process.Pid)
	require.NoError(t, pid.Signal(syscall.Signal(0)), "the leader is the one that was started")
	slices.Sort(seconds)
	quantile := func(v []float64, q float64) float64 { slices.Sort(v); return v[int(q*float64(len(v)-1))] }
	row := fmt.Sprintf("step %.0f ms", 1e3*seconds[len(seconds)/2])
	for _, x := range []struct {
		name string
		v    []float64
	}{{"detected after s", detected}, {"next step after s", stepped}, {"steps taken again", again}} {
		row += fmt.Sprintf("; %s p50 %.3g p99 %.3g max %.3g", x.name, quantile(x.v, 0.5),
			quantile(x.v, 0.99), quantile(x.v, 1))
	}
	t.Log(row)
}
