package torch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// MetadataName is the file that says where the parts of a directory of torch.distributed.checkpoint lie.
const MetadataName = ".metadata"

const (
	dcpMetadata = "torch.distributed.checkpoint.metadata"
	dcpFiles    = "torch.distributed.checkpoint.filesystem"
)

// chunk is a part of a tensor: a box, and the archive that has it.
type chunk struct {
	box  [][2]int
	file string
	place
	once sync.Once
	t    *view // read when it is needed first
	f    *os.File
	err  error
}

// sharded is a tensor in parts.
type sharded struct {
	info   checkpoint.Info
	chunks []*chunk
}

// DCP is a directory of torch.distributed.checkpoint. It implements checkpoint.Source.
type DCP struct {
	dir     string
	said    string // the file that says what there is
	tensors map[string]*sharded
	// Objects are the entries that are no tensors, sorted.
	Objects []string
	mu      sync.Mutex
	files   map[string]*os.File
}

// IsDCP reports whether a directory is one of torch.distributed.checkpoint.
func IsDCP(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, MetadataName))
	return err == nil
}

// OpenDCP opens a directory of torch.distributed.checkpoint: only its metadata is read, and the parts of
// each tensor are held to its shape, which they have to fill without an overlap.
func OpenDCP(dir string) (*DCP, error) {
	path := filepath.Join(dir, MetadataName)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readAll(f, path, place{0, info.Size()})
	if err != nil {
		return nil, err
	}
	v, globals, _, err := unpickle(b)
	if err := inFile(err, path, 0); err != nil {
		return nil, err
	}
	// Plans of saves to come, which are not read, hold what a program likes; nothing of it is called.
	if err := refuse(globals, path, func(global) bool { return false }); err != nil {
		return nil, err
	}
	d := &DCP{dir: dir, said: path, tensors: map[string]*sharded{}, files: map[string]*os.File{}}
	if err := d.read(v); err != nil {
		return nil, err
	}
	return d, nil
}

// fault is one of the metadata.
func (d *DCP) fault(tensor string, f checkpoint.Fault, format string, a ...any) error {
	return &checkpoint.Error{File: d.said, Tensor: tensor, Fault: f, Why: fmt.Sprintf(format, a...)}
}

// fields are the attributes of an object of a class.
func fields(v any, class global) (*dict, bool) {
	o, ok := v.(*object)
	if !ok || o.class != class {
		return nil, false
	}
	state := o.state
	if t, is := state.(tuple); is && len(t) == 2 { // with slots
		if state = t[0]; state == nil {
			state = t[1]
		}
	}
	d, ok := state.(*dict)
	return d, ok
}

// read takes in the metadata.
func (d *DCP) read(v any) error {
	m, ok := fields(v, global{dcpMetadata, "Metadata"})
	if !ok {
		return d.fault("", checkpoint.Malformed, "is no Metadata")
	}
	entries, ok := m.get("state_dict_metadata").(*dict)
	storage, ok2 := m.get("storage_data").(*dict)
	if !ok || !ok2 {
		return d.fault("", checkpoint.Malformed, "has no state_dict_metadata or no storage_data")
	}
	for i, k := range entries.keys {
		name, ok := k.(string)
		if !ok {
			return d.fault("", checkpoint.Malformed, "an entry is named %s", show(k))
		}
		if _, is := fields(entries.values[i], global{dcpMetadata, "TensorStorageMetadata"}); !is {
			d.Objects = append(d.Objects, name)
			continue
		}
		if d.tensors[name] != nil {
			return d.fault(name, checkpoint.Extra, "is there twice")
		}
		t, err := d.tensor(name, entries.values[i])
		if err != nil {
			return err
		}
		d.tensors[name] = t
	}
	slices.Sort(d.Objects)
	if err := d.places(storage); err != nil {
		return err
	}
	var errs []error
	for _, name := range sortedKeys(d.tensors) {
		errs = append(errs, d.tile(name))
	}
	return errors.Join(errs...)
}

