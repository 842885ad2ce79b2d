package dataset

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// lastPass takes all steps of one pass, and what is left over too.
func lastPass(t *testing.T, cfg LoaderConfig) (out []Batch) {
	t.Helper()
	cfg.Passes, cfg.KeepLast = 1, true
	l := open(t, cfg)
	for {
		step, err := l.Step(l.Position().Step)
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		out = append(out, step...)
	}
}

// TestPiecesCoverEverything: in a pass every token is the input of one place and the label of another; what
// is missing is what has nothing to follow or to follow on: a document's first token is not a label, and
// behind its last full row one token may be label alone. Tokens that are not neighbours in their document
// never predict each other, but across the end of one and the start of the next.
func TestPiecesCoverEverything(t *testing.T) {
	for _, sized := range []bool{true, false} {
		for _, separate := range []bool{false, true} {
			src := idSource("s", 60, 100)
			src.sized = sized
			cfg := pretrain(Weighted{src, 1})
			cfg.Separate = separate
			inputs, labels := map[int32]int{}, map[int32]int{}
			rows, whole := 0, 0
			for _, b := range lastPass(t, cfg) {
				for s, id := range b.SampleIDs {
					for i := b.CuSeqlens[s]; id >= 0 && i < b.CuSeqlens[s+1]; i++ {
						inputs[b.Tokens[i]]++
						if b.Labels[i] != IgnoreLabel {
							labels[b.Labels[i]]++
							if next := b.Tokens[i] + 1; next != b.Labels[i] {
								require.False(t, separate)
								requireEnds(t, src, b.Tokens[i], b.Labels[i])
							}
						}
					}
				}
				for r := range b.Rows {
					row := b.Tokens[r*16 : r*16+16]
					rows++
					if row[0] > 0 && row[15] == row[0]+15 && slices.IsSorted(row) {
						whole++
					}
				}
			}
			missing := 0
			for _, d := range src.docs {
				for k, id := range d.Tokens {
					require.LessOrEqual(t, inputs[id], 1)
					require.LessOrEqual(t, labels[id], 1)
					if inputs[id] == 0 {
						require.Equal(t, len(d.Tokens)-1, k, "document of %d tokens: token %d is no input",
							len(d.Tokens), k)
					}
					if inputs[id]+labels[id] == 0 {
						missing++
					}
				}
			}
			require.LessOrEqual(t, missing, 1, "the last token of all follows nothing")
			require.Greater(t, whole, rows/2, "rows of one document")
		}
	}
}

// requireEnds checks that a document ends with one token and another begins with the other.
func requireEnds(t *testing.T, src *memory, last, first int32) {
	t.Helper()
	ends := slices.ContainsFunc(src.docs, func(d Document) bool {
		return len(d.Tokens) > 0 && d.Tokens[len(d.Tokens)-1] == last
	})
	begins := slices.ContainsFunc(src.docs, func(d Document) bool {
		return len(d.Tokens) > 0 && d.Tokens[0] == first
	})
	require.True(t, ends && begins, "%d predicts %d", last, first)
}

// TestTextPieces: the pieces of a text are that text, cut between characters, and where there are lines, in
// front of them.
func TestTextPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var b strings.Builder
		for range r.IntN(3000) {
			b.WriteString([]string{"a", "é", "漢", "😀", " ", "\n", "\n\n", "\t", "xyz ", "  "}[r.IntN(10)])
		}
		text := b.String()
		u := &units{seqLen: 16, bytes: 96}
		n := u.pieces(int64(len(text) + r.IntN(2000)))
		var joined string
		ends := 0
		for k := range n {
			part, last := unit{piece: k, pieces: n, bytes: 96}.text(text)
			require.True(t, utf8.ValidString(part))
			if last {
				ends++
				require.Equal(t, text, joined+part, "nothing follows the last piece")
			}
			joined += part
		}
		require.Equal(t, text, joined)
		require.Equal(t, 1, ends)
	}
	lines := strings.Repeat("a line\n  of two\n", 100)
	u := &units{seqLen: 16, bytes: 96}
	n := u.pieces(int64(len(lines)))
	require.Equal(t, int64(17), n)
	for k := int64(1); k < n; k++ {
		require.True(t, strings.HasPrefix(lines[textCut(lines, k, n):], "a line"))
	}
	require.Equal(t, int64(piecesMax), u.pieces(1<<40))
}

