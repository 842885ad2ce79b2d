package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Losses of balance over the batch of a step: how experts are used is counted over the samples of all
// replicas and over the microbatches of the step so far, while the scores are those of one microbatch.

var opSamples, opTally *Op

func init() {
	// a sum over axes whose members hold samples of their own; it has no gradient
	opSamples = &Op{Name: "sum_samples", Role: convert}
	opTally = &Op{Name: "tally", Role: tally, VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		g := make([]*Value, 2)
		if leg(0) {
			g[0] = t.to(dy[0], n.In[0].Place)
		}
		return g
	}}
}

// StepSums are BalanceSums' sums of this microbatch for a loss over the batch of a step, as Megatron-LM's
// global_aux_loss has it: shares of scores are the microbatch's own, and counts the mean, over the
// microbatches of the step so far, of those of all replicas together, in the scale in which BalanceLoss
// divides by the tokens that this microbatch has on all replicas. It counts in training only, and never again where a forward is computed again.
func (t *Tape) StepSums(sums *Value) *Value {
	sums = t.to(sums, Place{})
	all := sums
	if axes := t.sampleAxes(); len(axes) > 0 {
		n := t.emit(opSamples, kernels.Attr{}, []*Value{sums}, spec{sums.Shape, sums.DType, sums.Place})
		n.Axes, all = axes, n.Out[0]
		all.Need, all.Kept = false, true
	}
	v := t.one(opTally, kernels.Attr{}, sums.DType, sums.Shape, sums.Place, sums, all)
	t.Keep(v)
	return v
}

// sampleAxes are the axes whose members hold samples of their own.
func (o *Options) sampleAxes() (out []int) {
	for m, a := range o.Mesh {
		if a.Fold == 0 && a.Data && a.Size > 1 {
			out = append(out, m)
		}
	}
	return out
}

// tallied is what a layer has counted in a step.
type tallied struct {
	counts []float64 // of each expert
	times  float64   // microbatches
}

// Forget begins a step: what layers have counted in the one before, or in a part of this one that is void, is gone.
func (r *Runner) Forget() { clear(r.tallies) }

// tally adds the counts of a microbatch to the step's.
func (r *Runner) tally(f *Frame, n *Node) {
	own := kernels.Host(r.Backend, r.operand(f, n, n.In[0]))
	all := kernels.Host(r.Backend, r.operand(f, n, n.In[1]))
	experts := own.Shape[1]
	if r.tallies == nil {
		r.tallies = map[int]*tallied{}
	}
	s := r.tallies[n.Block]
	if s == nil {
		s = &tallied{counts: make([]float64, experts)}
		r.tallies[n.Block] = s
	}
	s.times++
	now, mean := 0.0, 0.0 // rows times experts of each
	for i, c := range all.F32()[:experts] {
		s.counts[i] += float64(c)
		now, mean = now+float64(c), mean+s.counts[i]/s.times
	}
	out := append([]float32(nil), own.F32()...)
	for i := range experts {
		out[i] = 0
		if mean > 0 { // BalanceLoss divides by the square of what these add up to
			by := now / mean
			out[i] = float32(s.counts[i] / s.times * by * by)
		}
	}
	own.Release()
	all.Release()
	t := r.alloc(n.Out[0])
	kernels.Write(t, tensor.Of(tensor.F32, out, 2, experts).Bytes())
	f.slots[n.Out[0].ID] = t
}
