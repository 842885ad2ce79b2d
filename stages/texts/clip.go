package texts

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// clipIdle are keys of CLIP's files beside those of all classes. projection_dim is one of an
// encoder without projection.
var clipIdle = []string{"dropout", "attention_dropout"}

var _ = register(Class{Name: "CLIPTextModel", Type: "clip_text_model", Paper: "2103.00020",
	Idle: slices.Concat(clipIdle, []string{"projection_dim"}),
	Sizes: []Size{{"CLIP ViT-L/14 text", `"hidden_size": 768, "intermediate_size": 3072,
		"num_attention_heads": 12`, 123_060_480},
		{"CLIP ViT-B/32 text", `"hidden_act": "quick_gelu"`, 63_165_952}},
	fresh: func() config { return &clipText{clip: clipDefaults()} }})

// clipText is CLIPTextModel: the pooled row is the normed state of the token that ends the caption.
type clipText struct{ clip }

func (c *clipText) model() *Model {
	m := c.clip.encoder(0)
	m.logical = func(file string) string {
		if !strings.HasPrefix(file, clipName) { // as transformers writes it since version 5
			file = clipName + file
		}
		return clipTensor(file)
	}
	return m
}

// clip are the keys of CLIPTextConfig.
type clip struct {
	Vocab  int     `json:"vocab_size"`
	Hidden int     `json:"hidden_size"`
	Inter  int     `json:"intermediate_size"`
	Layers int     `json:"num_hidden_layers"`
	Heads  int     `json:"num_attention_heads"`
	Most   int     `json:"max_position_embeddings"`
	Act    string  `json:"hidden_act"`
	Eps    float64 `json:"layer_norm_eps"`
	EOS    int     `json:"eos_token_id"`
}

func clipDefaults() clip {
	return clip{Vocab: 49408, Hidden: 512, Inter: 2048, Layers: 12, Heads: 8, Most: 77, Act: "quick_gelu",
		Eps: 1e-5, EOS: 49407}
}

func (c *clip) check(f *faults) {
	f.within(size{"vocab_size", c.Vocab, 1 << 20}, size{"hidden_size", c.Hidden, 1 << 16},
		size{"intermediate_size", c.Inter, 1 << 18}, size{"num_hidden_layers", c.Layers, 1 << 10},
		size{"num_attention_heads", c.Heads, 1 << 10}, size{"max_position_embeddings", c.Most, 1 << 16})
	f.OneOf("hidden_act", c.Act, source.SortedKeys(activations)...)
	f.positive("layer_norm_eps", c.Eps)
	if c.Heads > 0 && c.Hidden%c.Heads != 0 {
		f.Add("num_attention_heads", "", "%d heads do not share a hidden_size of %d", c.Heads, c.Hidden)
	}
	if c.EOS < 0 || c.EOS >= c.Vocab {
		f.Add("eos_token_id", "", "%d is outside of the vocabulary of %d", c.EOS, c.Vocab)
	}
}

// clipName begins the names of parameters in published files.
const clipName = "text_model."

// encoder is the model, with a projection of pooled rows to a width, or none with 0.
func (c *clip) encoder(projected int) *Model {
	m := &Model{Width: c.Hidden, Layers: c.Layers, Vocab: c.Vocab, Most: c.Most, Pooled: c.Hidden,
		Half: true, parts: &clipParts{c, projected}, pool: c.pool}
	if projected > 0 {
		m.Pooled = projected
	}
	return m
}

// clipTensor is the logical name of a tensor. Files of transformers before 4.31 have the numbers of
// positions, which are 0, 1, ….
func clipTensor(file string) string {
	if file == clipName+"embeddings.position_ids" {
		return ""
	}
	return file
}

// oldEOS is the eos_token_id of files of transformers before 4.30, which is not that of the tokenizer: the
// caption's end is then the token of the largest id, the first of them.
const oldEOS = 2

// pool is the first token that ends the caption.
func (c *clip) pool(ids []int32) (int, error) {
	if c.EOS == oldEOS {
		return slices.Index(ids, slices.Max(ids)), nil
	}
	at := slices.Index(ids, int32(c.EOS))
	if at < 0 {
		return 0, fmt.Errorf("it has no token %d, eos_token_id, to be pooled at; encode it with the "+
			"tokenizer's special tokens", c.EOS)
	}
	return at, nil
}

// clipParts are the layers of CLIP: layer norms before causal attention and before an MLP.
type clipParts struct {
	*clip
	projected int
}

func (p *clipParts) size() int { return 4*p.Hidden*p.Hidden + 2*p.Hidden*p.Inter }

func (p *clipParts) widths() []int { return []int{p.Heads, p.Inter} }

func (p *clipParts) names(i int) string {
	if i < 0 {
		return clipName + "embeddings"
	}
	return fmt.Sprintf("%sencoder.layers.%d", clipName, i)
}

// embed adds learned positions. Data: ids, positions [rows].
func (p *clipParts) embed(s scope) *grad.Value {
	const name = clipName + "embeddings."
	x := s.T.Embed(s.ints("ids"), s.T.Table(s.of(name+"token_embedding.weight"), p.Vocab, p.Hidden))
	table := s.param(name+"position_embedding.weight", true, p.Most, p.Hidden)
	return s.T.Add(s.T.Place("residual", x), s.T.Place("residual", s.T.Embed(s.ints("positions"), table)))
}

func (p *clipParts) layer(s scope, i int, x *grad.Value) *grad.Value {
	name := p.names(i)
	a := heads{width: p.Hidden, n: p.Heads, dim: p.Hidden / p.Heads, bias: true,
		names: [4]string{"q_proj", "k_proj", "v_proj", "out_proj"}, attend: p.attend}
	h := a.record(s, name+".self_attn", s.LayerNorm(s.of(name+".layer_norm1"), x, p.Hidden, p.Eps))
	x = s.T.Place("residual", s.T.Add(x, h))
	h = s.LayerNorm(s.of(name+".layer_norm2"), x, p.Hidden, p.Eps)
	h = s.Linear(s.of(name+".mlp.fc1"), h, p.Inter, p.Hidden, block.LinearOpts{Bias: true})
	h = s.Linear(s.of(name+".mlp.fc2"), s.T.Act(h, activations[p.Act]), p.Hidden, p.Inter,
		block.LinearOpts{Bias: true, Row: true})
	return s.T.Place("residual", s.T.Add(x, h))
}

func (p *clipParts) attend(s scope, q, k, v *grad.Value) *grad.Value {
	return s.T.Attention(q, k, v, s.cu(), s.cu(),
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(p.Hidden/p.Heads)), Causal: true})
}

func (p *clipParts) norm(s scope, x *grad.Value) *grad.Value {
	return s.LayerNorm(s.of(clipName+"final_layer_norm"), x, p.Hidden, p.Eps)
}

func (p *clipParts) project(s scope, x *grad.Value) *grad.Value {
	if p.projected == 0 {
		return s.T.Place("", x)
	}
	y := s.Linear(s.of("text_projection"), x, p.projected, p.Hidden, block.LinearOpts{Rep: true})
	return s.T.Place("", y)
}
