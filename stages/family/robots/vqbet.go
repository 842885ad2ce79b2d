package robots

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// vqbetKeys are the keys that VQ-BeT alone has.
type vqbetKeys struct {
	Tokens     int     `key:"action_tokens" default:"3" min:"1" max:"1024" class:"fixed" doc:"Chunks that VQ-BeT says from the present step on, each a step later."`
	Executed   int     `key:"token_actions" default:"5" min:"1" max:"255" class:"fixed" unit:"steps" doc:"Actions of a chunk that a code of VQ-BeT stands for."`
	CodeSteps  int     `key:"code_steps" default:"20000" min:"0" max:"1000000000" class:"fixed" unit:"steps" doc:"First steps of a run, in which VQ-BeT learns its code books alone; 0 for a model whose codes are learnt, which stay as they are."`
	Codes      int     `key:"codes" default:"16" min:"2" max:"65536" class:"fixed" doc:"Codes of each of the two code books of VQ-BeT."`
	CodeSize   int     `key:"code_size" default:"256" min:"1" max:"65536" class:"fixed" doc:"Numbers of a code."`
	CodeHidden int     `key:"code_hidden" default:"128" min:"1" max:"65536" class:"fixed" doc:"Width of the layers that make codes of actions, and actions of codes."`
	Places     int     `key:"gpt_positions" default:"500" min:"1" max:"65536" class:"fixed" doc:"Places of VQ-BeT's transformer."`
	In         int     `key:"gpt_input" default:"512" min:"1" max:"65536" class:"fixed" doc:"Numbers of what VQ-BeT's transformer reads."`
	Out        int     `key:"gpt_output" default:"512" min:"1" max:"65536" class:"fixed" doc:"Numbers of what it gives."`
	Offset     float64 `key:"offset_weight" default:"10000" min:"0" max:"1000000000" class:"fixed" doc:"Weight in VQ-BeT's loss of the distance of actions."`
	Primary    float64 `key:"primary_weight" default:"5" min:"0" max:"1000000000" class:"fixed" doc:"Weight of the first code."`
	Secondary  float64 `key:"secondary_weight" default:"0.5" min:"0" max:"1000000000" class:"fixed" doc:"Weight of the second code."`
	Heat       float64 `key:"code_temperature" default:"0.1" min:"0.000001" max:"1000000" class:"fixed" doc:"Temperature at which VQ-BeT draws codes, in training too."`
	InTurn     bool    `key:"code_in_turn" default:"false" class:"fixed" doc:"The second code is said behind the first one; else both at once."`
}

// vqbetMap are lerobot's names of ours.
var vqbetMap = map[string]string{"n_obs_steps": "observation_steps", "n_action_pred_token": "action_tokens",
	"action_chunk_size": "token_actions", "crop_is_random": "crop_random", "spatial_softmax_num_keypoints": "keypoints",
	"n_vqvae_training_steps": "code_steps", "vqvae_n_embed": "codes", "vqvae_embedding_dim": "code_size",
	"vqvae_enc_hidden_dim": "code_hidden", "gpt_block_size": "gpt_positions", "gpt_input_dim": "gpt_input",
	"gpt_output_dim": "gpt_output", "gpt_n_layer": "num_hidden_layers", "gpt_n_head": "num_attention_heads",
	"gpt_hidden_dim": "hidden_size", "offset_loss_weight": "offset_weight", "primary_code_loss_weight": "primary_weight",
	"secondary_code_loss_weight": "secondary_weight", "bet_softmax_temperature": "code_temperature",
	"sequentially_select": "code_in_turn"}

var vqbetPart = configs.Declare("vqbet", configs.Rules[vqbetKeys]{Check: func(m configs.Model, k vqbetKeys,
	at configs.Report) {
	if m.ModelType != "vqbet" {
		return
	}
	chunkFits(m, at)
	o, n := policyPart.Of(m), netPart.Of(m)
	checkCrop(n, o, at)
	if want := n.Observed + k.Tokens + k.Executed - 2; o.Chunk != want {
		at("chunk_size", fmt.Sprintf("%d, but observation_steps, action_tokens and token_actions make %d", o.Chunk, want),
			fmt.Sprintf("write %d", want))
	}
	if o.Views != 1 {
		at("views", fmt.Sprintf("%d cameras, and the model reads one", o.Views), "write 1, and name one in policy.cameras")
	}
	if rows := 3*n.Observed + k.Tokens - 1; rows > k.Places {
		at("gpt_positions", fmt.Sprintf("%d, and a sample has %d rows", k.Places, rows), fmt.Sprintf("try %d", rows))
	}
}})

