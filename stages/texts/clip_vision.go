package texts

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Sight is CLIP's vision encoder (arXiv:2103.00020) as pipelines of Wan use it: it gives the states of an image behind
// all layers but the last, a row for the whole image and one for each patch. It is not safe for concurrent use.
type Sight struct {
	clipSight
	whole bool // gives the embedding of the image in the place of states
	run   *grad.Runner
	trace *grad.Trace
	dtype tensor.DType
}

// clipSight are the keys of CLIPVisionConfig that are read.
type clipSight struct {
	Hidden int     `json:"hidden_size"`
	Inter  int     `json:"intermediate_size"`
	Layers int     `json:"num_hidden_layers"`
	Heads  int     `json:"num_attention_heads"`
	Side   int     `json:"image_size"`
	Patch  int     `json:"patch_size"`
	Act    string  `json:"hidden_act"`
	Eps    float64 `json:"layer_norm_eps"`
	Type   string  `json:"model_type"`
	Out    int     `json:"projection_dim"`

	projected bool // the embedding is projected
}

// Rows is the number of rows of states: one for the image, and one for each patch.
func (c *clipSight) Rows() int { return 1 + c.Side/c.Patch*(c.Side/c.Patch) }

// read reads a folder's config.json.
func (c *clipSight) read(dir string) error {
	*c = clipSight{Hidden: 768, Inter: 3072, Layers: 12, Heads: 12, Side: 224, Patch: 32, Act: "quick_gelu", Eps: 1e-5}
	name := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	both := struct {
		Type   string     `json:"model_type"`
		Out    int        `json:"projection_dim"`
		Vision *clipSight `json:"vision_config"`
	}{Vision: c}
	if err := json.Unmarshal(text, &both); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if both.Type != "clip" {
		if err := json.Unmarshal(text, c); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	} else if c.Type = "clip_vision_model"; both.Out > 0 {
		c.Out = both.Out
	}
	_, act := activations[c.Act]
	switch {
	case c.Type != "clip_vision_model":
		return fmt.Errorf("%s: model_type: %q, want clip_vision_model", name, c.Type)
	case c.Layers < 1 || c.Heads < 1 || c.Hidden < 1 || c.Hidden%c.Heads != 0 || c.Inter < 1:
		return fmt.Errorf("%s: %d layers of %d heads in %d numbers", name, c.Layers, c.Heads, c.Hidden)
	case c.Patch < 1 || c.Side < c.Patch || c.Side%c.Patch != 0 || c.Side > 1<<12:
		return fmt.Errorf("%s: image_size %d is no multiple of patch_size %d", name, c.Side, c.Patch)
	case !act:
		return fmt.Errorf("%s: hidden_act: %q is not known", name, c.Act)
	}
	return nil
}

// SightOf is the rows and the width of the states of a folder's encoder, whose weights are not read, and the
// side of the images that it reads in pixels.
func SightOf(dir string) (rows, width, side int, err error) {
	var c clipSight
	if err := c.read(dir); err != nil {
		return 0, 0, 0, err
	}
	return c.Rows(), c.Hidden, c.Side, nil
}

// OpenSight opens the folder image_encoder of a pipeline.
func OpenSight(dir string, b kernels.Backend, d tensor.DType) (*Sight, error) {
	return openSight(dir, b, d, false)
}

// OpenWhole opens a folder of CLIP, or of its vision encoder, to describe images as wholes: Encode gives the
// embedding of an image behind all layers, [Width], projected where the folder has a projection.
func OpenWhole(dir string, b kernels.Backend) (*Sight, error) {
	return openSight(dir, b, tensor.F32, true)
}

// Width is the length of an image's embedding.
func (x *Sight) Width() int {
	if x.projected {
		return x.Out
	}
	return x.Hidden
}

