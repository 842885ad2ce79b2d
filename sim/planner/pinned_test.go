package planner

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology/search"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew from what the planner finds now")

const mixture = `
model:
  name: qwen/3-30b-a3b
  init: random
  overrides: {hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 32,
    intermediate_size: 512, vocab_size: 4096, num_experts: 16, num_experts_per_tok: 2, moe_intermediate_size: 256}
data: {paths: [none], tokenizer: none, seq_len: 1024}
train: {steps: 2, global_batch: 8}
`

const pictures = `
model:
  name: qwen-vl/2.5-3b
  init: random
  overrides: {hidden_size: 256, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 32, intermediate_size: 512, vocab_size: 2048,
    rope_scaling: {rope_type: mrope, mrope_section: [4, 6, 6]}, vision: {depth: 2, hidden_size: 128, intermediate_size: 256, num_heads: 4, fullatt_block_indexes: [1]}}
data: {kind: media, paths: [none], tokenizer: none, seq_len: 512}
train: {steps: 2, global_batch: 16, micro_batch: 2}
plan: {encoder: {patches: 1024}}
`

// question is a run for which a plan is looked for.
type question struct {
	name, text, file string
	args             []string
	cluster, hosts   string
}

func (q question) search(t *testing.T) *Search {
	t.Helper()
	file := q.file
	if q.text != "" {
		file = filepath.Join(t.TempDir(), "run.yaml")
		require.NoError(t, os.WriteFile(file, []byte(q.text), 0o644))
	}
	p, err := New(Request{Run: configs.Request{File: file, Args: q.args}, Cluster: q.cluster,
		Hosts: q.hosts})
	require.NoError(t, err)
	return p
}

func list(b *strings.Builder, c *search.Candidate) {
	fmt.Fprintf(b, "  %-60s %.5g ms, bubble %.4f, %s %s\n", c, 1e3*c.Simulated, c.Bubble,
		tensor.Bytes(c.Memory), c.Why)
}

// TestPinnedPlans: what the planner answers some questions is what testdata/plans.txt says: the best plans
// with their simulated steps and memory, the settings that train by the best, how many do not fit and why,
// and the longest sequences. A change there is one that users see. After a change that is meant: go test
// -rewrite.
func TestPinnedPlans(t *testing.T) {
	const file = "testdata/plans.txt"
	var b strings.Builder
	tiny := "../../configs/runs/tiny.yaml"
	for _, q := range []question{
		{name: "a tiny model on two hosts of two devices", file: tiny, cluster: "a100", hosts: "2x2"},
		{name: "the same within 2 MiB", file: tiny, args: []string{"plan.memory=2MiB"}, cluster: "a100",
			hosts: "2x2"},
		{name: "a mixture on four GPUs", text: mixture, cluster: "h100", hosts: "1x4"},
		{name: "images on two GPUs", text: pictures, cluster: "h100", hosts: "1x2"},
	} {
		p := q.search(t)
		p.Exact = 4
		all, err := p.Find(context.Background())
		require.NoError(t, err)
		flops, err := p.StepFlops()
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s: %d plans, %.6g operations a step\n", q.name, len(all), flops)
		why := map[string]int{}
		for i := range all {
			why[all[i].Why]++
		}
		fmt.Fprintf(&b, "  %v\n", why)
		for i := range all[:min(len(all), 12)] {
			list(&b, &all[i])
		}
		for _, line := range strings.Split(string(p.PlanFile(&all[0])), "\n") {
			if !strings.HasPrefix(line, "#") {
				fmt.Fprintln(&b, "  "+line)
			}
		}
	}
	for _, memory := range []string{"4MiB", "12MiB"} {
		all, err := lengthSearch(t, memory).Longest(context.Background())
		require.NoError(t, err)
		fmt.Fprintf(&b, "longest sequences of a tiny model in %s\n", memory)
		for _, c := range all[:min(len(all), 10)] {
			fmt.Fprintf(&b, "  %7d tokens, %s: %v\n", c.SeqLen, tensor.Bytes(c.Peak), c.Settings)
		}
	}
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(),
		"after a change that is meant: go test ./sim/planner -rewrite")
}

// TestSizes: hosts and devices of each, and what is said of a number that is none or too large.
func TestSizes(t *testing.T) {
	for hosts, want := range map[string]string{"": "want hosts", "0": "want hosts", "2x0": "want hosts",
		"2x": "want hosts", "1x9": "has 8 devices", "100000000": "hosts"} {
		_, err := New(Request{Run: configs.Request{File: "../../configs/runs/tiny.yaml"}, Cluster: "h100",
			Hosts: hosts})
		require.ErrorContains(t, err, want, hosts)
	}
	p, err := New(Request{Run: configs.Request{File: "../../configs/runs/tiny.yaml"}, Cluster: "h100",
		Hosts: "2"})
	require.NoError(t, err)
	require.Equal(t, []int{2, 8, 16}, []int{p.Hosts, p.Machine.Devices, p.Space.Devices})
	for devices, want := range map[int]string{8192: "", 8193: "more than 65536 devices"} {
		p.Machine.Hosts = 1 << 20
		err := p.size(fmt.Sprintf("%dx8", devices))
		require.Equal(t, want == "", err == nil)
		if want != "" {
			require.ErrorContains(t, err, want)
		}
	}
	p.Machine.Scores = 3
	j, err := p.job(p.cfg)
	require.NoError(t, err)
	require.Equal(t, 3.0, j.Scores, "the machine's attention")
}

// TestDivides: ranks share a model whose heads, inner width and vocabulary they divide, and whose key heads
// they divide or are a multiple of.
func TestDivides(t *testing.T) {
	p := question{file: "../../configs/runs/tiny.yaml", cluster: "h100", hosts: "1"}.search(t)
	m := &p.cfg.Model
	m.Heads, m.Intermediate, m.Vocab, m.KVHeads = 4, 8, 16, 2
	for tp, want := range map[int]bool{1: true, 2: true, 3: false, 4: true, 8: false} {
		require.Equal(t, want, p.divides(tp), tp)
	}
	for _, x := range []*int{&m.Heads, &m.Intermediate, &m.Vocab} {
		was := *x
		*x = 1
		require.False(t, p.divides(2))
		require.True(t, p.divides(1))
		*x = was
	}
	m.KVHeads = 3
	require.False(t, p.divides(2))
	m.KVHeads = 0 // latent attention has none
	require.True(t, p.divides(2))
}

// TestSpread: of each place of an encoder the first plans come to the front, in their order, unless all are
// simulated anyway; plans that cannot be used do not.
func TestSpread(t *testing.T) {
	make := func() (all []search.Candidate) {
		for i := range 30 {
			c := search.Candidate{Micro: i, Encoder: search.Encoder{Over: "first"}}
			if i >= 15 {
				c.Encoder.Over = "own"
			}
			if i == 16 {
				c.Why = "memory"
			}
			all = append(all, c)
		}
		return all
	}
	order := func(all []search.Candidate) (out []int) {
		for _, c := range all {
			out = append(out, c.Micro)
		}
		return out
	}
	all := make()
	spread(all, 30)
	require.Equal(t, order(make()), order(all))
	spread(all, 29)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 15, 17, 18, 19, 20, 21, 22, 8, 9}, order(all)[:17])
}

// TestInterrupted: a search ends when it is told to.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, q := range []question{{file: "../../configs/runs/tiny.yaml", cluster: "a100", hosts: "2x2"},
		{text: pictures, cluster: "h100", hosts: "1x2"}} {
		_, err := q.search(t).Find(ctx)
		require.ErrorContains(t, err, "interrupted")
	}
}
