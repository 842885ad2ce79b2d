package rehearsal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	kernel "github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// rehearsed is a small Llama on h100 with four microbatches, all of whose forward is repeated. Products have one rate.
func rehearsed(t *testing.T, schedule string, pp, tp int) *Rehearsal {
	return rehearsedOn(t, schedule, pp, tp, false)
}

// rehearsedOn is that with products in tiles, or without.
func rehearsedOn(t *testing.T, schedule string, pp, tp int, tiles bool) *Rehearsal {
	c, err := configs.Published("llama/3.2-1b")
	require.NoError(t, err)
	c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab = 64, 4, 4, 2, 16, 128, 512
	fam, err := family.Build(c, 64)
	require.NoError(t, err)
	m, err := Machine("h100")
	require.NoError(t, err)
	var device func(kernel.Work) (int64, int64)
	if tiles {
		device = m.Kernels()
	}
	l, err := layout.New(&layout.Design{Model: fam, Device: device, Mesh: topology.Grid(pp, 1, tp),
		Schedule: schedule, Micro: 4, Rows: 64, Recompute: grad.RecomputeFull, SeqParallel: tp > 1,
		DType: tensor.BF16,
		Optim: optim.Config{Name: "adamw"}})
	require.NoError(t, err)
	r, err := Of(l, Options{Machine: m})
	require.NoError(t, err)
	return r
}

// TestExplain: the parts of a step add up to it, the kernels to what the rank was busy with, and a machine
// that is better in one thing changes that part alone.
func TestExplain(t *testing.T) {
	for _, schedule := range []string{"1f1b", "zb-2p"} {
		r := rehearsedOn(t, schedule, 2, 2, true)
		e, err := r.Explain(sim.Options{})
		require.NoError(t, err)
		res := r.Run(sim.Options{})
		require.InEpsilon(t, res.Steps[1].Time/1e9, e.Step, 1e-12)
		part, sum := map[string]Part{}, 0.0
		for _, p := range e.Parts {
			require.GreaterOrEqual(t, p.Seconds, 0.0, p.What)
			require.InEpsilon(t, 1+p.Seconds/e.Step, 1+p.Share, 1e-12)
			part[p.What], sum = p, sum+p.Seconds
		}
		require.InEpsilon(t, e.Step, sum, 1e-9)
		kernels, again := 0.0, 0.0
		for i, k := range e.Kernels {
			kernels += k.Seconds
			if k.Again {
				again += k.Seconds
			}
			if i > 0 {
				require.LessOrEqual(t, k.Seconds, e.Kernels[i-1].Seconds, "longest first")
			}
			require.InEpsilon(t, k.Seconds/e.Step, k.Share, 1e-12)
		}
		a := res.Ranks[e.Rank]
		for i, other := range res.Ranks {
			require.LessOrEqual(t, other.Busy+other.Comm, a.Busy+a.Comm, "rank %d", i)
		}
		require.InEpsilon(t, float64(a.Busy)/1e9, kernels, 1e-3, "jobs last whole nanoseconds")
		require.InEpsilon(t, kernels,
			part[partFlops].Seconds+part[partBytes].Seconds+part[partCalls].Seconds, 1e-9)
		require.InEpsilon(t, again, e.Again, 1e-9)
		require.Greater(t, e.Again, 0.2*kernels, "all forwards are repeated")
		require.InDelta(t, float64(a.Comm)/1e9, part[partComm].Seconds, 1e-12)
		require.InDelta(t, float64(a.Bubble)/1e9, part[partBubble].Seconds, 1e-12)
		require.InDelta(t, float64(a.Update)/1e9, part[partUpdate].Seconds, 1e-12)

		fast := *r.Machine
		fast.Flops *= 2
		r.Machine = &fast
		f, err := r.Explain(sim.Options{})
		require.NoError(t, err)
		require.InEpsilon(t, part[partFlops].Seconds/2, f.Parts[0].Seconds, 1e-9)
		require.InEpsilon(t, part[partBytes].Seconds, f.Parts[1].Seconds, 1e-9)
		require.Less(t, f.Parts[0].OfPeak, r.Machine.Efficiency, "not all tiles are full")
		require.Greater(t, f.Parts[0].OfPeak, 0.0)
		require.Equal(t, r.Machine.Stream, f.Parts[1].OfPeak)
	}
}

