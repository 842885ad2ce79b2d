package texts

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// t5Idle are keys of T5's files beside those of all classes: of its decoder, of classifiers, of dropout.
var t5Idle = []string{"dropout_rate", "classifier_dropout", "num_decoder_layers", "decoder_start_token_id",
	"eos_token_id", "is_encoder_decoder", "tie_word_embeddings", "scale_decoder_outputs", "n_positions",
	"output_past", "task_specific_params", "tokenizer_class"}

var _ = register(Class{Name: "T5EncoderModel", Type: "t5", Paper: "1910.10683", Idle: t5Idle,
	Sizes: []Size{{"T5 v1.1 XXL encoder", `"d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64,
		"feed_forward_proj": "gated-gelu"`, 4_762_310_656},
		{"T5 small encoder", `"num_layers": 6`, 35_330_816}},
	fresh: func() config { return &t5Encoder{t5Defaults("relu")} }})

// t5Encoder is T5EncoderModel: all layers have the biases of the first.
type t5Encoder struct{ t5 }

func (c *t5Encoder) model() *Model { return c.t5.encoder(false) }

// t5 are the keys of T5Config and UMT5Config.
type t5 struct {
	Vocab    int     `json:"vocab_size"`
	Hidden   int     `json:"d_model"`
	HeadDim  int     `json:"d_kv"`
	Inter    int     `json:"d_ff"`
	Layers   int     `json:"num_layers"`
	Heads    int     `json:"num_heads"`
	Buckets  int     `json:"relative_attention_num_buckets"`
	Distance int     `json:"relative_attention_max_distance"`
	Eps      float64 `json:"layer_norm_epsilon"`
	Forward  string  `json:"feed_forward_proj"`
	Decoder  bool    `json:"is_decoder"`
	// what transformers derives of Forward, and writes as well
	Act   *string `json:"dense_act_fn"`
	Gated *bool   `json:"is_gated_act"`
}

func t5Defaults(forward string) t5 {
	return t5{Vocab: 32128, Hidden: 512, HeadDim: 64, Inter: 2048, Layers: 6, Heads: 8, Buckets: 32,
		Distance: 128, Eps: 1e-6, Forward: forward}
}

func (c *t5) check(f *faults) {
	f.within(size{"vocab_size", c.Vocab, 1 << 20}, size{"d_model", c.Hidden, 1 << 16},
		size{"d_kv", c.HeadDim, 1 << 12}, size{"d_ff", c.Inter, 1 << 18}, size{"num_layers", c.Layers, 1 << 10},
		size{"num_heads", c.Heads, 1 << 10}, size{"relative_attention_num_buckets", c.Buckets, 1 << 10},
		size{"relative_attention_max_distance", c.Distance, 1 << 16})
	f.positive("layer_norm_epsilon", c.Eps)
	if c.Buckets < 4 {
		f.Add("relative_attention_num_buckets", "set 4 or more",
			"%d buckets are too few for both sides, each with near and far distances", c.Buckets)
	}
	if near := c.Buckets / 2 / 2; c.Distance <= near {
		f.Add("relative_attention_max_distance", fmt.Sprintf("set more than %d", near),
			"%d is among the distances that have a bucket each", c.Distance)
	}
	if c.Decoder {
		f.Add("is_decoder", "set false", "a decoder is no encoder of captions")
	}
	act, gated := c.forward()
	if _, ok := activations[act]; !ok || strings.Count(c.Forward, "-") > 1 ||
		strings.Contains(c.Forward, "-") && !gated {
		f.Add("feed_forward_proj", "set relu, gated-gelu or another activation of transformers, with or "+
			"without gated-", "%q is unknown", c.Forward)
	}
	if c.Act != nil && *c.Act != act {
		f.Add("dense_act_fn", "leave it out", "%q is not that of feed_forward_proj, %q", *c.Act, act)
	}
	if c.Gated != nil && *c.Gated != gated {
		f.Add("is_gated_act", "leave it out", "%v is not what feed_forward_proj %q says", *c.Gated, c.Forward)
	}
}

// forward is the activation of the MLP, and whether it is multiplied with a second projection. The gelu of
// gated-gelu is the one by tanh; other names are ACT2FN's.
func (c *t5) forward() (act string, gated bool) {
	if c.Forward == "gated-gelu" {
		return "gelu_new", true
	}
	act, gated = strings.CutPrefix(c.Forward, "gated-")
	return act, gated
}

