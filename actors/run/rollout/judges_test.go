package rollout

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/objective"
)

// judgesOf are judges that are goroutines: each has a pipe for what it is asked, and one for what it says.
func judgesOf(t *testing.T, n int, pause func(int) actors.Duration,
	serve func(place int, l *line)) (r *Source,
	alive *atomic.Int64) {
	t.Helper()
	c := &configs.Config{}
	c.Run.Reward = configs.Reward{Kind: "model", Judges: n}
	c.Run.Rollout = configs.Rollout{Group: n, Silence: 60}
	r = &Source{Of: Of{Cfg: c, Say: func(string, ...any) {}}, loss: &objective.Loss{Policy: &objective.Policy{}}, launcher: &launcher{},
		changed: make(chan struct{})}
	r.launcher.of = &r.Of
	r.ctx, r.cancel = context.WithCancel(context.Background())
	t.Cleanup(r.cancel)
	alive = &atomic.Int64{}
	r.launcher.begins = func(place int, _ ...string) (*workerProcess, error) {
		theirs, ours := net.Pipe()
		over := make(chan struct{})
		alive.Add(1)
		go func() {
			defer close(over)
			serve(place, newLine(theirs))
			_ = theirs.Close() // of a pipe, which gives no error
		}()
		end := func() { _ = theirs.Close() } // the same
		return &workerProcess{name: "judge", line: newLine(ours), kill: end,
			ended: func() string { <-over; alive.Add(-1); return "was killed" }}, nil
	}
	r.judges, r.reward = r.newJudges(n, pause), r.asks
	return r, alive
}

// scored is an answer's score.
func scored(q actors.Message, score float64) actors.Message {
	return actors.Message{Kind: pool.Result, Step: q.Step, Values: []float64{score}}
}

// TestJudgesKilled: that all of many judges are killed at once takes no answer its reward.
func TestJudgesKilled(t *testing.T) {
	const n = 12
	var died sync.WaitGroup
	died.Add(n)
	var began [n + 1]atomic.Int64
	r, alive := judgesOf(t, n, nil, func(place int, l *line) {
		first := began[place].Add(1) == 1
		for q, err := l.hear(); err == nil; q, err = l.hear() {
			if first {
				died.Done()
				return
			}
			died.Wait() // nothing is judged before all have gone
			l.says(scored(q, float64(q.Payload.(*links.Pack).Tensors[0].I32()[0])))
		}
	})
	var all []*Answer
	for i := range n {
		all = append(all, &Answer{Index: i, Prompt: []int32{int32(i)}})
	}
	require.NoError(t, r.rewarded(all))
	for i, a := range all {
		require.Empty(t, a.Fault)
		require.Equal(t, float64(i), *a.Reward)
	}
	require.LessOrEqual(t, alive.Load(), int64(n), "a place has one judge")
	r.cancel()
	r.judges.Close()
	require.Zero(t, alive.Load(), "judges that nobody has waited for")
}

// TestJudgesVain: a place in which judges only end is an error of the run, and none of its answers.
func TestJudgesVain(t *testing.T) {
	r, alive := judgesOf(t, 1, nil, func(int, *line) {})
	a := &Answer{Prompt: []int32{1}}
	err := r.rewarded([]*Answer{a})
	require.ErrorContains(t, err, "judging answers: judge judge was killed")
	require.Empty(t, a.Fault)
	require.Zero(t, alive.Load())
	_, err = r.asks(context.Background(), &reward.Answer{})
	require.Error(t, err)
	r.launcher.begins = func(int, ...string) (*workerProcess, error) { return nil, errors.New("no host") }
	r.judges, r.failed = r.newJudges(1, nil), nil
	require.ErrorContains(t, r.rewarded([]*Answer{a}), "judging answers: a judge: no host")
	r.cancel()
	require.ErrorIs(t, r.rewarded([]*Answer{a}), ErrLeft)
	var sum actors.Duration
	for k := range samplerTries {
		sum += judgePause(k)
	}
	require.Greater(t, sum, 20*actors.Second)
}

// TestJudgesWaits: who asks what a run waits for is told of the judge that says nothing.
func TestJudgesWaits(t *testing.T) {
	asked, hangs := make(chan struct{}), make(chan struct{})
	r, _ := judgesOf(t, 1, nil, func(_ int, l *line) {
		q, _ := l.hear()
		close(asked)
		<-hangs
		l.says(scored(q, 1))
		_, _ = l.hear() // until it is closed
	})
	busy := func() bool { return r.Members()[0].Wait.Busy }
	require.False(t, busy())
	judged := make(chan error)
	go func() { judged <- r.rewarded([]*Answer{{Prompt: []int32{1}}}) }()
	<-asked
	m := r.Members()[0]
	require.Equal(t, "judge 1 (judge)", m.Name)
	require.Equal(t, "1 results", m.Wait.What)
	require.True(t, m.Wait.Busy)
	close(hangs)
	require.NoError(t, <-judged)
	require.False(t, busy())
	r.cancel()
	r.judges.Close()
}

// TestJudgesDismissed: a judge that hears nothing is ended, and waited for, with the run.
func TestJudgesDismissed(t *testing.T) {
	r, alive := judgesOf(t, 1, nil, func(_ int, l *line) {
		q, _ := l.hear() // it is asked once
		for l.say(scored(q, 1)) == nil {
		}
	})
	require.NoError(t, r.rewarded([]*Answer{{Prompt: []int32{1}}}))
	r.cancel()
	r.judges.Close()
	require.Zero(t, alive.Load())
}

// TestOurs: a program that a worker process begins does not have its environment.
func TestOurs(t *testing.T) {
	const child = "LFACTOR_TEST_OURS"
	if os.Getenv(child) != "" {
		ours("LFACTOR_PROC")
		require.True(t, Serves())
		c := exec.Command("sh", "-c", `env | grep -E "^LFACTOR_(SAMPLER|JUDGE|PROC)="; echo .`)
		c.Stdout = os.Stdout
		require.NoError(t, c.Run())
		os.Exit(0)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestOurs$")
	c.Env = append(os.Environ(), child+"=1", envSampler+"=1", envJudge+"=1", "LFACTOR_PROC=2")
	out, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, ".\n", string(out))
}

// TestUnlike: a worker process that computes with other instructions is refused with what is to be done.
func TestUnlike(t *testing.T) {
	require.NoError(t, unlike(hello(1).Text, cpu.Level()))
	require.Contains(t, cpu.Levels(), cpu.Level())
	require.ErrorContains(t, unlike("avx2", "avx512"), "computes with avx2, and the process that trains "+
		"with avx512, which gives other bits: set LFACTOR_CPU")
}

// TestAbsent: an environment that answers nobody is seen beside answers that asked none.
func TestAbsent(t *testing.T) {
	long, failed := &Answer{}, &Answer{HeardFault: "no session begins"}
	heard := &Answer{Heard: make([]Heard, 1)}
	require.Equal(t, failed, absent([]*Answer{long, failed}))
	require.Nil(t, absent([]*Answer{failed, heard}))
	require.Nil(t, absent([]*Answer{long}))
}
