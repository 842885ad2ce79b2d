package serving

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/stages/sample"
)

var long = flag.Bool("long", false, "run all seeds, and plant all faults")

// drawn is a world of a seed: a machine that is too slow or not, few pages or many, clients that go away, weights that
// change and steps that fail.
func drawn(seed uint64) World {
	rng := rand.New(rand.NewPCG(seed, 3))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	per := 1e-4 * float64(1+rng.IntN(20))
	w := World{Seed: seed, Requests: 20 + rng.IntN(40), Queue: pick(3, 10, 100), Tokens: pick(200, 2000, 1<<20),
		Engine: sample.EngineOptions{Pages: pick(24, 40, 200), Rows: pick(16, 64, 256), Running: pick(2, 6, 32)},
		Prompt: Lengths{Median: float64(pick(5, 40, 120)), Spread: 1, Most: 300},
		Answer: Lengths{Median: float64(pick(3, 20, 60)), Spread: 1, Most: 150}, Keys: pick(1, 1, 3),
		Step: func(l sample.Load) float64 { return 0.001 + per*float64(l.Class().Rows) }}
	if w.Rate = float64(pick(2, 20, 200)); rng.IntN(2) == 0 {
		w.Clients = pick(1, 4, 16)
	}
	if rng.IntN(2) == 0 {
		w.Common = pick(16, 40)
	}
	if rng.IntN(2) == 0 {
		w.Aborts, w.Patience = 0.3, float64(pick(1, 5))
	}
	if rng.IntN(3) == 0 {
		w.Replaced = []float64{rng.Float64(), 1 + rng.Float64()}
	}
	if rng.IntN(4) == 0 {
		bad := int64(5 + rng.IntN(40))
		w.Fails = func(step int64) bool { return step%bad == bad-1 }
	}
	return w
}

// judge holds a world to the promises of package queue and of the engine.
type judge struct {
	w       *World
	err     error
	sizes   map[int64][2]int
	drew    map[int64]int
	ended   map[int64]string
	quiet   map[int64]bool // has begun to draw, and waits for the step under way
	gaveUp  map[*turns]int64
	retired map[*turns]bool
	failed  map[*turns]int64
}

func (j *judge) fail(promise, format string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf("seed %d: %s: %s", j.w.Seed, promise, fmt.Sprintf(format, args...))
	}
}

// took looks at what is let wait.
func (j *judge) took(t *turns, before sample.Stats, m *actors.Message, err error) {
	n := int(m.Values[0])
	j.sizes[m.Step] = [2]int{n, int(m.Values[1])}
	room := before.Waiting < j.w.Queue && (before.Waiting == 0 || before.WaitingTokens+n <= j.w.Tokens)
	switch {
	case j.retired[t] && err == nil:
		j.fail("S-8", "request %d begins with weights that were replaced", m.Step)
	case errors.Is(err, queue.ErrClosed):
	case room && errors.Is(err, queue.ErrFull):
		j.fail("S-3", "request %d is refused where %d wait, with %d tokens", m.Step, before.Waiting,
			before.WaitingTokens)
	case !room && err == nil:
		j.fail("S-3", "request %d is let in where %d wait with %d tokens", m.Step, before.Waiting, before.WaitingTokens)
	}
}

// step looks at what a step has left.
func (j *judge) step(t *turns) {
	s := t.Engine.Stats()
	if n := t.Failed; n != j.failed[t] {
		if j.failed[t] = n; len(t.requests) > 0 {
			j.fail("S-9", "a step has failed, and %d requests go on", len(t.requests))
		}
	}
	gaveUp := s.Preempted != j.gaveUp[t]
	j.gaveUp[t] = s.Preempted
	said := map[int64]bool{}
	for _, m := range t.says {
		said[m.Step] = true
	}
	for id := range t.requests {
		roomy := j.w.Engine.Pages == 200 && j.w.Engine.Running <= 6 // none waits for pages
		if roomy && !said[id] && j.quiet[id] {
			j.fail("S-7", "request %d has begun to draw, and the step has nothing for it", id)
		}
		j.quiet[id] = said[id] || j.quiet[id] && !gaveUp
	}
	switch {
	case s.PagesUsed < 0, s.PagesUsed > s.Pages, s.PagesUsed > 0 && s.Running+s.Waiting == 0:
		j.fail("S-4", "%d of %d pages are used by %d requests", s.PagesUsed, s.Pages, s.Running)
	case s.Running > max(1, j.w.Engine.Running):
		j.fail("S-4", "%d run, and %d may", s.Running, j.w.Engine.Running)
	}
	if l := t.Engine.Load(); l.Rows > max(j.w.Engine.Rows, j.w.Engine.Running) {
		j.fail("S-6", "a step of %d rows", l.Rows)
	} else if l.Rows == 0 && s.Running+s.Waiting > 0 {
		j.fail("S-6", "%d run and %d wait, and a step has nothing to do", s.Running, s.Waiting)
	}
}

