package ckpt

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/trained"
)

// What the logits of a probe may differ by, as the root of the squares of the differences over that of the
// logits before: where all numbers are kept, where they are rounded to another type, and where to few bits.
const (
	probeExact   = 1e-5
	probeRounded = 0.1
	probeFewBits = 0.7
	probeTwoBits = 1
	// of a mixture, whose routers may send a token to another expert for the last bit of their input
	probeRouted = 0.3
)

// probeFlags gives the flags of a probe, and what will be its limit on memory.
func (o *conversion) probeFlags(c *cobra.Command) (limit *string) {
	f := c.Flags()
	f.BoolVar(&o.noProbe, "no-probe", false, "do not compare the logits of a few tokens before and after")
	return f.String("probe-limit", "1GiB", "most memory for the float32 weights of one model whose logits "+
		"are compared; a larger model's are not, and a note says so")
}

// probe compares the logits of what was converted with those of what it was made of. What it cannot compare
// it says on w; a difference beyond that of rounding is an error of exit code 6.
func (o *conversion) probe(w io.Writer, src, dst string) error {
	pass := func(format string, args ...any) error {
		fmt.Fprintf(w, "note: logits before and after were not compared: "+format+"\n", args...)
		return nil
	}
	switch {
	case o.noProbe:
		return pass("--no-probe")
	case o.upcycle != 0:
		return pass("a mixture has routers that the dense model has not")
	case quant.IsAdapter(src), quant.IsAdapter(dst):
		return pass("adapters have none by themselves")
	}
	before, size, routed, err := o.logits(w, src, dst)
	if err != nil {
		return pass("%v", err)
	}
	if before == nil {
		return pass("the weights take %v as float32, and --probe-limit is %v", size, o.limit)
	}
	after, _, _, err := o.logits(w, dst, src)
	if err != nil {
		return exit.With(fmt.Errorf("%s was written, and its logits cannot be had: %w; do not use it, and report "+
			"the model", dst, err), exit.Corrupt)
	}
	most, share := apart(before, after)
	if bound := o.bound(src, routed); len(before) != len(after) || !(share <= bound) {
		return exit.With(fmt.Errorf("%s was written, and its logits differ from those of %s by %.3g of their size, "+
			"at most by %.3g, where rounding explains %g: a tensor is wrong; do not use it, and compare the two "+
			"by `lfactor ckpt diff`", dst, src, share, most, bound), exit.Corrupt)
	}
	fmt.Fprintf(w, "logits of a probe differ by at most %.3g (%.3g of their size)\n", most, share)
	return nil
}

// bound is what a conversion's rounding may change of logits.
func (o *conversion) bound(src string, routed bool) float64 {
	switch f := form(src); {
	case o.asTrained: // only of states that are of 16 bits in training
		return probeRounded
	case o.dtype == "q2_k":
		return probeTwoBits
	case o.quantize != "", gguf.FewBits(o.dtype):
		return probeFewBits
	case o.dtype != "", f == "run", f == "gguf", o.to == "gguf", f == "hf" && quantized(src):
		if routed {
			return probeRouted
		}
		return probeRounded
	}
	return probeExact
}

// logits are those of a probe of a checkpoint of any form, nil where the model is larger than the limit;
// size is that of its weights as float32, and routed says whether it is a mixture of experts.
func (o *conversion) logits(w io.Writer, path, other string) (z []float32, size configs.Bytes, routed bool, err error) {
	var m *trained.Trained
	switch form(path) {
	case "run":
		m, err = trained.Open(path, "", trained.Average(o.average && path == o.src), trained.Bare)
	case "gguf":
		m, err = trained.Open(path, "")
	case "hf":
		var src checkpoint.Source
		if src, err = checkpoint.OpenDir(path); err == nil {
			m, err = trained.OpenSource(path, src)
		}
	default:
		d := differ{like: o.like, w: io.Discard} // the conversion has said what is dropped
		defer d.close()
		var dir string
		var src checkpoint.Source
		if dir, err = d.sides(path, other); err == nil {
			src, err = d.named(path, other)
		}
		if err == nil {
			m, err = trained.OpenSource(dir, src)
		}
	}
	if err != nil {
		return nil, 0, false, err
	}
	defer m.Close()
	m.AsLearnt = o.asTrained
	routed = m.Model.Spec.Mixes()
	if size = configs.Bytes(4 * m.Model.Count()); size > o.limit {
		return nil, size, routed, nil
	}
	if z, err = m.Probe(); err == nil && len(z) == 0 {
		err = fmt.Errorf("%s has no logits", path)
	}
	return z, size, routed, err
}

// apart is the largest difference of two lists, and the size of all of them against that of the first; +Inf
// where they have not the same number or a difference is none.
func apart(a, b []float32) (most, share float64) {
	if len(a) != len(b) {
		return math.Inf(1), math.Inf(1)
	}
	var off, all float64
	for i, x := range a {
		y := b[i]
		if x != x && y != y || x == y { // what is no number in both is equal too
			if x == x {
				all += float64(x) * float64(x)
			}
			continue
		}
		d := float64(x) - float64(y)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return math.Inf(1), math.Inf(1)
		}
		most, off, all = max(most, math.Abs(d)), off+d*d, all+float64(x)*float64(x)
	}
	if off == 0 {
		return 0, 0
	}
	return most, math.Sqrt(off / all)
}