// encoder is the model; each layer has a table of biases of its own, or all have that of the first. Its
// states grow beyond float16.
func (c *t5) encoder(each bool) *Model {
	act, gated := c.forward()
	return &Model{Width: c.Hidden, Layers: c.Layers, Vocab: c.Vocab,
		parts: &t5Parts{t5: c, each: each, act: activations[act], gated: gated}, logical: func(file string) string {
			if file == "encoder.embed_tokens.weight" { // the same matrix under its second name
				return sharedName
			}
			return file
		}}
}

// sharedName is the embedding, which T5's decoder would have too.
const sharedName = "shared.weight"

// t5Parts are the layers of T5: RMS norms before attention with biases by distance and before an MLP,
// without biases of projections.
type t5Parts struct {
	*t5
	each, gated bool
	act         int
}

func (p *t5Parts) widths() []int { return []int{p.Heads, p.Inter} }

func (p *t5Parts) size() int {
	n := 4*p.Hidden*p.Heads*p.HeadDim + 2*p.Hidden*p.Inter
	if p.gated {
		n += p.Hidden * p.Inter
	}
	return n
}

func (p *t5Parts) names(i int) string {
	if i < 0 {
		return "shared"
	}
	return fmt.Sprintf("encoder.block.%d", i)
}

// embed looks the tokens up; places count in attention alone. Data: ids [rows].
func (p *t5Parts) embed(s scope) *grad.Value {
	return s.T.Embed(s.ints("ids"), s.T.Table(s.of(sharedName), p.Vocab, p.Hidden))
}

func (p *t5Parts) layer(s scope, i int, x *grad.Value) *grad.Value {
	name, table := p.names(i)+".layer.", 0
	if p.each {
		table = i
	}
	a := heads{width: p.Hidden, n: p.Heads, dim: p.HeadDim, names: [4]string{"q", "k", "v", "o"},
		attend: func(s scope, q, k, v *grad.Value) *grad.Value { return p.attend(s, table, q, k, v) }}
	h := a.record(s, name+"0.SelfAttention", s.Norm(s.of(name+"0.layer_norm"), x, p.Hidden, p.Eps))
	x = s.T.Place("residual", s.T.Add(x, h))
	h = p.mlp(s, name+"1.DenseReluDense.", s.Norm(s.of(name+"1.layer_norm"), x, p.Hidden, p.Eps))
	return s.T.Place("residual", s.T.Add(x, h))
}

// attend is attention whose scores are q·k and a bias of the bucket of key less query. The table of layer t
// has a row for each bucket: it becomes one of distances, of which those beyond the largest do not differ.
func (p *t5Parts) attend(s scope, t int, q, k, v *grad.Value) *grad.Value {
	table := s.T.Param(s.of(p.names(t)+".layer.0.SelfAttention.relative_attention_bias.weight"),
		[]int{p.Buckets, p.Heads}, 1, 1, false)
	bias := s.T.Take(table, s.T.ConstI32("t5.buckets", grad.RelativeBuckets(p.Buckets, p.Distance, false)))
	return s.T.AttentionBias(q, k, v, s.cu(), s.cu(), bias, 1, false)
}

// mlp is wo(act(wi(h))), or with a gate wo(act(wi_0(h))·wi_1(h)).
func (p *t5Parts) mlp(s scope, name string, h *grad.Value) *grad.Value {
	in := func(which string) *grad.Value {
		return s.Linear(s.of(name+which), h, p.Inter, p.Hidden, block.LinearOpts{})
	}
	var y *grad.Value
	if p.gated {
		y = s.T.Mul(s.T.Act(in("wi_0"), p.act), in("wi_1"))
	} else {
		y = s.T.Act(in("wi"), p.act)
	}
	return s.Linear(s.of(name+"wo"), y, p.Hidden, p.Inter, block.LinearOpts{Row: true})
}

func (p *t5Parts) norm(s scope, x *grad.Value) *grad.Value {
	return s.Norm(s.of("encoder.final_layer_norm"), x, p.Hidden, p.Eps)
}

// project is never asked for: T5 has no pooled rows.
func (p *t5Parts) project(scope, *grad.Value) *grad.Value { panic("texts: T5 has no pooled rows") }
