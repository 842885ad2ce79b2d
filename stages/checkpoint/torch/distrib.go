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
// weights, by which the order is held to be that.
const distribFile = "distrib_optim.pt"

// worlds are the vectors of a chunk by kind.
type worlds map[string]*view

// distributed is kept of an optimizer that is distributed, of a rank whose file is at path.
func (l *legacy) distributed(r legacyRank, a *archive, chunks []*dict, weights []map[string]*view) (
	[]map[string]*view, error) {
	path := filepath.Join(filepath.Dir(a.path), distribFile)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, a.fault("", "its optimizer is distributed, and beside it is no "+distribFile+" with its state")
	} else if err != nil {
		return nil, err
	}
	l.d.files[path] = f
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b, err := openArchive(f, path, 0, info.Size())
	if err == nil {
		err = refuse(b.globals, path, known)
	}
	if err != nil {
		return nil, err
	}
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
		if d == nil || d.get("buckets_coalesced") != any(true) {
			return nil, b.fault("", "has its vectors in an older form, bucket by bucket, which is not read")
		}
		for i, chunk := range chunks {
			w, err := b.worlds(d, int64(i))
			if err != nil {
				return nil, err
			}
			var names []string
			for _, k := range chunk.keys {
				name, _ := k.(string)
				if weights[i][name] != nil && !strings.HasSuffix(name, "_extra_state") &&
					!strings.HasSuffix(name, "expert_bias") && !strings.HasSuffix(name, ".inv_freq") &&
					(len(parts) == 1 || localExpert(name) >= 0 == (n == 1)) {
					names = append(names, name)
				}
			}
			if err := l.spread(a, b, w, names, weights[i], out[i]); err != nil {
				return nil, err
			}
		}
	}
	root, _ := a.value.(*dict)
	if n, ok := a.step(root.get("optimizer"), 0); ok {
		l.updates = max(l.updates, float64(n))
	}
	l.files[r] = f
	return out, nil
}

// worlds are the vectors of a chunk.
func (b *archive) worlds(d *dict, chunk int64) (worlds, error) {
	types, _ := d.of(chunk).(*dict)
	if types == nil || len(types.values) != 1 {
		return nil, b.fault("", fmt.Sprintf("chunk %d of the model has not one vector of each kind, as where all weights "+
			"are of one type", chunk))
	}
	kinds, _ := types.values[0].(*dict)
	out, size := worlds{}, -1
	for _, kind := range []string{"param", "exp_avg", "exp_avg_sq"} {
		t, ok, err := b.view(kinds.get(kind))
		if kinds == nil || err != nil || !ok || t.dtype != checkpoint.F32 || len(t.shape) != 1 ||
			size >= 0 && t.shape[0] != size || t.shape[0] > 1 && t.stride[0] != 1 {
			return nil, b.fault("", fmt.Sprintf("chunk %d: %s is no vector of float32 as long as the others (%v)", chunk,
				kind, err))
		}
		out[kind], size = t, t.shape[0]
	}
	return out, nil
}

// spread takes the kind that is wanted of each parameter from vectors.
func (l *legacy) spread(a, b *archive, w worlds, names []string, weights, out map[string]*view) error {
	at, size := 0, w["param"].shape[0]
	for _, name := range slices.Backward(names) {
		shape, n := weights[name].shape, 1
		for _, x := range shape {
			n *= x
		}
		if at = (at + bucketAlign - 1) / bucketAlign * bucketAlign; n > size-at {
			return b.fault(name, fmt.Sprintf("its vectors have %d elements, and the weights need more",
				size))
		}
		part := func(kind string) *view {
			t := *w[kind]
			t.shape, t.stride = shape, make([]int64, len(shape))
			step := int64(1)
			for i := len(shape) - 1; i >= 0; i-- {
				t.stride[i] = step
				step *= int64(shape[i])
			}
			t.offset += 4 * int64(at)
			return &t
		}
		if same, err := sameNumbers(a, weights[name], b, part("param")); err != nil {
			return err
		} else if !same {
			return b.fault(name, "its float32 copy is not the weight: the parameters lie in another order than that of the "+
				"model from its end")
		}
		kind := l.kind
		if kind == masters {
			kind = "param"
		}
		out[name] = part(kind)
		at += n
	}
	if at != size {
		return b.fault("", fmt.Sprintf("its vectors have %d elements, the weights take %d", size, at))
	}
	return nil
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
