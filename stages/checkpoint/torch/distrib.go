package torch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// distribFile is where Megatron's distributed optimizer keeps its state beside a rank's model, put together
// from all ranks of data parallelism: for each chunk of the model one vector of each kind, in which its
// parameters follow each other from the last to the first, each from a multiple of bucketAlign elements;
// experts have vectors of their own where they lie on other ranks. The vectors have float32 copies of the
// weights, by which the order is held to be that. Weights of several types have vectors of their own, in the
// order in which the chunk has the first of each. Before 2024 a vector was a list of buckets, each of whose
// first parameter begins at a multiple, as the whole is put together without what the last ones are filled up by.
const distribFile = "distrib_optim.pt"

// worlds are the vectors of a chunk's weights of one type by kind, in pieces that follow each other.
type worlds struct {
	size int
	of   map[string][]*view
}

// distributed is kept of an optimizer that is distributed, of a rank whose file is at path.
func (l *legacy) distributed(r legacyRank, a *archive, chunks []*dict, weights []map[string]*view) (
	[]map[string]*view, error) {
	path := filepath.Join(filepath.Dir(a.path), distribFile)
	b, f, err := opened(path, known)
	if errors.Is(err, os.ErrNotExist) {
		return nil, a.fault("", "its optimizer is distributed, and beside it is no "+distribFile+" with its state")
	} else if err != nil {
		return nil, err
	}
	l.d.files[path] = f
	parts := []any{b.value}
	if list, ok := b.value.(*list); ok {
		parts = list.items
	}
	if len(parts) > 2 {
		return nil, b.fault("", fmt.Sprintf("is of %d optimizers, want one, and one of experts", len(parts)))
	}
	out := make([]map[string]*view, len(chunks))
	for i := range out {
		out[i] = map[string]*view{}
	}
	for n, part := range parts {
		if part == nil { // another rank's file has it
			continue
		}
		d, _ := part.(*dict)
		if d == nil {
			return nil, b.fault("", "its state is no dictionary")
		}
		next := int64(0)
		for i, chunk := range chunks {
			byType, order := chunkTypes(chunk, weights[i], len(parts), n)
			for _, of := range order {
				w, err := b.worlds(d, next)
				if err == nil {
					err = l.spread(a, b, w, byType[of], weights[i], out[i])
				}
				if err != nil {
					return nil, err
				}
				next++
			}
		}
		if d.of(next) != nil {
			return nil, b.fault("", fmt.Sprintf("has more than the %d buffers that the chunks' weights and their types take",
				next))
		}
	}
	root, _ := a.value.(*dict)
	if n, ok := a.step(root.get("optimizer"), 0); ok {
		l.updates = max(l.updates, float64(n))
	}
	l.files[r] = f
	return out, nil
}

// chunkTypes are the names of a chunk's parameters, of optimizer n of several, by their types in the order of
// the first of each.
func chunkTypes(chunk *dict, weights map[string]*view, optimizers, n int) (
	byType map[checkpoint.DType][]string, order []checkpoint.DType) {
	byType = map[checkpoint.DType][]string{}
	for _, k := range chunk.keys {
		name, _ := k.(string)
		t := weights[name]
		if t == nil || strings.HasSuffix(name, "_extra_state") || strings.HasSuffix(name, "expert_bias") ||
			strings.HasSuffix(name, ".inv_freq") || optimizers > 1 && localExpert(name) >= 0 != (n == 1) {
			continue
		}
		if byType[t.dtype] == nil {
			order = append(order, t.dtype)
		}
		byType[t.dtype] = append(byType[t.dtype], name)
	}
	return byType, order
}

