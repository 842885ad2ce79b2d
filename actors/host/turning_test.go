package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/optim"
)

// TestMuonGrid: an optimizer that updates matrices as wholes trains to the losses of one rank, whatever ranks
// their rows and columns lie on; plans that cut no matrix have the same bits.
func TestMuonGrid(t *testing.T) {
	for _, kind := range []string{"muon", "adafactor"} {
		turningGrid(t, kind)
	}
}

func turningGrid(t *testing.T, kind string) {
	t.Helper()
	for _, tie := range []bool{false, true} {
		m := tiny(tie)
		want, norms := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b", optim: kind}.train(t, m, 6,
			refBackend)
		adamw, _ := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.train(t, m, 6, refBackend)
		require.NotEqual(t, adamw, want)
		for _, v := range []variant{{pp: 2, dp: 1, tp: 1}, {pp: 4, dp: 1, tp: 1, schedule: "zb-1p"},
			{pp: 1, dp: 2, tp: 1}, {pp: 1, dp: 2, tp: 1, zero: 1}, {pp: 1, dp: 4, tp: 1, zero: 2},
			{pp: 1, dp: 4, tp: 1, zero: 3}, {pp: 1, dp: 1, tp: 2}, {pp: 1, dp: 1, tp: 4, sp: true},
			{pp: 1, dp: 2, tp: 2, zero: 1}, {pp: 1, dp: 2, tp: 2, zero: 2, sp: true}, {pp: 1, dp: 2, tp: 2,
				zero: 3},
			{pp: 2, dp: 2, tp: 2, zero: 1, rc: grad.RecomputeFull}, {pp: 1, dp: 2, tp: 1, zero: 1,
				replicas: 2},
			{pp: 1, dp: 1, tp: 2, cp: 2, zero: 1}, {pp: 1, dp: 1, tp: 1, cp: 2, zero: 3},
			{pp: 2, dp: 2, tp: 1, zero: 1, overlap: true}} {
			if v.optim = kind; v.schedule == "" {
				v.schedule = "1f1b"
			}
			t.Run(fmt.Sprintf("%s tie=%v %v", kind, tie, v), func(t *testing.T) {
				t.Parallel()
				got, gn := v.train(t, m, 6, refBackend)
				for i := range want {
					if v.mesh().Size() == v.pp && !tie {
						require.Equal(t, want[i], got[i])
					}
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 2e-5, "step %d: %v, want %v",
						i+1, got, want)
					require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 1e-3)
				}
			})
		}
	}
}

// TestMuonExperts: each expert's matrices are turned by themselves, wherever experts and their columns lie.
func TestMuonExperts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"muon", "adafactor"} {
		train := func(p expertPlan, name string) []float64 {
			j := p.job(mixture(t, name))
			j.Optim = optim.Config{Name: kind, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1,
				Adafactor: optim.Adafactor{Power: 0.8, Above: 1, Floor: 1e-3},
				Muon:      optim.Muon{Momentum: 0.9, Steps: 5, Scale: optim.Spectral}}
			return toyRun(t, j, toyBatches(p.dp), 3)
		}
		want := train(expertPlan{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}, "shared")
		for k, p := range expertPlans {
			if k%4 != 1 && !*long {
				continue
			}
			got := train(p, "shared")
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 2e-5, "%s %+v, step %d: %v, want %v", kind, p,
					i+1, got, want)
			}
		}
	}
}
