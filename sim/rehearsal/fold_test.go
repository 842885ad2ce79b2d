package rehearsal

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology/cost"
)

// Models that are folded: a dense one, one with experts, and one with an encoder of images.
const (
	denseSizes = "hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 8, " +
		"head_dim: 16, intermediate_size: 128, vocab_size: 512"
	foldedDense   = "name: llama/3.2-1b, overrides: {" + denseSizes + "}"
	foldedExperts = "name: qwen/3-30b-a3b, overrides: {" + denseSizes + ", num_experts: 8, num_experts_per_tok: 2, " +
		"moe_intermediate_size: 32}"
	foldedImages = "name: qwen-vl/2.5-3b, overrides: {" + denseSizes + ", rope_scaling: {rope_type: mrope, " +
		"mrope_section: [2, 3, 3]}, vision: {depth: 2, hidden_size: 32, intermediate_size: 64, num_heads: 4, " +
		"fullatt_block_indexes: [1]}}"
)

// foldedText is the configuration of a small model's run.
func foldedText(model string) string {
	data := "seq_len: 128"
	if model == foldedImages {
		data += ", kind: media"
	}
	return "model: {init: random, " + model + "}\ndata: {paths: [none], tokenizer: none, " + data +
		"}\ntrain: {steps: 1, global_batch: 64, precision: bf16}\n"
}

// newFolded is a small model's run on a cluster.
func newFolded(m *cost.Machine, model, settings string) (*Rehearsal, error) {
	cfg, err := configs.Load(configs.Request{File: "fold.yaml", Text: []byte(foldedText(model)),
		Args: strings.Fields(settings)})
	if err != nil {
		return nil, err
	}
	return New(cfg, Options{Machine: m, Steps: 2})
}

// foldedRun is that of a plan that is one.
func foldedRun(t *testing.T, m *cost.Machine, model, settings string) *Rehearsal {
	t.Helper()
	r, err := newFolded(m, model, settings)
	require.NoError(t, err, settings)
	return r
}

// foldedPlans lists plans of a model; the name of a key may be given without plan.
func foldedPlans() (out [][2]string) {
	for _, schedule := range []string{"1f1b", "zb-2p", "interleaved virtual_stages=2"} {
		for _, degrees := range []string{"dp=4", "tp=4", "dp=2 tp=2 sequence_parallel=true", "dp=8 zero=1",
			"dp=4 tp=2 zero=1 overlap=true", "cp=2 dp=2 overlap=true", "cp=4 cp_comm=ring overlap=true",
			"dp=4 recompute=full offload=true"} {
			out = append(out, [2]string{foldedDense, "pp=2 schedule=" + schedule + " " + degrees})
		}
	}
	for _, degrees := range []string{"dp=8 zero=3", "dp=16 zero=3 overlap=true", "dp=4 tp=2 zero=2",
		"tp=8 dp=2",
		"cp=4 cp_comm=ulysses dp=2", "pp=4 dp=4", "pp=2 dp=16", "pp=2 tp=8 dp=2", "dp=8 zero=2 zero_ranks=4",
		"pp=2 tp=2 cp=2 dp=2", "pp=4 tp=2 dp=2 schedule=gpipe", "pp=4 tp=2 dp=4 schedule=zb-h1"} {
		out = append(out, [2]string{foldedDense, degrees})
	}
	for _, degrees := range []string{"dp=4 ep=4", "dp=4 ep=2", "pp=2 dp=4 ep=4", "tp=2 dp=4 ep=4",
		"dp=8 ep=8",
		"dp=8 ep=4 zero=1 overlap=true", "dp=4 ep=4 tp=2 etp=2",
		"pp=2 dp=4 ep=4 overlap_microbatches=true"} {
		out = append(out, [2]string{foldedExperts, degrees})
	}
	for _, over := range []string{"none", "first", "all", "own encoder.ranks=1"} {
		out = append(out, [2]string{foldedImages, "pp=2 dp=4 encoder.patches=64 encoder.over=" + over},
			[2]string{foldedImages, "pp=2 tp=2 dp=2 encoder.patches=64 encoder.over=" + over})
	}
	return out
}

// settingsOf writes the keys of a plan in full.
func settingsOf(plan string) string { return "plan." + strings.ReplaceAll(plan, " ", " plan.") }

// TestFolded: of fifty plans, every figure of a simulation in which ranks that do the same run once is that
// of all ranks, and so is the time line of each. Where ranks compete for a connection at the same nanosecond,
// as with encoders on all ranks, a step takes as long within a thousandth.
func TestFolded(t *testing.T) {
	t.Parallel()
	m, err := Machine("h100")
	require.NoError(t, err)
	exact := 0
	for _, p := range foldedPlans() {
		r := foldedRun(t, m, p[0], settingsOf(p[1]))
		folded := foldedAndWhole(t, r)
		require.Less(t, folded.Ran, r.Layout.World(), p[1])
		if folded.Tied {
			require.Equal(t, foldedImages, p[0], p[1])
		} else {
			exact++
		}
	}
	require.GreaterOrEqual(t, exact, 50)
}

// TestFoldedApart: ranks on devices of another kind stay apart, and so do those behind other links; where
// messages go one by one, nothing is folded and it is said.
func TestFoldedApart(t *testing.T) {
	t.Parallel()
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	m, err := cost.Read("mixed", append(text,
		"second:\n  from: 12\n  flops: 400 TFLOP/s\n  memory: 80 GiB\n"+
			"  bandwidth: 2 TB/s\n  overhead: 5 us\n"...))
	require.NoError(t, err)
	require.Equal(t, 2, foldedAndWhole(t, foldedRun(t, m, foldedDense, "plan.dp=16")).Ran,
		"one of each kind")
	require.Equal(t, 4, foldedAndWhole(t, foldedRun(t, m, foldedDense, "plan.dp=8 plan.pp=2")).Ran,
		"pipelines with a slow end, and without")
	r := foldedRun(t, m, foldedDense, "plan.dp=4")
	r.o.Sends = true
	folded := foldedAndWhole(t, r)
	require.Equal(t, 4, folded.Ran)
	require.Equal(t, "collectives are carried out message by message", folded.Unfolded)
}

// foldedAndWhole simulates a plan folded and whole, and compares all that is known of both.
func foldedAndWhole(t *testing.T, r *Rehearsal) sim.Result {
	t.Helper()
	run := func(fold bool) (*sim.Result, []sim.Span) {
		var lines []sim.Span
		res := r.Run(sim.Options{Seed: 3, Fold: fold, Span: func(s sim.Span) {
			if s.Rank >= 0 {
				s.Job, s.Made = nil, nil
				lines = append(lines, s)
			}
		}})
		require.Nil(t, Fault(res), "%v", r.Layout.Design)
		slices.SortFunc(lines, func(a, b sim.Span) int {
			return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End,
				b.End))
		})
		return res, lines
	}
	whole, a := run(false)
	folded, b := run(true)
	was := *folded
	if folded.Tied {
		require.Equal(t, whole.Events, folded.Events)
		require.InEpsilon(t, whole.Steps[1].Time, folded.Steps[1].Time, 1e-3)
		return was
	}
	whole.Hash, folded.Hash, folded.Ran, folded.Unfolded = 0, 0, whole.Ran, ""
	require.Equal(t, whole, folded, "%v", r.Layout.Design.Mesh)
	require.Equal(t, a, b)
	return was
}
