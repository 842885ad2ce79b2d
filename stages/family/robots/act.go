package robots

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
	"github.com/lfactor/lfactor/stages/noise"
)

// actKeys are the keys that ACT alone has.
type actKeys struct {
	Decoders int     `key:"decoder_layers" default:"1" min:"1" max:"64" class:"fixed" doc:"Layers of ACT's decoder of actions."`
	Encoders int     `key:"vae_layers" default:"4" min:"1" max:"64" class:"fixed" doc:"Layers of ACT's encoder of demonstrated actions, which training alone has."`
	Latent   int     `key:"latent_size" default:"32" min:"1" max:"65536" class:"fixed" doc:"Numbers that ACT's encoder says of demonstrated actions."`
	KL       float64 `key:"divergence_weight" default:"10" min:"0" max:"1000000" class:"fixed" doc:"Weight in ACT's loss of their divergence from standard normal numbers."`
}

var actPart = configs.Declare("act", configs.Rules[actKeys]{Check: func(m configs.Model, k actKeys,
	at configs.Report) {
	if m.ModelType != "act" {
		return
	}
	if o := policyPart.Of(m); k.Latent > o.Chunk*denoisers.Shared.Of(m).In {
		at("latent_size", fmt.Sprintf("%d, more than the %d numbers of a chunk of actions", k.Latent,
			o.Chunk*denoisers.Shared.Of(m).In), "take fewer")
	}
	chunkFits(m, at)
	if m.Hidden%4 != 0 {
		at("hidden_size",
			fmt.Sprintf("%d is no multiple of 4: places have sines and cosines on two axes", m.Hidden), "")
	}
}})

// ACT (arXiv:2304.13705), as lerobot has it: a transformer whose decoder gives a chunk of actions at once,
// trained as the decoder of a variational autoencoder.
var _ = family.Register(family.Family{ModelType: "act", Paper: "2304.13705",
	HF: hf.Family{Class: "act", Diffusers: true, Unturned: true, Has: []string{"latent_patch", "in_channels", "chunk_size",
		"views", "state_size", "view_height", "view_width", "backbone_width", "decoder_layers", "vae_layers",
		"latent_size", "divergence_weight"}, Usual: map[string]string{"latent_patch": "[1, 1, 1]"},
		Absent: map[string]string{"latent_patch": "[1, 1, 1]", "hidden_size": "512", "num_hidden_layers": "4",
			"num_attention_heads": "8", "intermediate_size": "3200", "chunk_size": "100"}, Alias: map[string]string{
			"dim_model": "hidden_size", "n_encoder_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
			"dim_feedforward": "intermediate_size", "n_decoder_layers": "decoder_layers",
			"n_vae_encoder_layers": "vae_layers", "latent_dim": "latent_size", "kl_weight": "divergence_weight"},
		Only: map[string]string{"n_obs_steps": "1", "vision_backbone": `"resnet18"`, "pre_norm": "false",
			"use_vae": "true", "feedforward_activation": `"relu"`, "replace_final_stride_with_dilation": "false"},
		Idle: lerobotIdle, Dropouts: []string{"dropout"}, Omit: []string{"latent_patch"}, Prepare: viewed,
		Write: writeLeRobot}, Build: func(c configs.Model) *family.Model { return newACT(c).model() }})

// writeLeRobot makes of diffusers' form that of lerobot's files.
func writeLeRobot(m hf.Values, out map[string]any) {
	delete(out, "_class_name")
	delete(out, "_diffusers_version")
	delete(out, "num_attention_heads")
	out["type"] = m.Text("model_type")
	if m.Int("backbone_width") == 64 { // a ResNet-18's, which lerobot has alone
		delete(out, "backbone_width")
	}
	for from, to := range hf.Families()[m.Text("model_type")].Alias {
		out[from] = m[to]
	}
}

// actEps stands under the roots of ACT's norms, as PyTorch has it.
const actEps = 1e-5

// act is a model of the family.
type act struct {
	c configs.Model
	o actKeys
	p policyKeys
	d *family.Denoiser
	n *denoisers.Resnet
}

func newACT(c configs.Model) *act {
	d := whole(c)
	d.Once, d.Ahead = true, 2
	p := policyPart.Of(c)
	d.Learns = learnsOnce
	return &act{c: c, o: actPart.Of(c), p: p, d: d, n: &denoisers.Resnet{Name: "model.backbone.", Stem: p.Stem, D: d,
		Norm: denoisers.Frozen}}
}

