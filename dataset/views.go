package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
)

// fingerprintOf hashes parts, each with its length, so that no two lists give the same text to hash.
func fingerprintOf(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		s := fmt.Sprint(p)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// concat is several sources in a row.
type concat struct {
	sources []Source
	ends    []int64 // documents up to and with each source
}

// Concat returns sources of one kind, one after the other, as one. It owns them: closing it closes them.
func Concat(sources ...Source) (Source, error) {
	if len(sources) == 1 {
		return sources[0], nil
	}
	if len(sources) == 0 {
		return nil, errors.New("no data source is given")
	}
	c := &concat{sources: sources}
	total := int64(0)
	for _, s := range sources {
		if s.Kind() != sources[0].Kind() {
			return nil, fmt.Errorf("%s holds %s and %s holds %s: they cannot be one data set",
				sources[0].Name(), sources[0].Kind(), s.Name(), s.Kind())
		}
		total += s.Len()
		c.ends = append(c.ends, total)
	}
	return c, nil
}

func (c *concat) Name() string {
	return fmt.Sprintf("%s and %d more", c.sources[0].Name(), len(c.sources)-1)
}
func (c *concat) Kind() Kind { return c.sources[0].Kind() }
func (c *concat) Len() int64 { return c.ends[len(c.ends)-1] }

// Read finds the source that has document i, by the ends of the sources, and reads it there.
func (c *concat) Read(i int64) (Document, error) {
	k := sort.Search(len(c.ends), func(k int) bool { return c.ends[k] > i })
	if k > 0 {
		i -= c.ends[k-1]
	}
	return c.sources[k].Read(i)
}

// Fingerprint depends on the sources and on their order, which decides the numbers of the documents.
func (c *concat) Fingerprint() string {
	var all []string
	for _, s := range c.sources {
		all = append(all, s.Fingerprint())
	}
	return fingerprintOf("concat", strings.Join(all, " "))
}

func (c *concat) Close() error {
	return closeAll(c.sources)
}

// part is some of the documents of a source.
type part struct {
	Source
	from, n int64
	order   *Permutation // nil: the documents as they come
	label   string
}

// Range returns the documents of a source whose place lies in [from, to) of the whole, fractions of it as Megatron-LM's
// split. The view shares the source; close the source, not the view.
func Range(s Source, from, to float64) Source {
	n := float64(s.Len())
	return Slice(s, int64(math.RoundToEven(from*n)), int64(math.RoundToEven(to*n)))
}

// Slice returns the documents from to to-1 of a source, as Range does.
func Slice(s Source, from, to int64) Source {
	return &part{Source: s, from: from, n: max(to-from, 0), label: fmt.Sprintf("documents %d to %d", from, to)}
}

// Sampled is Range over the documents in an order that depends on the seed: parts with the same seed that do
// not overlap have no document in common, and each is an even sample of the whole.
func Sampled(s Source, seed uint64, from, to float64) Source {
	p := Range(s, from, to).(*part)
	if s.Len() > 0 {
		order := NewPermutation(s.Len(), seed, 0, blockSplit, 0)
		p.order = &order
	}
	p.label = fmt.Sprintf("%s of an order of seed %d", p.label, seed)
	return p
}

func (p *part) Name() string        { return fmt.Sprintf("%s (%s)", p.Source.Name(), p.label) }
func (p *part) Len() int64          { return p.n }
func (p *part) Fingerprint() string { return fingerprintOf("part", p.Source.Fingerprint(), p.label) }
func (p *part) Close() error        { return nil }

// Read reads document i of the part, which is a run of the source or of a fixed shuffle of it.
func (p *part) Read(i int64) (Document, error) {
	i += p.from
	if p.order != nil {
		i = p.order.At(i)
	}
	return p.Source.Read(i)
}