// TestExplainBounds: a kernel's bound is what takes most of its time, and its share of the peak is that of
// its whole time.
func TestExplainBounds(t *testing.T) {
	r := rehearsed(t, "1f1b", 1, 1)
	m := *r.Machine
	r.Machine = &m
	bound := func(flops, bandwidth, overhead float64) ExplainedKernel {
		m.Flops, m.Bandwidth, m.Overhead = flops, bandwidth, overhead
		e, err := r.Explain(sim.Options{})
		require.NoError(t, err)
		for _, k := range e.Kernels {
			if k.Kernel == "linear" && !k.Again {
				return k
			}
		}
		t.Fatal("no linear")
		return ExplainedKernel{}
	}
	k := bound(1e9, 1e15, 0)
	require.Equal(t, "arithmetic", k.Bound)
	require.InEpsilon(t, m.Efficiency, k.OfPeak, 1e-6, "nothing else takes time")
	k = bound(1e15, 1e3, 0)
	require.Equal(t, "memory", k.Bound, "narrow products read more than they multiply")
	require.InEpsilon(t, m.Stream, k.OfPeak, 1e-6)
	k = bound(1e15, 1e15, 1)
	require.Equal(t, "launches", k.Bound)
	require.Less(t, k.OfPeak, 1e-3)
	require.InEpsilon(t, float64(k.Calls), k.Seconds, 1e-3, "a second a call")

	m.Flops, m.Overhead = 1e9, 0
	e, err := r.Explain(sim.Options{})
	require.NoError(t, err)
	var out bytes.Buffer
	e.Print(&out)
	require.Contains(t, out.String(), fmt.Sprintf("%.1f %% arithmetic of kernels at %.2f of peak",
		100*e.Parts[0].Share,
		m.Efficiency))
	require.Contains(t, out.String(), "repeats forward work")
}

// TestKernelCosts: the parts of every segment are its cost.
func TestKernelCosts(t *testing.T) {
	for _, schedule := range []string{"1f1b", "zb-2p"} {
		r := rehearsedOn(t, schedule, 2, 2, schedule == "1f1b")
		n := 0
		for key, tr := range r.Layout.Traces {
			for _, phase := range []grad.Phase{grad.F, grad.B, grad.I, grad.W} {
				segments := tr.Segments(phase)
				for i := range segments {
					var sum grad.Cost
					for _, c := range tr.KernelCosts(&segments[i]) {
						sum = sum.Plus(c.Cost)
					}
					want := segments[i].Cost
					want.Comm = 0
					require.Equal(t, want, sum, "%v, phase %v, segment %d", key, phase, i)
					n++
				}
			}
		}
		require.Greater(t, n, 10)
	}
}

// traced runs the rehearsal and reads the trace that it has written.
func traced(t *testing.T, r *Rehearsal) []Traced {
	line := Timeline{Layout: r.Layout, Last: r.Steps}
	r.Run(sim.Options{Span: line.See})
	name := filepath.Join(t.TempDir(), "trace.json")
	require.NoError(t, line.Chrome(name))
	jobs, cut, err := ReadTrace(name)
	require.NoError(t, err)
	require.False(t, cut)
	return jobs
}

// recorded repeats a step's jobs as so many steps, each of which waits before the next, and lets a stage's
// backwards take more in those after the first.
func recorded(one []Traced, steps int, wait float64, slow func(Traced) float64) (out []Traced) {
	end := 0.0
	for _, j := range one {
		end = max(end, j.End)
	}
	for s := range steps {
		for _, j := range one {
			j.Step = int64(s + 1)
			j.Start, j.End = j.Start+float64(s)*(end+wait), j.End+float64(s)*(end+wait)
			if s > 0 {
				j.End += slow(j)
			} else {
				j.End += 1 // the first step warms up
			}
			out = append(out, j)
		}
	}
	return
}

// TestTraceDiff: a simulated trace does not differ from its simulation; what is slower in a trace is named
// first, with its ranks; the first step does not count, and the median does.
func TestTraceDiff(t *testing.T) {
	r := rehearsed(t, "1f1b", 2, 1)
	one := traced(t, r)
	d, err := r.Diff(one, sim.Options{})
	require.NoError(t, err)
	require.Len(t, d.Notes, 1, "one step")
	for i := range d.Jobs {
		require.InDelta(t, d.Jobs[i].Simulated, d.Jobs[i].Measured, 1e-7, d.Jobs[i].String())
	}
	jobs := recorded(one, 5, 0.5, func(j Traced) float64 {
		switch {
		case j.Step == 3:
			return 7 // one slow step of four does not move the median far
		case strings.HasPrefix(j.Action, "1B"):
			return 0.25
		}
		return 0
	})
	d, err = r.Diff(jobs, sim.Options{})
	require.NoError(t, err)
	require.Equal(t, 3, d.Steps, "without the first and the last, which nothing ends")
	require.Empty(t, d.Notes)
	first := d.Jobs[0]
	require.Equal(t, []any{"B", 1, 4}, []any{first.Kind, first.Stage, first.Calls})
	require.InDelta(t, 4*0.25, first.Difference(), 1e-5)
	require.InDelta(t, 0, d.Jobs[1].Difference(), 1e-5)
	require.InDelta(t, 1, d.Ranks[1].Busy-d.Ranks[1].SimBusy, 1e-5)
	require.InDelta(t, 0, d.Ranks[0].Busy-d.Ranks[0].SimBusy, 1e-5)
	require.InDelta(t, d.Measured, d.Ranks[1].Busy+d.Ranks[1].Wait, 1e-9)
	require.InDelta(t, d.Simulated, d.Ranks[1].SimBusy+d.Ranks[1].SimWait, 1e-9)
	require.NotEmpty(t, first.Mostly)
	require.Contains(t, d.String(), "backward of stage 1, segment 0 took 1.000 s longer")
	name := filepath.Join(t.TempDir(), "d.svg")
	require.NoError(t, d.SVG(name))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Len(t, d.measured, len(one), "jobs that take no time are not traced")
	require.Equal(t, len(one)+len(d.simulated), bytes.Count(text, []byte("<rect")), "both steps")
	var out bytes.Buffer
	d.Print(&out)
	require.Contains(t, out.String(), "backward of stage 1")

	d, err = r.Diff(recorded(one, 2, 0.5, func(Traced) float64 { return 0 }), sim.Options{})
	require.NoError(t, err)
	require.Equal(t, 1, d.Steps)
	require.Contains(t, d.Notes[0], "two steps")
}