// TestLongTextsAreReadOnce: the pieces of a text, far apart in the order, cost reading it once where it fits
// the memory for such texts, and that memory is bounded.
func TestLongTextsAreReadOnce(t *testing.T) {
	src := sizedSource("s", 40)
	lastPass(t, pretrain(Weighted{src, 1}))
	require.LessOrEqual(t, src.reads.Load(), int64(40+measureDocuments+12),
		"40 documents, those measured, and what two readers ask for at once")
	var l longTexts
	for i := range int64(100) {
		l.put(docKey{0, i}, Document{Text: strings.Repeat("x", 1<<20)})
		require.LessOrEqual(t, l.bytes, int64(longTextsBytes))
		require.Len(t, l.docs, len(l.order))
	}
	_, ok := l.get(docKey{0, 99})
	require.True(t, ok)
	_, ok = l.get(docKey{0, 1})
	require.False(t, ok)
	l.put(docKey{0, 200}, Document{Text: strings.Repeat("x", longTextsBytes+1)})
	_, ok = l.get(docKey{0, 200})
	require.False(t, ok)
}

// TestUnits: numbers of units and pieces of documents correspond, also behind Concat, Range and Sampled.
func TestUnits(t *testing.T) {
	a, b := idSource("a", 700, 90), idSource("b", 50, 2000)
	both, err := Concat(a, b)
	require.NoError(t, err)
	for _, s := range []Source{a, b, both, Range(both, 0.1, 0.95), Sampled(both, 3, 0.25, 1)} {
		u, err := newUnits(s, 16, nil)
		require.NoError(t, err)
		i := int64(0)
		for doc := range s.Len() {
			d, err := s.Read(doc)
			require.NoError(t, err)
			size := int64(len(d.Tokens))
			pieces := max(1, (size+14)/16)
			for k := range pieces {
				got, err := u.at(i)
				require.NoError(t, err)
				require.Equal(t, unit{doc, k, pieces, size, 0, partAll}, got, "%s unit %d", s.Name(), i)
				if pieces > 1 {
					from, to := got.tokens(16)
					part, err := readPart(s, doc, from, to)
					require.NoError(t, err)
					require.Equal(t, d.Tokens[from:to], part.Tokens)
				}
				i++
			}
		}
		require.Equal(t, u.n, i)
	}
	u, err := newUnits(longSource("s", 9), 16, nil)
	require.NoError(t, err)
	require.Equal(t, wholeDocuments(u.source), u, "sizes are not known")
}

// TestOrderIsMixed: steps' losses are as little correlated with those of the steps before as in an i.i.d.
// order, where a document's tokens all have its loss and long documents fill dozens of steps. The standard
// error of the correlation of n values is 1/√n.
func TestOrderIsMixed(t *testing.T) {
	const seqLen, batch, docs = 64, 8, 200
	text, ids := &memory{name: "text", kind: KindText, sized: true},
		&memory{name: "ids", kind: KindTokens, sized: true}
	for i := range docs {
		n := 20 + int(Draw(5, 0, int64(i), 0, 0)%300)
		if i%10 == 0 {
			n *= 60
		}
		text.docs = append(text.docs, Document{Text: strings.Repeat(string(rune('0'+i%64)), n)})
		ids.docs = append(ids.docs, Document{Tokens: slices.Repeat([]int32{int32('0' + i%64)}, n)})
	}
	const seeds = 5
	for _, src := range []*memory{text, ids} {
		sum, n := 0.0, 0
		for seed := range uint64(seeds) {
			cfg := pretrain(Weighted{src, 1})
			cfg.SeqLen, cfg.EOD, cfg.MicroBatch, cfg.GlobalBatch, cfg.Shuffle, cfg.Seed = seqLen, -1, batch,
				batch, 0, seed
			var losses []float64
			for _, b := range lastPass(t, cfg) {
				sum := 0.0
				for _, id := range b.Tokens {
					sum += float64(id)
				}
				losses = append(losses, sum/float64(len(b.Tokens)))
			}
			n = len(losses) - 1
			sum += lag1(losses[:n])
		}
		require.Less(t, math.Abs(sum/seeds), 2/math.Sqrt(float64(seeds*n)), "%s: %d times %d steps",
			src.name, seeds, n)
	}
}

