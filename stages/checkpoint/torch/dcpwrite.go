package torch

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// dcpPart is a part of a tensor: a box, and the file that it lies in.
type dcpPart struct {
	box  [][2]int
	file int
}

// partName is the file of the parts that a rank writes.
func partName(rank int) string { return fmt.Sprintf("__%d_0.distcp", rank) }

// WriteDCP writes the tensors of src as a directory of torch.distributed.checkpoint, each as one part. The metadata is
// written last: before, the directory is none. Of a conversion that was interrupted it writes what j has not.
func WriteDCP(j *checkpoint.Journal, dir string, src checkpoint.Source) error {
	files, err := planDCP(dir, src, nil, whole1)
	if err != nil {
		return err
	}
	return checkpoint.Build(j, files, nil)
}

// whole1 is a tensor in one part.
func whole1(t checkpoint.Info) []dcpPart {
	box := make([][2]int, len(t.Shape))
	for i, n := range t.Shape {
		box[i] = [2]int{0, n}
	}
	return []dcpPart{{box, 0}}
}

// dcpEntry is what the metadata says of a part, or of an object.
type dcpEntry struct {
	name string
	at   []int64 // where its box begins; nil for an object
	size []int64
	file int
	place
}

// boxes shows parts of the tensors of a source by their numbers.
type boxes struct {
	checkpoint.Source
	parts map[string]dcpPart
	names map[string]string
}

// ReadRanges implements checkpoint.Source.
func (b *boxes) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	part := b.parts[name]
	at := make([][2]int, len(ranges))
	for i, r := range ranges {
		at[i] = [2]int{r[0] + part.box[i][0], r[1] + part.box[i][0]}
	}
	return b.Source.ReadRanges(b.names[name], at, dst)
}

// planDCP plans the files, with objects beside the tensors, each of which is a list of None.
func planDCP(dir string, src checkpoint.Source, objects []string,
	cut func(t checkpoint.Info) []dcpPart) ([]checkpoint.Planned, error) {
	tensors := src.Tensors()
	b := &boxes{src, map[string]dcpPart{}, map[string]string{}}
	var files []*archives
	file := func(n int) *archives {
		for len(files) <= n {
			files = append(files, &archives{path: filepath.Join(dir, partName(len(files))), src: b})
		}
		return files[n]
	}
	var entries []dcpEntry
	for _, t := range tensors {
		for _, part := range cut(t) {
			e, f := dcpEntry{name: t.Name, file: part.file, at: []int64{}, size: []int64{}}, file(part.file)
			one := checkpoint.Info{Name: fmt.Sprint(len(entries)), DType: t.DType}
			for _, x := range part.box {
				e.at, e.size = append(e.at, int64(x[0])), append(e.size, int64(x[1]-x[0]))
				one.Shape = append(one.Shape, x[1]-x[0])
			}
			var err error
			if one.Bytes, err = checkpoint.ByteSize(one.DType, one.Shape); err != nil {
				return nil, fmt.Errorf("%s: tensor %s: %w", dir, t.Name, err)
			}
			b.parts[one.Name], b.names[one.Name] = part, t.Name
			p := &pickler{}
			p.op(0x80, 2)
			if err := p.tensor(one, "0"); err != nil {
				return nil, fmt.Errorf("%s: tensor %s: %w", dir, t.Name, err)
			}
			p.op('.')
			e.offset = f.size
			if err := f.add("archive", p.b, []checkpoint.Info{one}); err != nil {
				return nil, err
			}
			e.bytes = f.size - e.offset
			entries = append(entries, e)
		}
	}
	for _, name := range objects {
		f := file(0)
		e := dcpEntry{name: name, place: place{offset: f.size}}
		if err := f.add("archive", []byte("\x80\x02]Na."), nil); err != nil {
			return nil, err
		}
		e.bytes = f.size - e.offset
		entries = append(entries, e)
	}
	meta, err := metadata(tensors, entries)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var out []checkpoint.Planned
	for _, f := range files {
		out = append(out, f.planned())
	}
	return append(out, checkpoint.FixedFile(filepath.Join(dir, MetadataName), meta)), nil
}

// size writes a torch.Size.
func (p *pickler) size(n []int64) func() {
	return func() {
		p.call(global{"torch", "Size"}, func() {
			p.ints(n)
			p.op(0x85)
		})
	}
}

// metadata is the pickle of a Metadata.
func metadata(tensors []checkpoint.Info, entries []dcpEntry) ([]byte, error) {
	p := &pickler{}
	p.op(0x80, 2)
	none := func() { p.op('N') }
	var failed error
	described := func() {
		p.op('}', '(')
		next := 0
		for _, t := range tensors {
			dtype, err := typeOf(t.DType)
			failed = errors.Join(failed, err)
			shape, _, _ := rowMajor(t.Shape)
			p.text(t.Name)
			p.object(global{dcpMetadata, "TensorStorageMetadata"},
				p.field("properties", func() { p.properties(dtype) }),
				p.field("size", p.size(shape)), p.field("chunks", func() {
					p.op(']')
					for ; next < len(entries) && entries[next].name == t.Name; next++ {
						p.object(global{dcpMetadata, "ChunkStorageMetadata"},
							p.field("offsets", p.size(entries[next].at)), p.field("sizes", p.size(entries[next].size)))
						p.op('a')
					}
				}))
		}
		for _, e := range entries[next:] {
			p.text(e.name)
			p.object(global{dcpMetadata, "BytesStorageMetadata"})
		}
		p.op('u')
	}
	storage := func() {
		p.op('}', '(')
		nth := 0
		for i := range entries {
			e := &entries[i]
			if nth++; i == 0 || entries[i-1].name != e.name {
				nth = 0
			}
			offset, index := none, none
			if e.at != nil {
				offset, index = p.size(e.at), func() { p.int(int64(nth)) }
			}
			p.object(global{dcpMetadata, "MetadataIndex"}, p.field("fqn", func() { p.text(e.name) }),
				p.field("offset", offset), p.field("index", index))
			p.object(global{dcpFiles, "_StorageInfo"}, p.field("relative_path", func() { p.text(partName(e.file)) }),
				p.field("offset", func() { p.int(e.offset) }), p.field("length", func() { p.int(e.bytes) }),
				p.field("transform_descriptors", func() { p.op('N') }))
		}
		p.op('u')
	}
	p.object(global{dcpMetadata, "Metadata"}, p.field("state_dict_metadata", described), p.field("planner_data", none),
		p.field("storage_data", storage), p.field("storage_meta", none))
	p.op('.')
	return p.b, failed
}

// properties is a TensorProperties: type, layout, whether gradients are wanted, order in memory, pinned or not.
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