// learnsOnce is what a policy is trained by that gives its actions at once.
func learnsOnce(p *family.Process) {
	p.Loss, p.Times, p.Levels = kernels.AbsoluteLoss, noise.Times{Kind: "uniform"}, noise.Flow{Shift: 1, Times: 1}
	p.Target, _ = noise.Lookup("sample") // it is one of the package's own
}

// tokens is what the encoder reads of a sample: the latent, the state and the maps of its views.
func (a *act) tokens() int {
	h, w := a.n.Space(4)
	return 2 + a.p.Views*h*w
}

func (a *act) model() *family.Model {
	m, n := denoisers.NewModel(a.c, a.d), a.c.Hidden
	m.Source, m.Initial = a.source, a.initial
	delete(m.Ports, "x")
	all := func(s block.Shape) int { return family.Levels(s) * a.tokens() }
	m.Ports["moments"] = family.Port{Width: 2 * a.o.Latent, Rows: family.Levels, Whole: true}
	m.Ports["tokens"] = family.Port{Width: n, Rows: all, Whole: true}
	m.Ports["places"] = family.Port{Width: n, Rows: all, Whole: true}
	m.Ports["query"] = family.Port{Width: n, Rows: a.d.Rows, Whole: true}
	m.Ports["x"] = family.Port{Width: n, Rows: a.d.Rows, Whole: true}
	a.n.Add(m)
	m.Add(family.Block{Name: "model.vae_encoder", Gives: []string{"moments"}, Weight: float64(a.o.Encoders),
		Record: a.demonstrated})
	m.Add(family.Block{Name: "model.encoder", Takes: []string{"map", "moments"},
		Gives: []string{"tokens", "places", "query"}, Weight: 0.1, Record: a.embed})
	for i := range a.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("model.encoder.layers.%d", i),
			Takes: []string{"tokens", "places"}, Gives: []string{"tokens"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				borders := borders(r, "act.tokens", a.tokens())
				env["tokens"] = a.layer(r, fmt.Sprintf("model.encoder.layers.%d", i), env["tokens"],
					env["places"], borders)
			}})
	}
	for i := range a.o.Decoders {
		b := family.Block{Name: fmt.Sprintf("model.decoder.layers.%d", i),
			Takes: []string{"tokens", "places", "query"}, Gives: []string{"x"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) { a.decode(r, i, env) }}
		if i > 0 {
			b.Takes = append(b.Takes, "x")
		}
		m.Add(b)
	}
	m.Add(family.Block{Name: "model.action_head", Takes: []string{"x", "moments"}, Weight: 0.1, Record: a.head})
	return m
}

// rows take runs of rows of tables that lie behind each other, for each sample: of tables [n_i d] of which
// each sample has own rows, or shares those of a table with one sample's rows.
func (a *act) rows(r *block.Rec, name string, parts ...part32) *grad.Value {
	return r.T.ConstI32(name, each(family.Levels(r.Shape), parts...))
}

// part32 is the rows of a table that a sample has.
type part32 struct {
	n      int
	shared bool // all samples have the same ones
	times  int  // that a sample has them; 0 is once
}

// demonstrated says of demonstrated actions what a decoder that is told it can repeat them from: mean and
// logarithm of variance of each sample's latent numbers. Padded actions see each other alone.
func (a *act) demonstrated(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, whole := r.T, a.c.Hidden, family.Levels(r.Shape), block.LinearOpts{Bias: true, Rep: true}
	if r.Logits {
		env["moments"] = t.Cast(t.ConstOf("act.none", make([]float32, levels*2*a.o.Latent), levels, 2*a.o.Latent))
		return
	}
	const name = "model.vae_encoder"
	first := t.Param(name+"_cls_embed.weight", []int{1, n}, -1, 1, true)
	state := r.Linear(name+"_robot_state_input_proj", t.Cast(a.d.State(r)), n, a.p.State, whole)
	actions := r.Linear(name+"_action_input_proj", t.Cast(a.d.Clean(r)), n, a.d.Width(), whole)
	x := t.Take(t.Concat(0, first, state, actions),
		a.rows(r, "act.seen", part32{n: 1, shared: true}, part32{n: 1}, part32{n: a.p.Chunk}))
	end := t.Still()
	table := t.Param(name+"_pos_enc", []int{a.p.Chunk + 2, n}, -1, 1, false)
	end()
	places := t.Take(table, a.rows(r, "act.seen.places", part32{n: a.p.Chunk + 2, shared: true}))
	for i := range a.o.Encoders {
		x = a.layer(r, fmt.Sprintf("%s.layers.%d", name, i), x, places, a.d.LearntCu(r))
	}
	at := t.Indices("act.first", levels, func(i int) int { return i * (a.p.Chunk + 2) })
	env["moments"] = r.Linear(name+"_latent_output_proj", t.Take(x, at), 2*a.o.Latent,
		n, whole)
}