// tensor reads type, shape and parts.
func (d *DCP) tensor(name string, v any) (*sharded, error) {
	x, _ := fields(v, global{dcpMetadata, "TensorStorageMetadata"})
	var dtype checkpoint.DType
	if p, ok := fields(x.get("properties"), global{dcpMetadata, "TensorProperties"}); ok {
		g, _ := p.get("dtype").(global)
		dtype = types[g]
	} else if o, ok := x.get("properties").(*object); ok {
		if t, is := o.state.(tuple); is && len(t) > 0 { // as its __getstate__ gives it
			g, _ := t[0].(global)
			dtype = types[g]
		}
	}
	size, ok := ints(x.get("size"))
	if dtype == "" || !ok || len(size) > axesMax {
		return nil, d.fault(name, checkpoint.Malformed, "its type or its size %s is not read", show(x.get("size")))
	}
	t := &sharded{info: checkpoint.Info{Name: name, DType: dtype}}
	for _, s := range size {
		t.info.Shape = append(t.info.Shape, int(s))
	}
	var err error
	if t.info.Bytes, err = checkpoint.ByteSize(dtype, t.info.Shape); err != nil {
		return nil, d.fault(name, checkpoint.Malformed, "%v", err)
	}
	parts, _ := x.get("chunks").(*list)
	if parts == nil {
		return nil, d.fault(name, checkpoint.Malformed, "has no chunks")
	}
	for _, p := range parts.items {
		c, ok := fields(p, global{dcpMetadata, "ChunkStorageMetadata"})
		if !ok {
			return nil, d.fault(name, checkpoint.Malformed, "a chunk is none")
		}
		at, ok := ints(c.get("offsets"))
		of, ok2 := ints(c.get("sizes"))
		if !ok || !ok2 || len(at) != len(size) || len(of) != len(size) {
			return nil, d.fault(name, checkpoint.Malformed, "a chunk at %s of %s", show(c.get("offsets")),
				show(c.get("sizes")))
		}
		x := &chunk{}
		for i := range at {
			if at[i] < 0 || of[i] < 0 || at[i] > size[i]-of[i] {
				return nil, d.fault(name, checkpoint.Malformed, "a chunk at %v of %v lies outside of %v", at, of, size)
			}
			x.box = append(x.box, [2]int{int(at[i]), int(at[i] + of[i])})
		}
		t.chunks = append(t.chunks, x)
	}
	return t, nil
}

// places reads where the parts lie.
func (d *DCP) places(storage *dict) error {
	for i, k := range storage.keys {
		index, ok := fields(k, global{dcpMetadata, "MetadataIndex"})
		info, ok2 := fields(storage.values[i], global{dcpFiles, "_StorageInfo"})
		if !ok || !ok2 {
			return d.fault("", checkpoint.Malformed, "an entry of storage_data is none")
		}
		name, _ := index.get("fqn").(string)
		file, _ := info.get("relative_path").(string)
		offset, _ := info.get("offset").(int64)
		length, _ := info.get("length").(int64)
		if file == "" || file != filepath.Base(file) || !filepath.IsLocal(file) || offset < 0 || length < 0 {
			return d.fault(name, checkpoint.Unsafe, "lies in file %q at %d, %d bytes", file, offset, length)
		}
		if list, ok := ints(orEmpty(info.get("transform_descriptors"))); !ok || len(list) > 0 {
			return d.fault(name, checkpoint.Malformed, "is stored transformed, which is not read")
		}
		t := d.tensors[name]
		if t == nil {
			if _, is := slices.BinarySearch(d.Objects, name); !is {
				return d.fault(name, checkpoint.Extra, "lies in %s, and no entry describes it", file)
			}
			continue
		}
		at, ok := ints(offsetOf(index.get("offset"), len(t.info.Shape)))
		found := slices.IndexFunc(t.chunks, func(c *chunk) bool {
			same := ok && len(at) == len(c.box)
			for i := 0; same && i < len(at); i++ {
				same = int64(c.box[i][0]) == at[i]
			}
			return same
		})
		if found < 0 || t.chunks[found].file != "" {
			return d.fault(name, checkpoint.Extra, "a part at %s is there twice, or is none of its chunks",
				show(index.get("offset")))
		}
		c := t.chunks[found]
		c.file, c.place = file, place{offset, length}
	}
	return nil
}

func orEmpty(v any) any {
	if v == nil {
		return tuple{}
	}
	return v
}

// offsetOf is where a part begins; one that is the whole may not say.
func offsetOf(v any, axes int) any {
	if v == nil {
		return tuple(slices.Repeat([]any{int64(0)}, axes))
	}
	return v
}

// tile checks that the parts of a tensor fill it, and that all lie somewhere.
func (d *DCP) tile(name string) error {
	t := d.tensors[name]
	n, each := int64(0), int64(t.info.DType.Bits()/8)
	for i, c := range t.chunks {
		size := each
		for _, b := range c.box {
			size *= int64(b[1] - b[0])
		}
		n += size
		if c.file == "" && size > 0 {
			return d.fault(name, checkpoint.Missing, "the part at %v lies nowhere", c.box)
		}
		for _, other := range t.chunks[:i] {
			if _, both := intersect(c.box, other.box); both {
				return d.fault(name, checkpoint.Malformed, "parts %v and %v overlap", c.box, other.box)
			}
		}
	}
	if n != t.info.Bytes {
		return d.fault(name, checkpoint.Missing, "its %d parts have %d bytes of %d", len(t.chunks), n, t.info.Bytes)
	}
	return nil
}

// intersect is the common part of two boxes, and whether there is one.
func intersect(a, b [][2]int) ([][2]int, bool) {
	out := make([][2]int, len(a))
	for i := range a {
		if out[i] = [2]int{max(a[i][0], b[i][0]), min(a[i][1], b[i][1])}; out[i][0] >= out[i][1] {
			return nil, false
		}
	}
	return out, true
}

