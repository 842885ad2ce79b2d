//go:build cuda

package host

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// paper is a model of a device's kernels: a call takes as long as its arithmetic or its traffic, whichever
// is longer, at the rates of its kind.
type paper struct {
	products, experts float64 // TFLOP/s
	forward, backward float64 // TFLOP/s of attention
	bandwidth         float64 // TB/s of kernels by rows and by elements
}

// papers are the models of docs/devices.md, of an H200, with rates that kernels were measured at there: own
// products and attention, cublasLt's products, and cuDNN's attention forward; kernels that move memory.
var papers = []paper{
	{products: 430, experts: 220, forward: 195, backward: 165, bandwidth: 3},
	{products: 750, experts: 220, forward: 195, backward: 165, bandwidth: 3},
	{products: 750, experts: 220, forward: 320, backward: 165, bandwidth: 3},
}

// recorder notes the calls of a device.
type recorder struct {
	kernels.Device
	mu    sync.Mutex
	calls *[]noted
	wide  map[int]int
}

// noted is a call with the sizes of a wide model.
type noted struct {
	op    kernels.Op
	flops float64
	bytes float64
}

// Run implements kernels.Backend.
func (r *recorder) Run(c *kernels.Call) {
	r.mu.Lock()
	for _, k := range append([]*kernels.Call{c}, c.Then...) {
		*r.calls = append(*r.calls, r.note(k))
	}
	r.mu.Unlock()
	r.Device.Run(c)
}

func (r *recorder) note(c *kernels.Call) noted {
	n := noted{op: c.Op}
	shapes := func(l []*tensor.Tensor) (out [][]int) {
		for _, t := range l {
			if t == nil {
				out = append(out, nil)
				continue
			}
			var s []int
			size := float64(t.DType.Size())
			for _, d := range t.Shape {
				if w := r.wide[d]; w > 0 {
					d = w
				}
				s, size = append(s, d), size*float64(d)
			}
			if c.Op != kernels.LinearCE || len(s) != 3 { // work that a device does not use
				n.bytes += size
			}
			out = append(out, s)
		}
		return out
	}
	in, out := shapes(c.In), shapes(c.Out)
	if c.Op == kernels.AdamW { // what is changed is read and written
		n.bytes += 3 * 4 * float64(tensor.Len(out[0]))
	}
	for _, s := range kernels.Specs() {
		switch {
		case s.Op != c.Op:
		case c.Op == kernels.Attention:
			n.flops = 4 * float64(in[0][0]*in[0][1]*in[0][2]) * keysEach(c, c.In[0], c.In[3])
		case c.Op == kernels.AttentionBwd:
			n.flops = 10 * float64(in[1][0]*in[1][1]*in[1][2]) * keysEach(c, c.In[1], c.In[6])
		case s.Products != nil:
			n.flops = float64(kernels.FlopsOf(s.Products(in, out)))
			if c.Op == kernels.LinearCE { // logits in float32 and gradients, each written and read
				n.bytes += 14 * float64(in[0][0]*in[1][0])
			}
		}
	}
	return n
}

const paperEach = 2048 // tokens of a sequence

// keysEach are the keys that a query of a call of attention sees: half of its sequence where attention is
// causal, and else all of its image or window, which are as long as one another.
func keysEach(c *kernels.Call, q, cu *tensor.Tensor) float64 {
	if c.Attr.I[0] == 1 {
		return paperEach / 2
	}
	return float64(q.Shape[0]) / float64(cu.Shape[0]-1)
}

// seconds of a call, without its launches.
func (p paper) seconds(n noted) float64 {
	rate := p.products
	switch kindOf(n.op) {
	case "attention":
		rate = p.backward
		if n.op == kernels.Attention {
			rate = p.forward
		}
	case "products of experts":
		rate = p.experts
	}
	return max(n.flops/rate/1e12, n.bytes/p.bandwidth/1e12)
}

// kindOf is the line of the table that an operation is of.
func kindOf(op kernels.Op) string {
	switch s := string(op); {
	case strings.HasPrefix(s, "attention"):
		return "attention"
	case strings.HasPrefix(s, "linear_ce") || op == kernels.NLL:
		return "loss"
	case strings.HasPrefix(s, "linear"):
		return "products"
	case strings.HasPrefix(s, "grouped"):
		return "products of experts"
	case op == kernels.AdamW || op == kernels.SumSquares:
		return "optimizer"
	}
	return "rows and elements"
}

