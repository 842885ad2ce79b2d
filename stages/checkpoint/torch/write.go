package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
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

// partName is the file of all parts of a directory that is written here.
const partName = "__0_0.distcp"

// WriteDCP writes the tensors of src as a directory of torch.distributed.checkpoint, each as one part. The
// metadata is written last: before, the directory is none. Of a conversion that was interrupted it writes
// what j has not.
func WriteDCP(j *checkpoint.Journal, dir string, src checkpoint.Source) error {
	files, err := planDCP(dir, src, nil)
	if err != nil {
		return err
	}
	return checkpoint.Build(j, files, nil)
}

// planDCP plans WriteDCP's files, with objects beside the tensors, each of which is a list of None.
func planDCP(dir string, src checkpoint.Source, objects []string) ([]checkpoint.Planned, error) {
	tensors := src.Tensors()
	places := make([]place, 0, len(tensors)+len(objects))
	f := &archives{path: filepath.Join(dir, partName), src: src}
	add := func(pickle []byte, tensors []checkpoint.Info) error {
		at := f.size
		err := f.add("archive", pickle, tensors)
		places = append(places, place{at, f.size - at})
		return err
	}
	for _, t := range tensors {
		p := &pickler{}
		p.op(0x80, 2)
		if err := p.tensor(t, "0"); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", dir, t.Name, err)
		}
		p.op('.')
		if err := add(p.b, []checkpoint.Info{t}); err != nil {
			return nil, err
		}
	}
	for range objects {
		if err := add([]byte("\x80\x02]Na."), nil); err != nil {
			return nil, err
		}
	}
	meta, err := metadata(tensors, objects, places)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return []checkpoint.Planned{f.planned(), checkpoint.FixedFile(filepath.Join(dir, MetadataName), meta)}, nil
}

// metadata is the pickle of a Metadata.
func metadata(tensors []checkpoint.Info, objects []string, places []place) ([]byte, error) {
	p := &pickler{}
	p.op(0x80, 2)
	size := func(n []int64) func() {
		return func() {
			p.call(global{"torch", "Size"}, func() {
				p.ints(n)
				p.op(0x85)
			})
		}
	}
	var failed error
	entries := func() {
		p.op('}', '(')
		for _, t := range tensors {
			dtype, err := typeOf(t.DType)
			failed = errors.Join(failed, err)
			shape, _, _ := rowMajor(t.Shape)
			p.text(t.Name)
			p.object(global{dcpMetadata, "TensorStorageMetadata"},
				p.field("properties", func() { p.properties(dtype) }),
				p.field("size", size(shape)), p.field("chunks", func() {
					p.op(']')
					p.object(global{dcpMetadata, "ChunkStorageMetadata"},
						p.field("offsets", size(make([]int64, len(shape)))), p.field("sizes", size(shape)))
					p.op('a')
				}))
		}
		for _, name := range objects {
			p.text(name)
			p.object(global{dcpMetadata, "BytesStorageMetadata"})
		}
		p.op('u')
	}
	none := func() { p.op('N') }
	storage := func() {
		p.op('}', '(')
		for i := range places {
			if i < len(tensors) {
				t := &tensors[i]
				p.object(global{dcpMetadata, "MetadataIndex"}, p.field("fqn", func() { p.text(t.Name) }),
					p.field("offset", size(make([]int64, len(t.Shape)))),
					p.field("index", func() { p.int(0) }))
			} else {
				p.object(global{dcpMetadata, "MetadataIndex"},
					p.field("fqn", func() { p.text(objects[i-len(tensors)]) }),
					p.field("offset", none), p.field("index", none))
			}
			p.object(global{dcpFiles, "_StorageInfo"}, p.field("relative_path", func() { p.text(partName) }),
				p.field("offset", func() { p.int(places[i].offset) }),
				p.field("length", func() { p.int(places[i].bytes) }),
				p.field("transform_descriptors", func() { p.op('N') }))
		}
		p.op('u')
	}
	p.object(global{dcpMetadata, "Metadata"}, p.field("state_dict_metadata", entries),
		p.field("planner_data", none),
		p.field("storage_data", storage), p.field("storage_meta", none))
	p.op('.')
	return p.b, failed
}

// properties is a TensorProperties: type, layout, whether gradients are wanted, order in memory, pinned or
// not.
func (p *pickler) properties(dtype global) {
	p.global(global{dcpMetadata, "TensorProperties"})
	p.op(')', 0x81, '(')
	p.global(dtype)
	p.call(global{"torch.serialization", "_get_layout"}, func() {
		p.text("torch.strided")
		p.op(0x85)
	})
	p.op(0x89)
	p.call(global{dcpMetadata, "_MEM_FORMAT_ENCODING"}, func() {
		p.int(0)
		p.op(0x85)
	})
	p.op(0x89, 't', 'b')
}
