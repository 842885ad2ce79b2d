package host

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// furtherGolden is a model whose layer for a further token is trained, which its family does only if a run asks for it.
const furtherGolden = "../../../actors/host/testdata/deepseek-v3-mtp"

// furtherGoldens are all such models.
var furtherGoldens = []string{furtherGolden, "../../../actors/host/testdata/qwen3-next-mtp",
	"../../../actors/host/testdata/qwen3.5-vision-mtp"}

const goldenDir = "../../stages/family/testdata"

// adamWFacts are settings and results of steps of AdamW.
type adamWFacts struct {
	Losses, GradNorms []float64
	FinalLoss         float64
	LR, Eps           float64
	Betas             []float64
	Clip              float64 `json:"clip_grad"`
	Decay             float64 `json:"weight_decay"`
}

// golden is one tiny model of bench/golden/family_golden.py: weights, and what PyTorch computes with them.
type golden struct {
	Documents [][]int
	Loss      float64
	MTPWeight float64 `json:"mtp_weight"`
	Balance   float64 // factor on transformers' loss of balance, which Loss has and LMLoss has not
	LMLoss    float64 `json:"lm_loss"`
	BF16      *struct{ Loss float64 }
	Images    []struct {
		Grid  [3]int
		Spans [][2]int32
		Video bool
		Every float64
	}
	AdamW *adamWFacts
	t     *testing.T
	m     *family.Model
	own   family.FillFunc      // in place of the golden's weights, nil for those
	made  *family.Microbatch   // in place of the golden's batch, nil for that
	after func(r *Rank)        // sees each rank behind the last step, nil for nobody
	each  BatchFunc            // in place of one microbatch a step, nil for that
	plan  func(*layout.Design) // changes the plan to train by; nil for nothing
	w     *family.Weights
	file  *checkpoint.File
}

func openGolden(t *testing.T, name string) *golden {
	return openGoldenAt(t, filepath.Join(goldenDir, name))
}

// openGoldenAt opens one that lies elsewhere.
func openGoldenAt(t *testing.T, dir string) *golden {
	g := &golden{t: t}
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(text), "grad_norms", "GradNorms")),
		g))
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	if g.MTPWeight > 0 {
		c.MTPLayers = 1 // of some families only if a run asks for it
	}
	g.m, err = family.Build(c, 24)
	require.NoError(t, err)
	g.m.Spec.MTPWeight = g.MTPWeight
	g.m.Balance(block.Balance{Kind: block.PooledBalance, Scale: g.Balance})
	src, err := checkpoint.OpenDir(filepath.Join(dir, "."))
	if err != nil { // golden.safetensors lies beside the weights: open those alone
		f, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		g.w, err = g.m.OpenWeights(f, dir)
		require.NoError(t, err)
	} else {
		t.Cleanup(func() { src.Close() })
		g.w, err = g.m.OpenWeights(src, dir)
		require.NoError(t, err)
	}
	g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.file.Close() })
	return g
}

// read is a golden tensor; whole as float64.
func (g *golden) read(name string) (shape []int, out []float64) {
	for _, i := range g.file.Tensors() {
		if i.Name != name {
			continue
		}
		raw := make([]byte, i.Bytes)
		require.NoError(g.t, g.file.ReadInto(name, 0, i.Bytes, raw))
		n := tensor.Len(i.Shape)
		switch i.DType {
		case "I32":
			b := tensor.Of(tensor.U8, raw, len(raw)).View(0, tensor.I32, n)
			for _, v := range b.I32() {
				out = append(out, float64(v))
			}
		default:
			v := make([]float32, n)
			tensor.Widen(tensor.F32, raw, v)
			for _, x := range v {
				out = append(out, float64(x))
			}
		}
		return i.Shape, out
	}
	return nil, nil
}

