package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestSamplersKilled: answers that processes of their own draw are those of one process, to the last bit of
// the weights, whichever of them is killed or stopped, and when: samplers are started again, and a run
// whose leader is killed goes on.
func TestSamplersKilled(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the samplers needs /proc")
	}
	steps, kills := 40, 6
	if *long {
		steps, kills = 300, 50
	} else {
		t.Log("left out: kills at 50 moments; -long has them")
	}
	quiet := clitest.DrawnRun(t, steps)
	code, out := runIn(t, quiet, nil, "train", "run.yaml")
	require.Zero(t, code, out)
	want := stateOf(t, quiet, int64(steps))
	answers, err := os.ReadFile(filepath.Join(quiet, "run", "rollouts.jsonl"))
	require.NoError(t, err)

	dir := clitest.DrawnRun(t, steps)
	env := append(os.Environ(), clitest.Gated(t, dir, 1)...)
	var said bytes.Buffer
	strikes := &strikes{rng: rand.New(rand.NewPCG(1, 2)), left: kills}
	for over := false; !over; {
		c := exec.Command(built(t), "train", "run.yaml", "rollout.samplers=3")
		c.Dir, c.Env, c.Stderr, c.Stdout = dir, env, &said, &said
		require.NoError(t, c.Start())
		over = strikes.run(t, c, steps)
		require.False(t, over && c.ProcessState.ExitCode() != 0, said.String())
	}
	require.Zero(t, strikes.left, "kills that were left when the run ended")
	require.Equal(t, want, stateOf(t, dir, int64(steps)))
	again, err := os.ReadFile(filepath.Join(dir, "run", "rollouts.jsonl"))
	require.NoError(t, err)
	require.Equal(t, string(answers), string(again))
	require.Contains(t, said.String(), "another takes its place")
	replays(t, dir, steps)
}

// strikes are dealt to a run that a gate holds, and behind each the run gets somewhere before the next.
type strikes struct {
	rng  *rand.Rand
	left int
	last int64 // what the run had got to at the last
}

// run strikes while the program runs, a sampler or the program itself, and says whether it ended by itself.
func (k *strikes) run(t *testing.T, c *exec.Cmd, steps int) (over bool) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = c.Wait() // its state has the code
		close(ended)
	}()
	got := func() int64 {
		return sizeOf(filepath.Join(c.Dir, "run", "rollouts.jsonl")) + int64(clitest.Steps(t, c.Dir))
	}
	struck := func() {
		k.left, k.last = k.left-1, got()
		clitest.Gate(t, c.Dir, clitest.Steps(t, c.Dir)+1)
	}
	for {
		select {
		case <-ended:
			return true
		case <-time.After(time.Duration(50+k.rng.IntN(300)) * time.Millisecond):
		}
		kids := children(t, c.Process.Pid)
		switch {
		case k.left == 0:
			clitest.Gate(t, c.Dir, clitest.Open)
		case len(kids) < 3 || got() == k.last:
		case k.left%3 == 0:
			require.NoError(t, c.Process.Kill())
			<-ended
			struck()
			return false
		default:
			sig := syscall.SIGKILL
			if k.left%5 == 1 {
				sig = syscall.SIGSTOP
			}
			_ = syscall.Kill(kids[k.rng.IntN(len(kids))], sig) // it may have ended
			struck()
		}
	}
}

// TestSamplersTalk: samplers in processes of their own talk with an environment as one process does, to the
// last bit of the weights, also where they are killed in the middle of a turn.
func TestSamplersTalk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the samplers needs /proc")
	}
	const steps = 6
	train := append([]string{"train", "run.yaml"}, clitest.Talks...)
	quiet := clitest.DrawnRun(t, steps)
	code, out := runIn(t, quiet, nil, train...)
	require.Zero(t, code, out)
	answers, err := os.ReadFile(filepath.Join(quiet, "run", "rollouts.jsonl"))
	require.NoError(t, err)
	require.Regexp(t, `"heard":\[.*"reward":1,`, string(answers))

	dir := clitest.DrawnRun(t, steps)
	clitest.Gate(t, dir, 1)
	c := exec.Command(built(t), append(train, "rollout.samplers=2", "rollout.wait=600")...)
	var said bytes.Buffer
	c.Dir, c.Stderr, c.Stdout = dir, &said, &said
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool { return sizeOf(filepath.Join(dir, "run", "rollouts.jsonl")) > 0 },
		time.Minute,
		time.Millisecond)
	killed := 0
	for _, pid := range children(t, c.Process.Pid) {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	clitest.Gate(t, dir, steps)
	require.NoError(t, c.Wait(), said.String())
	require.Positive(t, killed)
	require.Contains(t, said.String(), "another takes its place")
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps))
	again, err := os.ReadFile(filepath.Join(dir, "run", "rollouts.jsonl"))
	require.NoError(t, err)
	require.Equal(t, string(answers), string(again))
}

