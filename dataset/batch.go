package dataset

import (
	"encoding/binary"
	"hash"
	"hash/crc32"
	"slices"

	"github.com/lfactor/lfactor/dataset/pack"
)

// IgnoreLabel marks a place whose prediction does not count.
const IgnoreLabel = -100

// Batch is one microbatch: Rows sequences of SeqLen tokens, each cut into segments. A segment is one
// document, or a window of several that attend to each other; no token attends outside its segment.
type Batch struct {
	Rows, SeqLen int
	Tokens       []int32  // [Rows · SeqLen]
	Labels       []int32  // [Rows · SeqLen]; the token to predict, or IgnoreLabel
	Positions    []int32  // [Rows · SeqLen]; from 0 in each segment
	CuSeqlens    []int32  // where segments begin in the rows laid end to end, and Rows · SeqLen at the end
	SampleIDs    []int64  // of each segment, its sample's place in the global order; -1 for padding
	Media        []Media  // of all segments, in order; Spans are places in Tokens
	LossTokens   int      // labels that are not IgnoreLabel
	Origins      []Origin // where the samples come from, in the order of their ids' first segment
}

// Origin says that a sample holds tokens of a document.
type Origin struct {
	Sample   int64  `json:"sample"`
	Source   int    `json:"source"` // index of the source
	Pass     int64  `json:"pass"`
	Document int64  `json:"document"`      // number in the source
	Key      string `json:"key,omitempty"` // of a sample of several files
	Place
}

// Samples returns the places in the global order that the batch covers, each once, in the order of its segments.
func (b *Batch) Samples() []int64 {
	var out []int64
	for _, id := range b.SampleIDs {
		if id >= 0 && !slices.Contains(out[max(0, len(out)-1):], id) {
			out = append(out, id)
		}
	}
	return out
}

// Hash adds what the batch teaches to a hash: where its samples lie, tokens, labels, borders, and of media the length
// and a checksum of their files.
func (b *Batch) Hash(h hash.Hash) {
	var buf []byte
	for _, id := range b.SampleIDs {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(id))
	}
	for _, list := range [][]int32{b.CuSeqlens, b.Tokens, b.Labels} {
		for _, v := range list {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(v))
		}
	}
	for i := range b.Media {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(b.Media[i].Bytes)))
		buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(b.Media[i].Bytes, castagnoli))
	}
	h.Write(buf) //nolint:errcheck // a hash takes everything
}

// Share returns which of a step's microbatches a data-parallel rank of size takes: m with m mod size = rank,
// as in Megatron-LM, so that a rank's k-th is the step's microbatch k·size + rank. Losses and gradients are
// to be summed in the order of the microbatches, which is the same for every size.
func Share(batches []Batch, rank, size int) []Batch {
	var out []Batch
	for m := rank; m < len(batches); m += size {
		out = append(out, batches[m])
	}
	return out
}

// Costs returns the work of each of a step's microbatches: the sum over their segments, padding left out.
func Costs(batches []Batch, c pack.Cost) []float64 {
	out := make([]float64, len(batches))
	for m, b := range batches {
		for i, id := range b.SampleIDs {
			if id >= 0 {
				out[m] += c.Of(int(b.CuSeqlens[i+1] - b.CuSeqlens[i]))
			}
		}
	}
	return out
}

// ShareEvenly returns the microbatches of each of size data-parallel ranks, as Share does, but so that all
// ranks have the same work. Every rank has as many as Share gives it, in ascending order, and as few as
// possible change hands: a step's samples stay those of the step.
func ShareEvenly(batches []Batch, size int, c pack.Cost) [][]Batch {
	loads := make([]pack.Load, len(batches))
	for m, cost := range Costs(batches, c) {
		loads[m] = pack.Load{Cost: cost, Bytes: 1, Home: m % size}
	}
	out := make([][]Batch, size)
	for m, rank := range pack.Assign(loads, size, true).Rank {
		out[rank] = append(out[rank], batches[m])
	}
	return out
}

// VisionCosts returns the work of a vision tower on each of a step's microbatches: the sum over images and
// videos of the square of their features, which go as the square of their patches.
func VisionCosts(batches []Batch) []float64 {
	out := make([]float64, len(batches))
	for m, b := range batches {
		for i := range b.Media {
			features := 0.0
			for _, s := range b.Media[i].Spans {
				features += float64(s.To - s.From)
			}
			out[m] += features * features
		}
	}
	return out
}

// tokensCap is the most tokens of a rank over the mean that ShareBoth allows.
const tokensCap = 1.05

// ShareBoth is ShareEvenly by two costs at once, that of the decoder and that of the vision tower:
// neither makes up for the other where each is a stage of its own. Batches without images are shared out by the one.
func ShareBoth(batches []Batch, size int, c pack.Cost) [][]Batch {
	vision, language := VisionCosts(batches), Costs(batches, c)
	if !slices.ContainsFunc(vision, func(v float64) bool { return v > 0 }) {
		return ShareEvenly(batches, size, c)
	}
	pairs := make([]pack.Pair, len(batches))
	for m, b := range batches {
		pairs[m] = pack.Pair{Vision: vision[m], Language: language[m], Tokens: len(b.Tokens), Bytes: 1, Home: m % size}
	}
	out := make([][]Batch, size)
	for m, rank := range pack.AssignPairs(pairs, size, tokensCap, true).Rank {
		out[rank] = append(out[rank], batches[m])
	}
	return out
}

// segment is a stretch of one row that belongs to one sample.
type segment struct {
	sample int64
	tokens []int32
	labels []int32 // as long as tokens
	media  []Media
}

// row is what fills SeqLen tokens of a batch.
type row struct {
	segments []segment
	origins  []Origin
}

// newBatch lays rows out, each filled up with pad, a segment of its own.
func newBatch(rows []row, seqLen int, pad int32) Batch {
	n := len(rows) * seqLen
	b := Batch{Rows: len(rows), SeqLen: seqLen, Tokens: make([]int32, n), Labels: make([]int32, n),
		Positions: make([]int32, n)}
	for i, r := range rows {
		at := i * seqLen
		for _, s := range r.segments {
			at = b.put(at, s)
		}
		if end := (i + 1) * seqLen; at < end {
			b.put(at, padding(end-at, pad))
		}
		b.Origins = append(b.Origins, r.origins...)
	}
	b.CuSeqlens = append(b.CuSeqlens, int32(n))
	return b
}

// padding is a segment of n pad tokens that belong to no sample and whose labels are ignored by the loss.
func padding(n int, pad int32) segment {
	return segment{sample: -1, tokens: slices.Repeat([]int32{pad}, n), labels: slices.Repeat([]int32{IgnoreLabel}, n)}
}

// put writes a segment at place at and returns the place behind it.
func (b *Batch) put(at int, s segment) int {
	b.CuSeqlens = append(b.CuSeqlens, int32(at))
	b.SampleIDs = append(b.SampleIDs, s.sample)
	copy(b.Tokens[at:], s.tokens)
	copy(b.Labels[at:], s.labels)
	for _, m := range s.media {
		b.Media = append(b.Media, m.moved(int32(at)))
	}
	for i, l := range s.labels {
		b.Positions[at+i] = int32(i)
		if l != IgnoreLabel {
			b.LossTokens++
		}
	}
	return at + len(s.tokens)
}