// embed makes what the encoder reads: latent, state and features of views, with their places;
// and the places of actions.
func (a *act) embed(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, whole := r.T, a.c.Hidden, family.Levels(r.Shape), block.LinearOpts{Bias: true, Rep: true}
	mean := t.Columns(env["moments"], 0, a.o.Latent)
	z := mean
	if !r.Logits {
		deviation := t.Act(t.Scale(t.Columns(env["moments"], a.o.Latent, a.o.Latent), 0.5), kernels.Exp)
		drawn := t.Columns(t.View(a.d.Noise(r), levels, a.p.Chunk*a.d.Width()), 0, a.o.Latent)
		z = t.Add(mean, t.Mul(deviation, t.Cast(drawn)))
	}
	z = r.Linear("model.encoder_latent_input_proj", z, n, a.o.Latent, whole)
	state := r.Linear("model.encoder_robot_state_input_proj", t.Cast(a.d.State(r)), n, a.p.State, whole)
	seen := r.Linear("model.encoder_img_feat_input_proj", env["map"], n, a.n.Channels(4), whole)
	h, w := a.n.Space(4)
	env["tokens"] = t.Take(t.Concat(0, z, state, seen), a.rows(r, "act.read", part32{n: 1}, part32{n: 1},
		part32{n: a.p.Views * h * w}))
	vectors := t.Param("model.encoder_1d_feature_pos_embed.weight", []int{2, n}, -1, 1, true)
	waves := t.Cast(t.ConstOf("act.waves", waves(h, w, n), h*w, n))
	env["places"] = t.Take(t.Concat(0, vectors, waves), a.rows(r, "act.places", part32{n: 2, shared: true},
		part32{n: h * w, shared: true, times: a.p.Views}))
	query := t.Param("model.decoder_pos_embed.weight", []int{a.p.Chunk, n}, -1, 1, true)
	env["query"] = t.Take(query, a.rows(r, "act.query", part32{n: a.p.Chunk, shared: true}))
}

// waves are sines and cosines of the places of a map [h w], [h·w n]: half of the numbers for the row, half
// for the column, as in DETR (arXiv:2005.12872), whose places end at 2π.
func waves(h, w, n int) []float32 {
	out, d := make([]float32, h*w*n), n/2
	place := func(i, of int) float64 { return float64(i+1) / (float64(of) + 1e-6) * 2 * math.Pi }
	for y := range h {
		for x := range w {
			row := out[(y*w+x)*n:]
			for j := range d {
				f := math.Pow(10000, float64(2*(j/2))/float64(d))
				sy, cy := math.Sincos(place(y, h) / f)
				sx, cx := math.Sincos(place(x, w) / f)
				if j%2 == 0 {
					row[j], row[d+j] = float32(sy), float32(sx)
				} else {
					row[j], row[d+j] = float32(cy), float32(cx)
				}
			}
		}
	}
	return out
}