// hears looks at what clients are told.
func (j *judge) hears(m *actors.Message) {
	switch m.Kind {
	case token:
		if j.drew[m.Step]++; j.ended[m.Step] != "" {
			j.fail("S-2", "request %d has ended, and draws", m.Step)
		}
	case answered, refused:
		if j.ended[m.Step] != "" {
			j.fail("S-1", "request %d ends twice", m.Step)
		}
		j.ended[m.Step] = m.Text
		if m.Kind == refused {
			j.ended[m.Step] = "refused"
		}
		context := j.w.Engine.Pages * sample.PageRows
		want := min(j.sizes[m.Step][1], context-j.sizes[m.Step][0])
		if n := j.drew[m.Step]; n > want || m.Text == "length" && n != want || m.Kind == refused && n > 0 {
			j.fail("S-2", "request %d wants %d tokens, has %d and ends by %s", m.Step, want, n, j.ended[m.Step])
		}
		if m.Text == "error" && j.w.Fails == nil {
			j.fail("S-1", "request %d ends by an error", m.Step)
		}
	}
}

// judged runs a world and says which promise it breaks.
func judged(w World) (Result, error) {
	j := &judge{w: &w, sizes: map[int64][2]int{}, drew: map[int64]int{}, ended: map[int64]string{},
		quiet: map[int64]bool{}, gaveUp: map[*turns]int64{}, retired: map[*turns]bool{}, failed: map[*turns]int64{}}
	srv := &server{World: &w, client: 1}
	srv.spy = &spy{took: j.took, begun: func(int64) {}, step: func(t *turns) {
		for _, o := range srv.old {
			j.retired[o] = true
		}
		j.step(t)
	}}
	r, err := run(&w, srv, j.hears)
	if err != nil {
		j.fail("S-1", "%v", err)
	}
	if s := r.Stats; j.err == nil && (s.PagesUsed != 0 || s.Running+s.Waiting > 0) {
		j.fail("S-4", "at the end %d pages are used, %d run and %d wait", s.PagesUsed, s.Running, s.Waiting)
	}
	return r, j.err
}

// TestSeeds: S-1 every request ends once; S-2 with the tokens that it asked for, or fewer where it was cut off;
// S-3 it is refused where no more may wait, and only there; S-4 pages and places are given back;
// S-6 steps are as large as they may be and not empty; S-7 no answer waits for another's prompt;
// S-8 replaced weights take nobody in; S-9 behind a step that fails nobody goes on.
// The same seed gives the same times.
func TestSeeds(t *testing.T) {
	n := uint64(300)
	if *long {
		n = 10000
	} else {
		t.Logf("%d of 10000 seeds: -long has the others", n)
	}
	ends, gaveUp := map[string]int{}, int64(0)
	for seed := range n {
		r, err := judged(drawn(seed))
		if err != nil {
			t.Fatal(err)
		}
		for why, k := range r.Ends {
			ends[why] += k
		}
		if gaveUp += r.Stats.Preempted; seed%50 == 0 {
			again, err := judged(drawn(seed))
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
	}
	t.Log(ends, gaveUp, "gave their pages up")
	for _, why := range []string{"length", "cancel", "refused", "error"} {
		require.Positive(t, ends[why], why)
	}
	require.Positive(t, gaveUp)
}

// TestShares (S-5): one request of a key that has had nothing is let in before others of a key that has had much,
// however many of these came first; and a key that was away has saved nothing up.
func TestShares(t *testing.T) {
	w := World{Requests: 41, Queue: 100, Tokens: 1 << 20, Rate: 1, Engine: sample.EngineOptions{Running: 2, Rows: 64},
		Prompt: Lengths{Median: 20, Most: 20}, Answer: Lengths{Median: 10, Most: 10},
		Step: func(sample.Load) float64 { return 0.01 }}
	for _, late := range []int{10, 35} {
		srv := &server{World: &w, client: 1}
		var begun []int64
		srv.spy = &spy{took: func(*turns, sample.Stats, *actors.Message, error) {}, step: func(*turns) {},
			begun: func(id int64) { begun = append(begun, id) }}
		srv.begin()
		ask := func(id int, key string) {
			srv.command(nil, srv.at, &actors.Message{Kind: submit, Step: int64(id), Values: []float64{20, 10},
				Text: key})
		}
		for id := range 40 {
			ask(id, "busy")
		}
		for n := 0; srv.at.Engine.Busy(); n++ {
			require.Less(t, n, 1000)
			if srv.at.Step(); n == late {
				ask(100, "rare")
				ask(101, "rare")
				ask(102, "rare")
			}
		}
		at := map[int64]int{}
		for i, id := range begun {
			at[id] = i
		}
		first := at[100]
		require.LessOrEqual(t, first, 2*(late/10+2), "%v", begun)
		require.GreaterOrEqual(t, at[102]-first, 3, "being away has saved something up: %v", begun)
	}
}

// TestPrices: with one client the first token comes a step for each piece of the prompt behind the request, and each
// further one a step behind the last; prompts that begin alike are computed once.
func TestPrices(t *testing.T) {
	w := World{Requests: 3, Clients: 1, Queue: 9, Tokens: 1 << 20, Engine: sample.EngineOptions{Rows: 64},
		Prompt: Lengths{Median: 100, Most: 100}, Answer: Lengths{Median: 5, Most: 5},
		Step: func(l sample.Load) float64 { return float64(l.Rows) / 1000 }}
	r, err := Run(w)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{0.1, 0.1, 0.1}, r.First, 1e-6)
	require.InDelta(t, 0.001, r.Between[0], 1e-6)
	require.InDelta(t, 0.001, r.Between[len(r.Between)-1], 1e-6)
	require.Equal(t, 15, r.Drawn)
	w.Common = 96
	r, err = Run(w)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{0.004, 0.004, 0.1}, r.First, 1e-6)
	require.True(t, strings.HasPrefix(fmt.Sprint(r.Ends), "map[length:3"))
}
