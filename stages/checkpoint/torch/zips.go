package torch

import (
	"archive/zip"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// alignment is that of storages in a file, so that they can be mapped into memory.
const alignment = 64

// archives are files of torch.save, one behind the other in one file, whose tensors have their places
// before they are read.
type archives struct {
	path  string
	src   checkpoint.Source
	size  int64
	list  []archived
	parts []checkpoint.Part
}

// archived is one of them.
type archived struct {
	at      int64
	root    string
	pickle  []byte
	tensors []checkpoint.Info
	parts   []int // of each tensor
}

// add puts one with a pickle and the tensors that lie beside it, in order, behind the others.
func (f *archives) add(root string, pickle []byte, tensors []checkpoint.Info) error {
	a := archived{at: f.size, root: root, pickle: pickle, tensors: tensors}
	places := make([]int64, len(tensors))
	h, err := a.write(make([]uint32, len(tensors)), places)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	f.size = h.at
	for i, t := range tensors {
		parts, err := checkpoint.PartsOf(f.src, t, places[i])
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		a.parts = append(a.parts, len(parts))
		f.parts = append(f.parts, parts...)
	}
	f.list = append(f.list, a)
	return nil
}

// planned is the file.
func (f *archives) planned() checkpoint.Planned {
	return checkpoint.Planned{Path: f.path, Size: f.size, Parts: f.parts,
		Rest: func(sums []uint32) (rest []checkpoint.Fixed) {
			next := 0
			for _, a := range f.list {
				all := make([]uint32, len(a.tensors))
				for i, n := range a.parts {
					for _, p := range f.parts[next : next+n] {
						all[i] = joinSums(all[i], sums[next], p.Bytes)
						next++
					}
				}
				h, err := a.write(all, make([]int64, len(a.tensors)))
				if err != nil {
					panic(fmt.Sprintf("torch: an archive was written before, and now: %v", err))
				}
				rest = append(rest, h.fixed...)
			}
			return rest
		}}
}

// holes takes what is written, and where, but for holes.
type holes struct {
	at    int64
	fixed []checkpoint.Fixed
	hole  bool
}

// Write implements io.Writer.
func (h *holes) Write(b []byte) (int, error) {
	if !h.hole {
		h.fixed = append(h.fixed, checkpoint.Fixed{Offset: h.at, Data: append([]byte(nil), b...)})
	}
	h.at += int64(len(b))
	return len(b), nil
}

// nothing is what holes are written with.
var nothing [1 << 20]byte

// write writes an archive whose tensors are holes with these sums, and gives their places.
func (a *archived) write(sums []uint32, places []int64) (*holes, error) {
	h := &holes{at: a.at}
	z := zip.NewWriter(h)
	entry := func(name string, sum uint32, size int64) (io.Writer, error) {
		if err := z.Flush(); err != nil {
			return nil, err
		}
		name = a.root + "/" + name
		pad := (alignment - (h.at-a.at+30+int64(len(name))+4)%alignment) % alignment
		extra := append([]byte{'F', 'B', byte(pad), 0}, make([]byte, pad)...)
		w, err := z.CreateRaw(&zip.FileHeader{Name: name, Method: zip.Store, Extra: extra, CRC32: sum, Flags: 8,
			CompressedSize64: uint64(size), UncompressedSize64: uint64(size)})
		if err == nil {
			err = z.Flush()
		}
		return w, err
	}
	text := func(name, data string) error {
		e, err := entry(name, crc32.ChecksumIEEE([]byte(data)), int64(len(data)))
		if err == nil {
			_, err = io.WriteString(e, data)
		}
		return err
	}
	for _, x := range [][2]string{{"data.pkl", string(a.pickle)}, {".format_version", "1"}, {"byteorder", "little"}} {
		if err := text(x[0], x[1]); err != nil {
			return nil, err
		}
	}
	for i, t := range a.tensors {
		e, err := entry(fmt.Sprintf("data/%d", i), sums[i], t.Bytes)
		if err != nil {
			return nil, err
		}
		places[i], h.hole = h.at, true
		for left := t.Bytes; left > 0 && err == nil; left -= min(left, int64(len(nothing))) {
			_, err = e.Write(nothing[:min(left, int64(len(nothing)))])
		}
		if err == nil {
			err = z.Flush()
		}
		if h.hole = false; err != nil {
			return nil, err
		}
	}
	if err := text("version", "3\n"); err != nil {
		return nil, err
	}
	return h, z.Close()
}

// joinSums is the CRC-32 of bytes with one and of n bytes with another behind them: the first goes through
// n bytes of zeros, by squaring the step of one bit (as zlib's crc32_combine does).
func joinSums(first, second uint32, n int64) uint32 {
	var even, odd [32]uint32
	odd[0] = crc32.IEEE
	for i := 1; i < 32; i++ {
		odd[i] = 1 << (i - 1)
	}
	square := func(dst, src *[32]uint32) {
		for i := range dst {
			dst[i] = times(src, src[i])
		}
	}
	square(&even, &odd) // two bits
	square(&odd, &even) // four
	for now, next := &even, &odd; n > 0; n >>= 1 {
		square(now, next)
		if n&1 > 0 {
			first = times(now, first)
		}
		now, next = next, now
	}
	return first ^ second
}

// times is a vector of bits times a matrix of them.
func times(m *[32]uint32, v uint32) (sum uint32) {
	for i := 0; v > 0; i, v = i+1, v>>1 {
		if v&1 > 0 {
			sum ^= m[i]
		}
	}
	return sum
}