// VQ-BeT (arXiv:2403.03181), as lerobot has it: a residual code book of chunks of actions is learnt first, and then a
// transformer that says the codes of past, present and coming chunks, with offsets from what they stand for.
var _ = family.Register(family.Family{ModelType: "vqbet", Paper: "2403.03181", HF: hf.Family{Class: "vqbet",
	Diffusers: true, Has: []string{"latent_patch", "in_channels", "chunk_size", "views", "state_size", "view_height",
		"view_width", "backbone_width", "keypoints", "crop_height", "crop_width", "crop_random", "observation_steps",
		"action_tokens", "token_actions", "code_steps", "codes", "code_size", "code_hidden", "gpt_positions", "gpt_input",
		"gpt_output", "offset_weight", "primary_weight", "secondary_weight", "code_temperature", "code_in_turn"},
	Usual: map[string]string{"latent_patch": "[1, 1, 1]"}, Absent: map[string]string{"latent_patch": "[1, 1, 1]",
		"observation_steps": "5", "num_hidden_layers": "8", "num_attention_heads": "8", "hidden_size": "512"},
	Alias: vqbetMap, Only: map[string]string{"vision_backbone": `"resnet18"`, "use_group_norm": "true"},
	Idle: append([]string{"crop_shape", "optimizer_vqvae_lr", "optimizer_vqvae_weight_decay", "mlp_hidden_dim"},
		lerobotIdle...), Dropouts: []string{"dropout"}, Omit: []string{"latent_patch", "chunk_size", "intermediate_size"},
	Prepare: func(raw hf.Raw) {
		viewed(raw)
		if raw["type"] != nil && raw["crop_shape"] == nil && raw["crop_height"] == nil {
			raw["crop_shape"] = []byte("[84, 84]")
		}
		cropShape(raw)
	}, Own: []hf.Own{hf.Keys(vqbetFile{5, 3, 5, 512}, vqbetFile.enter)},
	Write: func(m hf.Values, out map[string]any) {
		writeLeRobot(m, out)
		writeCrop(m, out)
	}}, Build: func(c configs.Model) *family.Model { return newVQBeT(c).model() }})

// vqbetFile are keys that settings follow from.
type vqbetFile struct {
	Observed int `key:"observation_steps"`
	Tokens   int `key:"action_tokens"`
	Executed int `key:"token_actions"`
	Hidden   int `key:"hidden_size"`
}

func (k vqbetFile) enter(d *hf.Decoder) {
	d.Set("chunk_size", fmt.Sprint(k.Observed+k.Tokens+k.Executed-2))
	d.Set("intermediate_size", fmt.Sprint(4*k.Hidden))
}

// vqbet is a model of the family.
type vqbet struct {
	c configs.Model
	o vqbetKeys
	k netKeys
	e *eyes
	d *family.Denoiser
}

// The names of its parts in lerobot's files, and its phases: where codes are learnt already there is none.
const (
	vqGPT   = "vqbet.policy."
	vqHead  = "vqbet.action_head."
	vqCodes = vqHead + "vqvae_model."
	vqDone  = vqCodes + "discretized"
	vqStays = vqCodes + "vq_layer.freeze_codebook"
)

var vqLearns, vqSays = family.Phase{Name: "codes", Mark: vqDone, Key: "code_steps"}, family.Phase{Name: "policy"}

func newVQBeT(c configs.Model) *vqbet {
	e, o := newEyes(c, "vqbet.rgb_encoder."), vqbetPart.Of(c)
	v := &vqbet{c: c, o: o, k: netPart.Of(c), e: e, d: e.d}
	v.d.Sight.Plain = true
	v.d.Once, v.d.Unmasked, v.d.Executed, v.d.Draws = true, true, o.Executed, 2*v.windows()*o.Codes
	v.d.Learns = learnsOnce
	return v
}

// windows are the chunks that a sample has, each a step behind the one before; wide are the numbers of one, and rows
// those that the transformer reads of a sample.
func (v *vqbet) windows() int { return v.k.Observed + v.o.Tokens - 1 }
func (v *vqbet) wide() int    { return v.o.Executed * v.d.Width() }
func (v *vqbet) rows() int    { return 3*v.k.Observed + v.o.Tokens - 1 }

