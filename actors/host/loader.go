package host

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// BatchFunc gives the microbatches of a step for one data-parallel replica; negative steps are evaluation
// batches. An evaluation batch's weights sum to 1 over all replicas' batches.
type BatchFunc func(step int64, dp int) ([]family.Microbatch, error)

// Loader is the device of a loader actor.
type Loader struct {
	DP     int
	MTP    int // multi-token-prediction layers that want shifted data
	Chunks int
	Model  *family.Model // whose modalities the batches have; nil for tokens alone
	Filled bool          // every microbatch runs every block
	Rows   int           // tokens that a microbatch is padded to, 0 for none
	Of     int           // replicas, and the run's seed: what is drawn for a microbatch is by its place in the step
	Seed   uint64
	Deal   int // ranks that tokens are dealt out to in two runs each, 0 where they stay in order
	Read   BatchFunc
	at     int64                    // the newest step, whose phase evaluations behind it are of
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
	if j.Step > 0 {
		l.at = j.Step
	}
	var res Result
	for i, mb := range mbs {
		mb.Step = l.at
		mb.Draw = dataset.Draw(l.Seed, drawPass, j.Step, 0, int64(i*l.Of+l.DP))
		for c := range max(1, l.Chunks) {
			res.Out = append(res.Out, actors.Output{Comm: int32(i), Member: int32(c), Port: l.class(&mb),
				Payload: l.pack(mb, c)})
		}
	}
	return res, nil
}

// drawPass is that of dataset.Draw for what is rounded by chance.
const drawPass = 3

// pack makes the tensors of chunk c of a microbatch.
func (l *Loader) pack(mb family.Microbatch, c int) *links.Pack {
	n := max(1, l.Chunks)
	total := max(l.Rows, len(mb.IDs)) // with padding
	rows := total / n
	p := links.NewPack(nil)
	add := func(name string, t *tensor.Tensor) {
		p.Names, p.Tensors = append(p.Names, name), append(p.Tensors, t)
	}
	part := chunk{from: c * rows, rows: rows, deal: l.Deal}
	add("ids", tensor.Of(tensor.I32, chunkRows(part, mb.IDs, 1, 0), rows))
	add("targets", tensor.Of(tensor.I32, chunkRows(part, mb.Targets, 1, -100), rows))
	add("weights", tensor.Of(tensor.F32, chunkRows(part, mb.Weights, 1, 0), rows))
	add("positions", tensor.Of(tensor.I32, chunkRows(part, mb.Positions, 1, 0), rows))
	if n == 1 {
		add("cu_seqlens", tensor.Of(tensor.I32, mb.Cu, len(mb.Cu)))
	} else {
		q, k := part.borders(mb.Cu)
		add("cu_seqlens", tensor.Of(tensor.I32, q, len(q)))
		add("cu_seqlens_k", tensor.Of(tensor.I32, k, len(k)))
		l.states(add, mb.Cu, part, c > 0, c < n-1)
	}
	if l.Model != nil {
		in := mb.Inputs()
		if l.Model.Task().OwnRows {
			in.Rows = total // what follows from places in a sequence knows of padding
		}
		data := l.Model.Tensors(in, l.class(&mb))
		for _, name := range l.Model.TokenTensors() {
			if t := data[name]; t != nil {
				width := tensor.Len(t.Shape[1:])
				shape := append([]int{rows}, t.Shape[1:]...)
				if t.DType == tensor.F32 {
					data[name] = tensor.Of(tensor.F32, chunkRows(part, t.F32(), width, 0), shape...)
				} else {
					data[name] = tensor.Of(tensor.I32, chunkRows(part, t.I32(), width, -1), shape...)
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(data)) {
			add(name, data[name])
		}
	}
	add(grad.DrawOf, tensor.Of(tensor.I64, []int64{int64(mb.Draw)}, 1))
	if mb.Keys != nil {
		add("keys", tensor.Of(tensor.I64, chunkRows(part, mb.Keys, 1, 0), rows))
	}
	for k := range l.MTP {
		ids, targets, weights := mb.Shift(k + 1)
		add(fmt.Sprintf("mtp_ids.%d", k), tensor.Of(tensor.I32, chunkRows(part, ids, 1, 0), rows))
		add(fmt.Sprintf("mtp_targets.%d", k), tensor.Of(tensor.I32, chunkRows(part, targets, 1, -100), rows))
		add(fmt.Sprintf("mtp_weights.%d", k), tensor.Of(tensor.F32, chunkRows(part, weights, 1, 0), rows))
	}
	return p
}

// states adds the borders of a chunk with the rows that linear attention carries from chunk to chunk.
func (l *Loader) states(add func(name string, t *tensor.Tensor), cu []int32, part chunk, before, after bool) {
	if l.Model == nil || !l.Model.Spec.Carries() {
		return
	}
	d := l.Model.Spec.Delta
	for _, x := range []struct {
		name           string
		before, behind int
	}{{grad.DeltaBorders, d.KeyDim, d.KeyDim}, {grad.ConvBorders, d.Taps - 1, 0}} {
		if !before {
			x.before = 0
		}
		if !after {
			x.behind = 0
		}
		v := grad.StateBorders(cu, part.from, part.rows, x.before, x.behind, x.name == grad.ConvBorders)
		add(x.name, tensor.Of(tensor.I32, v, len(v)))
	}
}

// chunk is a run of a microbatch's rows, and the number of ranks that it is dealt out to in two pieces
// each, 0 for none.
type chunk struct{ from, rows, deal int }

// borders are those of the sequences' rows in the chunk, and of their rows up to its end, whose keys these see.
func (c chunk) borders(cu []int32) (queries, keys []int32) {
	for _, at := range cu {
		queries = append(queries, int32(min(max(int(at)-c.from, 0), c.rows)))
		keys = append(keys, int32(min(int(at), c.from+c.rows)))
	}
	return
}

// chunkRows are the rows of v, of so many numbers each, in a chunk, in the order in which ranks have them:
// of 2n pieces, rank r of n has piece r and piece 2n-1-r. Rows beyond v hold pad.
func chunkRows[T any](c chunk, v []T, width int, pad T) []T {
	end := (c.from + c.rows) * width
	if len(v) < end {
		v = slices.Clone(v)
		for len(v) < end {
			v = append(v, pad)
		}
	}
	v = v[c.from*width : end]
	if c.deal == 0 {
		return v
	}
	out, n := make([]T, 0, len(v)), len(v)/(2*c.deal)
	for r := range c.deal {
		out = append(out, v[r*n:(r+1)*n]...)
		out = append(out, v[len(v)-(r+1)*n:len(v)-r*n]...)
	}
	return out
}

// class is that of the shape that a microbatch is padded to.
func (l *Loader) class(mb *family.Microbatch) int32 {
	if l.Model == nil {
		return 0
	}
	return l.Model.Class(mb.Inputs(), l.Filled)
}
