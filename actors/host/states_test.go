package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// hybrid is a model of three layers of linear attention around one of full attention.
func hybrid(t *testing.T) *family.Model { return hybridOf(t, 2) }

// hybridOf has so many key heads in linear attention.
func hybridOf(t *testing.T, keys int) *family.Model {
	s := family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32, Eps: 1e-5,
		QKNorm: true, Rope: block.Rope{Dim: 4, Theta: 10000, Max: 64, Original: 64, Length: 48},
		InitStd: 0.1,
		Mixers:  []string{"linear_attention", "linear_attention", "full_attention", "linear_attention"},
		Delta: block.Delta{Hidden: 16, Keys: keys, Values: 2 * keys, KeyDim: 6, ValueDim: 5, Taps: 4,
			Eps: 1e-5}}
	require.NoError(t, s.Check())
	return family.Decoder("toy", s)
}

// narrow is such a model whose states are small beside its rows.
func narrow(t *testing.T, keys int) *family.Model {
	m := hybridOf(t, keys)
	s := m.Spec
	s.Delta.KeyDim = 2
	require.NoError(t, s.Check())
	return family.Decoder("toy", s)
}

// shortConvs is such a model with short convolutions in place of states.
func shortConvs(t *testing.T) *family.Model {
	s := hybridOf(t, 2).Spec
	s.Mixers, s.Delta = []string{"conv", "conv", "full_attention", "conv"}, block.Delta{Taps: 3}
	require.NoError(t, s.Check())
	return family.Decoder("toy", s)
}

// TestConvsInChunks is TestStatesInChunks of short convolutions, with tokens of ranks too.
func TestConvsInChunks(t *testing.T) {
	for _, packed := range []bool{false, true} {
		want, norms := contextPlan{pp: 1, dp: 1, tp: 1, cp: 1, packed: packed,
			schedule: "1f1b"}.train(t, shortConvs(t), contextRows, 3)
		for _, v := range []contextPlan{
			{pp: 2, dp: 1, tp: 1, cp: 1, chunks: 3, rc: grad.RecomputeSelective},
			{pp: 1, dp: 2, tp: 2, cp: 1, chunks: 6, zero: 1}, {pp: 2, dp: 1, tp: 2, cp: 1, chunks: 3, sp: true},
			{pp: 1, dp: 1, tp: 2, cp: 2, u: 1, chunks: 2, rc: grad.RecomputeFull},
			{pp: 1, dp: 1, tp: 1, cp: 4, u: 2, zigzag: true, ring: true, zero: 3},
		} {
			if v.schedule = "1f1b"; v.chunks > 1 {
				v.schedule = "chunkpipe"
			}
			v.packed, v.u = packed, max(1, v.u)
			t.Run(fmt.Sprint(v), func(t *testing.T) {
				got, gn := v.train(t, shortConvs(t), contextRows, 3)
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "%v, want %v", got, want)
					require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 1e-4, "%v, want %v", gn, norms)
				}
			})
		}
	}
}

// TestStatesInChunks trains a hybrid whose sequences are cut into chunks, whole and packed, with tensor
// parallelism, pipelines, ZeRO, recompute and tokens shared out over ranks, to the losses and norms of one
// device: within 1e-5 and 1e-4, since sums of float32 have another order.
func TestStatesInChunks(t *testing.T) {
	t.Parallel()
	for _, packed := range []bool{false, true} {
		want, norms := contextPlan{pp: 1, dp: 1, tp: 1, cp: 1, packed: packed,
			schedule: "1f1b"}.train(t, hybrid(t), contextRows, 3)
		for _, v := range []contextPlan{
			{pp: 1, dp: 1, tp: 1, cp: 1, chunks: 2}, {pp: 1, dp: 1, tp: 1, cp: 1, chunks: 4,
				rc: grad.RecomputeFull},
			{pp: 2, dp: 1, tp: 1, cp: 1, chunks: 3, rc: grad.RecomputeSelective},
			{pp: 1, dp: 2, tp: 2, cp: 1, chunks: 6, zero: 1}, {pp: 2, dp: 1, tp: 2, cp: 1, chunks: 3,
				sp: true, zero: 1},
			{pp: 1, dp: 1, tp: 1, cp: 2, u: 1, chunks: 2, rc: grad.RecomputeFull},
			{pp: 1, dp: 2, tp: 1, cp: 2, u: 2, chunks: 3, zero: 3},
		} {
			v.packed, v.schedule, v.u = packed, "chunkpipe", max(1, v.u)
			t.Run(fmt.Sprint(v), func(t *testing.T) {
				got, gn := v.train(t, hybrid(t), contextRows, 3)
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "%v, want %v", got, want)
					require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 1e-4, "%v, want %v", gn, norms)
				}
			})
		}
	}
}