func (v *vqbet) model() *family.Model {
	m := denoisers.NewModel(v.c, v.d)
	m.Source, m.Initial = v.source, v.initial
	rows := func(s block.Shape) int { return family.Levels(s) * v.rows() }
	m.Ports["x"] = family.Port{Width: v.c.Hidden, Rows: rows, Whole: true}
	v.e.n.Add(m)
	m.Add(family.Block{Name: vqGPT + "transformer.wte", Takes: []string{"map"}, Gives: []string{"x"}, Weight: 0.1,
		Record: v.embed})
	for i := range v.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%stransformer.h.%d", vqGPT, i), Takes: []string{"x"},
			Gives: []string{"x"}, Recompute: true, Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["x"] = v.layer(r, fmt.Sprintf("%stransformer.h.%d.", vqGPT, i), env["x"])
			}})
	}
	if v.o.CodeSteps > 0 {
		for i := range m.Blocks {
			m.Blocks[i].Of = vqSays.Dim()
		}
		for name, p := range m.Ports {
			p.Of = vqSays.Dim()
			m.Ports[name] = p
		}
		first, rest := vqLearns, vqSays
		first.Steps = int64(v.o.CodeSteps)
		rest.Learns = func(p string) bool { return !strings.HasPrefix(p, vqCodes) || p == vqDone || p == vqStays }
		first.Learns = func(p string) bool { return !rest.Learns(p) }
		m.SetPhases(first, rest)
	}
	m.Add(family.Block{Name: vqHead + "vqvae_model", Takes: []string{"x"}, Weight: 0.3, Record: v.head})
	return m
}

// embed makes what the transformer reads of each sample: view, state and query of each step, and queries of coming ones.
func (v *vqbet) embed(r *block.Rec, env map[string]*grad.Value) {
	t, levels, n, whole := r.T, family.Levels(r.Shape), v.k.Observed, block.LinearOpts{Bias: true, Rep: true}
	steps, in := levels*n, v.o.In
	view := r.Linear("vqbet.rgb_feature_projector.0", v.e.see(r, env["map"]), in, 2*v.e.k, whole)
	state := t.View(t.Cast(v.d.State(r)), steps, v.d.Sight.State/n)
	state = r.Linear("vqbet.state_projector.0", state, in, v.d.Sight.State/n, whole)
	query := t.Param("vqbet.action_token", []int{1, in}, -1, 1, true)
	x := t.Take(t.Concat(0, view, state, query), ofSamples(r, "vqbet.read", v.rows(), func(s, k int) int {
		if k < 3*n && k%3 < 2 {
			return k%3*steps + s*n + k/3
		}
		return 2 * steps
	}))
	x = r.Linear(vqGPT+"transformer.wte", x, v.c.Hidden, in, whole)
	table := t.Param(vqGPT+"transformer.wpe.weight", []int{v.o.Places, v.c.Hidden}, -1, 1, false)
	env["x"] = t.Add(x, t.Take(table, ofSamples(r, "vqbet.places", v.rows(), func(_, k int) int { return k })))
}

// layer is a layer of minGPT.
func (v *vqbet) layer(r *block.Rec, name string, x *grad.Value) *grad.Value {
	t, n, head, cu := r.T, v.c.Hidden, v.c.Hidden/v.c.Heads, borders(r, "vqbet.samples", v.rows())
	end := t.Still()
	t.Param(name+"attn.bias", []int{v.o.Places, v.o.Places}, -1, 1, false) // lerobot's file has the mask
	end()
	h := r.LayerNorm(name+"ln_1", x, n, actEps)
	proj := func(part string) *grad.Value {
		return t.Heads(r.Linear(name+"attn."+part, h, n, n, block.LinearOpts{Bias: true, Unit: head}), head)
	}
	o := t.Attention(proj("q_proj"), proj("k_proj"), proj("v_proj"), cu, cu, grad.AttentionConfig{
		Scale: 1 / math.Sqrt(float64(head)), Causal: true})
	x = t.Add(x, t.Place("", r.Linear(name+"attn.c_proj", t.Flat(o), n, n, block.LinearOpts{Bias: true, Row: true,
		Unit: head})))
	h = r.Linear(name+"mlp.0", r.LayerNorm(name+"ln_2", x, n, actEps), 4*n, n, block.LinearOpts{Bias: true})
	h = r.Linear(name+"mlp.2", t.Act(h, kernels.GELU), n, 4*n, block.LinearOpts{Bias: true, Row: true})
	return t.Add(x, t.Place("", h))
}

