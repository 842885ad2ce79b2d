package checkpoint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Planned is a file whose bytes all have their places before any is known. Its parts are written in any
// order, by several goroutines; what lies around them comes last.
type Planned struct {
	Path  string
	Size  int64
	Parts []Part
	// Rest is what lies around the parts, given the CRC-32 (IEEE) of each in order.
	Rest func(sums []uint32) []Fixed
}

// Part is bytes of a file that follow one another.
type Part struct {
	Name          string // for errors
	Offset, Bytes int64
	// Fill puts the bytes, in order. It may run at the same time as those of other parts.
	Fill func(put func([]byte) error) error
}

// Fixed are bytes at a place.
type Fixed struct {
	Offset int64
	Data   []byte
}

// Bounds of what is in memory: parts at a time, and bytes of a part of rows.
const (
	buildersMax = 4
	partBytes   = 8 << 20
)

// building is one conversion.
type building struct {
	j     *Journal
	files []Planned
	open  []*os.File
	turns []sync.Mutex // a write to a file at a time: the system would have the others wait at work
	sums  [][]uint32
	step  func(what string) error // before each thing that is done; nil but for tests, whose error is a kill
	one   bool                    // a part at a time
}

// errKilled ends a building as a kill does: nothing is brought to an end. Tests only.
var errKilled = errors.New("killed")

// Build writes files and gives them their names in the order of the list, when all are whole. Of a conversion that was
// interrupted it writes what the journal has not, or what is not as the journal says; a nil journal is of one that does
// not go on. tidy is called before the first file gets its name. On an error nothing is left. The journal stays: more may
// belong to the conversion than these files, and whoever began it drops it.
func Build(j *Journal, files []Planned, tidy func() error) error {
	return (&building{j: j, files: files}).build(tidy)
}

func (b *building) build(tidy func() error) (err error) {
	defer func() {
		if err != nil && !errors.Is(err, errKilled) {
			err = errors.Join(err, b.abort())
		}
	}()
	if b.j != nil {
		if err := b.j.open(b.places()); err != nil {
			return err
		}
	}
	if err := b.create(); err != nil {
		return err
	}
	if err := b.parts(); err != nil {
		return err
	}
	if err := b.finish(); err != nil {
		return err
	}
	if err := errors.Join(b.at("names"), b.j.names()); err != nil {
		return err
	}
	if tidy != nil {
		if err := tidy(); err != nil {
			return err
		}
	}
	for i := range b.files {
		path := b.files[i].Path
		if err := b.at("rename"); err != nil {
			return err
		}
		if err := OS.Rename(path+partial, path); err != nil {
			return err
		}
		if i+1 == len(b.files) || filepath.Dir(b.files[i+1].Path) != filepath.Dir(path) {
			if err := OS.SyncDir(filepath.Dir(path)); err != nil {
				return err
			}
		}
	}
	return b.at("end")
}

// at is where a test may stop.
func (b *building) at(what string) error {
	if b.step == nil {
		return nil
	}
	return b.step(what)
}

