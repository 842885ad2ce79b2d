package fidelity

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// contextRows is the length of the one sequence of a microbatch that ranks share: attention is the most of the work.
const contextRows = 512

// ContextPaced compares rings of ranks that have one run of tokens of a sequence each with rings of ranks
// that have two, one from each end, on paced devices whose messages take as long as on links of a given
// bandwidth in bytes a second, and in the simulator. Without real they are simulated alone.
func ContextPaced(bandwidth float64, real bool) (out []Overlapped, err error) {
	for _, ranks := range []int{2, 4, 8} {
		o := Overlapped{Plan: fmt.Sprintf("cp=%d ring", ranks)}
		if err := o.measure(bandwidth, real, contextJob(ranks, false), contextJob(ranks, true)); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// contextJob is a small model whose sequence is spread over the ranks of a ring, with or without the zigzag order.
func contextJob(ranks int, zigzag bool) *layout.Design {
	spec := family.Spec{Layers: 2, Hidden: 32, Inter: 32, Heads: 4, KV: 4, HeadDim: 8, Vocab: 64, Eps: 1e-6,
		Rope: block.Rope{Dim: 8, Theta: 10000}, InitStd: 0.02}
	return &layout.Design{Model: family.Decoder("llama", spec), Schedule: "1f1b",
		Mesh:  layout.MeshOf(&configs.Plan{PP: 1, DP: 1, TP: 1, CP: ranks, Ulysses: 1, EP: 1, ETP: 1}),
		Micro: 1, Rows: contextRows, SeqLen: contextRows, Ring: true, Zigzag: zigzag,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}}
}