// TestTraceOfAnother: a trace of another plan, or one that lacks a job, is refused with the job.
func TestTraceOfAnother(t *testing.T) {
	one := traced(t, rehearsed(t, "1f1b", 2, 1))
	_, err := rehearsed(t, "1f1b", 1, 1).Diff(one, sim.Options{})
	require.ErrorContains(t, err, "is of another plan")
	var coded exit.Error
	require.ErrorAs(t, err, &coded)
	require.Equal(t, exit.Usage, coded.Code)
	_, err = rehearsed(t, "1f1b", 2, 1).Diff(one[1:], sim.Options{})
	require.ErrorContains(t, err, "the plan has a job "+one[0].Action+".0 of rank")
	_, err = rehearsed(t, "1f1b", 2, 1).Diff(nil, sim.Options{})
	require.ErrorContains(t, err, "no jobs")
}

// TestReadTrace: events of others are passed over, what is no trace is refused, and a trace that ends in the
// middle gives what it has.
func TestReadTrace(t *testing.T) {
	read := func(text string) ([]Traced, bool, error) {
		name := filepath.Join(t.TempDir(), "trace.json")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return ReadTrace(name)
	}
	rows := `[{"ph":"M","name":"thread_name","tid":7,"args":{"name":"rank 3 (pp 1)"}},
		{"ph":"M","name":"thread_name","tid":8,"args":{"name":"loader 0.0"}},`
	jobs, cut, err := read(rows + `{"ph":"X","name":"1F0.2.1","tid":7,"ts":1.5,"dur":2,"args":{"step":4}},
		{"ph":"X","name":"load","tid":8,"ts":1,"dur":2},{"ph":"X","name":"write","tid":7,"ts":1,"dur":2},
		{"ph":"X","name":"0.0","tid":7,"ts":1,"dur":2}]`)
	require.NoError(t, err)
	require.False(t, cut)
	require.Len(t, jobs, 1)
	require.InEpsilon(t, 3.5e-6, jobs[0].End, 1e-9)
	jobs[0].End, jobs[0].Start = 0, 0
	require.Equal(t, Traced{Rank: 3, Step: 4, Action: "1F0.2", Segment: 1, Place: "pp 1"}, jobs[0])
	for _, end := range []string{``, `{"ph":"X","na`, `{"ph":"X","name":"1F0.0","tid":7,"ts":1,"dur":1}`} {
		jobs, cut, err = read(rows + `{"ph":"X","name":"1F0.1","tid":7,"ts":1,"dur":2},` + end)
		require.NoError(t, err, end)
		require.True(t, cut, end)
		require.NotEmpty(t, jobs)
	}
	for text, why := range map[string]string{"{}": "not a list of events", "": "not a list",
		rows + `{"ph":"X","name":"1F0.x","tid":7,"dur":1}]`:  `event "1F0.x"`,
		rows + `{"ph":"X","name":"1F0.1","tid":7,"dur":-1}]`: "event", rows + `3]`: "byte"} {
		_, _, err = read(text)
		require.ErrorContains(t, err, why, text)
		var where *configs.Error
		require.ErrorAs(t, err, &where, text)
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add(`[{"ph":"M","name":"thread_name","tid":7,"args":{"name":"rank 3"}},{"ph":"X","name":"0F0.0","tid":7}]`)
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "trace.json")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		jobs, _, err := ReadTrace(name)
		require.True(t, err == nil || len(jobs) == 0)
	})
}