// TestStepOnPaper: the table of docs/devices.md is what a step's calls give by the models, at the sizes of the model
// itself: the run that they are noted of is narrow, and each of its widths stands for one of the model's.
func TestStepOnPaper(t *testing.T) {
	llama := configs.Model{ModelType: "llama", Layers: 16, Hidden: 24, Heads: 32, KVHeads: 8, HeadDim: 2,
		Vocab:        128256,
		Intermediate: 40, TieEmbeddings: true}
	moe := configs.Model{ModelType: "qwen3_moe", Layers: 1, Hidden: 24, Heads: 32, KVHeads: 4, HeadDim: 2,
		Vocab:        512,
		Intermediate: 40}
	keys := family.Mixture.Of(moe)
	keys.Experts, keys.ExpertsEach, keys.ExpertWidth, keys.NormTopK = 128, 8, 12, true
	family.Mixture.Set(&moe, keys)
	var text strings.Builder
	text.WriteString("| of a step | operations | traffic | own | with cublasLt | and cuDNN |\n" +
		"|---|---|---|---|---|---|\n")
	onPaper(&text, "Llama-3.2-1B", dryStep(t, llama,
		map[int]int{24: 2048, 2: 64, 64: 2048, 16: 512, 40: 8192}), nil)
	onPaper(&text, "a layer of Qwen3-30B-A3B", dryStep(t, moe, map[int]int{24: 2048, 2: 128, 64: 4096,
		8:  512,
		12: 768}), nil)
	with, without := encoderSteps(t)
	onPaper(&text, "the encoder of Qwen2.5-VL", with, without)
	docs, err := os.ReadFile("../../docs/devices.md")
	require.NoError(t, err)
	require.Contains(t, string(docs), text.String(), "docs/devices.md has another table than\n%s",
		text.String())
}

// onPaper writes the lines of a step's calls, less those of another step.
func onPaper(text *strings.Builder, name string, calls, less []noted) {
	type line struct {
		flops, bytes float64
		seconds      [3]float64
	}
	lines, all := map[string]*line{}, &line{}
	add := func(calls []noted, sign float64) {
		for _, n := range calls {
			l := lines[kindOf(n.op)]
			if l == nil {
				l = &line{}
				lines[kindOf(n.op)] = l
			}
			for _, x := range []*line{l, all} {
				x.flops, x.bytes = x.flops+sign*n.flops, x.bytes+sign*n.bytes
				for i, m := range papers {
					x.seconds[i] += sign * m.seconds(n)
				}
			}
		}
	}
	add(calls, 1)
	add(less, -1)
	put := func(name string, l *line) {
		fmt.Fprintf(text, "| %s | %.1f TFLOP | %.0f GB |", name, l.flops/1e12, l.bytes/1e9)
		for _, s := range l.seconds {
			fmt.Fprintf(text, " %.1f ms |", s*1e3)
		}
		text.WriteString("\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(lines)) {
		if lines[kind].seconds[0] < 1e-9 { // what both steps have
			continue
		}
		put(name+": "+kind, lines[kind])
	}
	put("**"+name+"**", all)
}

// encoderSteps are the calls of a step of a model that sees, with one picture of 1008 by 1008 points in a
// sequence and without it: the encoder of Qwen2.5-VL, and a decoder of a layer.
func encoderSteps(t *testing.T) (with, without []noted) {
	c, err := configs.ReadModel("../../configs/models/qwen-vl/2.5-7b.yaml")
	require.NoError(t, err)
	c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab = 1, 24, 2, 2, 12, 20, 512
	c.Vision.Hidden, c.Vision.Inter, c.RopeScaling.Sections = 64, 44, []int{2, 2, 2}
	m, err := family.Build(c, paperEach)
	require.NoError(t, err)
	wide := map[int]int{64: 1280, 192: 3840, 256: 5120, 4: 80, 44: 3420, 24: 3584}
	_, of := dry(t)
	step := func(seen bool) []noted {
		var runs [2][]noted
		for i := range runs {
			l, o := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.run(t, m, int64(i+1),
				func(rank int) kernels.Backend {
					return &recorder{Device: of(rank).(kernels.Device), calls: &runs[i], wide: wide}
				}, nil)
			j := *l.Design
			j.DType, j.Micro, j.Rows, j.Parts = tensor.BF16, 1, paperEach, layout.TowerParts(m, nil)
			j.Dims = map[string]int{block.Patches: paperPatches * paperPatches}
			l, err := layout.New(&j)
			require.NoError(t, err)
			o.Batches = func(int64, int) ([]family.Microbatch, error) {
				return []family.Microbatch{pictureBatch(m, seen)},
					nil
			}
			require.NoError(t, Run(l, o))
		}
		return runs[1][len(runs[0]):]
	}
	return step(true), step(false)
}

const paperPatches = 72 // of a picture's side

// pictureBatch is a sequence whose first tokens are those of a picture, or not.
func pictureBatch(m *family.Model, seen bool) family.Microbatch {
	mb := family.Microbatch{Cu: []int32{0, paperEach}}
	for k := range int32(paperEach) {
		mb.IDs, mb.Targets = append(mb.IDs, k%500), append(mb.Targets, (k+1)%500)
		mb.Positions, mb.Weights = append(mb.Positions, k), append(mb.Weights, 1)
	}
	if !seen {
		return mb
	}
	n := int32(paperPatches * paperPatches / m.Vision.Tower.Join)
	for i := range n {
		mb.IDs[i], mb.Targets[i] = -1, -100
	}
	mb.Images.Grids = []family.Grid{{T: 1, H: paperPatches, W: paperPatches, Spans: [][2]int32{{0, n}}}}
	mb.Images.Values = make([]float32, paperPatches*paperPatches*m.Vision.Tower.PatchDim)
	return mb
}
