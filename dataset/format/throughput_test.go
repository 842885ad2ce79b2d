package format

import (
	"encoding/json"
	"fmt"
	"go/build"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
	"github.com/lfactor/lfactor/dataset/token"
)

// goDocs are the Go sources of the standard library, up to n bytes.
func goDocs(t testing.TB, n int) (docs []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src/*/*.go"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src/*/*/*.go"))
	require.NoError(t, err)
	for _, name := range append(names, more...) {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		if n -= len(b); n < 0 {
			break
		}
		docs = append(docs, string(b))
	}
	require.NotEmpty(t, docs)
	return docs
}

func trained(t testing.TB, docs []string, vocab int) *token.Tokenizer {
	t.Helper()
	b, err := token.Train(token.TrainConfig{VocabSize: vocab, Special: []string{"<|end|>"}},
		slices.Values(docs))
	require.NoError(t, err)
	tok, err := token.Parse(b)
	require.NoError(t, err)
	return tok
}

func jsonlOf(t testing.TB, docs []string) string {
	t.Helper()
	var out strings.Builder
	for i, d := range docs {
		line, err := json.Marshal(map[string]any{"text": d, "meta": map[string]int{"n": i}})
		require.NoError(t, err)
		out.Write(append(line, '\n'))
	}
	path := filepath.Join(t.TempDir(), "go.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o600))
	return path
}

func loaderOf(t testing.TB, path string, tok *token.Tokenizer, readers int,
	sequential bool) *dataset.Loader {
	t.Helper()
	eod, ok := tok.TokenID("<|end|>")
	require.True(t, ok)
	l, err := dataset.OpenLoader(dataset.LoaderConfig{Sources: []dataset.Weighted{{Source: formattest.Open(t, path,
		dataset.Options{})}}, Mode: dataset.ModePretrain,
		SeqLen: 512, EOD: eod, Seed: 1, MicroBatch: 8, GlobalBatch: 32, Readers: readers,
		Sequential: sequential}, tok)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// writeIDs writes texts as ids, each with eod behind it unless it is -1.
func writeIDs(t testing.TB, src dataset.Source, tok *token.Tokenizer, prefix string, eod int32) {
	w, err := NewIndexedWriter(prefix, tok.VocabSize())
	require.NoError(t, err)
	for i := range src.Len() {
		d, err := src.Read(i)
		require.NoError(t, err)
		ids, err := dataset.Encode(tok, d.Text, false)
		require.NoError(t, err)
		if eod >= 0 {
			ids = append(ids, eod)
		}
		require.NoError(t, w.Add(ids))
		w.EndDocument()
	}
	require.NoError(t, w.Close())
}

// Texts and the ids made of them beforehand are the same windows: only the way there differs. Shuffled they
// are in different orders, since long texts are cut by bytes.
func TestTextsEqualTheirIDs(t *testing.T) {
	docs := goDocs(t, 300_000)
	tok := trained(t, docs, 600)
	path := jsonlOf(t, docs)
	prefix := filepath.Join(t.TempDir(), "ids")
	eod, _ := tok.TokenID("<|end|>")
	writeIDs(t, formattest.Open(t, path, dataset.Options{}), tok, prefix, eod)
	a, b := loaderOf(t, path, tok, 2, true), loaderOf(t, prefix, tok, 1, true)
	for step := range int64(8) {
		x, err := a.Step(step)
		require.NoError(t, err)
		y, err := b.Step(step)
		require.NoError(t, err)
		for m := range x {
			require.Equal(t, x[m].Tokens, y[m].Tokens, "step %d microbatch %d", step, m)
			require.Equal(t, x[m].SampleIDs, y[m].SampleIDs)
		}
	}
}

// BenchmarkPretrainJSONL is pretraining's data path from a JSON lines file to batches, on one core.
func BenchmarkPretrainJSONL(b *testing.B) {
	docs := goDocs(b, 4<<20)
	tok := trained(b, docs, 8192)
	l := loaderOf(b, jsonlOf(b, docs), tok, 1, false)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tokens, step := 0, int64(0)
	b.ResetTimer()
	for b.Loop() {
		batches, err := l.Step(step)
		require.NoError(b, err)
		for i := range batches {
			tokens += len(batches[i].Tokens)
		}
		step++
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds()/1e6, "Mtok/s")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/(1<<20), "MiB-heap")
}

// BenchmarkFirstBatch opens a loader and takes its first step.
func BenchmarkFirstBatch(b *testing.B) {
	docs := goDocs(b, 4<<20)
	tok := trained(b, docs, 8192)
	path := jsonlOf(b, docs)
	for b.Loop() {
		_, err := loaderOf(b, path, tok, 2, false).Step(0)
		require.NoError(b, err)
	}
}

// BenchmarkSeekFar resumes at sample 10^8 of an order of 2^40 documents, of all and of windows, up to the first batch.
func BenchmarkSeekFar(b *testing.B) {
	for _, window := range []int64{0, 100_000} {
		b.Run(fmt.Sprint("window=", window), func(b *testing.B) { seekFar(b, window) })
	}
}

func seekFar(b *testing.B, window int64) {
	tok := trained(b, goDocs(b, 1<<18), 512)
	src := &vast{n: 1 << 40}
	for b.Loop() {
		l, err := dataset.OpenLoader(dataset.LoaderConfig{Sources: []dataset.Weighted{{Source: src}},
			Mode: dataset.ModePretrain, SeqLen: 512, EOD: 0, Seed: 1, MicroBatch: 8, GlobalBatch: 32,
			OrderWindow: window, Shuffle: 64}, tok)
		require.NoError(b, err)
		p := dataset.Position{Order: l.Order(), Step: 3e6, Sample: 1e8,
			Sources: []dataset.SourcePosition{{Taken: 1e8, Doc: 3e11, Token: 5, Ahead: 1}}}
		require.NoError(b, l.Seek(p))
		_, err = l.Step(3e6)
		require.NoError(b, err)
		l.Close()
	}
}

// vast is a source of more documents than any disk holds.
type vast struct{ n int64 }

func (v *vast) Name() string        { return "vast" }
func (v *vast) Kind() dataset.Kind  { return dataset.KindText }
func (v *vast) Len() int64          { return v.n }
func (v *vast) Fingerprint() string { return fmt.Sprint("vast ", v.n) }
func (v *vast) Close() error        { return nil }
func (v *vast) Read(i int64) (dataset.Document, error) {
	return dataset.Document{Text: strings.Repeat(fmt.Sprintf("document %d ", i), 20),
		Place: dataset.Place{File: "vast", Offset: i}}, nil
}

// Conversations from a file, through template and packing, to batches: the labels are the assistant's turns.
func TestSFTEndToEnd(t *testing.T) {
	var lines, answers []string
	for i := range 40 {
		answers = append(answers, fmt.Sprintf("The answer to %d is %d.<|im_end|>\n", i, i*i))
		lines = append(lines, fmt.Sprintf(`{"messages":[{"role":"user","content":"What is %d squared?"},{"role":"assistant","content":"The answer to %d is %d."}]}`, i, i, i*i))
	}
	path := filepath.Join(t.TempDir(), "c.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	b, err := token.Train(token.TrainConfig{VocabSize: 400, Special: []string{"<|im_start|>", "<|im_end|>"}},
		slices.Values(lines))
	require.NoError(t, err)
	tok, err := token.Parse(b)
	require.NoError(t, err)
	tmpl, err := token.NewTemplate("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content "+
		"}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", nil)
	require.NoError(t, err)
	l, err := dataset.OpenLoader(dataset.LoaderConfig{Sources: []dataset.Weighted{{Source: formattest.Open(t, path,
		dataset.Options{})}}, Mode: dataset.ModeSFT, SeqLen: 128, EOD: -1,
		MicroBatch: 1, GlobalBatch: 4, Passes: 1, KeepLast: true, Readers: 3,
		Chat: token.NewChat(tok, tmpl, token.ChatOptions{})}, tok)
	require.NoError(t, err)
	defer l.Close()
	var got []string
	for step := int64(0); ; step++ {
		batches, err := l.Step(step)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		for _, b := range batches {
			for i, id := range b.SampleIDs {
				var learnt []int32
				for _, label := range b.Labels[b.CuSeqlens[i]:b.CuSeqlens[i+1]] {
					if label != dataset.IgnoreLabel {
						learnt = append(learnt, label)
					}
				}
				if id >= 0 {
					got = append(got, tok.Decode(learnt, false))
				}
			}
		}
	}
	require.ElementsMatch(t, answers, got)
}