// mlp is three layers with ReLU between them, of x [t in] -> [t out] in float32.
func (v *vqbet) mlp(r *block.Rec, name string, x *grad.Value, out int) *grad.Value {
	t, h, whole := r.T, v.o.CodeHidden, block.LinearOpts{Bias: true, Rep: true}
	x = t.Act(r.Linear(name+".0", x, h, x.Shape[1], whole), kernels.ReLU)
	x = t.Act(r.Linear(name+".2", x, h, h, whole), kernels.ReLU)
	return t.Linear32(x, t.Param(name+".4.weight", []int{out, h}, -1, 1, true),
		t.Param(name+".4.bias", []int{out}, -1, 1, false))
}

// constant is a value of ours in every place, in float32.
func constant(t *grad.Tape, name string, by float32, shape ...int) *grad.Value {
	of := make([]float32, tensor.Len(shape))
	for i := range of {
		of[i] = by
	}
	return t.View(t.Const(name, of), shape...)
}

// head ends the model: of the phase of codes with their loss, of that behind it with actions, or the loss of them.
func (v *vqbet) head(r *block.Rec, env map[string]*grad.Value) {
	t, says, learns := r.T, env["x"] != nil, v.o.CodeSteps > 0 && (env["x"] == nil || r.Shape.Dim(vqLearns.Dim()) > 0)
	levels, a, wide, windows, each := family.Levels(r.Shape), v.d.Width(), v.wide(), v.windows(), v.o.Executed
	if v.o.CodeSteps == 0 {
		defer t.Still()()
	}
	books := v.books(r)
	if r.Logits {
		_, y := v.said(r, env["x"], books)
		v.d.Predicted(r, env, t.Take(t.View(y, levels*windows*each, a), ofSamples(r, "vqbet.actions", v.d.Chunk,
			func(s, k int) int { // of the present window all actions, of others the first or the last ones
				w := max(min(k, v.k.Observed-1), k-each+1)
				return (s*windows+w)*each + k - w
			})))
		return
	}
	actions := t.View(t.Take(v.d.Clean(r), ofSamples(r, "vqbet.windows", windows*each, func(s, k int) int {
		return s*v.d.Chunk + k/each + k%each
	})), levels*windows, wide)
	weight := t.View(t.Columns(t.View(v.d.RowWeights(r), levels, v.d.Chunk), 0, 1), levels)
	weight = t.Scale(weight, float64(v.d.Chunk)/float64(windows))
	there := t.Take(constant(t, "vqbet.ones", 1, levels, 1), t.Data("dif.at", tensor.I32, v.d.Rows(r.Shape)))
	there = t.Take(there, ofSamples(r, "vqbet.first", windows, func(s, w int) int { return s*v.d.Chunk + w }))
	made := v.mlp(r, vqCodes+"encoder", t.Cast(actions), v.o.CodeSize)
	codes, sum := v.quantize(r, books, made, there, weight, learns)
	if learns {
		y := v.mlp(r, vqCodes+"decoder", t.Cast(sum), wide)
		t.Loss(t.PointLoss(y, actions, t.Scale(weight, 1/float64(wide)), nil, kernels.AbsoluteLoss, 0))
	}
	if says {
		nll, y := v.said(r, env["x"], books, codes...)
		for g, by := range []float64{v.o.Primary, v.o.Secondary} {
			n := t.View(nll[g], levels*windows, 1)
			rest := t.Add(constant(t, "vqbet.one", 1, levels*windows, 1), t.Scale(t.Act(t.Scale(n, -1), kernels.Exp), -1))
			focal := t.Mul(t.Mul(rest, rest), n) // arXiv:1708.02002, gamma 2
			t.Loss(t.PointLoss(focal, constant(t, "vqbet.zero", 0, levels*windows, 1), t.Scale(weight, by), nil,
				kernels.AbsoluteLoss, 0))
		}
		t.Loss(t.PointLoss(y, actions, t.Scale(weight, v.o.Offset/float64(wide)), nil, kernels.AbsoluteLoss, 0))
	}
}

// book is a code book, with the averages that it follows from.
type book struct{ size, sum, of *grad.Value }

// vqBook is the rule of a code book: sums over counts, which are smoothed as lerobot's are.
var vqBook = grad.RegisterMove("code_book", func(value, _ []float32, with [][]float32, f [2]float64) {
	size, sum, total := with[0], with[1], 0.0
	for _, n := range size {
		total += float64(n)
	}
	d := len(sum) / len(size)
	for i := range value {
		value[i] = sum[i] / float32((float64(size[i/d])+f[0])/(total+float64(len(size))*f[0])*total)
	}
})

