package rehearsal

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/sim"
)

// drawnPlan is a plan of a model, both from a seed: most of them fit.
func drawnPlan(r *rand.Rand) (model, plan string) {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	switch model = one(foldedDense, foldedDense, foldedExperts, foldedImages); model {
	case foldedDense:
		plan = "dp=" + one("2", "4", "8") + " tp=" + one("1", "1", "2", "4") + " " + one("", "cp=2", "zero=1",
			"zero=2", "zero=1 overlap=true", "overlap=true", "bucket_bytes=4KiB", "bucket_bytes=4KiB zero=1",
			"zero=3")
	case foldedExperts:
		plan = "dp=4 ep=" + one("1", "2", "4") + " tp=" + one("1", "2") + " " + one("", "zero=1",
			"overlap=true")
	default:
		plan = "dp=" + one("2", "4") + " tp=" + one("1", "2") + " encoder.patches=64 encoder.over=" +
			one("none", "first", "all")
	}
	if !strings.Contains(plan, "zero=2") && !strings.Contains(plan, "zero=3") {
		plan += " pp=" + one("1", "2", "2", "4") + " schedule=" + one("1f1b", "zb-2p", "gpipe",
			"interleaved virtual_stages=2")
	}
	return model, strings.Join(strings.Fields(plan), " ")
}

// TestApart: of forty plans that are drawn at random, the hash, every figure and every report are the same
// whether all events go through one queue or replicas run by themselves, on one thread or on two. Plans whose
// replicas meet within passes do not run apart, and none that does has to be run twice.
func TestApart(t *testing.T) {
	m, err := Machine("h100")
	require.NoError(t, err)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	apart, models, rng := 0, map[string]int{}, rand.New(rand.NewPCG(1, 2))
	for drawn, tries := 0, 0; drawn < 40; tries++ {
		require.Less(t, tries, 400)
		model, plan := drawnPlan(rng)
		r, err := newFolded(m, model, settingsOf(plan))
		if err != nil {
			continue
		}
		drawn++
		r.o.Wait = drawn%3 == 0
		run := func(threads int, each func(int, func(int))) (*sim.Result, string) {
			runtime.GOMAXPROCS(max(1, threads))
			var told strings.Builder
			l, p, o := r.prepare(sim.Options{Seed: uint64(drawn), Report: func(m actors.Message) {
				fmt.Fprintln(&told, m.Text, m.Step, m.Values, m.Err)
			}})
			o.Each = each
			return sim.New(l, p, o).Run(), told.String()
		}
		whole, told := run(1, nil)
		require.Zero(t, whole.Parts)
		for threads := 1; threads <= 2; threads++ {
			parts, heard := run(threads, Cores)
			if parts.Parts > 0 && threads == 1 {
				apart++
				models[model]++
			}
			require.False(t, parts.Torn, plan)
			parts.Parts = 0
			require.Equal(t, whole, parts, "%s on %d threads", plan, threads)
			require.Equal(t, told, heard, plan)
		}
	}
	require.GreaterOrEqual(t, apart, 30)
	require.Len(t, models, 3)
}