// places is the hash of all places.
func (b *building) places() string {
	h := sha256.New()
	for i := range b.files {
		f := &b.files[i]
		fmt.Fprintf(h, "%s %d\n", filepath.Base(f.Path), f.Size)
		for _, p := range f.Parts {
			fmt.Fprintf(h, "%d %d %s\n", p.Offset, p.Bytes, p.Name)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// create opens the files under their temporary names: those that are there, where the journal goes on.
func (b *building) create() error {
	b.turns = make([]sync.Mutex, len(b.files))
	goesOn := b.j != nil && (len(b.j.done) > 0 || b.j.named)
	for i := range b.files {
		f := &b.files[i]
		if err := OS.MkdirAll(filepath.Dir(f.Path)); err != nil {
			return err
		}
		part := f.Path + partial
		if !goesOn {
			if err := OS.RemoveAll(part); err != nil {
				return err
			}
		} else if _, err := os.Lstat(part); errors.Is(err, os.ErrNotExist) && b.j.named {
			// it had its name already; its bytes are held to the journal as all others are
			if err := OS.Rename(f.Path, part); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		file, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		b.open = append(b.open, file)
		b.sums = append(b.sums, make([]uint32, len(f.Parts)))
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			return errors.Join(err, fmt.Errorf("%s is no regular file", part))
		}
	}
	return nil
}

// parts writes those of all files, a few at a time.
func (b *building) parts() error {
	type job struct{ file, part int }
	var jobs []job
	for i := range b.files {
		for k := range b.files[i].Parts {
			jobs = append(jobs, job{i, k})
		}
	}
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	n := min(buildersMax, max(2, runtime.GOMAXPROCS(0)), len(jobs))
	if b.one {
		n = min(1, n)
	}
	errs := make([]error, n)
	for w := range n {
		wg.Go(func() {
			for failed.Load() == 0 {
				at := int(next.Add(1)) - 1
				if at >= len(jobs) {
					return
				}
				if errs[w] = b.part(jobs[at].file, jobs[at].part); errs[w] != nil {
					failed.Store(1)
				}
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return errs[i]
	}
	return nil
}

// part writes one, unless it is there.
func (b *building) part(file, part int) error {
	p, f := &b.files[file].Parts[part], b.open[file]
	at := partAt{file, p.Offset, p.Bytes}
	if want, ok := b.j.sum(at); ok {
		got, err := sumOf(f, p.Offset, p.Bytes)
		if errors.Is(err, io.EOF) { // the file was cut: its part is not as it was
			got, err = ^want, nil
		}
		if err != nil {
			return err
		}
		if got == want {
			b.sums[file][part] = got
			return nil
		}
	}
	if err := b.at("part"); err != nil {
		return err
	}
	crc, n := uint32(0), int64(0)
	err := p.Fill(func(data []byte) error {
		if n+int64(len(data)) > p.Bytes {
			return fmt.Errorf("more than its %d bytes came", p.Bytes)
		}
		crc = crc32.Update(crc, crc32.IEEETable, data)
		b.turns[file].Lock()
		defer b.turns[file].Unlock()
		_, err := f.WriteAt(data, p.Offset+n)
		n += int64(len(data))
		return err
	})
	if err == nil && n != p.Bytes {
		err = fmt.Errorf("%d bytes of %d came", n, p.Bytes)
	}
	if err != nil {
		return fmt.Errorf("writing %s to %s: %w", quoteOdd(p.Name), b.files[file].Path, err)
	}
	b.sums[file][part] = crc
	if err := b.at("noted"); err != nil {
		return err
	}
	return b.j.wrote(at, crc)
}

// sumOf is the CRC-32 of bytes that lie in a file.
func sumOf(f *os.File, offset, bytes int64) (uint32, error) {
	buf, crc := make([]byte, min(bytes, 1<<20)), uint32(0)
	for n := int64(0); n < bytes; {
		part := buf[:min(int64(len(buf)), bytes-n)]
		if _, err := f.ReadAt(part, offset+n); err != nil {
			return 0, err
		}
		crc = crc32.Update(crc, crc32.IEEETable, part)
		n += int64(len(part))
	}
	return crc, nil
}

// finish writes what lies around the parts, and makes files durable.
func (b *building) finish() error {
	for i := range b.files {
		if err := b.at("rest"); err != nil {
			return err
		}
		if rest := b.files[i].Rest; rest != nil {
			for _, x := range rest(b.sums[i]) {
				if _, err := b.open[i].WriteAt(x.Data, x.Offset); err != nil {
					return err
				}
			}
		}
		f := b.open[i]
		err := errors.Join(f.Truncate(b.files[i].Size), f.Sync())
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	b.open = nil
	return nil
}

// abort removes what has no name yet.
func (b *building) abort() error {
	var errs []error
	for _, f := range b.open {
		_ = f.Close() // it goes away
	}
	for i := range b.files {
		errs = append(errs, OS.RemoveAll(b.files[i].Path+partial))
	}
	return errors.Join(append(errs, b.j.Drop())...)
}

// buffers are those of parts, which are used again.
var buffers sync.Pool

// PartsOf are the parts of a tensor that lies whole at offset: boxes whose bytes follow one another.
func PartsOf(src Source, t Info, offset int64) ([]Part, error) {
	total, err := ByteSize(t.DType, t.Shape)
	if err != nil || total == 0 {
		return nil, err
	}
	var out []Part
	add := func(box [][2]int, n int64) {
		out = append(out, Part{Name: t.Name, Offset: offset, Bytes: n, Fill: func(put func([]byte) error) error {
			buf, _ := buffers.Get().(*[]byte)
			if buf == nil || int64(cap(*buf)) < n {
				buf = new([]byte)
				*buf = make([]byte, n)
			}
			defer buffers.Put(buf)
			if err := src.ReadRanges(t.Name, box, (*buf)[:n]); err != nil {
				return err
			}
			return put((*buf)[:n])
		}})
		offset += n
	}
	var cut func(box [][2]int, axis int, n int64)
	cut = func(box [][2]int, axis int, n int64) {
		if axis == len(t.Shape) || n <= partBytes || t.DType.Bits()%8 != 0 {
			add(slices.Clone(box), n)
			return
		}
		each := n / int64(t.Shape[axis])
		step := int(max(1, partBytes/each))
		for at := 0; at < t.Shape[axis]; at += step {
			box[axis] = [2]int{at, min(at+step, t.Shape[axis])}
			next := len(t.Shape)
			if step == 1 {
				next = axis + 1
			}
			cut(box, next, each*int64(box[axis][1]-at))
		}
		box[axis] = [2]int{0, t.Shape[axis]}
	}
	cut(Whole(t.Shape), 0, total)
	return out, nil
}