// vqOne is the rule of a mark that is set.
var vqOne = grad.RegisterMove("one", func(value, _ []float32, _ [][]float32, _ [2]float64) { value[0] = 1 })

// books declares both code books, and what lerobot's file has beside them.
func (v *vqbet) books(r *block.Rec) (out []book) {
	t, n, d := r.T, v.o.Codes, v.o.CodeSize
	for g := range 2 {
		name := fmt.Sprintf("%svq_layer.layers.%d._codebook.", vqCodes, g)
		size := t.Moving(name+"cluster_size", []int{1, n}, grad.Average, [2]float64{0.8})
		sum := t.Moving(name+"embed_avg", []int{1, n, d}, grad.Average, [2]float64{0.8})
		out = append(out, book{size, sum, t.Moving(name+"embed", []int{1, n, d}, vqBook, [2]float64{1e-5}, size, sum)})
	}
	t.Moving(vqDone, []int{1}, vqOne, [2]float64{})
	t.Moving(vqStays, []int{1}, vqOne, [2]float64{})
	end := t.Still()
	for g := range 2 {
		t.Param(fmt.Sprintf("%svq_layer.layers.%d._codebook.initted", vqCodes, g), []int{1}, -1, 1, false)
	}
	t.Param("vqbet.select_target_actions_indices", []int{v.windows(), v.o.Executed}, -1, 1, false)
	end()
	return out
}

// quantize gives the codes [t] of rows x [t code_size] by both books, each of what the one before leaves, and the sum of
// what they stand for, through which gradients pass as they are. Learning adds its loss and what the books move by;
// there is 1 for rows that count, and 0.
func (v *vqbet) quantize(r *block.Rec, books []book, x, there, weight *grad.Value, learns bool) (codes []*grad.Value,
	sum *grad.Value) {
	t, rows, n, d := r.T, x.Shape[0], v.o.Codes, v.o.CodeSize
	for _, b := range books {
		of := t.Detach(t.View(b.of, n, d))
		left := t.Detach(x)
		squares := t.Linear32(t.Mul(of, of), constant(t, "vqbet.sum", 1, 1, d), nil)
		code := t.Best(t.Linear32(left, of, t.Scale(t.View(squares, n), -0.5)))
		q := t.Take(of, code)
		y := t.Add(x, t.Detach(t.Add(q, t.Scale(left, -1))))
		if learns {
			t.Loss(t.PointLoss(x, q, t.Scale(weight, 5/float64(d)), nil, kernels.SquaredLoss, 0))
			y = t.Summed(y, b.size, there, code)
			y = t.Summed(y, b.sum, t.ScaleRows(left, t.View(there, rows)), code)
		}
		codes, x = append(codes, code), t.Add(x, t.Scale(t.Detach(y), -1))
		if sum == nil {
			sum = y
		} else {
			sum = t.Add(sum, y)
		}
	}
	return codes, sum
}

// said is what the transformer says of each window: actions [levels·windows wide] in float32, of codes that are drawn, and
// minus the logarithm of the probability of given codes of each book.
func (v *vqbet) said(r *block.Rec, x *grad.Value, books []book, codes ...*grad.Value) (nll []*grad.Value, y *grad.Value) {
	t, levels, windows, n, whole := r.T, family.Levels(r.Shape), v.windows(), v.o.Codes, block.LinearOpts{Rep: true}
	x = t.Take(x, ofSamples(r, "vqbet.asked", windows, func(s, w int) int {
		return s*v.rows() + 2*min(w+1, v.k.Observed) + w
	}))
	x = r.LayerNorm(vqGPT+"transformer.ln_f", x, v.c.Hidden, actEps)
	x = r.Linear(vqGPT+"lm_head", x, v.o.Out, v.c.Hidden, whole)
	noise := t.View(v.d.Gumbel(r), levels*windows, 2*n)
	rows, h, unit, chosen, means := x.Shape[0], x, make([]float32, n*n), []*grad.Value(nil), (*grad.Value)(nil)
	for i := range n {
		unit[i*n+i] = 1
	}
	for g, b := range books {
		name, in := fmt.Sprintf("%smap_to_cbet_preds.%d.", vqHead, g), h.Shape[1]
		w, bias := t.Param(name+"weight", []int{n, in}, -1, 1, true), t.Param(name+"bias", []int{n}, -1, 1, false)
		if len(codes) > 0 {
			one := t.Cast(constant(t, "vqbet.one", 1, rows, 1))
			nll = append(nll, t.TokenNLL(t.Concat(1, h, one), t.Concat(1, w, t.View(bias, n, 1)), codes[g], 0))
		}
		logits := t.Scale(t.Linear32(t.Detach(h), t.Detach(w), t.Detach(bias)), 1/v.o.Heat)
		at := t.Best(t.Add(logits, t.Columns(noise, g*n, n)))
		one := t.Take(t.View(t.Const("vqbet.unit", unit), n, n), at)
		chosen = append(chosen, one)
		if q := t.Take(t.Detach(t.View(b.of, n, v.o.CodeSize)), at); means == nil {
			means = q
		} else {
			means = t.Add(means, q)
		}
		if v.o.InTurn {
			h = t.Concat(1, x, t.Cast(one))
		}
	}
	offsets := r.Linear(vqHead+"map_to_cbet_preds_offset.0", x, 2*n*v.wide(), v.o.Out, block.LinearOpts{Bias: true, Rep: true})
	offsets = t.ScaleRows(t.View(offsets, rows*2*n, v.wide()), t.View(t.Concat(1, chosen...), rows*2*n))
	offsets = t.View(t.Permute(t.View(offsets, rows, 2*n, v.wide()), 0, 2, 1), rows*v.wide(), 2*n)
	y = t.View(t.Linear32(offsets, t.Cast(constant(t, "vqbet.total", 1, 1, 2*n)), nil), rows, v.wide())
	return nll, t.Add(y, t.Detach(v.mlp(r, vqCodes+"decoder", t.Cast(means), v.wide())))
}