// Tensors implements checkpoint.Source.
func (d *DCP) Tensors() []checkpoint.Info {
	out := make([]checkpoint.Info, 0, len(d.tensors))
	for _, name := range sortedKeys(d.tensors) {
		out = append(out, d.tensors[name].info)
	}
	return out
}

// Close implements checkpoint.Source.
func (d *DCP) Close() error {
	var errs []error
	for _, name := range sortedKeys(d.files) {
		errs = append(errs, d.files[name].Close())
	}
	return errors.Join(errs...)
}

// file opens one of the directory's.
func (d *DCP) file(name string) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.files[name]; f != nil {
		return f, nil
	}
	f, err := os.Open(filepath.Join(d.dir, name))
	if err == nil {
		d.files[name] = f
	}
	return f, err
}

// load reads the head of a part's archive.
func (d *DCP) load(t *sharded, c *chunk) error {
	c.once.Do(func() {
		path := filepath.Join(d.dir, c.file)
		bad := func(f checkpoint.Fault, err error, format string, a ...any) {
			c.err = &checkpoint.Error{File: path, Tensor: t.info.Name, Fault: f,
				Why: fmt.Sprintf("at offset %d: ", c.offset) + fmt.Sprintf(format, a...), Err: err}
		}
		if c.f, c.err = d.file(c.file); c.err != nil {
			bad(checkpoint.Missing, c.err, "the part %v", c.box)
			return
		}
		info, err := c.f.Stat()
		if err != nil || c.offset > info.Size()-c.bytes {
			bad(checkpoint.Truncated, err, "%d bytes, the file has %d", c.bytes, info.Size())
			return
		}
		a, err := openArchive(c.f, path, c.offset, c.bytes)
		if err == nil {
			err = refuse(a.globals, path, func(global) bool { return false })
		}
		if err != nil {
			c.err = err
			return
		}
		v, ok, err := a.view(a.value)
		if err != nil || !ok {
			bad(checkpoint.Malformed, err, "is no tensor")
			return
		}
		var want []int
		for _, b := range c.box {
			want = append(want, b[1]-b[0])
		}
		if !slices.Equal(v.shape, want) || v.dtype != t.info.DType {
			bad(checkpoint.Misshapen, nil, "%s %v, want %s %v", v.dtype, v.shape, t.info.DType, want)
			return
		}
		c.t = v
	})
	return c.err
}

// ReadRanges implements checkpoint.Source.
func (d *DCP) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	t := d.tensors[name]
	if t == nil {
		return &checkpoint.Error{File: d.dir, Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	if err := checkBox(t.info.DType, t.info.Shape, ranges, dst); err != nil {
		return fmt.Errorf("%s: tensor %s: %w", d.dir, name, err)
	}
	if len(dst) == 0 {
		return nil
	}
	for _, c := range t.chunks {
		both, ok := intersect(ranges, c.box)
		if !ok {
			continue
		}
		if err := d.load(t, c); err != nil {
			return err
		}
		if err := d.part(t, c, both, ranges, dst); err != nil {
			return &checkpoint.Error{File: filepath.Join(d.dir, c.file), Tensor: name, Fault: checkpoint.Truncated,
				Why: fmt.Sprintf("at offset %d", c.t.offset), Err: err}
		}
	}
	return nil
}

// part copies the common part of a chunk and a box to where it lies in the box.
func (d *DCP) part(t *sharded, c *chunk, both, ranges [][2]int, dst []byte) error {
	inner, n := make([][2]int, len(both)), t.info.DType.Bits()/8
	for i := range both {
		inner[i] = [2]int{both[i][0] - c.box[i][0], both[i][1] - c.box[i][0]}
		n *= both[i][1] - both[i][0]
	}
	if n == len(dst) {
		return c.t.read(c.f, inner, dst)
	}
	raw := make([]byte, n)
	if err := c.t.read(c.f, inner, raw); err != nil {
		return err
	}
	scatter(raw, both, dst, ranges, t.info.DType.Bits()/8)
	return nil
}

// scatter copies a dense box into the box around it, row by row.
func scatter(src []byte, box [][2]int, dst []byte, around [][2]int, each int) {
	last := len(box) - 1
	if last < 0 {
		copy(dst, src)
		return
	}
	row := (box[last][1] - box[last][0]) * each
	at := make([]int, last)
	for len(src) > 0 {
		to := 0
		for i := range last {
			to = (to + box[i][0] - around[i][0] + at[i]) * (around[i+1][1] - around[i+1][0])
		}
		to += box[last][0] - around[last][0]
		copy(dst[to*each:], src[:row])
		src = src[row:]
		for i := last - 1; i >= 0; i-- {
			if at[i]++; at[i] < box[i][1]-box[i][0] {
				break
			}
			at[i] = 0
		}
	}
}