// batch is the golden batch as one packed microbatch.
func (g *golden) batch() family.Microbatch {
	if g.made != nil {
		return *g.made
	}
	var mb family.Microbatch
	ints := func(name string) (out []int32) {
		_, v := g.read(name)
		for _, x := range v {
			out = append(out, int32(x))
		}
		return
	}
	mb.IDs, mb.Targets, mb.Positions = ints("ids"), ints("targets"), ints("positions")
	mb.Cu = []int32{0}
	for _, ls := range g.Documents {
		for _, n := range ls {
			mb.Cu = append(mb.Cu, mb.Cu[len(mb.Cu)-1]+int32(n))
		}
	}
	if g.m.Vision != nil {
		mb.Positions = nil
		for s := range mb.Cu[1:] {
			for i := range mb.Cu[s+1] - mb.Cu[s] {
				mb.Positions = append(mb.Positions, i)
			}
		}
	}
	g.images(&mb)
	n := 0
	for _, t := range mb.Targets {
		if t >= 0 {
			n++
		}
	}
	for _, t := range mb.Targets {
		w := float32(0)
		if t >= 0 {
			w = 1 / float32(n)
		}
		mb.Weights = append(mb.Weights, w)
	}
	return mb
}

// images adds those of a composed family: their tokens have no embedding of their own.
func (g *golden) images(mb *family.Microbatch) {
	for _, p := range g.Images {
		grid := family.Grid{T: p.Grid[0], H: p.Grid[1], W: p.Grid[2], Spans: p.Spans, Video: p.Video,
			Every: p.Every}
		for _, s := range p.Spans {
			for i := s[0]; i < s[1]; i++ {
				mb.IDs[i] = -1
			}
		}
		mb.Images.Grids = append(mb.Images.Grids, grid)
	}
	_, values := g.read("pixels")
	for _, v := range values {
		mb.Images.Values = append(mb.Images.Values, float32(v))
	}
	if g.m.Vision != nil {
		require.NoError(g.t, g.m.Vision.Check(&mb.Images))
		if _, want := g.read("positions"); want != nil {
			for i, p := range g.m.Vision.Positions(len(mb.IDs), mb.Cu, &mb.Images) {
				require.EqualValues(g.t, want[i], p, "position %d of token %d", i%3, i/3)
			}
		}
	}
}

func (g *golden) shape() block.Shape {
	mb := g.batch()
	return g.m.Shape(len(mb.IDs), g.m.Class(mb.Inputs(), false))
}

func (g *golden) fill(kind string, p *grad.Param, r family.Region, dst []float32) (bool, error) {
	if g.own != nil {
		return g.own(kind, p, r, dst)
	}
	if kind != "param" {
		return false, nil
	}
	return g.w.Read(p, r, dst)
}

func goldenNames(t *testing.T) (out []string) {
	entries, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	require.NotEmpty(t, out)
	return
}

// forward gives the loss, or with logits the logits, on one device.
func (g *golden) forward(b kernels.Backend, d tensor.DType, logits bool) (float64, []float32) {
	l, err := layout.New(&layout.Design{Model: g.m, Mesh: topology.Grid(1, 1, 1), Schedule: "1f1b", Micro: 1,
		Rows: len(g.batch().IDs), Dims: map[string]int{block.Patches: g.batch().Images.Patches(),
			block.Frames: g.batch().Images.Frames()}, DType: d, Optim: optim.Config{Name: "adamw"}})
	require.NoError(g.t, err)
	dev, err := NewDevice(l, 0, b, nil, "")
	require.NoError(g.t, err)
	require.NoError(g.t, dev.Load(g.fill))
	defer dev.Free()
	rec := block.Rec{Shape: g.shape(), Logits: logits}
	tr := g.m.Record(grad.Options{NoGrad: true, DType: d}, rec, family.Stage{To: len(g.m.Blocks)})
	p := (&Loader{MTP: g.m.Spec.MTP, Model: g.m}).pack(g.batch(), 0)
	data := map[string]*tensor.Tensor{}
	for i, n := range p.Names {
		data[n] = p.Tensors[i]
	}
	f := dev.run.NewFrame(tr, data, nil, nil)
	_, err = dev.run.Step(f, grad.F, 0, nil)
	require.NoError(g.t, err)
	if !logits {
		return f.Loss(), nil
	}
	out := f.Outputs()["logits"]
	defer out.Release()
	return 0, append([]float32(nil), out.F32()...)
}

func relative(got []float32, want []float64) float64 {
	var d, n float64
	for i, w := range want {
		d += (float64(got[i]) - w) * (float64(got[i]) - w)
		n += w * w
	}
	return math.Sqrt(d / n)
}

func length(v []float32) (n float64) {
	for _, x := range v {
		n += float64(x) * float64(x)
	}
	return math.Sqrt(n)
}

var goldenBackends = map[string]func() kernels.Backend{
	"ref": func() kernels.Backend { return ref.New() },
	"cpu": func() kernels.Backend { return cpu.New(2) },
}

