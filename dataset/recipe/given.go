package recipe

import (
	"bytes"
	"encoding/gob"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/lfactor/lfactor/dataset/curate"
)

// given is what a block of a later stage is made of: a block of documents that a step with state has signed,
// and which of them it found to be copies. It is whole in itself, so that any host can make of it what it becomes.
type given struct {
	Path string // of the block, for people
	Docs []byte // as it has them
	Gone []gone // in the order of the documents
}

// gone is a document of which units are copies.
type gone struct {
	Doc   uint32
	Units []uint32
	Of    Original // of the first of them
}

// given reads what the block of a unit is that a stage has signed.
func (f *flow) given(at, u int) (*given, error) {
	b, err := openBlock(f.blockPath(at, u))
	if err != nil {
		return nil, err
	}
	defer b.close()
	if err := b.verify(); err != nil {
		return nil, err
	}
	g := &given{Path: b.path}
	if g.Docs, err = b.section(0); err != nil {
		return nil, err
	}
	list, err := f.hits[at].of(u)
	if err != nil {
		return nil, err
	}
	for _, h := range list {
		if n := len(g.Gone); n > 0 && g.Gone[n-1].Doc == h.doc {
			g.Gone[n-1].Units = append(g.Gone[n-1].Units, h.unit)
			continue
		}
		original, err := f.original(at, h.of)
		if err != nil {
			return nil, err
		}
		g.Gone = append(g.Gone, gone{h.doc, []uint32{h.unit}, *original})
	}
	return g, nil
}

// along is what goes along to the host that makes the block of a unit: nothing where its documents come from an input.
func (f *flow) along(at, u int) ([]byte, error) {
	p := f.units[at][u]
	from := f.stages[at].paths[p.path].from
	if from.input {
		return nil, nil
	}
	g, err := f.given(f.stageOf(from.at), p.block)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = gob.NewEncoder(&b).Encode(g)
	return b.Bytes(), err
}

// fromGiven takes the documents that a step with state has signed, without the copies, through the steps.
// with is what came along, nil where the block lies here.
func (m *making) fromGiven(u int, with []byte) (err error) {
	g := &given{}
	if with == nil {
		g, err = m.given(m.stageOf(m.from.at), u)
	} else {
		err = gob.NewDecoder(bytes.NewReader(with)).Decode(g)
	}
	if err != nil {
		return err
	}
	docs, err := expand(g.Path, g.Docs)
	if err != nil {
		return err
	}
	s := &m.Steps[m.from.at]
	local, left := uint32(0), g.Gone
	return m.decode(docs, func(d *curate.Doc, input int) error {
		local++
		if len(left) > 0 && left[0].Doc == local-1 {
			g := left[0]
			if left = left[1:]; !m.drop(s, d, g) {
				return nil
			}
		}
		m.steps(d, input)
		return m.broken(d)
	})
}

// drop takes the copies out of a document, and reports whether it stays.
func (m *making) drop(s *Step, d *curate.Doc, g gone) bool {
	head, text := headOf(d.Text), d.Text
	reason := s.state().Drop(d, g.Units)
	if reason == "" && d.Derived && d.Text != text {
		reason = unwritable
	}
	if m.counts(0) {
		line := dropOf(d, s.Name, reason)
		line.Head, line.Of = head, &g.Of
		if reason == "" {
			line.Reason, line.Units = "changed", len(g.Units)
		} else {
			m.block.counts(s.Name).drop(reason)
		}
		m.block.drop(line)
	}
	return reason == ""
}

// expand reads a section that is compressed, of the block of a path.
func expand(path string, raw []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(sectionMax))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	out, err := z.DecodeAll(raw, nil)
	if err != nil {
		return nil, fmt.Errorf("block %s: %w; remove it and start the recipe again", path, err)
	}
	return out, nil
}
