package texts

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Encode gives what Take says of captions, whose ids have the special tokens: of each its states
// [tokens W] row by row, and its pooled row, nil if none is taken. Captions run one after another, so that
// the bits of one depend neither on the others nor on the number of threads. Errors name the caption; a
// *tensor.BudgetError is one of memory.
func (e *Encoder) Encode(ids [][]int32) (states, pooled [][]float32, err error) {
	if err := e.Check(e.Take); err != nil {
		return nil, nil, err
	}
	if _, err := e.Data("", ids, e.Take); err != nil { // before the first one costs time
		return nil, nil, fmt.Errorf("texts: %w", err)
	}
	for i, c := range ids {
		out, err := e.one(c)
		if err != nil {
			return nil, nil, fmt.Errorf("texts: caption %d: %w", i, err)
		}
		states, pooled = append(states, out[StatesPort]), append(pooled, out[PooledPort])
	}
	return states, pooled, nil
}

// one encodes a caption.
func (e *Encoder) one(ids []int32) (map[string][]float32, error) {
	data, err := e.Data("", [][]int32{ids}, e.Take)
	if err != nil {
		return nil, err
	}
	if err := e.run.Place(data); err != nil {
		return nil, err
	}
	f := e.run.NewFrame(e.trace(len(ids)), data, nil, nil)
	if _, err := e.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	out := map[string][]float32{}
	for port, t := range f.Outputs() {
		out[port] = e.host(t)
		t.Release()
	}
	f.Close()
	return out, nil
}

// trace records the encoder for a caption of so many tokens.
func (e *Encoder) trace(rows int) *grad.Trace {
	key := traceKey{rows, e.Take}
	if tr := e.traces[key]; tr != nil {
		return tr
	}
	if len(e.traces) == tracesMost {
		e.forget()
	}
	tr := e.Record(grad.Options{DType: e.dtype, NoGrad: true}, rows, 1, e.Take)
	e.traces[key] = tr
	return tr
}

// host is a tensor's numbers as float32.
func (e *Encoder) host(t *tensor.Tensor) []float32 {
	h := tensor.Make(t.DType, t.Shape...)
	kernels.Read(e.run.Backend, h.Bytes(), t)
	if t.DType == tensor.F32 {
		return h.F32()
	}
	wide := make([]float32, t.Len())
	tensor.Widen(t.DType, h.Bytes(), wide)
	return wide
}
