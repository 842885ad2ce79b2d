package torch

import (
	"fmt"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// segment is elements of a vector that follow one another.
type segment struct {
	t         *view
	a         *archive
	at, count int64
}

func lengthOf(list []segment) (n int64) {
	for _, s := range list {
		n += s.count
	}
	return n
}

// cutSegments are the elements from one to another of segments behind each other.
func cutSegments(list []segment, from, to int64) (out []segment) {
	at := int64(0)
	for _, s := range list {
		lo, hi := max(from, at), min(to, at+s.count)
		if lo < hi {
			out = append(out, segment{s.t, s.a, s.at + lo - at, hi - lo})
		}
		at += s.count
	}
	return out
}

// flatSource are tensors whose elements lie in segments of vectors of float32.
type flatSource struct {
	z     *zero
	infos map[string]checkpoint.Info
	of    map[string][]segment
}

// put enters a parameter.
func (s *flatSource) put(z *zero, p zeroParam, list []segment, kind string) error {
	if got := lengthOf(list); got != p.count {
		return z.fault("", p.name, checkpoint.Truncated, "%d elements of %s for shape %v", got, kind, p.shape)
	}
	if s.infos[p.name].Name != "" {
		return z.fault("", p.name, checkpoint.Extra, "is there twice")
	}
	s.infos[p.name] = checkpoint.Info{Name: p.name, DType: checkpoint.F32, Shape: p.shape, Bytes: 4 * p.count}
	s.of[p.name] = list
	return nil
}

// Tensors implements checkpoint.Source.
func (s *flatSource) Tensors() []checkpoint.Info { return sortedInfos(s.infos) }

// Close implements checkpoint.Source.
func (s *flatSource) Close() error { return s.z.Close() }

// ReadRanges implements checkpoint.Source.
func (s *flatSource) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	info, ok := s.infos[name]
	if !ok {
		return &checkpoint.Error{File: s.z.dir, Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	if err := checkBox(info.DType, info.Shape, ranges, dst); err != nil {
		return fmt.Errorf("%s: tensor %s: %w", s.z.dir, name, err)
	}
	if len(dst) == 0 {
		return nil
	}
	last := len(ranges) // axes from here on are whole, and follow one another
	for last > 0 && ranges[last-1] == [2]int{0, info.Shape[last-1]} {
		last--
	}
	run := int64(1)
	for _, n := range info.Shape[last:] {
		run *= int64(n)
	}
	var walk func(axis int, at int64) error
	walk = func(axis int, at int64) error {
		if axis == last-1 || last == 0 {
			n := run
			if last > 0 {
				n *= int64(ranges[axis][1] - ranges[axis][0])
				at = (at*int64(info.Shape[axis]) + int64(ranges[axis][0])) * run
			}
			if err := s.elements(name, at, at+n, dst[:4*n]); err != nil {
				return err
			}
			dst = dst[4*n:]
			return nil
		}
		for i := ranges[axis][0]; i < ranges[axis][1]; i++ {
			if err := walk(axis+1, at*int64(info.Shape[axis])+int64(i)); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(0, 0)
}

// elements reads some in the order of the tensor.
func (s *flatSource) elements(name string, from, to int64, dst []byte) error {
	for _, x := range cutSegments(s.of[name], from, to) {
		part := dst[:4*x.count]
		if err := x.t.read(x.a.r, [][2]int{{int(x.at), int(x.at + x.count)}}, part); err != nil {
			return &checkpoint.Error{File: x.a.path, Tensor: name, Fault: checkpoint.Truncated,
				Why: "reading its elements", Err: err}
		}
		dst = dst[4*x.count:]
	}
	return nil
}