// TestJudges: a model of rewards in processes of its own gives the rewards that it gives in the process that
// trains, also where one is killed, and one stopped; blame finds them again in one process.
func TestJudges(t *testing.T) {
	t.Parallel()
	const steps = 6
	model := clitest.DrawnJudge(t)
	train := append(append([]string{"train", "run.yaml"}, clitest.Talks...), "rollout.staleness=1",
		"rollout.span=0", "reward.kind=model", "reward.model="+model)
	quiet := clitest.DrawnRun(t, steps)
	code, out := runIn(t, quiet, nil, train...)
	require.Zero(t, code, out)
	answers, err := os.ReadFile(filepath.Join(quiet, "run", "rollouts.jsonl"))
	require.NoError(t, err)

	dir := clitest.DrawnRun(t, steps)
	clitest.Gate(t, dir, 1)
	c := exec.Command(built(t), append(train, "reward.judges=2", "rollout.samplers=1", "rollout.wait=600")...)
	said := &heard{}
	c.Dir, c.Stderr, c.Stdout = dir, said, said
	require.NoError(t, c.Start())
	pids := func() (out []int) {
		for _, m := range regexp.MustCompile(`(?m)^judge process: pid (\d+)$`).FindAllStringSubmatch(said.String(), -1) {
			pid, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			out = append(out, pid)
		}
		return out
	}
	require.Eventually(t, func() bool {
		return len(pids()) == 2 && sizeOf(filepath.Join(dir, "run", "rollouts.jsonl")) > 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, syscall.Kill(pids()[0], syscall.SIGKILL))
	require.NoError(t, syscall.Kill(pids()[1], syscall.SIGSTOP))
	clitest.Gate(t, dir, steps)
	require.NoError(t, c.Wait(), said.String())
	require.Contains(t, said.String(), "what it judged is judged again")
	require.Contains(t, said.String(), "said nothing for 2s (rollout.silence)")
	require.Equal(t, stateOf(t, quiet, steps), stateOf(t, dir, steps))
	again, err := os.ReadFile(filepath.Join(dir, "run", "rollouts.jsonl"))
	require.NoError(t, err)
	require.Equal(t, string(answers), string(again))
	code, out = runIn(t, dir, nil, "data", "blame", "run", "3", "--rewards")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, nil, "train", "run.yaml", "reward.judges=2")
	require.Equal(t, 2, code)
	require.Contains(t, out, "reward.judges: is not read by reward.kind = regex")
}

// heard is what a program says, while it says it.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *heard) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *heard) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sizeOf is the size of a file, 0 where there is none.
func sizeOf(path string) int64 {
	at, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return at.Size()
}

// replays: steps of the run are drawn, judged and trained again in one process, to the bit; a reward that
// somebody changed in the log is found from its sample within a second.
func replays(t *testing.T, dir string, steps int) {
	t.Helper()
	saved := func(step int) bool {
		_, err := os.Stat(filepath.Join(dir, "ckpt", fmt.Sprintf("step-%08d", step)))
		return step <= 0 || err == nil
	}
	most, replayed := 2, 0
	if *long {
		most = 20
	}
	for _, step := range rand.New(rand.NewPCG(3, 4)).Perm(steps) {
		if !saved(step-2) || !saved(step-1) || !saved(step) || replayed == most {
			continue // a save that would have had to wait was left out
		}
		code, out, errs := streams(t, dir, "", "replay", "run.yaml", fmt.Sprint(step+1), "-o", "json")
		require.Zero(t, code, out+errs)
		require.Contains(t, out, `"same":true`)
		require.Contains(t, out, `"differ":[]`)
		replayed++
	}
	t.Logf("%d of %d steps came out with the same bits; of others states are missing that they begin with",
		replayed, most)
	require.GreaterOrEqual(t, replayed, (most+1)/2) // a busy machine leaves more saves out
	path := filepath.Join(dir, "run", "rollouts.jsonl")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	var a struct {
		Step, Sample int64
		Index        int
		Reward       float64
	}
	require.NoError(t, json.Unmarshal([]byte(lines[5*32+7]), &a))
	lines[5*32+7] = strings.Replace(lines[5*32+7], fmt.Sprintf(`"reward":%v,`, a.Reward),
		fmt.Sprintf(`"reward":%v,`, 1-a.Reward), 1)
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
	began := time.Now()
	code, out, errs := streams(t, dir, "", "data", "blame", "run", fmt.Sprint(a.Step), "--rewards",
		"--sample",
		fmt.Sprint(a.Sample))
	took := time.Since(began)
	t.Logf("a wrong reward is found in %v", took)
	require.Equal(t, 1, code, out+errs)
	require.Contains(t, out, fmt.Sprintf("! sample %d answer %d,", a.Sample, a.Index))
	require.Contains(t, out, fmt.Sprintf("reward %v, now %v;", 1-a.Reward, a.Reward))
	if *long {
		require.Less(t, took, time.Second)
	}
}

// TestSimRollouts: staleness shortens a step and ages no token further than it says; what means nothing is refused.
func TestSimRollouts(t *testing.T) {
	t.Parallel()
	code, out, errs := streams(t, t.TempDir(), "", "sim", "rollouts", "--samplers", "4", "--staleness",
		"0,1", "-o", "json")
	require.Zero(t, code, errs)
	var rows []struct {
		Staleness, Age int64
		Gain           float64
	}
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Len(t, rows, 2)
	require.Equal(t, 1.0, rows[0].Gain)
	require.Greater(t, rows[1].Gain, 1.3)
	require.Equal(t, []int64{0, 1}, []int64{rows[0].Age, rows[1].Age})
	for _, bad := range []string{"--samplers=0", "--staleness=-1", "--groups=0", "--train=-1"} {
		code, _, _ = streams(t, t.TempDir(), "", "sim", "rollouts", bad)
		require.Equal(t, 2, code, bad)
	}
}
