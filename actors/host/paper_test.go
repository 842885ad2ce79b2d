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

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// paper is a model of a device's kernels: a call takes as long as its arithmetic or its traffic, whichever is
// longer, at the rates of its kind.
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
		case c.Op == kernels.Attention: // causal: half of all pairs
			n.flops = 2 * float64(in[0][0]*in[0][1]) * paperEach * float64(in[0][2])
		case c.Op == kernels.AttentionBwd:
			n.flops = 5 * float64(in[1][0]*in[1][1]) * paperEach * float64(in[1][2])
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

// TestStepOnPaper: the table of docs/devices.md is what a step's calls give by the models, at the sizes
// of the model itself: the run that they are noted of is narrow, and each of its widths stands for one of
// the model's.
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
	onPaper(t, &text, "Llama-3.2-1B", llama, map[int]int{24: 2048, 2: 64, 64: 2048, 16: 512, 40: 8192})
	onPaper(t, &text, "a layer of Qwen3-30B-A3B", moe, map[int]int{24: 2048, 2: 128, 64: 4096, 8: 512,
		12: 768})
	docs, err := os.ReadFile("../../docs/devices.md")
	require.NoError(t, err)
	require.Contains(t, string(docs), text.String(), "docs/devices.md has another table than\n%s",
		text.String())
}

// onPaper writes a model's lines.
func onPaper(t *testing.T, text *strings.Builder, name string, c configs.Model, wide map[int]int) {
	calls := dryStep(t, c, wide)
	type line struct {
		flops, bytes float64
		seconds      [3]float64
	}
	lines, all := map[string]*line{}, &line{}
	for _, n := range calls {
		l := lines[kindOf(n.op)]
		if l == nil {
			l = &line{}
			lines[kindOf(n.op)] = l
		}
		for _, x := range []*line{l, all} {
			x.flops, x.bytes = x.flops+n.flops, x.bytes+n.bytes
			for i, m := range papers {
				x.seconds[i] += m.seconds(n)
			}
		}
	}
	put := func(name string, l *line) {
		fmt.Fprintf(text, "| %s | %.1f TFLOP | %.0f GB |", name, l.flops/1e12, l.bytes/1e9)
		for _, s := range l.seconds {
			fmt.Fprintf(text, " %.1f ms |", s*1e3)
		}
		text.WriteString("\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(lines)) {
		put(name+": "+kind, lines[kind])
	}
	put("**"+name+"**", all)
}
