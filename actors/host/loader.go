package host

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// Microbatch is the data of one microbatch on the host; all slices but Cu have one entry a token.
type Microbatch struct {
	IDs, Targets, Positions []int32   // Targets < 0 are ignored
	Weights                 []float32 // of each token's loss; they sum to 1 over the global batch
	Cu                      []int32   // sequence borders, from 0 to the number of tokens
	Keys                    []int64   // identify rows for dropout; nil without
	// Pictures of the microbatch, whose features take the places of tokens with id -1.
	Pictures family.Pictures
	More     map[string]any // what other modalities of the model read, by name
}

// BatchFunc gives the microbatches of a step for one data-parallel replica; negative steps are evaluation batches. An
// evaluation batch's weights sum to 1 over all replicas' batches.
type BatchFunc func(step int64, dp int) ([]Microbatch, error)

// Loader is the device of a loader actor.
type Loader struct {
	DP     int
	MTP    int // multi-token-prediction layers that want shifted data
	Chunks int
	Model  *family.Model // whose modalities the batches have; nil for tokens alone
	Filled bool          // every microbatch runs every block
	Read   BatchFunc
	Seek   func(place string) error // makes the next step the one behind a place; nil where nobody goes back
}

// Run implements Device.
func (l *Loader) Run(j actors.Job) (Result, error) {
	if j.Kind != actors.LoadBatch {
		panic(fmt.Sprintf("host: a loader has no job of kind %d", j.Kind))
	}
	if j.Text != "" && l.Seek != nil {
		if err := l.Seek(j.Text); err != nil {
			return Result{}, err
		}
	}
	mbs, err := l.Read(j.Step, l.DP)
	if err != nil {
		return Result{}, err
	}
	var res Result
	for i, mb := range mbs {
		if n := len(mb.Cu) - 1; l.Chunks > 1 && n != 1 {
			return Result{}, fmt.Errorf("microbatch %d has %d sequences, and only one can be cut into plan.chunk_size: pack no sequences together", i, n)
		}
		for c := range max(1, l.Chunks) {
			res.Out = append(res.Out, actors.Output{Comm: int32(i), Member: int32(c), Port: l.class(&mb), Payload: l.pack(mb, c)})
		}
	}
	return res, nil
}

// pack makes the tensors of a microbatch, or of chunk c of one that is a single sequence.
func (l *Loader) pack(mb Microbatch, c int) *Pack {
	n := max(1, l.Chunks)
	rows := len(mb.IDs) / n
	lo, hi := c*rows, (c+1)*rows
	p := NewPack(nil)
	add := func(name string, t *tensor.Tensor) { p.Names, p.Tensors = append(p.Names, name), append(p.Tensors, t) }
	add("ids", tensor.Of(tensor.I32, mb.IDs[lo:hi], rows))
	add("targets", tensor.Of(tensor.I32, mb.Targets[lo:hi], rows))
	add("weights", tensor.Of(tensor.F32, mb.Weights[lo:hi], rows))
	add("positions", tensor.Of(tensor.I32, mb.Positions[lo:hi], rows))
	if n == 1 {
		add("cu_seqlens", tensor.Of(tensor.I32, mb.Cu, len(mb.Cu)))
	} else {
		add("cu_seqlens", tensor.Of(tensor.I32, []int32{0, int32(rows)}, 2))
		add("cu_seqlens_k", tensor.Of(tensor.I32, []int32{0, int32(hi)}, 2))
	}
	if l.Model != nil {
		data := l.Model.Tensors(mb.inputs(), l.class(&mb))
		for _, name := range slices.Sorted(maps.Keys(data)) {
			add(name, data[name])
		}
	}
	if mb.Keys != nil {
		add("keys", tensor.Of(tensor.I64, mb.Keys[lo:hi], rows))
	}
	for k := range l.MTP {
		ids, targets, weights := mb.shift(k + 1)
		add(fmt.Sprintf("mtp_ids.%d", k), tensor.Of(tensor.I32, ids[lo:hi], rows))
		add(fmt.Sprintf("mtp_targets.%d", k), tensor.Of(tensor.I32, targets[lo:hi], rows))
		add(fmt.Sprintf("mtp_weights.%d", k), tensor.Of(tensor.F32, weights[lo:hi], rows))
	}
	return p
}

// inputs are what the microbatch brings beside tokens and labels.
func (mb *Microbatch) inputs() *family.Inputs {
	return &family.Inputs{Rows: len(mb.IDs), Cu: mb.Cu, Pictures: mb.Pictures, More: mb.More}
}

// class is that of the shape that a microbatch is padded to.
func (l *Loader) class(mb *Microbatch) int32 {
	if l.Model == nil {
		return 0
	}
	return l.Model.Class(mb.inputs(), l.Filled)
}

// shift moves tokens, targets and weights k places towards the start of each sequence; what runs past its end is ignored, and
// the weights of the rest are raised so that their sum stays.
func (mb Microbatch) shift(k int) (ids, targets []int32, weights []float32) {
	n, kept, all := len(mb.IDs), 0.0, 0.0
	ids, targets, weights = make([]int32, n), make([]int32, n), make([]float32, n)
	for s := 0; s+1 < len(mb.Cu); s++ {
		for i := int(mb.Cu[s]); i < int(mb.Cu[s+1]); i++ {
			targets[i] = -100
			if i+k < int(mb.Cu[s+1]) {
				ids[i], targets[i], weights[i] = mb.IDs[i+k], mb.Targets[i+k], mb.Weights[i+k]
				kept += float64(weights[i])
			}
			all += float64(mb.Weights[i])
		}
	}
	for i := range weights {
		weights[i] = float32(float64(weights[i]) * all / max(kept, math.SmallestNonzeroFloat32))
	}
	return
}