func openSight(dir string, b kernels.Backend, d tensor.DType, whole bool) (*Sight, error) {
	x := &Sight{dtype: d, whole: whole}
	if err := x.read(dir); err != nil {
		return nil, err
	}
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was read only
	w := &weights{src: src, of: map[string]checkpoint.Info{}}
	for _, t := range src.Tensors() { // with the beginning that files of transformers before 5 have, or without
		w.of[strings.TrimPrefix(t.Name, "vision_model.")] = t
	}
	_, x.projected = w.of["visual_projection.weight"]
	x.trace = x.record()
	pool := tensor.NewPool("image encoder", 0)
	x.run = grad.NewRunner(b, pool)
	for _, p := range x.trace.Params {
		info, ok := w.of[p.Name]
		if !ok || tensor.Len(info.Shape) != tensor.Len(p.Shape) || info.Shape[0] != p.Shape[0] {
			x.Close()
			return nil, &checkpoint.Error{File: dir, Tensor: p.Name, Fault: checkpoint.Misshapen,
				Why: fmt.Sprintf("it is %v there, want %v", info.Shape, p.Shape), Try: "take the model's own encoder"}
		}
		t, err := pool.New(p.Name, d, p.Shape...)
		if err == nil {
			x.run.Params[p.Name] = t
			err = w.read(p.Name, t)
		}
		if err != nil {
			x.Close()
			return nil, err
		}
	}
	return x, nil
}

// record traces the encoder for one image.
func (x *Sight) record() *grad.Trace {
	r := &block.Rec{T: grad.NewTape(grad.Options{DType: x.dtype, NoGrad: true})}
	t, n, patches := r.T, x.Hidden, x.Rows()-1
	pixels := t.Cast(t.Data("pixels", tensor.F32, patches, 3*x.Patch*x.Patch))
	h := r.Linear("embeddings.patch_embedding", pixels, n, 3*x.Patch*x.Patch, block.LinearOpts{Rep: true})
	whole := t.View(t.Param("embeddings.class_embedding", []int{n}, -1, 1, true), 1, n)
	h = t.Concat(0, whole, h)
	h = t.Add(h, t.Param("embeddings.position_embedding.weight", []int{patches + 1, n}, -1, 1, true))
	h = r.LayerNorm("pre_layrnorm", h, n, x.Eps)
	cu := t.ConstI32("image", []int32{0, int32(patches + 1)})
	s := scope{r, ""}
	a := heads{width: n, n: x.Heads, dim: n / x.Heads, bias: true,
		names: [4]string{"q_proj", "k_proj", "v_proj", "out_proj"},
		attend: func(_ scope, q, k, v *grad.Value) *grad.Value {
			return t.Attention(q, k, v, cu, cu, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(n/x.Heads))})
		}}
	layers := x.Layers - 1
	if x.whole {
		layers++
	}
	for i := range layers {
		name := fmt.Sprintf("encoder.layers.%d", i)
		h = t.Add(h, a.record(s, name+".self_attn", r.LayerNorm(name+".layer_norm1", h, n, x.Eps)))
		m := r.Linear(name+".mlp.fc1", r.LayerNorm(name+".layer_norm2", h, n, x.Eps), x.Inter, n,
			block.LinearOpts{Bias: true})
		m = r.Linear(name+".mlp.fc2", t.Act(m, activations[x.Act]), n, x.Inter, block.LinearOpts{Bias: true, Row: true})
		h = t.Add(h, m)
	}
	if x.whole {
		h = r.LayerNorm("post_layernorm", t.Take(h, t.ConstI32("first", []int32{0})), n, x.Eps)
		if x.projected {
			h = r.Linear("visual_projection", h, x.Out, n, block.LinearOpts{Rep: true})
		}
	}
	t.Output("states", h)
	return t.Finish()
}

// Encode gives the states [Rows Hidden] of an image of normalised pixels [3 Side Side], or its embedding.
func (x *Sight) Encode(pixels []float32) ([]float32, error) {
	if len(pixels) != 3*x.Side*x.Side {
		return nil, fmt.Errorf("texts: %d numbers, want an image of %d×%[2]d pixels", len(pixels), x.Side)
	}
	n := x.Side / x.Patch
	rows := make([]float32, 0, len(pixels))
	for at := range n * n {
		for c := range 3 {
			for y := range x.Patch {
				from := (c*x.Side+at/n*x.Patch+y)*x.Side + at%n*x.Patch
				rows = append(rows, pixels[from:from+x.Patch]...)
			}
		}
	}
	data := map[string]*tensor.Tensor{"pixels": tensor.Of(tensor.F32, rows, n*n, 3*x.Patch*x.Patch)}
	e := Encoder{run: x.run}
	if err := e.run.Place(data); err != nil {
		return nil, err
	}
	f := x.run.NewFrame(x.trace, data, nil, nil)
	if _, err := x.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	t := f.Outputs()["states"]
	out := e.host(t)
	t.Release()
	f.Close()
	return out, nil
}

// Close gives the weights back.
func (x *Sight) Close() {
	x.run.Close()
	for name, t := range x.run.Params {
		t.Release()
		delete(x.run.Params, name)
	}
}