// attend is attention of q to k with values of v, all rows of the model's width, whose sequences have borders.
func (a *act) attend(r *block.Rec, name string, q, k, v, cuQ, cuK *grad.Value) *grad.Value {
	t, n, head := r.T, a.c.Hidden, a.c.Hidden/a.c.Heads
	proj := func(part string, x *grad.Value) *grad.Value {
		return t.Heads(r.Linear(name+part, x, n, n, block.LinearOpts{Bias: true, Unit: head}), head)
	}
	o := t.Attention(proj(".q_proj", q), proj(".k_proj", k), proj(".v_proj", v), cuQ, cuK,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	return t.Place("", r.Linear(name+".out_proj", t.Flat(o), n, n, block.LinearOpts{Bias: true, Row: true,
		Unit: head}))
}

// fed is x behind a layer's MLP and the norm called norm.
func (a *act) fed(r *block.Rec, name, norm string, x *grad.Value) *grad.Value {
	t, n := r.T, a.c.Hidden
	h := t.Act(r.Linear(name+".linear1", x, a.c.Intermediate, n, block.LinearOpts{Bias: true}), kernels.ReLU)
	h = t.Place("", r.Linear(name+".linear2", h, n, a.c.Intermediate, block.LinearOpts{Bias: true, Row: true}))
	return r.LayerNorm(name+norm, t.Add(x, h), n, actEps)
}

// layer is a layer of an encoder: places are added to what asks and to what is asked, and not to what is answered.
func (a *act) layer(r *block.Rec, name string, x, places, cu *grad.Value) *grad.Value {
	q := r.T.Add(x, places)
	x = r.T.Add(x, a.attend(r, name+".self_attn", q, q, x, cu, cu))
	return a.fed(r, name, ".norm2", r.LayerNorm(name+".norm1", x, a.c.Hidden, actEps))
}

// decode is layer i of the decoder, whose rows of actions begin as zeros.
func (a *act) decode(r *block.Rec, i int, env map[string]*grad.Value) {
	t, n, rows := r.T, a.c.Hidden, a.d.Rows(r.Shape)
	name, x := fmt.Sprintf("model.decoder.layers.%d", i), env["x"]
	if i == 0 {
		x = t.Cast(t.ConstOf("act.zeros", make([]float32, rows*n), rows, n))
	}
	own, all := borders(r, "act.chunks", a.p.Chunk), borders(r, "act.tokens", a.tokens())
	q := t.Add(x, env["query"])
	x = r.LayerNorm(name+".norm1", t.Add(x, a.attend(r, name+".self_attn", q, q, x, own, own)), n, actEps)
	o := a.attend(r, name+".multihead_attn", t.Add(x, env["query"]), t.Add(env["tokens"], env["places"]),
		env["tokens"], own, all)
	x = r.LayerNorm(name+".norm2", t.Add(x, o), n, actEps)
	env["x"] = a.fed(r, name, ".norm3", x)
}

// head gives the actions, and the losses: the actions' and what the latent numbers diverge from standard
// normal ones, of each sample their sum.
func (a *act) head(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels := r.T, a.c.Hidden, family.Levels(r.Shape)
	x := r.LayerNorm("model.decoder.norm", env["x"], n, actEps)
	a.d.Predicted(r, env, r.Linear("model.action_head", x, a.d.Width(), n, block.LinearOpts{Bias: true, Rep: true}))
	if r.Logits {
		return
	}
	weight := t.View(t.Columns(t.View(a.d.RowWeights(r), levels, a.p.Chunk), 0, 1), levels)
	weight = t.Scale(weight, a.o.KL*float64(a.p.Chunk))
	zero := t.ConstOf("act.normal", make([]float32, levels*a.o.Latent), levels, a.o.Latent)
	mean, logVariance := t.Columns(env["moments"], 0, a.o.Latent), t.Columns(env["moments"], a.o.Latent, a.o.Latent)
	t.Loss(t.PointLoss(mean, zero, t.Scale(weight, 0.5), nil, kernels.SquaredLoss, 0))
	t.Loss(t.PointLoss(logVariance, zero, weight, nil, kernels.VarianceLoss, 0))
}

// source says where parameters lie in lerobot's files: PyTorch's attention keeps three projections in one tensor.
func (a *act) source(name string) family.Source {
	s, n := family.Source{Name: name}, a.c.Hidden
	for i, part := range []string{".q_proj.", ".k_proj.", ".v_proj."} {
		if strings.Contains(name, part) {
			s.Name = strings.Replace(name, part, ".in_proj_", 1)
			s.Rows = [][2]int{{i * n, (i + 1) * n}}
		}
	}
	switch {
	case name == "model.encoder_img_feat_input_proj.weight":
		s.Tail = []int{a.n.Channels(4), 1, 1}
	case name == "model.vae_encoder_pos_enc":
		s.Lead = 1
	}
	return s
}

// initial begins layers as lerobot begins them, and the table of places with its sines and cosines.
func (a *act) initial(name string) family.Start {
	if name == "model.vae_encoder_pos_enc" {
		n := a.c.Hidden
		return family.Start{At: func(i int) float32 {
			row, j := i/n, i%n
			x := float64(row) / math.Pow(10000, float64(2*(j/2))/float64(n))
			if j%2 == 0 {
				return float32(math.Sin(x))
			}
			return float32(math.Cos(x))
		}}
	}
	return denoisers.FrozenStart(name)
}
