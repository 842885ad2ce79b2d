package dataset

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func pretrain(sources ...Weighted) LoaderConfig {
	return LoaderConfig{Sources: sources, Mode: ModePretrain, SeqLen: 16, EOD: 0, Seed: 3, MicroBatch: 2,
		GlobalBatch: 4, Shuffle: 8}
}

func sft(sources ...Weighted) LoaderConfig {
	return LoaderConfig{Sources: sources, Mode: ModeSFT, SeqLen: 32, EOD: -1, Pad: -7, Seed: 3,
		MicroBatch: 2, GlobalBatch: 4, Window: 16, Chat: &chatEncoder{}}
}

func open(t testing.TB, cfg LoaderConfig) *Loader {
	t.Helper()
	l, err := OpenLoader(cfg, &byteEncoder{})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// steps takes n steps from the loader's position on.
func steps(t testing.TB, l *Loader, n int) [][]Batch {
	t.Helper()
	var out [][]Batch
	for range n {
		b, err := l.Step(l.Position().Step)
		require.NoError(t, err)
		out = append(out, b)
	}
	return out
}

// stream is a source's documents as they come, for some passes, each ended by 0.
func stream(m *memory, passes int) []int32 {
	var out []int32
	for range passes {
		for i := range m.Len() {
			if m.bad[i] == "" {
				out = append(out, (&byteEncoder{}).Encode(m.docs[i].Text, false)...)
				out = append(out, 0)
			}
		}
	}
	return out
}

// Without shuffling, windows are cut from the joined documents one after the other; labels are the next tokens.
func TestPretrainWindows(t *testing.T) {
	src := longSource("s", 50)
	cfg := pretrain(Weighted{src, 1})
	cfg.Sequential = true
	want := stream(src, 3)
	at, sample := 0, int64(0)
	for _, step := range steps(t, open(t, cfg), 30) {
		require.Len(t, step, 2)
		for _, b := range step {
			require.Equal(t, slices.Concat(want[at:at+16], want[at+16:at+32]), b.Tokens)
			require.Equal(t, slices.Concat(want[at+1:at+17], want[at+17:at+33]), b.Labels)
			require.Equal(t, []int32{0, 16, 32}, b.CuSeqlens)
			require.Equal(t, []int64{sample, sample + 1}, b.SampleIDs)
			require.Equal(t, 32, b.LossTokens)
			require.Equal(t, int32(15), b.Positions[31])
			at, sample = at+32, sample+2
		}
	}
}

// A block's windows come in another order, but they are the block's windows, and ids count up.
func TestPretrainShuffle(t *testing.T) {
	src := longSource("s", 50)
	cfg := pretrain(Weighted{src, 1})
	rows := func(shuffle int) (out [][]int32, ids []int64) {
		cfg.Shuffle = shuffle
		for _, step := range steps(t, open(t, cfg), 8) {
			for _, b := range step {
				out = append(out, b.Tokens[:16], b.Tokens[16:])
				ids = append(ids, b.SampleIDs...)
			}
		}
		return out, ids
	}
	plain, ids := rows(1)
	mixed, mixedIDs := rows(8)
	require.Equal(t, ids, mixedIDs)
	require.NotEqual(t, plain, mixed)
	for i := 0; i < len(plain); i += 8 {
		require.ElementsMatch(t, plain[i:i+8], mixed[i:i+8], "block at %d", i)
	}
}

// With Separate, documents are segments of their own, and no label reaches into the next.
func TestPretrainSeparate(t *testing.T) {
	src := longSource("s", 50)
	cfg := pretrain(Weighted{src, 1})
	cfg.Separate, cfg.MaskEOD = true, true
	for _, step := range steps(t, open(t, cfg), 20) {
		for _, b := range step {
			loss := 0
			for i, tok := range b.Tokens {
				if tok == 0 || i%16 < 15 && b.Tokens[i] == 0 {
					require.Equal(t, int32(IgnoreLabel), b.Labels[i],
						"the end of a document predicts nothing")
				}
				if b.Labels[i] != IgnoreLabel {
					loss++
				}
				if i > 0 && b.Tokens[i-1] == 0 || i%16 == 0 {
					require.Contains(t, b.CuSeqlens, int32(i))
					require.Zero(t, b.Positions[i])
				} else {
					require.Equal(t, b.Positions[i-1]+1, b.Positions[i])
				}
			}
			require.Equal(t, loss, b.LossTokens)
			require.Len(t, b.SampleIDs, len(b.CuSeqlens)-1)
		}
	}
}

// Every document of a pass is met once before any is met again, and each pass has its own order.
func TestPassesCoverEverything(t *testing.T) {
	src := textSource("s", 40)
	cfg := sft(Weighted{src, 1})
	cfg.SeqLen, cfg.Packing, cfg.Passes = 8, PackNone, 3
	l := open(t, cfg)
	var docs []int64
	for {
		step, err := l.Step(l.Position().Step)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		for _, b := range step {
			for _, o := range b.Origins {
				require.Equal(t, int64(len(docs)/40), o.Pass)
				docs = append(docs, o.Document)
			}
		}
	}
	require.Len(t, docs, 120)
	for pass := range 3 {
		seen := slices.Sorted(slices.Values(docs[40*pass : 40*pass+40]))
		require.Equal(t, seen, slices.Compact(slices.Clone(seen)), "pass %d", pass)
		require.Len(t, seen, 40)
	}
	require.NotEqual(t, docs[:40], docs[40:80])
}

// loaders are the configurations that the properties below hold for.
func loaders() map[string]func() LoaderConfig {
	return map[string]func() LoaderConfig{
		"pretrain": func() LoaderConfig { return pretrain(Weighted{longSource("s", 37), 1}) },
		"blended": func() LoaderConfig {
			return pretrain(Weighted{longSource("a", 11), 0.2}, Weighted{longSource("b", 23), 0.5},
				Weighted{longSource("c", 3), 0.3})
		},
		"separate": func() LoaderConfig {
			c := pretrain(Weighted{longSource("s", 37), 1})
			c.Separate, c.Special, c.Shuffle = true, true, 5
			return c
		},
		"concat": func() LoaderConfig {
			return pretrain(Weighted{Source: longSource("a", 11)}, Weighted{Source: longSource("b", 23)})
		},
		"bad": func() LoaderConfig {
			m := longSource("s", 37)
			m.bad = map[int64]string{1: "x", 5: "y", 20: "z"}
			c := pretrain(Weighted{m, 1})
			c.Budget.Count = 3
			return c
		},
		"cached": func() LoaderConfig {
			c := pretrain(Weighted{longSource("s", 37), 1})
			c.CacheBytes = 3000
			return c
		},
		"pieces": func() LoaderConfig { return pretrain(Weighted{sizedSource("s", 37), 1}) },
		"pieces of tokens": func() LoaderConfig {
			return pretrain(Weighted{idSource("s", 37, 90), 1}, Weighted{idSource("t", 5, 900), 2})
		},
		"sequential": func() LoaderConfig {
			c := pretrain(Weighted{sizedSource("s", 37), 1})
			c.Sequential = true
			return c
		},
		"windows of an order": func() LoaderConfig {
			c := pretrain(Weighted{sizedSource("s", 37), 1})
			c.OrderWindow = 9
			return c
		},
		"sequential chats": func() LoaderConfig {
			c := sft(Weighted{chatSource("s", 37), 1})
			c.Sequential = true
			return c
		},
		"sft": func() LoaderConfig { return sft(Weighted{chatSource("s", 37), 1}) },
		"first-fit": func() LoaderConfig {
			c := sft(Weighted{chatSource("s", 37), 1}, Weighted{chatSource("u", 9), 2})
			c.Packing = PackFirstFit
			return c
		},
		"unpacked": func() LoaderConfig {
			c := sft(Weighted{chatSource("s", 37), 1})
			c.Packing =
				PackNone
			return c
		},
	}
}

const propertySteps = 24

// The data does not depend on how many readers there are, nor on whether a step is taken twice.
func TestReadersDoNotMatter(t *testing.T) {
	for name, cfg := range loaders() {
		want := steps(t, open(t, cfg()), propertySteps)
		for _, readers := range []int{2, 5, 16} {
			c := cfg()
			c.Readers = readers
			l := open(t, c)
			for i, w := range want {
				got, err := l.Step(int64(i))
				require.NoError(t, err)
				require.Equal(t, w, got, "%s, %d readers, step %d", name, readers, i)
				if i%7 == 6 { // a step that was not committed is taken again
					again, err := l.Step(int64(i) - 3)
					require.NoError(t, err)
					require.Equal(t, want[i-3], again, "%s, %d readers, step %d again", name, readers, i-3)
					_, err = l.Step(int64(i) - 2)
					require.NoError(t, err)
					_, err = l.Step(int64(i) - 1)
					require.NoError(t, err)
					_, err = l.Step(int64(i))
					require.NoError(t, err)
				}
			}
		}
	}
}

// From any position on, another loader gives what the uninterrupted one gives; and from then on with other
// batch sizes the same rows.
func TestResume(t *testing.T) {
	for name, cfg := range loaders() {
		l := open(t, cfg())
		var want [][]Batch
		var at []Position
		for range propertySteps {
			at = append(at, l.Position())
			want = append(want, steps(t, l, 1)...)
		}
		for i, p := range at {
			c := cfg()
			c.Readers = 1 + i%3
			resumed := open(t, c)
			require.NoError(t, resumed.Seek(p))
			require.Equal(t, p, resumed.Position())
			n := min(3, propertySteps-i)
			require.Equal(t, want[i:i+n], steps(t, resumed, n), "%s from step %d", name, i)
		}
	}
}

// Rows are the same whatever the sizes of batches.
func TestBatchSizesDoNotMatter(t *testing.T) {
	for name, cfg := range loaders() {
		rows := func(micro, global, n int) (tokens []int32, samples []int64) {
			c := cfg()
			c.MicroBatch, c.GlobalBatch = micro, global
			for _, step := range steps(t, open(t, c), n) {
				for _, b := range step {
					tokens, samples = append(tokens, b.Tokens...), append(samples, b.Samples()...)
				}
			}
			return tokens, samples
		}
		wantTokens, wantSamples := rows(2, 4, 12)
		gotTokens, gotSamples := rows(3, 12, 4)
		require.Equal(t, wantTokens, gotTokens, name)
		require.Equal(t, wantSamples, gotSamples, name)
	}
}

// Readings that fail for the moment are tried again, are not quarantined, and lose nothing.
func TestTransientErrors(t *testing.T) {
	for _, readers := range []int{1, 4} {
		want := steps(t, open(t, pretrain(Weighted{longSource("s", 37), 1})), propertySteps)
		flaky := longSource("s", 37)
		flaky.flaky = 60
		cfg := pretrain(Weighted{flaky, 1})
		cfg.Readers = readers
		l := open(t, cfg)
		failures := 0
		for i := 0; i < propertySteps; {
			got, err := l.Step(int64(i))
			if err != nil {
				require.ErrorIs(t, err, errFlaky)
				require.ErrorContains(t, err, "of s (3 times)")
				failures++
				require.Less(t, failures, 1000)
				continue
			}
			require.Equal(t, want[i], got, "step %d", i)
			i++
		}
		if readers == 1 {
			require.Positive(t, failures)
		}
		require.Empty(t, l.Quarantined())
	}
}

// Bad documents are left out and listed; too many of them stop the run, at the same step wherever it resumed.
func TestBudget(t *testing.T) {
	broken := func() *memory {
		m := longSource("s", 40)
		m.bad = map[int64]string{}
		for i := int64(0); i < 40; i += 5 {
			m.bad[i] = "it is broken"
		}
		return m
	}
	cfg := pretrain(Weighted{broken(), 1})
	cfg.Budget = Budget{Count: 8}
	l := open(t, cfg)
	steps(t, l, 30)
	require.Len(t, l.Quarantined(), 8, "once each, over all passes")

	cfg = pretrain(Weighted{broken(), 1})
	cfg.Shuffle, cfg.Budget = 2, Budget{Count: 2, Fraction: 0.05}
	l = open(t, cfg)
	stop := func(l *Loader) (int64, *BudgetError) {
		for {
			if _, err := l.Step(l.Position().Step); err != nil {
				var budget *BudgetError
				require.True(t, errors.As(err, &budget), "%v", err)
				return l.Position().Step, budget
			}
		}
	}
	at, budget := stop(l)
	require.Equal(t, int64(3), budget.Bad)
	require.Equal(t, "it is broken", budget.Last.Reason)
	require.ErrorContains(t, budget, "raise the budget")
	again := open(t, cfg)
	if at > 0 {
		steps(t, again, int(at))
	}
	resumed := open(t, cfg)
	require.NoError(t, resumed.Seek(again.Position()))
	atResumed, same := stop(resumed)
	require.Equal(t, at, atResumed)
	require.Equal(t, budget, same)
}

// With KeepLast an evaluation sees every token of a pass once, whatever the sizes of batches.
func TestKeepLast(t *testing.T) {
	for _, n := range []int{3, 37} {
		src := longSource("s", n)
		for _, global := range []int{2, 6, 64} {
			cfg := pretrain(Weighted{src, 1})
			cfg.Passes, cfg.KeepLast, cfg.GlobalBatch, cfg.Sequential = 1, true, global, true
			l := open(t, cfg)
			var tokens []int32
			loss := 0
			for {
				step, err := l.Step(l.Position().Step)
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
				require.Len(t, step, global/2)
				for _, b := range step {
					loss += b.LossTokens
					for i, id := range b.SampleIDs {
						if id >= 0 {
							tokens = append(tokens, b.Tokens[b.CuSeqlens[i]:b.CuSeqlens[i+1]]...)
						}
					}
				}
			}
			want := stream(src, 1)
			require.Equal(t, want[:len(want)-1], tokens, "the last token is only predicted")
			require.Equal(t, len(tokens), loss)
		}
	}
	cfg := sft(Weighted{chatSource("s", 37), 1})
	cfg.Passes, cfg.KeepLast, cfg.GlobalBatch = 1, true, 64
	l := open(t, cfg)
	require.Len(t, samplesOf(steps(t, l, 1)[0]), 37)
	_, err := l.Step(1)
	require.Equal(t, io.EOF, err)
}

func TestStepOutOfTurn(t *testing.T) {
	l := open(t, pretrain(Weighted{longSource("s", 37), 1}))
	_, err := l.Step(5)
	require.ErrorContains(t, err, "step 5 is asked for and step 0 comes next")
	steps(t, l, 100)
	_, err = l.Step(10)
	require.ErrorContains(t, err, "seek")
	_, err = l.Step(60)
	require.NoError(t, err)
}

// A position of other data, or a damaged one, is refused.
func TestSeekRefuses(t *testing.T) {
	l := open(t, pretrain(Weighted{longSource("s", 37), 1}))
	steps(t, l, 3)
	p := l.Position()
	for name, change := range map[string]func(*LoaderConfig){
		"seed":    func(c *LoaderConfig) { c.Seed++ },
		"length":  func(c *LoaderConfig) { c.SeqLen++ },
		"shuffle": func(c *LoaderConfig) { c.Shuffle++ },
		"source":  func(c *LoaderConfig) { c.Sources = []Weighted{{longSource("s", 38), 1}} },
		"EOD":     func(c *LoaderConfig) { c.EOD = 4 },
	} {
		cfg := pretrain(Weighted{longSource("s", 37), 1})
		change(&cfg)
		var order *OrderError
		require.True(t, errors.As(open(t, cfg).Seek(p), &order), name)
	}
	for name, damage := range map[string]func(*Position){
		"document": func(p *Position) { p.Sources[0].Doc = 37 },
		"negative": func(p *Position) { p.Sources[0].Token = -1 },
		"sources":  func(p *Position) { p.Sources = nil },
		"used":     func(p *Position) { p.Used = 1 << 30 },
	} {
		q := l.Position()
		damage(&q)
		require.ErrorContains(t, l.Seek(q), "cannot be one of this data", name)
	}
	q := l.Position()
	q.Sources[0].Token = 42
	q.Used = 0
	require.NoError(t, l.Seek(q))
	_, err := l.Step(3)
	require.ErrorContains(t, err, "the data has changed")
	require.NoError(t, l.Seek(Position{}))
	require.Equal(t, int64(0), l.Position().Step)
}

func TestOpenLoaderRefuses(t *testing.T) {
	src := Weighted{longSource("s", 3), 1}
	for want, change := range map[string]func(*LoaderConfig){
		"mode":                func(c *LoaderConfig) { c.Mode = "x" },
		"packing":             func(c *LoaderConfig) { c.Packing = "x" },
		"sequence length":     func(c *LoaderConfig) { c.SeqLen = 0 },
		"not a multiple":      func(c *LoaderConfig) { c.GlobalBatch = 3 },
		"no documents":        func(c *LoaderConfig) { c.Sources = []Weighted{{textSource("e", 0), 1}} },
		"no data source":      func(c *LoaderConfig) { c.Sources = nil },
		"1 of 2 sources":      func(c *LoaderConfig) { c.Sources = []Weighted{src, {longSource("u", 2), 0}} },
		"is negative":         func(c *LoaderConfig) { c.Sources = []Weighted{{longSource("u", 2), -1}} },
		"no encoder for it":   func(c *LoaderConfig) { c.Sources = []Weighted{{chatSource("u", 2), 1}} },
		"a count is negative": func(c *LoaderConfig) { c.Passes = -1 },
	} {
		cfg := pretrain(src)
		change(&cfg)
		_, err := OpenLoader(cfg, &byteEncoder{})
		require.ErrorContains(t, err, want)
	}
	cfg := pretrain(Weighted{&memory{name: "empty", kind: KindTokens, docs: make([]Document, 5)}, 1})
	_, err := open(t, cfg).Step(0)
	require.ErrorIs(t, err, ErrNoTokens)
	silent := chatSource("silent", 5)
	for i := range silent.docs {
		silent.docs[i].Messages = silent.docs[i].Messages[:1]
	}
	_, err = open(t, sft(Weighted{silent, 1})).Step(0)
	require.ErrorIs(t, err, ErrNoTokens)
}

// A cache that holds everything encodes each document once.
func TestCache(t *testing.T) {
	enc := &byteEncoder{}
	cfg := pretrain(Weighted{longSource("s", 37), 1})
	cfg.CacheBytes = 1 << 20
	l, err := OpenLoader(cfg, enc)
	require.NoError(t, err)
	steps(t, l, 100)
	l.Close()
	require.Equal(t, int64(37), enc.calls.Load())
}

// Ranks' shares are disjoint, cover the step, and a rank's k-th microbatch is the step's number k·size + rank.
func TestShare(t *testing.T) {
	all := make([]Batch, 12)
	for i := range all {
		all[i].Rows = i
	}
	for _, size := range []int{1, 2, 3, 4} {
		for rank := range size {
			for k, b := range Share(all, rank, size) {
				require.Equal(t, k*size+rank, b.Rows)
			}
			require.Len(t, Share(all, rank, size), 12/size)
		}
	}
}

// Random walks over steps, seeks and new loaders see what the straight run sees.
func TestRandomWalk(t *testing.T) {
	for name, cfg := range loaders() {
		for seed := range uint64(4) {
			r := rand.New(rand.NewPCG(seed, 1))
			straight := steps(t, open(t, cfg()), propertySteps)
			l := open(t, cfg())
			saved := []Position{{}}
			for range 30 {
				switch r.IntN(4) {
				case 0:
					p := saved[r.IntN(len(saved))]
					if r.IntN(2) == 0 {
						l.Close()
						l = open(t, cfg())
					}
					require.NoError(t, l.Seek(p))
				case 1:
					saved = append(saved, l.Position())
				default:
					if at := l.Position().Step; at < propertySteps {
						require.Equal(t, straight[at], steps(t, l, 1)[0],
							fmt.Sprintf("%s, seed %d, step %d", name, seed, at))
					}
				}
			}
		}
	}
}

// TestBlendPasses: the passes of a blend are over when those of all its sources are: as many tokens are learnt as from
// each source by itself, whatever the weights, and a loader that goes on at any step gives the same.
func TestBlendPasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	tokens := func(cfg LoaderConfig) (sum int, steps [][]Batch, at []Position) {
		cfg.Passes, cfg.KeepLast, cfg.Shuffle, cfg.Sequential = 2, true, 8, true
		l := open(t, cfg)
		for {
			at = append(at, l.Position())
			step, err := l.Step(l.Position().Step)
			if err == io.EOF {
				return sum, steps, at[:len(at)-1]
			}
			require.NoError(t, err)
			steps = append(steps, step)
			for _, b := range step {
				sum += b.LossTokens
			}
		}
	}
	for range 10 {
		var all []Weighted
		alone := 0
		for i := range 3 {
			s := longSource(string(rune('a'+i)), 3+rng.IntN(30))
			all = append(all, Weighted{s, 0.05 + rng.Float64()})
			n, _, _ := tokens(pretrain(Weighted{s, 1}))
			alone += n
		}
		n, steps, at := tokens(pretrain(all...))
		require.Equal(t, alone, n)
		for i := range steps {
			cfg := pretrain(all...)
			cfg.Passes, cfg.KeepLast, cfg.Shuffle, cfg.Sequential = 2, true, 8, true
			l := open(t, cfg)
			require.NoError(t, l.Seek(at[i]))
			got, err := l.Step(at[i].Step)
			require.NoError(t, err)
			require.Equal(t, steps[i], got, "step %d", i)
		}
	}
}
