package mcap

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// magic begins and ends a file.
var magic = []byte("\x89MCAP0\r\n")

// The records that are read.
const (
	opHeader   = 0x01
	opFooter   = 0x02
	opSchema   = 0x03
	opChannel  = 0x04
	opMessage  = 0x05
	opChunk    = 0x06
	opMetadata = 0x0c
	opDataEnd  = 0x0f
)

// recordMost bounds a record and the records of a chunk, in bytes.
const recordMost = 1 << 30

// Topic is what channels of one name and one definition of messages carry.
type Topic struct {
	Name  string
	Type  string // of its messages, as sensor_msgs/msg/JointState
	Why   string // its messages cannot be decoded; "" where they can
	shape *message
	Times []int64 // of its messages, in nanoseconds, in order
	at    []place
}

// place is where a message lies: in a chunk, -1 for the file itself, from so many bytes on.
type place struct {
	chunk, from, n int64
}

// chunk is where compressed records lie.
type chunk struct {
	from, n, size int64 // in the file; bytes when they are expanded
	crc           uint32
	how           string
}

// File is an open file. It is not safe for concurrent use.
type File struct {
	f      io.ReaderAt
	size   int64
	topics map[uint16]*Topic   // by channels
	told   map[[32]byte]*Topic // by sums of their names, of how messages are written, and of their definitions
	shapes map[uint16]schema
	chunks []chunk
	held   *Cache
}

// schema is a definition of messages.
type schema struct {
	name, encoding string
	text           string
}

// Open reads which topics and messages a file of size bytes has. It reads all of it once. Chunks that are
// read later are held by a cache, which files may share.
func Open(f io.ReaderAt, size int64, held *Cache) (*File, error) {
	x := &File{f: f, size: size, topics: map[uint16]*Topic{}, told: map[[32]byte]*Topic{},
		shapes: map[uint16]schema{}, held: held}
	var begin [8]byte
	if size < int64(2*len(magic)) {
		return nil, errors.New("it is too short for a file of MCAP")
	}
	if _, err := f.ReadAt(begin[:], 0); err != nil {
		return nil, err
	}
	if !bytes.Equal(begin[:], magic) {
		return nil, errors.New("it does not begin as files of MCAP do")
	}
	if err := x.scan(); err != nil {
		return nil, err
	}
	for _, t := range x.topics {
		t.order()
	}
	return x, nil
}

// Topics are the file's that have messages, in order of their channels: channels of one name whose messages
// have one definition are one topic.
func (x *File) Topics() (out []*Topic) {
	listed := map[*Topic]bool{}
	for _, id := range slices.Sorted(maps.Keys(x.topics)) {
		if t := x.topics[id]; len(t.Times) > 0 && !listed[t] {
			listed[t], out = true, append(out, t)
		}
	}
	return out
}

// scan reads the records of the file one after the other, to the end of its data.
func (x *File) scan() error {
	for at := int64(len(magic)); ; {
		var head [9]byte
		if at+int64(len(head)) > x.size {
			return fmt.Errorf("it ends at byte %d, before its data does: whoever wrote it was cut off", x.size)
		}
		if _, err := x.f.ReadAt(head[:], at); err != nil {
			return err
		}
		op, n := head[0], binary.LittleEndian.Uint64(head[1:])
		from := at + int64(len(head))
		if n > recordMost || from+int64(n) > x.size {
			return fmt.Errorf("the record at byte %d has %d bytes, and the file %d", at, n, x.size)
		}
		at = from + int64(n)
		if op == opDataEnd || op == opFooter {
			return nil
		}
		if op != opHeader && op != opSchema && op != opChannel && op != opMessage && op != opChunk {
			continue
		}
		b := make([]byte, n)
		if _, err := x.f.ReadAt(b, from); err != nil {
			return err
		}
		var err error
		if op == opChunk {
			err = x.chunk(b, from)
		} else {
			err = x.record(op, b, -1, from)
		}
		if err != nil {
			return fmt.Errorf("the record at byte %d: %w", from-int64(len(head)), err)
		}
	}
}