// TestStatesByHeads: ranks that share tokens exchange them for heads of linear attention where they divide,
// so that each runs the rule for its own heads alone, whatever attention exchanges, and with tensor parallelism,
// packing, chunks and ZeRO; losses and norms are those of one device (1e-5 and 1e-4: sums of float32 in another order).
func TestStatesByHeads(t *testing.T) {
	const keys = 8
	want, norms := map[bool][]float64{}, map[bool][]float64{}
	for _, packed := range []bool{false, true} {
		one := contextPlan{pp: 1, dp: 1, tp: 1, cp: 1, packed: packed, schedule: "1f1b"}
		want[packed], norms[packed] = one.train(t, hybridOf(t, keys), contextRows, 2)
	}
	for _, v := range []contextPlan{
		{pp: 1, dp: 1, tp: 1, cp: 2, u: 1, zigzag: true},
		{pp: 1, dp: 1, tp: 2, cp: 2, u: 1, ring: true, zigzag: true, packed: true},
		{pp: 2, dp: 1, tp: 2, cp: 2, u: 2, sp: true, packed: true},
		{pp: 1, dp: 1, tp: 2, cp: 4, u: 2, ring: true, zigzag: true},
		{pp: 1, dp: 2, tp: 2, cp: 2, u: 1, zigzag: true, zero: 3, rc: grad.RecomputeFull, packed: true},
		{pp: 1, dp: 1, tp: 1, cp: 4, u: 1, zero: 1, chunks: 2, rc: grad.RecomputeSelective, packed: true},
	} {
		if v.schedule = "1f1b"; v.chunks > 1 {
			v.schedule = "chunkpipe"
		}
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			got, gn := v.train(t, hybridOf(t, keys), contextRows, 2)
			for i, loss := range want[v.packed] {
				require.LessOrEqual(t, math.Abs(got[i]-loss)/loss, 1e-5)
				require.LessOrEqual(t, math.Abs(gn[i]/norms[v.packed][i]-1), 1e-4)
			}
		})
	}
}