// worlds are the vectors of a buffer.
func (b *archive) worlds(d *dict, buffer int64) (*worlds, error) {
	types, _ := d.of(buffer).(*dict)
	if types == nil || len(types.values) != 1 {
		return nil, b.fault("", fmt.Sprintf("buffer %d has not one vector of each kind: there is one buffer for each "+
			"type of the weights of each chunk of the model", buffer))
	}
	kinds, _ := types.values[0].(*dict)
	out := &worlds{of: map[string][]*view{}}
	var sizes []int
	for _, kind := range []string{"param", "exp_avg", "exp_avg_sq"} {
		v := kinds.get(kind)
		items := []any{v}
		if list, ok := v.(*list); ok { // bucket by bucket
			items = list.items
		}
		var of []int
		for _, x := range items {
			t, ok, err := b.view(x)
			if err != nil || !ok || t.dtype != checkpoint.F32 || len(t.shape) != 1 ||
				t.shape[0] > 1 && t.stride[0] != 1 {
				return nil, b.fault("", fmt.Sprintf("buffer %d: %s is no vector of float32 (%v)", buffer, kind, err))
			}
			out.of[kind] = append(out.of[kind], t)
			of = append(of, t.shape[0])
		}
		if sizes != nil && !slices.Equal(sizes, of) {
			return nil, b.fault("", fmt.Sprintf("buffer %d: %s is not as long as the others", buffer, kind))
		}
		sizes = of
	}
	for _, n := range sizes {
		out.size += n
	}
	return out, nil
}

// spread takes the kind that is wanted of each parameter from vectors. Where they are buckets, which may be filled up
// and whose parameters need not be aligned, it lies at the first place where its float32 copy is the weight.
func (l *legacy) spread(a, b *archive, w *worlds, names []string, weights, out map[string]*view) error {
	kind := l.kind
	if kind == masters {
		kind = "param"
	}
	vectors := w.of["param"]
	bucket, at := 0, 0
	for _, name := range slices.Backward(names) {
		tries := [][2]int{{bucket, aligned(at)}}
		if len(vectors) > 1 {
			tries = append(tries, [2]int{bucket, at}, [2]int{bucket + 1, 0})
		}
		n, room, found := int(weights[name].size())/(weights[name].dtype.Bits()/8), false, false
		for _, x := range tries {
			if x[0] >= len(vectors) || n > vectors[x[0]].shape[0]-x[1] {
				continue
			}
			room = true
			same, err := sameNumbers(a, weights[name], b, within(vectors[x[0]], x[1], weights[name].shape))
			if err != nil {
				return err
			}
			if found = same; found {
				out[name] = within(w.of[kind][x[0]], x[1], weights[name].shape)
				bucket, at = x[0], x[1]+n
				break
			}
		}
		if !room {
			return b.fault(name, fmt.Sprintf("its vectors have %d elements, and the weights need more", w.size))
		}
		if !found {
			return b.fault(name, "its float32 copy is not the weight: the parameters lie in another order than that of the "+
				"model from its end")
		}
	}
	if left := w.size - at; len(vectors) == 1 && left != 0 || bucket != len(vectors)-1 {
		return b.fault("", fmt.Sprintf("its vectors have %d elements in %d buckets, the weights take %d of bucket %d",
			w.size, len(vectors), at, bucket))
	}
	return nil
}

// within is a tensor of a shape that lies in a vector.
func within(vector *view, at int, shape []int) *view {
	t := *vector
	t.shape, t.stride = shape, make([]int64, len(shape))
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		t.stride[i] = step
		step *= int64(shape[i])
	}
	t.offset += 4 * int64(at)
	return &t
}

// sameNumbers reports whether float32 copies, rounded to the type of the weights, are these.
func sameNumbers(a *archive, t *view, b *archive, copy *view) (bool, error) {
	box, n := make([][2]int, len(t.shape)), 1
	for i, x := range t.shape {
		box[i] = [2]int{0, x}
		n *= x
	}
	d, ok := map[checkpoint.DType]tensor.DType{checkpoint.F32: tensor.F32, checkpoint.BF16: tensor.BF16,
		checkpoint.F16: tensor.F16}[t.dtype]
	if !ok {
		return false, nil
	}
	want, raw := make([]byte, n*d.Size()), make([]byte, 4*n)
	if err := errors.Join(t.read(a.r, box, want), copy.read(b.r, box, raw)); err != nil {
		return false, err
	}
	wide := make([]float32, n)
	tensor.Widen(tensor.F32, raw, wide)
	got := make([]byte, len(want))
	tensor.Narrow(d, wide, got)
	return bytes.Equal(want, got), nil
}
