package planner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// TestChooseTensors: with plenty of memory everything stays; with less, what is chosen fits where keeping
// all does not, its step is shorter than that of recomputing all, and a run file with the settings has the
// memory that was planned. With less than recomputing all takes nothing fits.
func TestChooseTensors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(deep), 0o644))
	own := []string{"plan.pp=2", "train.global_batch=8"}
	choose := func(memory string) (*Tensors, error) {
		return ChooseTensors(context.Background(), configs.Request{File: file,
			Args: append([]string{"plan.memory=" + memory}, own...)}, "h100")
	}
	planned := func(settings ...string) (peak int64, step float64) {
		cfg, err := configs.Load(configs.Request{File: file, Args: append(settings, own...),
			Getenv: os.Getenv})
		require.NoError(t, err)
		m, err := rehearsal.Machine("h100")
		require.NoError(t, err)
		r, err := rehearsal.New(cfg, rehearsal.Options{Machine: m})
		require.NoError(t, err)
		for rank := range r.Layout.Ranks {
			peak = max(peak, r.Layout.Memory(rank).WorstTotal())
		}
		sum, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: m})
		require.NoError(t, err)
		return peak, sum.Step
	}
	all, fastest := planned("plan.recompute=none")
	least, slowest := planned("plan.recompute=full")
	require.Less(t, least, all)

	plenty, err := choose("70GiB")
	require.NoError(t, err)
	require.Equal(t, all, plenty.PeakBytes)
	require.InDelta(t, fastest, plenty.StepSeconds, 1e-9)
	for _, f := range plenty.List {
		require.Equal(t, "keep", f.Fate)
	}

	limit := (all + least) / 2
	some, err := choose(fmt.Sprint(limit))
	require.NoError(t, err)
	require.LessOrEqual(t, some.PeakBytes, limit)
	require.Greater(t, some.PeakBytes, limit-(all-least)/8, "memory is left that could have saved time")
	require.Less(t, some.StepSeconds, slowest)
	peak, step := planned(some.Settings...)
	require.Equal(t, some.PeakBytes, peak)
	require.InDelta(t, step, some.StepSeconds, 1e-9)

	_, err = choose("1MiB")
	require.ErrorContains(t, err, "even with all that can be moved or computed again")
	_, err = configs.ReadPlan("plan.yaml", some.PlanFile())
	require.NoError(t, err)
}

// TestTensorNames: what the blocks of a mixture on two ranks of experts make, by name; what is needed whatever is
// computed again, what may be computed again or moved, and what computing it again reads, counted back in the list.
func TestTensorNames(t *testing.T) {
	l := laidOutText(t, mixed, "plan.dp=2", "plan.ep=2", "plan.recompute=full")
	var have []string
	for i, m := range l.Made(0) {
		if m.Block != 2 {
			continue
		}
		text := m.Tensor
		for _, x := range []struct {
			on   bool
			name string
		}{{m.Needed, "needed"}, {m.Again, "again"}, {m.Away, "away"}} {
			if x.on {
				text += " " + x.name
			}
		}
		text += ":"
		for _, r := range m.Reads {
			text += fmt.Sprintf(" %d", i-r)
		}
		have = append(have, text)
	}
	require.Equal(t, strings.Split(`input_layernorm needed again away: 1
self_attn.q_proj needed again away: 1
self_attn.q_norm needed again away: 1
self_attn.k_proj needed again away: 3
self_attn.k_norm needed again away: 1
self_attn.v_proj needed again away: 5
rope needed again away: 4 25 25
rope.2 needed again away: 3 26 26
attention needed again away: 2 1 3
self_attn.o_proj again away: 1
sum needed again away: 11 1
post_attention_layernorm needed again away: 1
mlp.gate needed again away: 1
route needed away: 1
route_order needed away: 1 1
spread again away: 4 1 1
spread.exchanged needed again away: 1 2
mlp.experts.gate_proj needed again away: 1 1
mlp.experts.up_proj needed again away: 2 2
swiglu needed again away: 2 1
mlp.experts.down_proj again away: 1 4
mlp.experts.down_proj.exchanged needed again away: 1 7 5
mix again away: 1 8 9 8
sum.2 needed away: 13 1`, "\n"), have)
}

