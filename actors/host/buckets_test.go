package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// early counts the exchanges that a rank issues before its optimizer step, and of these the ones behind which
// the same action goes on.
func early(l *layout.Layout, rank int) (all, amid int) {
	part := &l.Ranks[rank]
	e := l.Early(part)
	if e == nil {
		return
	}
	for _, entry := range l.Program.Rows[part.Row] {
		for _, a := range []plan.Action{entry.Action, entry.With} {
			segs := len(l.Lower(a, false, 0))
			for s := range segs {
				n := len(e.Of(a, 0, int32(s)))
				if all += n; s < segs-1 {
					amid += n
				}
			}
		}
	}
	return
}

// TestBuckets: gradients that are sent while the backward goes on give the losses, bit for bit, of those
// that are sent behind it: with whole and split backwards, several stages a rank, sums in one and in two
// exchanges, state shared out, and on devices.
func TestBuckets(t *testing.T) {
	for _, v := range []struct {
		variant
		other string // a schedule that splits backwards or gives ranks several stages
		loops int
	}{{variant: variant{pp: 1, dp: 2, tp: 1}}, {variant: variant{pp: 1, dp: 4, tp: 1}, other: "gpipe"},
		{variant: variant{pp: 2, dp: 2, tp: 1, zero: 1, rc: grad.RecomputeFull}},
		{variant: variant{pp: 1, dp: 2, tp: 2, zero: 1, sp: true, overlap: true}},
		{variant: variant{pp: 1, replicas: 2, dp: 2, tp: 1, zero: 1}},
		{variant: variant{pp: 1, dp: 2, cp: 2, tp: 1, zero: 1}},
		{variant: variant{pp: 2, dp: 2, tp: 1}, other: "zb-h1"},
		{variant: variant{pp: 2, dp: 2, tp: 1}, other: "interleaved", loops: 2},
		{variant: variant{pp: 2, dp: 2, tp: 1}, other: "zb-v", loops: 2},
		{variant: variant{pp: 1, replicas: 4, dp: 1, cp: 2, tp: 1, zero: 2}},
		{variant: variant{pp: 1, replicas: 2, dp: 2, tp: 1, zero: 3, rc: grad.RecomputeFull}},
		{variant: variant{pp: 2, dp: 2, tp: 1, zero: 2}}} {
		v.schedule = "1f1b"
		t.Run(v.String()+v.other, func(t *testing.T) {
			t.Parallel()
			m, n := tiny(v.pp == 1), steps(3, 5)
			plain := func(j *layout.Design) {
				if j.Loops = v.loops; v.other != "" {
					j.Schedule = v.other
				}
			}
			want, late := v.trainChanged(t, m, n, refBackend, plain)
			all, _ := early(late, 0)
			require.Zero(t, all)
			for _, backend := range []func(int) kernels.Backend{refBackend, opaques(t)} {
				got, l := v.trainChanged(t, m, n, backend, func(j *layout.Design) {
					plain(j)
					j.Bucket = 2048
				})
				require.Equal(t, want, got)
				for r := range l.World() {
					all, amid := early(l, r)
					if v.zero == 2 && v.replicas == 0 {
						require.Zero(t, all, "each microbatch's gradients are summed already")
						continue
					}
					require.Greater(t, all, 2, "rank %d", r)
					require.Greater(t, amid, 1, "rank %d", r)
				}
			}
		})
	}
}