// TestStatesByRows: where key heads do not divide by the ranks that share tokens, these keep their rows of the rule
// and send each other states: alone and with packing, tensor parallelism, an exchange of heads along other ranks, ZeRO,
// pipelines and recompute. Losses and norms are those of one device (1e-5 and 1e-4: sums of float32 in another order).
func TestStatesByRows(t *testing.T) {
	type key struct {
		keys   int
		packed bool
	}
	want, norms := map[key][]float64{}, map[key][]float64{}
	for _, x := range []struct {
		keys int
		contextPlan
	}{
		{1, contextPlan{pp: 1, dp: 1, tp: 1, cp: 2, u: 1}},
		{1, contextPlan{pp: 1, dp: 1, tp: 1, cp: 2, u: 1, zigzag: true, packed: true}},
		{1, contextPlan{pp: 1, dp: 1, tp: 1, cp: 4, u: 1, ring: true, zigzag: true}},
		{1, contextPlan{pp: 1, dp: 1, tp: 1, cp: 4, u: 1, packed: true, rc: grad.RecomputeFull}},
		{1, contextPlan{pp: 1, dp: 1, tp: 1, cp: 2, u: 1, chunks: 2, packed: true, rc: grad.RecomputeFull}},
		{2, contextPlan{pp: 2, dp: 1, tp: 2, cp: 2, u: 1, chunks: 2, ring: true}},
		{2, contextPlan{pp: 2, dp: 1, tp: 2, cp: 2, u: 1, ring: true, sp: true, zigzag: true, packed: true}},
		{2, contextPlan{pp: 1, dp: 1, tp: 1, cp: 4, u: 2, zigzag: true, packed: true}},
		{2, contextPlan{pp: 1, dp: 2, tp: 2, cp: 2, u: 1, zero: 3, rc: grad.RecomputeSelective}},
	} {
		v, k := x.contextPlan, key{x.keys, x.packed}
		if v.schedule = "1f1b"; v.chunks > 1 {
			v.schedule = "chunkpipe"
		}
		if want[k] == nil {
			one := contextPlan{pp: 1, dp: 1, tp: 1, cp: 1, packed: v.packed, schedule: "1f1b"}
			want[k], norms[k] = one.train(t, narrow(t, k.keys), contextRows, 2)
		}
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			got, gn := v.train(t, narrow(t, k.keys), contextRows, 2)
			for i, loss := range want[k] {
				require.LessOrEqual(t, math.Abs(got[i]-loss)/loss, 1e-5)
				require.LessOrEqual(t, math.Abs(gn[i]/norms[k][i]-1), 1e-4)
			}
			relayed := 0
			for i, heads := range relays(t, v, narrow(t, k.keys)) {
				relayed += heads
				require.Equal(t, k.keys*2/v.tp/v.u, heads, "rule %d", i)
			}
			require.Positive(t, relayed)
		})
	}
}

// relays lists, of each rule of a rank that gets states from another one, how many value heads it has.
func relays(t *testing.T, v contextPlan, m *family.Model) (heads []int) {
	l, err := layout.New(&layout.Design{Model: m, Mesh: v.mesh(), Zigzag: v.zigzag, Ring: v.ring,
		Schedule: v.schedule, Chunks: v.chunks, SeqParallel: v.sp, Zero: v.zero, Micro: 1,
		Rows: contextRows, Optim: optim.Config{Name: "adamw"}})
	require.NoError(t, err)
	for _, seg := range l.Main(0).Segments(grad.F) {
		for _, node := range seg.Ops {
			if node.Op.Name == "read_state" && node.In[0].Local[0] > m.Spec.Delta.KeyDim {
				heads = append(heads, node.In[0].Local[1])
			}
		}
	}
	return heads
}

// TestHeadsOfStates: a rank's rule and convolution have its share of heads, and all of them, of whole
// sequences, only where they do not divide.
func TestHeadsOfStates(t *testing.T) {
	for keys, heads := range map[int]int{8: 4, 2: 2} { // value heads of a rank, under tp=2 cp=2
		v := contextPlan{tp: 2, cp: 2, pp: 1, dp: 1, u: 1}
		l, err := layout.New(&layout.Design{Model: hybridOf(t, keys), Mesh: v.mesh(), Zigzag: true,
			Schedule: "1f1b", Micro: 1, Rows: contextRows, Optim: optim.Config{Name: "adamw"}})
		require.NoError(t, err)
		n := 0
		for phase := grad.F; phase <= grad.W; phase++ {
			for _, seg := range l.Main(0).Segments(phase) {
				for _, node := range seg.Ops {
					if at := map[string]int{"delta_rule": 2, "delta_rule_bwd": 3}[node.Op.Name]; at > 0 {
						require.Equal(t, []int{contextRows, heads, 5}, node.In[at].Local, "%d keys", keys)
						n++
					}
				}
			}
		}
		require.Equal(t, 6, n)
	}
}
