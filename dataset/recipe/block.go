package recipe

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/lfactor/lfactor/dataset/curate"
)

// A block's file: a magic word, the length of the header, the header in JSON, and its sections one
// behind the other: documents and drops, compressed, who the documents are, and the keys by which a
// step with state finds copies, bucket by bucket. A CRC-32C of all ends it.
const (
	blockMagic = "LFBLOCK1"
	headerMax  = 1 << 24
	identity   = 12      // bytes: number of the input, number of the document in it
	sectionMax = 1 << 34 // against damaged headers
	keyTail    = 8       // behind a key: document of the block, unit
)

// header of a block.
type header struct {
	Docs   int                `json:"docs"`
	Bytes  int64              `json:"bytes"` // of texts
	Sizes  [4]int64           `json:"sizes"` // of the sections
	Keys   []int              `json:"keys,omitempty"`
	Counts map[string]*Counts `json:"counts"` // by input and step
}

// Counts is what a step, or the reading of an input, has done.
type Counts struct {
	In      int64            `json:"in"`
	Bytes   int64            `json:"bytes"` // of texts that came in
	Dropped map[string]int64 `json:"dropped,omitempty"`
	Files   int64            `json:"files,omitempty"` // of samples, beside their texts and columns
}

// drop counts a document that goes.
func (c *Counts) drop(reason string) {
	if c.Dropped == nil {
		c.Dropped = map[string]int64{}
	}
	c.Dropped[reason]++
}

// Gone is how many documents were dropped.
func (c *Counts) Gone() (n int64) {
	for _, v := range c.Dropped {
		n += v
	}
	return n
}

// add adds what another has counted.
func (c *Counts) add(o *Counts) {
	c.In += o.In
	c.Bytes += o.Bytes
	c.Files += o.Files
	for k, v := range o.Dropped {
		if c.Dropped == nil {
			c.Dropped = map[string]int64{}
		}
		c.Dropped[k] += v
	}
}

// Drop is a line of the ledger: a document that is not written, or lines of one, and why.
type Drop struct {
	Input    string    `json:"input"`
	Document int64     `json:"document"`
	File     string    `json:"file,omitempty"`
	Offset   int64     `json:"offset,omitempty"`
	Step     string    `json:"step"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"` // of what cannot be read, and what a step notes
	Head     string    `json:"head,omitempty"`   // how the text begins
	Of       *Original `json:"of,omitempty"`
	Units    int       `json:"lines,omitempty"` // removed of a document that stays
}

// Original is the document that a copy is one of.
type Original struct {
	Input    string `json:"input"`
	Document int64  `json:"document"`
}

// block is one under work.
type block struct {
	head  header
	docs  []byte // encoded
	drops []byte // JSON lines
	who   []byte
	keys  [][]byte
}

// counts returns the counts of a name.
func (b *block) counts(name string) *Counts {
	if b.head.Counts == nil {
		b.head.Counts = map[string]*Counts{}
	}
	c := b.head.Counts[name]
	if c == nil {
		c = &Counts{}
		b.head.Counts[name] = c
	}
	return c
}

// add puts a document behind the others.
func (b *block) add(d *curate.Doc, input int) {
	b.head.Docs++
	b.head.Bytes += int64(len(d.Text))
	b.docs = appendDoc(b.docs, d, input)
	b.who = binary.LittleEndian.AppendUint32(b.who, uint32(input))
	b.who = binary.LittleEndian.AppendUint64(b.who, uint64(d.Number))
}

// drop writes a line of the ledger.
func (b *block) drop(d Drop) {
	line, err := json.Marshal(d)
	if err != nil {
		panic("recipe: a drop is no JSON: " + err.Error())
	}
	b.drops = append(append(b.drops, line...), '\n')
}

// packer compresses with one set of buffers; one goroutine uses it.
type packer struct{ z *zstd.Encoder }

func newPacker() *packer {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic("recipe: zstd: " + err.Error()) // options are constants
	}
	return &packer{z}
}

// encode writes the block as its file has it.
func (b *block) encode(p *packer) ([]byte, error) {
	docs, drops := p.z.EncodeAll(b.docs, nil), p.z.EncodeAll(b.drops, nil)
	keys := 0
	b.head.Keys = nil
	for _, k := range b.keys {
		keys += len(k)
		b.head.Keys = append(b.head.Keys, len(k))
	}
	b.head.Sizes = [4]int64{int64(len(docs)), int64(len(drops)), int64(len(b.who)), int64(keys)}
	head, err := json.Marshal(b.head)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(blockMagic)+8+len(head)+len(docs)+len(drops)+len(b.who)+keys)
	out = append(out, blockMagic...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(head)))
	out = append(append(append(append(out, head...), docs...), drops...), b.who...)
	for _, k := range b.keys {
		out = append(out, k...)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli)), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// blockFile is a block on disk, whose sections are read one by one.
type blockFile struct {
	path string
	f    *os.File
	head header
	at   int64 // of the first section
}