// lag1 is the correlation of values with those before them.
func lag1(x []float64) float64 {
	mean, var0, cov := 0.0, 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for i, v := range x {
		var0 += (v - mean) * (v - mean)
		if i > 0 {
			cov += (v - mean) * (x[i-1] - mean)
		}
	}
	return cov / var0
}

// TestSequential: documents come in the order of their sources in every pass, and none is left out.
func TestSequential(t *testing.T) {
	cfg := sft(Weighted{chatSource("s", 37), 1})
	cfg.Sequential, cfg.Packing = true, PackNone
	var docs []int64
	for _, step := range steps(t, open(t, cfg), 20) {
		for _, b := range step {
			for _, o := range b.Origins {
				docs = append(docs, o.Document)
			}
		}
	}
	for i, d := range docs {
		require.Equal(t, int64(i%37), d)
	}
}

// TestVocabulary: whatever holds an id that the model has no row for is bad, and counts.
func TestVocabulary(t *testing.T) {
	tokens := idSource("ids", 30, 40)
	tokens.docs[4].Tokens = []int32{3, 1 << 20, 5}
	tokens.docs[7].Tokens = append(slices.Repeat([]int32{2}, 70), -1)
	long := sizedSource("s", 30)
	long.docs[3].Text += "\xff"
	chats := chatSource("c", 30)
	chats.docs[5].Messages[1].Content = "\xf0"
	for name, c := range map[string]struct {
		cfg  LoaderConfig
		bad  []int64
		what string
	}{
		"tokens": {pretrain(Weighted{tokens, 1}), []int64{4, 7}, "is id 1048576"},
		"text":   {pretrain(Weighted{long, 1}), []int64{3}, "is id 255"},
		"chat":   {sft(Weighted{chats, 1}), []int64{5}, "is id 240"},
	} {
		c.cfg.Vocab = 1000
		if name != "tokens" {
			c.cfg.Vocab, c.cfg.Pad = 240, 0
		}
		c.cfg.Budget = Budget{Count: int64(len(c.bad))}
		l := open(t, c.cfg)
		for _, step := range steps(t, l, 40) {
			for _, b := range step {
				require.Less(t, slices.Max(b.Tokens), int32(c.cfg.Vocab), name)
				require.GreaterOrEqual(t, slices.Min(b.Tokens), int32(0), name)
				for _, o := range b.Origins {
					require.NotContains(t, c.bad, o.Document, "%s: nothing of a bad document is learnt", name)
				}
			}
		}
		var got []int64
		reasons := ""
		for _, b := range l.Quarantined() {
			got, reasons = append(got, b.Document), reasons+b.Reason
		}
		slices.Sort(got)
		require.Equal(t, c.bad, got, name)
		require.EqualValues(t, len(c.bad), l.Position().Bad, "%s: each counts once", name)
		require.Contains(t, reasons, c.what)
		var linted []int64
		in, err := Inspect(t.Context(), c.cfg, &byteEncoder{}, func(b Bad) {
			linted, reasons = append(linted, b.Document), strings.ReplaceAll(reasons, b.Reason, "")
		})
		require.NoError(t, err)
		require.EqualValues(t, len(c.bad), in.Bad)
		require.Equal(t, c.bad, linted, "%s: lint finds the same", name)
		require.Empty(t, reasons, "%s: for the same reason", name)
		c.cfg.Budget = Budget{}
		l = open(t, c.cfg)
		err = nil
		for step := int64(0); err == nil && step < 40; step++ {
			_, err = l.Step(step)
		}
		var budget *BudgetError
		require.ErrorAs(t, err, &budget, name)
	}
	cfg := pretrain(Weighted{tokens, 1})
	cfg.Vocab, cfg.EOD = 10, 10
	_, err := OpenLoader(cfg, nil)
	require.ErrorContains(t, err, "the end of a document is id 10")
}