// source says where parameters lie in lerobot's files.
func (v *vqbet) source(name string) family.Source {
	s, n := v.e.source(name), v.c.Hidden
	for i, part := range []string{"q_proj.", "k_proj.", "v_proj."} {
		if before, end, ok := strings.Cut(name, ".attn."+part); ok {
			s.Name, s.Rows = before+".attn.c_attn."+end, [][2]int{{i * n, (i + 1) * n}}
		}
	}
	for g, book := range []string{"primary_bin.0.", "secondary_bin.0."} {
		if end, ok := strings.CutPrefix(name, fmt.Sprintf("%smap_to_cbet_preds.%d.", vqHead, g)); ok {
			if s.Name = vqHead + "map_to_cbet_preds_" + book + end; !v.o.InTurn {
				s.Name, s.Rows = vqHead+"map_to_cbet_preds_bin.0."+end, [][2]int{{g * v.o.Codes, (g + 1) * v.o.Codes}}
			}
		}
	}
	switch {
	case name == "vqbet.action_token":
		s.Lead = 1
	case name == vqDone, name == vqStays:
		s.Flat = true
	case strings.HasSuffix(name, ".attn.bias"):
		s.Lead = 2
	}
	return s
}

// initial begins parameters as lerobot does.
func (v *vqbet) initial(name string) family.Start {
	at := func(f func(i int) bool) family.Start {
		return family.Start{At: func(i int) float32 { return map[bool]float32{true: 1}[f(i)] }}
	}
	before, book, _ := strings.Cut(name, "._codebook.")
	switch {
	case name == "vqbet.action_token":
		return family.Start{Std: 1}
	case name == "vqbet.select_target_actions_indices":
		return family.Start{At: func(i int) float32 { return float32(i/v.o.Executed + i%v.o.Executed) }}
	case strings.HasSuffix(name, ".attn.bias"):
		return at(func(i int) bool { return i%v.o.Places <= i/v.o.Places })
	case book == "initted", book == "cluster_size":
		return at(func(int) bool { return book == "initted" })
	case book != "": // kaiming_uniform of [1 codes size]
		return family.Start{Even: math.Sqrt(6 / float64(v.o.Codes*v.o.CodeSize)), Like: before}
	case name == vqDone, name == vqStays:
		return at(func(int) bool { return v.o.CodeSteps == 0 })
	case strings.HasPrefix(name, vqCodes): // torch's beginning of a layer, by what it reads
		in := map[string]int{"encoder.0": v.wide(), "decoder.0": v.o.CodeSize}[name[len(vqCodes):strings.LastIndex(name, ".")]]
		return family.Start{Even: 1 / math.Sqrt(float64(cmp.Or(in, v.o.CodeHidden)))}
	case strings.HasSuffix(name, "attn.c_proj.weight"):
		return family.Start{Std: family.InitStd / math.Sqrt(2*float64(v.c.Layers))}
	}
	return v.e.initial(name)
}