// openBlock opens a block's file and reads its header.
func openBlock(path string) (*blockFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &blockFile{path: path, f: f}
	if err := b.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("block %s: %w; remove it and start the recipe again", path, err), f.Close())
	}
	return b, nil
}

func (b *blockFile) load() error {
	start := make([]byte, len(blockMagic)+4)
	if _, err := io.ReadFull(b.f, start); err != nil || string(start[:len(blockMagic)]) != blockMagic {
		return errors.New("it is none")
	}
	n := binary.LittleEndian.Uint32(start[len(blockMagic):])
	if n > headerMax {
		return errors.New("its header is damaged")
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(b.f, text); err != nil {
		return errors.New("it ends early")
	}
	if err := json.Unmarshal(text, &b.head); err != nil {
		return fmt.Errorf("its header is damaged: %w", err)
	}
	b.at = int64(len(start)) + int64(n)
	size := b.at + 4
	for _, s := range b.head.Sizes {
		if s < 0 || s > sectionMax {
			return errors.New("its header is damaged")
		}
		size += s
	}
	if info, err := b.f.Stat(); err != nil || info.Size() != size {
		return errors.New("it is not as long as it says")
	}
	return nil
}

// verify compares the checksum of all.
func (b *blockFile) verify() error {
	info, err := b.f.Stat()
	if err != nil {
		return err
	}
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, io.NewSectionReader(b.f, 0, info.Size()-4)); err != nil {
		return err
	}
	var sum [4]byte
	if _, err := b.f.ReadAt(sum[:], info.Size()-4); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(sum[:]) != h.Sum32() {
		return fmt.Errorf("block %s: its bytes are not those that were written; remove it and "+
			"start the recipe again", b.path)
	}
	return nil
}

// section reads one of the sections.
func (b *blockFile) section(i int) ([]byte, error) {
	at := b.at
	for _, s := range b.head.Sizes[:i] {
		at += s
	}
	out := make([]byte, b.head.Sizes[i])
	_, err := b.f.ReadAt(out, at)
	return out, err
}

// expanded reads a section that is compressed.
func (b *blockFile) expanded(i int) ([]byte, error) {
	raw, err := b.section(i)
	if err != nil {
		return nil, err
	}
	return expand(b.path, raw)
}

// keys reads the keys of a bucket.
func (b *blockFile) keys(bucket int) ([]byte, error) {
	at := b.at + b.head.Sizes[0] + b.head.Sizes[1] + b.head.Sizes[2]
	if bucket >= len(b.head.Keys) {
		return nil, nil
	}
	for _, n := range b.head.Keys[:bucket] {
		at += int64(n)
	}
	out := make([]byte, b.head.Keys[bucket])
	_, err := b.f.ReadAt(out, at)
	return out, err
}

// original says who a document of the block is.
func (b *blockFile) original(doc int) (input int, number int64, err error) {
	var v [identity]byte
	_, err = b.f.ReadAt(v[:], b.at+b.head.Sizes[0]+b.head.Sizes[1]+int64(doc)*identity)
	return int(binary.LittleEndian.Uint32(v[:])), int64(binary.LittleEndian.Uint64(v[4:])), err
}

func (b *blockFile) close() error { return b.f.Close() }

// appendDoc writes a document.
func appendDoc(out []byte, d *curate.Doc, input int) []byte {
	text := func(s string) {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	derived := uint64(0)
	if d.Derived {
		derived = 1
	}
	for _, v := range []uint64{uint64(input), uint64(d.Number), uint64(d.Place.Offset), derived} {
		out = binary.AppendUvarint(out, v)
	}
	text(d.Place.File)
	text(d.Text)
	out = binary.AppendUvarint(out, uint64(len(d.Fields)))
	for _, f := range d.Fields {
		text(f.Name)
		text(string(f.Value))
	}
	return out
}

// decodeDocs reads the documents of a block, one after the other.
func decodeDocs(b []byte, inputs []Input, each func(d *curate.Doc, input int) error) error {
	damaged := errors.New("its documents are damaged")
	num := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b = nil
			return 0
		}
		b = b[n:]
		return v
	}
	text := func() string {
		n := num()
		if n > uint64(len(b)) {
			b = nil
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	for len(b) > 0 {
		input := int(num())
		d := curate.Doc{Number: int64(num())}
		d.Place.Offset = int64(num())
		d.Derived = num() == 1
		if input >= len(inputs) {
			return damaged
		}
		d.Input = inputs[input].Name
		d.Place.File = text()
		d.Text = text()
		fields := num()
		if fields > uint64(len(b)) {
			return damaged
		}
		d.Fields = slices.Grow(d.Fields, int(fields))
		for range fields {
			f := curate.Field{Name: text()}
			f.Value = json.RawMessage(text())
			d.Fields = append(d.Fields, f)
		}
		if b == nil {
			return damaged
		}
		if err := each(&d, input); err != nil {
			return err
		}
	}
	return nil
}

// dropLines gives the ledger's lines of a block.
func dropLines(b []byte, each func(line []byte) error) error {
	for l := range bytes.Lines(b) {
		if err := each(l); err != nil {
			return err
		}
	}
	return nil
}
