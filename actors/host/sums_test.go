package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestGradientSums: among more than two replicas each sums its part of the rows and sends it to the others.
// The sums have the bits of those that ZeRO 1 takes, where each rank keeps its part, and each rank sends
// 2(n-1)/n of the gradients. Three members cut no tensor into equal parts.
func TestGradientSums(t *testing.T) {
	for _, dp := range []int{2, 3, 4} {
		var losses [2][]float64
		for zero := range 2 {
			v := variant{pp: 1, dp: dp, tp: 1, zero: zero, schedule: "1f1b"}
			l, o := v.run(t, tiny(true), 3, refBackend, &losses[zero])
			l.Design.Optim.Clip = 0 // norms are added up by shards, in another order
			if dp == 3 {
				o.Batches = testBatches(4, 8) // of which three take one each
			}
			sent := map[string]int64{}
			o.Edges = func(all []Edge) {
				for _, e := range all {
					if strings.HasPrefix(e.From, "rank") && strings.HasPrefix(e.To, "rank") {
						sent[e.From] += e.Bytes
					}
				}
			}
			require.NoError(t, Run(l, o))
			if zero > 0 {
				continue
			}
			var n, rank0 int64
			for _, p := range l.Ranks[0].Params {
				n += 4 * int64(tensor.Len(p.Local))
				rows := int64(tensor.Len(p.Local) / p.Local[0])
				rank0 += 4 * rows * int64(p.Local[0]-p.Local[0]/dp)    // the others' parts
				rank0 += 4 * rows * int64(p.Local[0]/dp) * int64(dp-1) // and its own sums
			}
			if dp == 2 {
				rank0 = n
			}
			require.Equal(t, 3*rank0, sent["rank0"], "dp=%d", dp)
			total := int64(0)
			for r := range dp {
				total += sent[fmt.Sprint("rank", r)]
			}
			require.Equal(t, 3*2*n*int64(dp-1), total, "dp=%d: 2(n-1)/n a rank", dp)
		}
		require.Equal(t, losses[1], losses[0], "dp=%d", dp)
	}
}

// TestReplicasOfGroups: replicas of groups that state is shared out over send what the simulator prices: of gradients
// the part of each group's member alone, in two exchanges where there are more than two, and no more.
func TestReplicasOfGroups(t *testing.T) {
	for zero := 1; zero <= 3; zero++ {
		for _, v := range []variant{{replicas: 2, dp: 2}, {replicas: 4, dp: 1, cp: 2}} {
			v.pp, v.tp, v.zero, v.schedule = 1, 1, zero, "1f1b"
			l, o := v.run(t, tiny(true), 3, refBackend, new([]float64))
			var real, priced int64
			o.Edges = func(all []Edge) {
				for _, e := range all {
					if strings.HasPrefix(e.From, "rank") && strings.HasPrefix(e.To, "rank") {
						real += e.Bytes
					}
				}
			}
			require.NoError(t, Run(l, o))
			for _, phase := range []grad.Phase{grad.F, grad.B} {
				for _, s := range l.Main(0).Segments(phase) {
					priced += s.Cost.Comm * int64(4/v.replicas/v.dp)
				}
			}
			priced *= int64(l.World())
			moved := int64(0)
			for r := range l.World() {
				for _, s := range l.RankLayout(r, 0).Update {
					for _, c := range s.Comms {
						moved += c.Bytes
					}
				}
			}
			require.Equal(t, 3*(priced+moved), real, "%v: %d of a step are the update's", v, moved)
			n := int64(0) // gradients on a rank: all with ZeRO 1, those of its rows else
			for _, p := range l.Ranks[0].Params {
				n += 4 * int64(tensor.Len(p.Local))
			}
			if zero == 3 {
				shares, copies := int64(v.dp*max(1, v.cp)), int64(v.replicas)
				want := 2 * n / shares * (copies - 1) // of all replicas of a shard, in either form
				require.Equal(t, want*shares, moved, "%v", v)
			}
		}
	}
}
