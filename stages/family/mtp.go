package family

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// FurtherName is the prefix of the parameters of layers that predict further tokens.
const FurtherName = "model.mtp_layers."

// mtp adds multi-token prediction: layer k joins the hidden state of position i with the embedding of token
// i+k+1, runs one decoder layer and predicts token i+k+2 with the shared head (arXiv:2412.19437 §2.2, as in
// MiMo-7B). The loss of each layer is added with weight MTPWeight/MTP.
// Where images' features have taken the places of tokens, they do in what a layer joins, too.
func (m *Model) mtp(r *block.Rec, env map[string]*grad.Value) {
	if r.Logits || r.States || r.NLL || r.Values {
		return
	}
	s, t, h := m.Spec, r.T, env["final"]
	for k := range s.MTP {
		ids := t.Data(fmt.Sprintf("mtp_ids.%d", k), tensor.I32, r.Shape.Rows)
		h = s.further(r, k, h, ids, func(e *grad.Value) *grad.Value {
			if f := env[FeaturePort]; f != nil {
				return place(r, e, f, placesOf(k+1))
			}
			return e
		})
		target := t.Data(fmt.Sprintf("mtp_targets.%d", k), tensor.I32, r.Shape.Rows)
		weight := t.Data(fmt.Sprintf("mtp_weights.%d", k), tensor.F32, r.Shape.Rows)
		t.Loss(t.Scale(t.LinearCrossEntropy(h, s.output(r), target, weight, 0), s.MTPWeight/float64(s.MTP)))
	}
}

// further is what layer k makes of hidden states h and of the tokens behind theirs; put changes their embeddings.
func (s Spec) further(r *block.Rec, k int, h, ids *grad.Value, put func(e *grad.Value) *grad.Value) *grad.Value {
	s.IndexShared = nil // it chooses for itself
	if s.Carries() {    // whatever the last layer is
		s.Mixers = slices.Repeat([]string{"full_attention"}, s.Layers)
	}
	name, t := fmt.Sprintf("%s%d", FurtherName, k), r.T
	e := put(t.Place("residual", t.Embed(ids, s.embedding(r))))
	e = s.norm().Record(r, name+".token_layernorm", e, s.Hidden)
	prev := s.norm().Record(r, name+".hidden_layernorm", h, s.Hidden)
	join := []*grad.Value{prev, e}
	if s.TokenFirst {
		join = []*grad.Value{e, prev}
	}
	x := r.Linear(name+".input_proj", t.Concat(1, join...), s.Hidden, 2*s.Hidden, block.LinearOpts{Rep: true})
	x = s.layer(s.Layers-1).Record(r, name, t.Place("residual", x))
	return s.norm().Record(r, name+".final_layernorm", x, s.Hidden)
}

// HiddenOf is the data of RecordFurther that has hidden states.
const HiddenOf = "further.hidden"

// RecordFurther traces the first layer that predicts a further token, without a gradient, for rows of a
// pool of pages (block.Rec.Pool): of hidden states HiddenOf [rows hidden], behind the model's final norm or
// the layer's own, and of ids, the tokens behind theirs. It gives "final", its own hidden states, and
// "logits", of the rows paged.head, for the tokens behind ids.
func (m *Model) RecordFurther(o grad.Options, rec block.Rec) *grad.Trace {
	if o.Packed == nil {
		o.Packed = m.Packed
	}
	r := &rec
	r.T, r.Ropes = grad.NewTape(o), []*block.Rope{&m.Spec.Rope, &m.Spec.LocalRope}
	s, t := m.Spec, r.T
	r.Start(len(m.Blocks))
	t.Part(0, func() {
		h := t.Place("residual", t.Data(HiddenOf, o.DType, r.Shape.Rows, s.Hidden))
		h = s.further(r, 0, h, t.Data("ids", tensor.I32, r.Shape.Rows), func(e *grad.Value) *grad.Value { return e })
		t.Output("final", h)
		last := t.Take(h, t.Data("paged.head", tensor.I32, r.Heads))
		t.Output("logits", t.Logits(last, s.output(r), 0))
	})
	return t.Finish()
}

// DropMTP leaves out the layers that predict further tokens, and what they alone read.
func (m *Model) DropMTP() {
	m.Spec.MTP = 0
	head := &m.Blocks[len(m.Blocks)-1]
	head.Takes = slices.DeleteFunc(slices.Clone(head.Takes), func(p string) bool { return p == FeaturePort })
}

// placesOf is the name of the features' places, each that of the token k further on in its sequence.
func placesOf(k int) string {
	if k == 0 {
		return "vis.places"
	}
	return fmt.Sprintf("vis.places.%d", k)
}

// FurtherLayer moves features' places k tokens towards the start of each sequence.
func FurtherLayer(places []int32, cu []int32, k int) *tensor.Tensor {
	out := tensor.Make(tensor.I32, len(places))
	for i := range out.I32() {
		out.I32()[i] = -1
	}
	for s := 0; s+1 < len(cu); s++ {
		if from, to := int(cu[s]), int(cu[s+1]); from+k < to {
			copy(out.I32()[from:to-k], places[from+k:to])
		}
	}
	return out
}

// BesideLayers finds the layer that predicts a further token beside the others, under Qwen's names: its
// joint parts have no number.
func BesideLayers(source func(string) Source) func(string) Source {
	joint := map[string]string{"token_layernorm": "pre_fc_norm_embedding",
		"hidden_layernorm": "pre_fc_norm_hidden", "input_proj": "fc", "final_layernorm": "norm"}
	return func(name string) Source {
		rest, ok := strings.CutPrefix(name, FurtherName)
		if !ok {
			return source(name)
		}
		_, part, _ := strings.Cut(rest, ".")
		module, kind, _ := strings.Cut(part, ".")
		if own := joint[module]; own != "" {
			return Source{Name: "mtp." + own + "." + kind}
		}
		s := source(name)
		s.Name = strings.Replace(s.Name, FurtherName, "mtp.layers.", 1)
		return s
	}
}

// BehindLast finds the layers that predict further tokens behind the last of the others, under DeepSeek V3's names.
func BehindLast(c configs.Model, source func(string) Source) func(string) Source {
	names := strings.NewReplacer(".token_layernorm.", ".enorm.", ".hidden_layernorm.", ".hnorm.", ".input_proj.",
		".eh_proj.", ".final_layernorm.", ".shared_head.norm.")
	return func(name string) Source {
		if rest, ok := strings.CutPrefix(name, FurtherName); ok {
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
