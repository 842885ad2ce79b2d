package dataset

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// albums is a source of samples of an image or two.
type albums struct{ letters }

func (a *albums) Kind() Kind { return KindParts }
func (a *albums) Read(i int64) (Document, error) {
	d := Document{Key: fmt.Sprint(i), Place: Place{File: "albums", Offset: i}}
	for k := range 1 + i%2 {
		d.Parts = append(d.Parts, Part{Name: fmt.Sprintf("%d.png", k),
			Bytes: []byte{byte(i), byte(i >> 8), byte(k)}})
	}
	return d, nil
}

type albumCoder struct{}

func (albumCoder) Fingerprint() string { return "albums" }
func (albumCoder) EncodeSample(d *Document) ([]Sample, error) {
	s := Sample{Tokens: []int32{1}}
	for _, p := range d.Parts {
		at := int32(len(s.Tokens))
		s.Tokens = append(s.Tokens, 2, 2, 3, int32(len(d.Key)))
		s.Media = append(s.Media, Media{Kind: Image, Key: d.Key + "." + p.Name, Bytes: p.Bytes,
			Spans: []Span{{at, at + 2}}})
	}
	return []Sample{s}, nil
}

// TestPreparedMedia: samples of which an image cannot be decoded are set aside before they are packed; what
// is taken is that of the medium, once decoded where memory holds it; batches depend neither on pools nor on
// memory, and memory is bounded.
func TestPreparedMedia(t *testing.T) {
	const each = 100
	var want [][]Origin
	for _, c := range []struct {
		workers, decoders int
		hold              int64
	}{{1, 1, 1 << 20}, {2, 3, 1 << 20}, {2, 2, 5 * each}, {1, 3, 1}} {
		var made [2][256]atomic.Int64
		prepare := func(m *Media, n int) (any, int64, error) {
			made[m.Bytes[2]][m.Bytes[0]].Add(1)
			if m.Bytes[0]%17 == 3 && m.Bytes[2] == m.Bytes[0]%2 {
				return nil, 0, errors.New("cut short")
			}
			return fmt.Sprintf("%s of %d", m.Key, n), each, nil
		}
		l, err := OpenLoader(LoaderConfig{Sources: []Weighted{{Source: &albums{letters{n: 240}}}},
			Mode: ModeSFT, SeqLen: 32, EOD: -1, MicroBatch: 1, GlobalBatch: 4, Window: 16, Seed: 4,
			Budget: Budget{Fraction: 1}, Readers: c.workers, Decoders: c.decoders, Samples: albumCoder{},
			Prepare: prepare, HoldBytes: c.hold}, nil)
		require.NoError(t, err)
		h := l.feed.fetch.decoding
		var got [][]Origin
		taken := int64(0)
		for step := range int64(8) {
			bs, err := l.Step(step)
			require.NoError(t, err)
			for b := range bs {
				got = append(got, bs[b].Origins)
				n := mediaOfSegments(&bs[b])
				for i := range bs[b].Media {
					m := &bs[b].Media[i]
					v, err := m.Take()
					require.NoError(t, err)
					require.Equal(t, fmt.Sprintf("%s of %d", m.Key, n[i]), v)
					taken++
					if c.hold > 1<<16 {
						require.EqualValues(t, 1, made[m.Bytes[2]][m.Bytes[0]].Load(),
							"a medium in memory is decoded once")
					}
				}
			}
			h.mu.Lock()
			require.GreaterOrEqual(t, h.room, int64(0))
			require.EqualValues(t, c.hold-each*int64(len(h.held)), h.room)
			h.mu.Unlock()
		}
		stages, _ := l.Stages()
		require.Equal(t, "decode", stages[2].Name)
		require.Positive(t, stages[2].Items)
		bad := l.Quarantined()
		require.NotEmpty(t, bad)
		for _, b := range bad {
			require.Contains(t, b.Reason, "cut short")
			for _, list := range got {
				for _, o := range list {
					require.NotEqual(t, b.Document, o.Document)
				}
			}
		}
		l.Close()
		require.Positive(t, taken)
		require.NoError(t, l.Seek(Position{}))
		h.clear()
		require.Equal(t, c.hold, h.room)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "%+v", c)
	}
}

// mediaOfSegments is, for each of the batch's media, how many its segment has.
func mediaOfSegments(b *Batch) []int {
	out, count := make([]int, len(b.Media)), map[int]int{}
	of := func(m *Media) int {
		s, _ := slices.BinarySearch(b.CuSeqlens, m.Spans[0].From+1)
		return s - 1
	}
	for i := range b.Media {
		if len(b.Media[i].Spans) > 0 {
			count[of(&b.Media[i])]++
		}
	}
	for i := range b.Media {
		if len(b.Media[i].Spans) > 0 {
			out[i] = count[of(&b.Media[i])]
		}
	}
	return out
}
