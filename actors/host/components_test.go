package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// twoTowers is an encoder whose features a decoder takes in at two of its layers: ports that skip stages,
// and a port with several consumers, whose cotangents are summed.
func twoTowers() *family.Model {
	m := tiny(false)
	spec := m.Spec
	layer := block.Layer{Hidden: spec.Hidden, Norm: block.Norm{Eps: spec.Eps}, Branches: []block.Branch{
		{Name: "self_attn", Before: "input_layernorm", Part: block.Attn{Hidden: spec.Hidden,
			Heads: spec.Heads, KV: spec.KV, HeadDim: spec.HeadDim}},
		{Name: "mlp", Before: "post_attention_layernorm", Part: block.Gated{Hidden: spec.Hidden,
			Inter: spec.Inter, Act: kernels.SiLU}}}}
	enc := []family.Block{
		{Name: "encoder.embed", Component: "encoder", Gives: []string{"f"}, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				w := r.T.Param("encoder.embed.weight", []int{spec.Vocab, spec.Hidden}, 0, 1, true)
				env["f"] = r.T.Place("residual", r.T.Embed(r.T.Data("targets", tensor.I32, r.Shape.Rows), w))
			}},
		{Name: "encoder.0", Component: "encoder", Takes: []string{"f"}, Gives: []string{"f"},
			Recompute: true, Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["f"] = layer.Record(r, "encoder.0", env["f"])
			}},
	}
	fused := append(enc, m.Blocks...)
	for i, b := range fused {
		if b.Name != "model.layers.1" && b.Name != "model.layers.3" {
			continue
		}
		inner := b.Record
		b.Takes = []string{"x", "f"}
		b.Record = func(r *block.Rec, env map[string]*grad.Value) {
			p := r.Linear(fmt.Sprintf("projector.%d", i), env["f"], spec.Hidden, spec.Hidden,
				block.LinearOpts{})
			env["x"] = r.T.Place("residual", r.T.Add(env["x"], r.T.Place("residual", p)))
			inner(r, env)
		}
		fused[i] = b
	}
	m.Blocks, m.Ports["f"] = fused, family.Port{Width: spec.Hidden}
	return m
}

// TestComponents: a model of two components trains to the same losses however it is cut, also where the
// encoder's stage and its consumers are no neighbours.
func TestComponents(t *testing.T) {
	want, _ := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.train(t, twoTowers(), 5, refBackend)
	for _, v := range []variant{
		{pp: 4, dp: 1, tp: 1, schedule: "1f1b"}, {pp: 2, dp: 1, tp: 2, schedule: "gpipe", sp: true,
			rc: grad.RecomputeFull}, {pp: 4, dp: 2, tp: 1, zero: 3, schedule: "1f1b"},
	} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			got, _ := v.train(t, twoTowers(), 5, refBackend)
			for i := range want {
				require.InEpsilon(t, want[i], got[i], 1e-5, "step %d", i+1)
			}
		})
	}
}
