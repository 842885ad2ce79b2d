package rates

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/profile"
)

// briefly is bench step with a model that takes a tenth of a second.
func briefly(t *testing.T, pp int) (*Step, *layout.Layout, *StepResult, *profiler.Profiler) {
	t.Helper()
	s := &Step{Shape: "llama58m", Precision: "fp32", Recompute: "selective", Profile: "x", Threads: 1,
		Steps: 4, Layers: 2, Hidden: 256, Inter: 512, Vocab: 500, Seq: 256, Batch: 2, Pp: pp}
	require.NoError(t, s.check())
	m, err := s.model()
	require.NoError(t, err)
	l, err := s.layout(m)
	require.NoError(t, err)
	var res StepResult
	prof, err := s.train(m, l, &res)
	require.NoError(t, err)
	return s, l, &res, prof
}

// TestProfileSums: what a profile adds up is the time that the coordinator measured by itself, and every
// kernel call of the traces is in it, in the right phase.
func TestProfileSums(t *testing.T) {
	for _, pp := range []int{1, 2} {
		_, l, res, prof := briefly(t, pp)
		r, ok := prof.With(kernels.Peaks{})
		require.True(t, ok)
		require.Equal(t, 4, r.Steps)
		require.Len(t, r.Lanes, pp)
		steps := 0.
		for _, s := range res.Seconds {
			steps += s
		}
		// Between steps, and before and after them, lie a few messages, late on a busy machine.
		require.Greater(t, r.Wall, .95*steps-.03, "pp=%d", pp)
		require.Less(t, r.Wall, 1.1*steps+.1, "pp=%d", pp)
		calls := 0
		for st := range l.Stages {
			tr := l.Trace(layout.TraceKey{Stage: st})
			for _, segs := range [][]grad.Segment{tr.F, tr.B} {
				for _, seg := range segs {
					calls += seg.Cost.Calls
				}
			}
		}
		got, share := 0, 0.
		for _, k := range r.Table {
			share += k.Share
			// The optimizer is not part of the traces, nor is the seed that a backward begins with.
			if !slices.Contains([]string{"adamw", "sum_squares", "fill"}, k.Name) {
				got += k.Calls * (1 + strings.Count(k.Name, " + ")) // an epilogue is a call of the trace
			}
		}
		require.Equal(t, calls*pp*r.Steps, got, "calls in all microbatches of all steps")
		for _, lane := range r.Lanes {
			sum := lane.Waiting + lane.Loader + lane.Saving + lane.Messages
			for _, ph := range lane.Phases {
				sum += ph.Seconds
				require.Greater(t, ph.Kernels, 0., "%s of %s", ph.Name, lane.Name)
				require.LessOrEqual(t, ph.Kernels, ph.Seconds, "%s of %s", ph.Name, lane.Name)
			}
			require.InDelta(t, r.Wall, sum, 1e-6, lane.Name)
		}
		require.InDelta(t, r.Kernels, share*r.Wall*float64(pp), 1e-6)
		require.InDelta(t, r.Wall*float64(pp), r.Kernels+r.Outside+waiting(r.Report), 1e-6)
	}
}

func waiting(r *profile.Report) (s float64) {
	for _, l := range r.Lanes {
		s += l.Waiting
	}
	return
}

// TestProfileDrawing: each rank has its jobs and kernels in the drawing, and the longest kernels a bar.
func TestProfileDrawing(t *testing.T) {
	_, _, _, prof := briefly(t, 2)
	r, ok := prof.With(kernels.Peaks{TeamMultiplyAdd: 1e11, Memory: 1e10})
	require.True(t, ok)
	var b strings.Builder
	w := bufio.NewWriter(&b)
	prof.Draw(w, r)
	require.NoError(t, w.Flush())
	n := rects(t, b.String())
	events, _ := prof.Rec.LastStep()
	require.Greater(t, len(events), 100)
	require.Greater(t, n, len(events)/2) // some are too thin to draw
	for _, want := range []string{r.Lanes[0].Name, r.Lanes[1].Name, "loader", "forward: ", "backward: ",
		"optimizer: ", "of peak"} {
		require.Contains(t, b.String(), want)
	}
	for y := range 2 { // the row of kernels of each rank
		require.Contains(t, b.String(), fmt.Sprintf("y=\"%d\"", (2*y+2)*profiler.ProfileRow+1))
	}
}

// TestFloor counts the floor of a small model by hand, in formulas that the traces know nothing of.
func TestFloor(t *testing.T) {
	for _, pp := range []int{1, 2} {
		s, l, _, _ := briefly(t, pp)
		const h, ff, v, layers, tokens, heads = 256, 512, 500, 2, 512, 4
		weights := layers*(4*h*h+3*h*ff) + v*h
		params := weights + v*h + h*(2*layers+1)
		f := s.floor(l, int64(params), kernels.Peaks{TeamMultiplyAdd: 1e9, Memory: 1e8})
		require.Equal(t, float64(6*weights*tokens), f.Products,
			"two flops a weight forward and four backward")
		require.Equal(t, float64(layers*heads*(2*256*257/2)*64*(4+10)), f.Attention,
			"two products forward and five backward, of pairs that see each other")
		state := float64(params) * (28 + 4 + 2*4)
		acts := f.Bytes - state
		// A layer keeps at least its input, q, k, v, o, the middle, gate and up; norms and the gate's
		// product are computed again.
		require.Greater(t, acts, float64(2*4*layers*tokens*(6*h+2*ff)))
		require.Less(t, acts, 1.5*2*4*float64(layers*tokens*(6*h+2*ff)+4*tokens*h))
		require.InDelta(t, (f.Products+f.Attention)/1e9+f.Bytes/1e8, f.Seconds, 1e-9)
	}
}

// rects parses XML and counts its rectangles.
func rects(t *testing.T, text string) (n int) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return n
		}
		require.NoError(t, err)
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			n++
		}
	}
}
