package torch

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// pickler writes a pickle of protocol 2, with as few operations as loading with weights_only=True knows.
type pickler struct{ b []byte }

func (p *pickler) op(b ...byte) { p.b = append(p.b, b...) }

func (p *pickler) text(s string) {
	p.b = append(binary.LittleEndian.AppendUint32(append(p.b, 'X'), uint32(len(s))), s...)
}

func (p *pickler) global(g global) { p.b = append(p.b, "c"+g.module+"\n"+g.name+"\n"...) }

func (p *pickler) int(n int64) {
	if n == int64(int32(n)) {
		p.b = binary.LittleEndian.AppendUint32(append(p.b, 'J'), uint32(n))
		return
	}
	p.b = binary.LittleEndian.AppendUint64(append(p.b, 0x8a, 8), uint64(n))
}

func (p *pickler) ints(n []int64) {
	p.op('(')
	for _, x := range n {
		p.int(x)
	}
	p.op('t')
}

// call is what a global makes of a tuple that args writes.
func (p *pickler) call(g global, args func()) {
	p.global(g)
	args()
	p.op('R')
}

// object is one of a class without arguments, with fields as the pairs give them.
func (p *pickler) object(class global, fields ...func()) {
	p.global(class)
	p.op(')', 0x81, '}')
	p.op('(')
	for _, f := range fields {
		f()
	}
	p.op('u', 'b')
}

// field is a pair for object.
func (p *pickler) field(name string, value func()) func() {
	return func() {
		p.text(name)
		value()
	}
}

// storageOf is the class of a type's storage; ok is false for types whose storages are untyped.
func storageOf(d checkpoint.DType) (g global, ok bool) {
	for _, g := range byName(storages) {
		if storages[g] == d {
			return g, true
		}
	}
	return global{"torch.storage", "UntypedStorage"}, false
}

// typeOf is torch's name of a type.
func typeOf(d checkpoint.DType) (global, error) {
	for _, g := range byName(types) {
		if types[g] == d {
			return g, nil
		}
	}
	return global{}, fmt.Errorf("torch has no type %s", d)
}

func byName(m map[global]checkpoint.DType) []global {
	return slices.SortedFunc(maps.Keys(m), func(a, b global) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
}

// tensor writes the call that makes one over the storage of a key.
func (p *pickler) tensor(t checkpoint.Info, key string) error {
	storage, typed := storageOf(t.DType)
	name := "_rebuild_tensor_v2"
	if !typed {
		name = "_rebuild_tensor_v3"
	}
	dtype, err := typeOf(t.DType)
	if err != nil {
		return err
	}
	shape, stride, n := rowMajor(t.Shape)
	count := n
	if !typed {
		count = t.Bytes
	}
	p.call(global{"torch._utils", name}, func() {
		p.op('(', '(')
		p.text("storage")
		p.global(storage)
		p.text(key)
		p.text("cpu")
		p.int(count)
		p.op('t', 'Q')
		p.int(0)
		p.ints(shape)
		p.ints(stride)
		p.op(0x89)
		p.call(orderedDict, func() { p.op(')') })
		if !typed {
			p.global(dtype)
		}
		p.op('t')
	})
	return nil
}

// rowMajor are the sizes and strides of a dense tensor, and its elements.
func rowMajor(shape []int) (size, stride []int64, n int64) {
	size, stride = make([]int64, len(shape)), make([]int64, len(shape))
	n = 1
	for i := len(shape) - 1; i >= 0; i-- {
		size[i], stride[i] = int64(shape[i]), n
		n *= int64(shape[i])
	}
	return size, stride, n
}

// Write writes the tensors of src as a file of torch.save: a dictionary that torch.load(weights_only=True)
// reads. Of a conversion that was interrupted it writes what j has not.
func Write(j *checkpoint.Journal, path string, src checkpoint.Source) error {
	p := &pickler{}
	p.op(0x80, 2, '}', '(')
	tensors := src.Tensors()
	for i, t := range tensors {
		p.text(t.Name)
		if err := p.tensor(t, fmt.Sprint(i)); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", path, t.Name, err)
		}
	}
	p.op('u', '.')
	f := &archives{path: path, src: src}
	if err := f.add("pytorch_model", p.b, tensors); err != nil {
		return err
	}
	return checkpoint.Build(j, []checkpoint.Planned{f.planned()}, nil)
}