// chunk reads a chunk, whose payload lies at from in the file.
func (x *File) chunk(b []byte, from int64) error {
	r := &reader{b: b}
	r.skip(16) // its first and its last time
	c := chunk{size: int64(r.u64()), crc: r.u32(), how: r.text()}
	n := r.u64()
	if r.err != nil || n != uint64(len(r.b)) {
		return errors.Join(fmt.Errorf("a chunk of %d bytes has %d", n, len(r.b)), r.err)
	}
	c.n, c.from = int64(n), from+int64(len(b))-int64(n)
	number := int64(len(x.chunks))
	x.chunks = append(x.chunks, c)
	raw, err := c.expand(r.b)
	if err != nil {
		return err
	}
	for at := int64(0); at < int64(len(raw)); {
		if at+9 > int64(len(raw)) {
			return errors.New("a chunk ends within a record")
		}
		op, n := raw[at], binary.LittleEndian.Uint64(raw[at+1:])
		at += 9
		if n > uint64(int64(len(raw))-at) {
			return fmt.Errorf("a record of %d bytes in a chunk that has %d more", n, int64(len(raw))-at)
		}
		if err := x.record(op, raw[at:at+int64(n)], number, at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// expand makes the records of a chunk of its bytes.
func (c *chunk) expand(b []byte) ([]byte, error) {
	if c.size > recordMost {
		return nil, fmt.Errorf("a chunk of %d bytes, and %d are read at most", c.size, recordMost)
	}
	var in io.Reader = bytes.NewReader(b)
	switch c.how {
	case "":
	case "lz4":
		in = lz4.NewReader(in)
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(recordMost))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		in = z
	default:
		return nil, fmt.Errorf("a chunk is compressed by %.20q, and lz4 and zstd are read", c.how)
	}
	var out bytes.Buffer // grows with what there is, whatever the chunk says
	if _, err := io.Copy(&out, io.LimitReader(in, c.size+1)); err != nil {
		return nil, fmt.Errorf("a chunk compressed by %s: %w", c.how, err)
	}
	if int64(out.Len()) != c.size {
		return nil, fmt.Errorf("a chunk has %d bytes, and says %d", out.Len(), c.size)
	}
	if c.crc != 0 && crc32.ChecksumIEEE(out.Bytes()) != c.crc {
		return nil, errors.New("the sum of a chunk is another: it is damaged")
	}
	return out.Bytes(), nil
}

// record reads a record that lies at from in a chunk, or in the file where that is -1.
func (x *File) record(op byte, b []byte, in, from int64) error {
	r := &reader{b: b}
	switch op {
	case opSchema:
		id := r.u16()
		s := schema{name: r.text(), encoding: r.text()}
		if s.text = string(r.bytes(uint64(r.u32()))); r.err == nil && id != 0 {
			x.shapes[id] = s
		}
	case opChannel:
		id, of := r.u16(), r.u16()
		name, encoding := r.text(), r.text()
		if r.err != nil || x.topics[id] != nil {
			break // channels may be told again
		}
		x.topics[id] = x.topic(name, encoding, of)
	case opMessage:
		id := r.u16()
		r.u32() // its number
		time := r.u64()
		r.u64() // when it was published
		t := x.topics[id]
		if r.err == nil && t == nil {
			return fmt.Errorf("a message of channel %d, which there is not", id)
		}
		if r.err == nil && time > 1<<62 {
			return fmt.Errorf("a message of %s at time %d", t.Name, time)
		}
		if r.err == nil {
			t.Times = append(t.Times, int64(time))
			t.at = append(t.at, place{in, from + int64(len(b)-len(r.b)), int64(len(r.b))})
		}
	}
	return r.err
}

// topic is that of a channel: one that another channel has begun already, or a new one.
func (x *File) topic(name, encoding string, of uint16) *Topic {
	t := &Topic{Name: name}
	s, ok := x.shapes[of]
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %t", name, encoding, s.name, s.encoding, s.text, ok))
	if other := x.told[sum]; other != nil {
		return other
	}
	x.told[sum] = t
	if t.Why = "nothing says what its messages are"; ok {
		t.Type, t.Why = s.name, ""
		t.read(s, encoding)
	}
	return t
}

// read finds out how a topic's messages are decoded.
func (t *Topic) read(s schema, encoding string) {
	if encoding != "cdr" || s.encoding != "ros2msg" {
		t.Why = fmt.Sprintf("its messages are in %.20q by %.20q, and cdr by ros2msg is read", encoding, s.encoding)
		return
	}
	var err error
	if t.shape, err = parse(s.name, s.text); err != nil {
		t.Why = err.Error()
	}
}

// bytes are those of message n of a topic.
func (x *File) bytes(t *Topic, n int) ([]byte, error) {
	p := t.at[n]
	if p.chunk < 0 {
		b := make([]byte, p.n)
		_, err := x.f.ReadAt(b, p.from)
		return b, err
	}
	if raw := x.held.get(x, p.chunk); raw != nil {
		return raw[p.from : p.from+p.n], nil
	}
	c := x.chunks[p.chunk]
	b := make([]byte, c.n)
	if _, err := x.f.ReadAt(b, c.from); err != nil {
		return nil, err
	}
	raw, err := c.expand(b)
	if err != nil {
		return nil, err
	}
	x.held.put(x, p.chunk, raw)
	return raw[p.from : p.from+p.n], nil
}

// Message decodes message n of a topic.
func (x *File) Message(t *Topic, n int) (*Message, error) {
	if t.shape == nil {
		return nil, errors.New(t.Why)
	}
	b, err := x.bytes(t, n)
	if err != nil {
		return nil, err
	}
	m, err := t.shape.decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: message %d: %w", t.Name, n, err)
	}
	return m, nil
}
