package mcap

import (
	"encoding/binary"
	"errors"
	"sort"
)

// errShort says that a record ends before what it has to say.
var errShort = errors.New("it ends within a value")

// reader takes values from the front of bytes; the first error stays.
type reader struct {
	b   []byte
	err error
}

func (r *reader) bytes(n uint64) []byte {
	if r.err == nil && n > uint64(len(r.b)) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) skip(n uint64) { r.bytes(n) }

func (r *reader) u16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text is a string behind its length.
func (r *reader) text() string { return string(r.bytes(uint64(r.u32()))) }

// order sorts a topic's messages by time; those of one time keep their order.
func (t *Topic) order() {
	if sort.SliceIsSorted(t.Times, func(i, j int) bool { return t.Times[i] < t.Times[j] }) {
		return
	}
	sort.Stable(byTime{t})
}

type byTime struct{ t *Topic }

func (s byTime) Len() int           { return len(s.t.Times) }
func (s byTime) Less(i, j int) bool { return s.t.Times[i] < s.t.Times[j] }
func (s byTime) Swap(i, j int) {
	s.t.Times[i], s.t.Times[j] = s.t.Times[j], s.t.Times[i]
	s.t.at[i], s.t.at[j] = s.t.at[j], s.t.at[i]
}

// At is the number of the last message at or before a time, -1 for none.
func (t *Topic) At(time int64) int {
	return sort.Search(len(t.Times), func(i int) bool { return t.Times[i] > time }) - 1
}
