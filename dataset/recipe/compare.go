package recipe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
)

// recordTail is what stands behind a key in the records that are sorted: the document's number in the stage
// and the unit, most significant byte first, so that records compare as keys, documents and units do.
const recordTail = 12

// comparer finds the copies among the keys of a bucket, which come in order. What it finds are records of foundBytes:
// pairs of documents where these are joined, and else document, unit and the first document with the key.
type comparer struct {
	form curate.Form
	out  func(record []byte) error
	last []byte
	doc  uint64
	near neighbours
}

func newComparer(form curate.Form, out func(record []byte) error) *comparer {
	c := &comparer{form: form, out: out}
	c.near = neighbours{form: form, put: c.pair}
	return c
}

// foundBytes is the size of what a comparer finds.
func foundBytes(form curate.Form) int {
	if form.Clusters {
		return 8
	}
	return 20
}

func (c *comparer) pair(a, b uint64) error {
	r := binary.LittleEndian.AppendUint32(make([]byte, 0, 8), uint32(a))
	return c.out(binary.LittleEndian.AppendUint32(r, uint32(b)))
}

// add takes the next record.
func (c *comparer) add(record []byte) error {
	key := record[:c.form.Bytes]
	doc, unit := binary.BigEndian.Uint64(record[c.form.Bytes:]), binary.BigEndian.Uint32(record[c.form.Bytes+8:])
	same, before := c.last != nil && slices.Equal(key, c.last), c.doc
	if !same {
		c.last = append(c.last[:0], key...)
	}
	switch {
	case c.form.Clusters && same:
		c.doc = doc
		return c.pair(before, doc)
	case c.form.Clusters:
		c.doc = doc
		return c.near.add(key, doc)
	case same:
		r := binary.BigEndian.AppendUint64(make([]byte, 0, 20), doc)
		r = binary.BigEndian.AppendUint32(r, unit)
		return c.out(binary.BigEndian.AppendUint64(r, before))
	}
	c.doc = doc
	return nil
}

// records gives the keys of a bucket as records, block after block.
func (f *flow) records(ctx context.Context, at, bucket int, h *hits, each func(record []byte) error) error {
	size := f.form(at).Bytes
	record := make([]byte, size+recordTail)
	for u := range f.units[at] {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := openBlock(f.blockPath(at, u))
		if err != nil {
			return err
		}
		keys, err := b.keys(bucket)
		if err = errors.Join(err, b.close()); err != nil {
			return err
		}
		base := h.ends[u] - int64(b.head.Docs)
		for ; len(keys) >= size+keyTail; keys = keys[size+keyTail:] {
			copy(record, keys[:size])
			doc := base + int64(binary.LittleEndian.Uint32(keys[size:]))
			binary.BigEndian.PutUint64(record[size:], uint64(doc))
			binary.BigEndian.PutUint32(record[size+8:], binary.LittleEndian.Uint32(keys[size+4:]))
			if err := each(record); err != nil {
				return err
			}
		}
	}
	return nil
}

// form is how the keys of a stage are compared.
func (f *flow) form(at int) curate.Form { return f.Steps[f.stages[at].step].state().Form() }

// bucketOf is a bucket of the keys of a step, by their numbers.
type bucketOf struct{ step, bucket int }

// compare gives what a comparer finds among the keys of a bucket. Where there are hosts each sorts ranges of
// the keys; what is found, and its order, are the same.
func (f *flow) compare(ctx context.Context, b bucketOf, memory int64, dir string, h *hits, hosts dataset.Remote,
	out func(record []byte) error) error {
	at, bucket := b.step, b.bucket
	if hosts.Do != nil {
		return f.compareThere(ctx, at, bucket, dir, h, hosts, out)
	}
	form := f.form(at)
	s := newSorter(form.Bytes+recordTail, memory, dir)
	defer s.remove()
	if err := f.records(ctx, at, bucket, h, s.add); err != nil {
		return err
	}
	return s.sorted(newComparer(form, out).add)
}

// found is what a host has found in a range of keys, as it travels.
type found struct {
	Records []byte
	Fault   dataset.Fault
	err     error // here
}

// findIn sorts records and compares them, in memory.
func findIn(form curate.Form, records []byte) (v found) {
	size := form.Bytes + recordTail
	n := len(records) / size
	v.err = sortAndCompare(form, bytes.NewReader(records), 2*int64(n+1)*int64(size+indexBytes), "",
		func(r []byte) error {
			v.Records = append(v.Records, r...)
			return nil
		})
	v.Fault = dataset.FaultOf(v.err)
	return v
}

// sortAndCompare reads records and gives what is found among them.
func sortAndCompare(form curate.Form, in io.Reader, memory int64, dir string, out func(record []byte) error) error {
	record := make([]byte, form.Bytes+recordTail)
	s := newSorter(len(record), memory, dir)
	defer s.remove()
	for {
		if _, err := io.ReadFull(in, record); err == io.EOF {
			return s.sorted(newComparer(form, out).add)
		} else if err != nil {
			return err
		}
		if err := s.add(record); err != nil {
			return err
		}
	}
}