// TestGoldenForward holds every family to transformers: logits within 1e-4 relative, loss within 1e-5. Both sides
// compute in float32, so that the bound is sums of at most 80 products in another order, through 2 or 3 layers.
func TestGoldenForward(t *testing.T) {
	t.Parallel()
	for _, name := range append(goldenNames(t), furtherGoldens...) {
		for bn, make := range goldenBackends {
			t.Run(name+" "+bn, func(t *testing.T) {
				g := openGolden(t, name)
				loss, _ := g.forward(make(), tensor.F32, false)
				require.InEpsilon(t, cmp.Or(g.LMLoss, g.Loss), loss, 1e-5)
				_, logits := g.forward(make(), tensor.F32, true)
				_, want := g.read("logits")
				require.Len(t, logits, len(want))
				require.LessOrEqual(t, relative(logits, want), 1e-4)
				t.Logf("figure %s %s logits %.1e loss %.1e", filepath.Base(name), bn, relative(logits, want),
					math.Abs(loss/cmp.Or(g.LMLoss, g.Loss)-1))
			})
		}
	}
}

// TestGoldenBF16: bfloat16 has 8 bits of mantissa, so one rounding errs by at most 2^-9 relative. Each of
// the two layers rounds a residual stream twice and some ten activations; errors add like a random walk of
// about 30 roundings: 30^½·2^-9 ≈ 1.1 %, of both sides independently: 1.5 %; doubled for safety.
func TestGoldenBF16(t *testing.T) {
	g := openGolden(t, "qwen2")
	_, logits := g.forward(cpu.New(2), tensor.BF16, true)
	_, want := g.read("bf16.logits")
	require.LessOrEqual(t, relative(logits, want), 0.03)
	loss, _ := g.forward(cpu.New(2), tensor.BF16, false)
	require.InEpsilon(t, g.BF16.Loss, loss, 0.005)
}

// train runs steps of AdamW with the golden settings; the first Down of gradients goes to see.
func (g *golden) train(mesh topology.Mesh, b func() kernels.Backend, steps int64,
	see func(l *layout.Layout, rank int, r *Rank)) (losses, norms []float64) {
	a := g.AdamW
	mb := g.batch()
	j := &layout.Design{Model: g.m, Mesh: mesh, Schedule: "1f1b", Micro: 1, Rows: len(mb.IDs),
		Dims: map[string]int{block.Patches: mb.Images.Patches(), block.Frames: mb.Images.Frames()},
		Optim: optim.Config{Name: "adamw", Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps,
			Decay: a.Decay, Clip: a.Clip}}
	if g.plan != nil {
		g.plan(j)
	}
	l, err := layout.New(j)
	require.NoError(g.t, err)
	o := RunOptions{Coord: core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1},
		LR: func(int64) float64 { return a.LR }},
		Backend: func(int) kernels.Backend { return b() }, Fill: g.fill,
		Batches: func(int64, int) ([]family.Microbatch, error) { return []family.Microbatch{g.batch()}, nil },
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				losses, norms = append(losses, core.SummaryOf(m.Values).Loss),
					append(norms, core.SummaryOf(m.Values).Norm)
			}
		}}
	if g.each != nil {
		o.Batches = g.each
	}
	if see != nil {
		o.WrapDevice = func(rank int, d Device) Device {
			return spy{Rank: d.(*Rank), see: func(r *Rank) { see(l, rank, r) }, steps: steps, after: g.after}
		}
	}
	require.NoError(g.t, Run(l, o))
	return
}

// spy sees a rank's gradients just before the update.
type spy struct {
	*Rank
	see   func(r *Rank)
	steps int64
	after func(r *Rank) // sees its parameters behind the last one, nil for nobody
}

func (s spy) Run(j actors.Job) (Result, error) {
	if j.Kind == actors.UpdatePhase && j.Segment == layout.Apply && j.Step == 1 {
		s.see(s.Rank)
	}
	res, err := s.Rank.Run(j)
	if s.after != nil && j.Kind == actors.UpdatePhase && j.Segment == layout.Apply && j.Step == s.steps {
		s.after(s.Rank)
	}
	return res, err
}

