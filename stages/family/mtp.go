package family

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// mtp adds multi-token prediction: layer k joins the hidden state of position i with the embedding of token
// i+k+1, runs one decoder layer and predicts token i+k+2 with the shared head (arXiv:2412.19437 §2.2, as in
// MiMo-7B). The loss of each layer is added with weight MTPWeight/MTP.
func (s Spec) mtp(r *block.Rec, env map[string]*grad.Value) {
	if r.Logits {
		return
	}
	t, h := r.T, env["final"]
	s.IndexShared = nil // it chooses for itself
	for k := range s.MTP {
		name := fmt.Sprintf("model.mtp_layers.%d", k)
		ids := t.Data(fmt.Sprintf("mtp_ids.%d", k), tensor.I32, r.Shape.Rows)
		e := t.Place("residual", t.Embed(ids, s.embedding(t)))
		e = s.norm().Record(r, name+".token_layernorm", e, s.Hidden)
		prev := s.norm().Record(r, name+".hidden_layernorm", h, s.Hidden)
		join := []*grad.Value{prev, e}
		if s.TokenFirst {
			join = []*grad.Value{e, prev}
		}
		x := r.Linear(name+".input_proj", t.Concat(1, join...), s.Hidden, 2*s.Hidden,
			block.LinearOpts{Rep: true})
		x = s.layer(s.Layers-1).Record(r, name, t.Place("residual", x))
		h = s.norm().Record(r, name+".final_layernorm", x, s.Hidden)
		target := t.Data(fmt.Sprintf("mtp_targets.%d", k), tensor.I32, r.Shape.Rows)
		weight := t.Data(fmt.Sprintf("mtp_weights.%d", k), tensor.F32, r.Shape.Rows)
		t.Loss(t.Scale(t.LinearCrossEntropy(h, s.output(t), target, weight, 0), s.MTPWeight/float64(s.MTP)))
	}
}

// behindLast finds the layers that predict further tokens behind the last of the others, under DeepSeek V3's
// names.
func behindLast(c configs.Model, source func(string) Source) func(string) Source {
	names := strings.NewReplacer(".token_layernorm.", ".enorm.", ".hidden_layernorm.", ".hnorm.",
		".input_proj.", ".eh_proj.",
		".final_layernorm.", ".shared_head.norm.")
	return func(name string) Source {
		if rest, ok := strings.CutPrefix(name, "model.mtp_layers."); ok {
			number, part, _ := strings.Cut(rest, ".")
			k, err := strconv.Atoi(number)
			if err != nil {
				panic("family: " + name + " is of no layer")
			}
			name = fmt.Sprintf("model.layers.%d%s", c.Layers+k, names.Replace("."+part))
		}
		return source(name)
	}
}