// Where hosts share the sorting, a range of keys has about so many bytes of the recipe's memory, of which as
// many are under way at once as take half of it, and at most rangeMax. A range of many times that, as one key
// of most documents makes it, is sorted by the host that leads, on disk.
const (
	rangeShare = 64
	rangeMax   = 16 << 20
	rangesMax  = 256 // files that are written at once
	rangeLarge = 8   // times that
)

func (f *flow) rangeBytes() int64 { return min(rangeMax, f.Memory/rangeShare) }

// compareThere is compare by hosts.
func (f *flow) compareThere(ctx context.Context, at, bucket int, dir string, h *hits, hosts dataset.Remote,
	out func(record []byte) error) error {
	form := f.form(at)
	r, err := f.divideKeys(ctx, at, bucket, dir, h)
	defer r.remove()
	if err != nil {
		return err
	}
	var small []int
	for i, size := range r.sizes {
		if size <= rangeLarge*f.rangeBytes() {
			small = append(small, i)
		}
	}
	hosts.Part = len(f.stages) + at
	hosts.Ahead = min(hosts.Ahead, rangeShare/2)
	hosts.With = func(from, _ int64) ([]byte, error) { return os.ReadFile(r.files[small[from]].Name()) }
	there := dataset.Items(ctx, hosts, 0, int64(len(small)), 1,
		func(int64) found { panic("recipe: asked here") }, func(err error) found { return found{err: err} })
	next := int64(0)
	for i := range r.files {
		if next == int64(len(small)) || small[next] != i {
			if _, err := r.files[i].Seek(0, io.SeekStart); err != nil {
				return err
			}
			in := bufio.NewReaderSize(r.files[i], 1<<20)
			if err := sortAndCompare(form, in, f.Memory/2, dir, out); err != nil {
				return err
			}
			continue
		}
		v := there(next)
		next++
		if err := errors.Join(v.err, v.Fault.Err()); err != nil {
			return err
		}
		for k := range slices.Chunk(v.Records, foundBytes(form)) {
			if err := out(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyRanges are the records of a bucket in files, each with a range of the keys. Keys that are compared with
// each other lie in one of them.
type keyRanges struct {
	splits []uint64 // where ranges begin, but the first
	files  []*os.File
	sizes  []int64
}

// remove removes the files; what stays behind goes with the folder.
func (r *keyRanges) remove() {
	for _, f := range r.files {
		_ = f.Close()           // it was read
		_ = os.Remove(f.Name()) // what stays goes with the folder
	}
}

// headOfKey is what decides in which range a key lies.
func headOfKey(form curate.Form, key []byte) uint64 {
	n := min(8, form.Bytes)
	if form.Near != nil {
		n = min(n, form.Prefix)
	}
	var b [8]byte
	copy(b[:], key[:n])
	return binary.BigEndian.Uint64(b[:])
}

// divideKeys divides the keys of a bucket into ranges of about the same size.
func (f *flow) divideKeys(ctx context.Context, at, bucket int, dir string, h *hits) (*keyRanges, error) {
	form := f.form(at)
	r := &keyRanges{}
	var err error
	if r.splits, err = f.splitKeys(at, bucket, form); err != nil {
		return r, err
	}
	var to []*bufio.Writer
	for range len(r.splits) + 1 {
		file, err := os.CreateTemp(dir, ".run-*")
		if err != nil {
			return r, err
		}
		r.files, r.sizes = append(r.files, file), append(r.sizes, 0)
		to = append(to, bufio.NewWriterSize(file, mergeBuffer))
	}
	err = f.records(ctx, at, bucket, h, func(record []byte) error {
		head := headOfKey(form, record)
		i, equal := slices.BinarySearch(r.splits, head)
		if equal {
			i++
		}
		r.sizes[i] += int64(len(record))
		_, err := to[i].Write(record)
		return err
	})
	for _, w := range to {
		err = errors.Join(err, w.Flush())
	}
	return r, err
}

// Ranges are taken from a sample: of so many blocks, so many keys.
const (
	splitBlocks = 64
	splitKeys   = 1024
)

// splitKeys finds where ranges of the keys of a bucket begin.
func (f *flow) splitKeys(at, bucket int, form curate.Form) ([]uint64, error) {
	var sample []uint64
	total := int64(0)
	step := max(1, len(f.units[at])/splitBlocks)
	for u := range f.units[at] {
		b, err := openBlock(f.blockPath(at, u))
		if err != nil {
			return nil, err
		}
		n := 0
		if bucket < len(b.head.Keys) {
			n = b.head.Keys[bucket] / (form.Bytes + keyTail)
		}
		total += int64(n)
		var keys []byte
		if u%step == 0 {
			keys, err = b.keys(bucket)
		}
		if err = errors.Join(err, b.close()); err != nil {
			return nil, err
		}
		every := max(1, n/splitKeys) * (form.Bytes + keyTail)
		for i := 0; i+form.Bytes <= len(keys); i += every {
			sample = append(sample, headOfKey(form, keys[i:i+form.Bytes]))
		}
	}
	slices.Sort(sample)
	ranges := int(min(rangesMax, total*int64(form.Bytes+recordTail)/f.rangeBytes()+1))
	var splits []uint64
	for i := 1; i < ranges && len(sample) > 0; i++ {
		splits = append(splits, sample[i*len(sample)/ranges])
	}
	return slices.Compact(splits), nil
}