// TestGoldenTraining holds every parameter's gradient (relative L2 1e-4) and 20 steps of AdamW (losses 1e-4
// relative) to PyTorch, under the cpu backend.
func TestGoldenTraining(t *testing.T) {
	t.Parallel()
	for _, name := range append(goldenNames(t), furtherGoldens...) {
		g := openGolden(t, name)
		if g.AdamW == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g.t = t
			got := map[string][]float32{}
			losses, norms := g.train(topology.Grid(1, 1, 1), goldenBackends["cpu"],
				int64(len(g.AdamW.Losses)), func(l *layout.Layout, _ int, r *Rank) {
					for _, p := range r.c.Params {
						got[p.Name] = append([]float32(nil), r.owned[p.Name].F32()...)
					}
				})
			curve, worst := 0.0, 0.0
			for i, want := range g.AdamW.Losses {
				curve = max(curve, math.Abs(losses[i]/want-1))
				require.InEpsilon(t, want, losses[i], 1e-4, "loss of step %d", i+1)
				require.InEpsilon(t, g.AdamW.GradNorms[i], norms[i], 1e-3, "gradient norm of step %d", i+1)
			}
			n := 0
			for _, p := range g.m.Params(nil) {
				if p.Fixed {
					continue
				}
				s := g.m.Source(p.Name)
				var want []float64
				for _, name := range s.Names(p) {
					_, one := g.read("grad." + name)
					require.NotNil(t, one, name)
					want = append(want, one...)
				}
				if len(got[p.Name]) == 0 { // features do not pass it
					require.Zero(t, slices.Max(want), s.Name)
					require.Zero(t, slices.Min(want), s.Name)
					continue
				}
				n++
				turns := g.m.Spec.Positions == 0
				if strings.HasPrefix(p.Name, "visual.") {
					turns = g.m.Vision.Tower.Theta > 0
				}
				if strings.HasSuffix(p.Name, ".k_proj.bias") && !turns {
					// softmax does not see it: zero, and rounding
					require.Less(t, length(got[p.Name]), 1e-6*g.AdamW.GradNorms[0], p.Name)
					continue
				}
				e := relative(got[p.Name], rowsIn(want, s, p.Shape))
				worst = max(worst, e)
				require.LessOrEqual(t, e, 1e-4, p.Name)
			}
			require.Len(t, got, n)
			t.Logf("figure %s cpu gradients %.1e of %d curve %.1e of %d", filepath.Base(name), worst, n,
				curve, len(losses))
		})
	}
}

// rowsIn picks a logical parameter's rows out of a tensor in the family's layout.
func rowsIn(all []float64, s family.Source, shape []int) []float64 {
	if len(shape) == 3 || s.Step > 0 {
		return rowsOfCube(all, s, shape)
	}
	if s.Turned { // [in out]
		rows, cols := len(all)/shape[1], shape[1]
		turned := make([]float64, len(all))
		for i := range rows {
			for k := range cols {
				turned[i*cols+k] = all[k*rows+i]
			}
		}
		all = turned
	}
	if s.Rows == nil {
		return all
	}
	cols := tensor.Len(shape[1:])
	var out []float64
	for _, r := range s.Rows {
		out = append(out, all[r[0]*cols:r[1]*cols]...)
	}
	return out
}

// rowsOfCube does this for a parameter of all experts.
func rowsOfCube(all []float64, s family.Source, shape []int) (out []float64) {
	cols := tensor.Len(shape[2:])
	rows := len(all) / shape[0] / cols // of a matrix in the file
	for e := range shape[0] {
		for r := range shape[1] {
			row := s.Within[0] + r
			if s.Step > 0 {
				row = s.At + s.Step*r
			}
			for c := range cols {
				at := row*cols + c
				if s.Turned {
					at = c*rows + row
				}
				out = append(out, all[e*rows*cols+at])
			}
		}
	}
	return out
}