// TestModuleWords: Megatron-LM's words for modules do what the names of their tensors do.
func TestModuleWords(t *testing.T) {
	held := func(set string) int64 {
		l := laidOutText(t, mixed, "plan.dp=2", "plan.ep=2", "plan.recompute=none", set)
		return worst(l)
	}
	none := held("plan.keep_tensors=[]")
	for word, names := range map[string]string{
		"plan.offload_tensors=[expert_fc1]":  "plan.offload_tensors=[spread.exchanged]",
		"plan.offload_tensors=[core_attn@2]": "plan.offload_tensors=[rope@2,rope.2@2,self_attn.v_proj@2]",
		"plan.recompute_tensors=[moe_act]":   "plan.recompute_tensors=[swiglu]",
		"plan.recompute_tensors=[a2a_overlap_mlp]": "plan.recompute_tensors=[mlp.experts.gate_proj," +
			"mlp.experts.up_proj,swiglu]",
	} {
		require.Equal(t, held(names), held(word), word)
		require.Less(t, held(word), none, word)
	}
}

const mixed = `
model:
  name: qwen/3-30b-a3b
  init: random
  overrides: {hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16,
    moe_intermediate_size: 32, num_experts: 4, num_experts_per_tok: 2, vocab_size: 512}
data: {paths: [none], tokenizer: none, seq_len: 64}
train: {steps: 1, global_batch: 4}
`

func laidOutText(t *testing.T, text string, args ...string) *layout.Layout {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	cfg, err := configs.Load(configs.Request{File: file, Args: args, Getenv: os.Getenv})
	require.NoError(t, err)
	j, err := layout.FromConfig(cfg)
	require.NoError(t, err)
	l, err := layout.New(j)
	require.NoError(t, err)
	return l
}

// TestTensorsElsewhere: a search for plans leaves the run file's own choices by tensor behind, and writes so
// into the plan; sequences in chunks are not chosen for.
func TestTensorsElsewhere(t *testing.T) {
	p := question{text: deep, cluster: "h100", hosts: "1x2",
		args: []string{"plan.offload_tensors=[sum.2@1]"}}.search(t)
	all, err := p.Space.Enumerate()
	require.NoError(t, err)
	require.Subset(t, p.Settings(&all[0]), noTensors)
	require.Empty(t, p.base.Chosen)
	p = question{text: deep, cluster: "h100", hosts: "1x2"}.search(t)
	require.NotContains(t, p.Settings(&all[0]), noTensors[0])

	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(deep), 0o644))
	_, err = ChooseTensors(context.Background(), configs.Request{File: file, Args: []string{"plan.pp=2",
		"plan.schedule=chunkpipe", "plan.chunk_size=256", "train.global_batch=8"}}, "h100")
	require.ErrorContains(t, err, "--tensors: chunks of a sequence share what they keep")
}

// TestTensorList: neighbours of one name, size and fate are one entry; what is not needed is in none. A
// tensor that comes over the network takes longer to compute again than one that does not.
func TestTensorList(t *testing.T) {
	at := func(block int, bytes int64) grad.Made { return grad.Made{Block: block, Tensor: "x", Bytes: bytes} }
	s := &tensorSearch{made: [][]grad.Made{{at(1, 8), at(2, 8), at(4, 8), at(5, 8)},
		{at(6, 8), at(7, 9), at(8, 9)}}}
	have := s.list([][]search.Fate{{search.Kept, search.Kept, search.Kept, search.Moved},
		{search.Moved, search.Moved, search.Unneeded}})
	require.Equal(t, []TensorFate{{"x", 1, 2, "keep", 8}, {"x", 4, 4, "keep", 8}, {"x", 5, 6, "offload", 8},
		{"x", 7, 7, "offload", 9}}, have)

	m, err := rehearsal.Machine("h100")
	require.NoError(t, err)
	s.m = m
	require.InDelta(t, m.Local.Of(1<<20),
		s.again(&grad.Cost{Flops: 1e9, Comm: 1 << 20})-s.again(&grad.Cost{Flops: 1e9}),
		1e-12)
}