// TestGoldenPlans: families with parts of their own (fused checkpoints, tied embeddings, a second head, an
// angle that learns) train under a plan that cuts every axis as PyTorch does on one device.
func TestGoldenPlans(t *testing.T) {
	t.Parallel()
	for _, name := range append([]string{"qwen3-moe", "qwen3-moe-aux", "deepseek-v3.2", "glm5", "llama3.2",
		"qwen3-tied", "gemma2", "glm4",
		"gemma3", "phi3", "olmo2", "olmo3", "exaone-moe", "jais2", "lfm2", "nanochat", "hyperclovax", "starcoder2", "gpt2",
		"internlm2", "mimo", "qwen", "baichuan2",
		"baichuan2-alibi", "qwen3-next",
		"qwen3.5", "llava-onevision1.5", "siglip-llama", "llava-clip",
		"llava-dinov2", "gemma3-vision", "qwen3.5-vision", "qwen3.5-moe-vision", "kimi-k2.5",
		"ernie4.5-vl", "ernie4.5-vl-aux"}, furtherGoldens...) {
		t.Run(name, func(t *testing.T) {
			g := openGolden(t, name)
			mesh := topology.Grid(2, 1, 2)
			switch e := g.m.Spec.Experts; {
			case e.Experts > 0 && e.Experts%2 == 0:
				mesh = layout.MeshOf(&configs.Plan{PP: 2, DP: 1, CP: 1, TP: 2, EP: 2, ETP: 1})
			case e.Experts > 0:
				mesh = layout.MeshOf(&configs.Plan{PP: 2, DP: 1, CP: 1, TP: 2, EP: 1, ETP: 2})
			}
			losses, _ := g.train(mesh, goldenBackends["cpu"], int64(len(g.AdamW.Losses)), nil)
			for i, want := range g.AdamW.Losses {
				require.InEpsilon(t, want, losses[i], 1e-4, "loss of step %d", i+1)
			}
		})
	}
}

// TestGoldenContext: families train as PyTorch does on one device where their tokens are shared out over
// ranks, in every way: packed sequences of which one is cut, windows, soft caps, learned positions, latent
// attention, experts. No rank computes attention of other ranks' queries.
func TestGoldenContext(t *testing.T) {
	t.Parallel()
	ways := []contextPlan{
		{cp: 2, u: 1}, {cp: 2, u: 1, zigzag: true}, {cp: 2, u: 1, ring: true, zigzag: true}, {cp: 2, u: 2},
		{cp: 4, u: 2, ring: true, zigzag: true},
	}
	for i, name := range []string{
		"llama3.2", "qwen3-tied", "gemma2", "gemma3", "mistral", "glm4", "gpt2", "qwen3-moe", "olmo2",
		"deepseek-v2", "deepseek-v3", "qwen3-next", "qwen3.5", "gemma3-vision", "baichuan2-alibi",
		"qwen3.5-vision",
		"deepseek-v3.2", "glm5", furtherGoldens[2], furtherGoldens[1], "kimi-k2.5",
		"ernie4.5-vl", "ernie4.5-vl-aux", "lfm2",
	} {
		t.Run(name, func(t *testing.T) {
			g, w := openGolden(t, name), ways[i%len(ways)]
			p := configs.Plan{PP: 2, DP: 1, CP: w.cp, Ulysses: w.u, TP: 1, EP: 1, ETP: 1}
			if e := g.m.Spec.Experts; e.Experts > 0 {
				p.PP, p.TP, p.EP = 1, 2, 2
			}
			g.plan = func(j *layout.Design) {
				// 2 for qwen3-next, whose convolutions have whole gradients
				j.Ring, j.Zigzag, j.Zero = w.ring, w.zigzag, (i+3)%4
				j.Rows = (j.Rows + 4*w.cp - 1) / (4 * w.cp) * 4 * w.cp
			}
			losses, _ := g.train(layout.MeshOf(&p), goldenBackends["cpu"], int64(len(g.AdamW.Losses)),
				func(l *layout.Layout, _ int, _ *Rank) {
					// attention under masks, and of towers, is shared out by heads alone
					if g.m.Vision == nil {
						ownQueries(t, l)
					}
				})
			for i, want := range g.AdamW.Losses {
				require.InEpsilon(t, want, losses[i], 1e-4, "loss of step %d", i+1)
			}
		})
	}
}

// ownQueries holds that the queries of each attention, or their heads, are shared out over all ranks that share tokens.
func ownQueries(t *testing.T, l *layout.Layout) {
	for s := range l.Stages {
		tr := l.Main(s)
		for _, seg := range tr.Segments(grad.F) {
			for _, n := range seg.Ops {
				if _, ok := tr.Attends(n); ok {
					q := n.In[0]
					ranks := tr.Size(topology.CP) * tr.Size(topology.Ulysses)
					if tensor.Len(q.Local)*ranks > tensor.Len(q.Shape) {
						t.Errorf("stage %d: %s has queries %v of %v", s, n.Op.Name, q.Local, q.Shape)
					}
				}
			}
		}
	}
}
