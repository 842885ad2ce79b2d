package format

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// The walk over a shard without an index is done once: its index is kept for this very file. A joined archive
// is indexed to its end.
func TestKeptIndex(t *testing.T) {
	t.Setenv("LFACTOR_CACHE", t.TempDir())
	path := filepath.Join(t.TempDir(), "x.tar")
	b := append(tarOf(t, file("a.txt", 600<<10), file("b.txt", 1)), tarOf(t, file("c.txt", 600<<10))...)
	require.NoError(t, os.WriteFile(path, b, 0o600))
	then := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, then, then))
	require.Equal(t, []string{"a txt", "b txt", "c txt"}, outcomes(t, formattest.Open(t, path, dataset.Options{})))
	damaged := bytes.Clone(b)
	clear(damaged[601<<10+tarBlock:])
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	require.NoError(t, os.Chtimes(path, then, then))
	require.EqualValues(t, 3, formattest.Open(t, path, dataset.Options{}).Len(), "nobody walked over it again")
	require.NoError(t, os.Chtimes(path, then, then.Add(time.Second)))
	require.EqualValues(t, 2, formattest.Open(t, path, dataset.Options{}).Len(), "it is another file now")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	n, err := WriteIndex(path)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Equal(t, []string{"a txt", "b txt", "c txt"}, outcomes(t, formattest.Open(t, path, dataset.Options{})))
}

// Half of a surrogate pair in JSON is no character: whatever holds it is bad, with its place, where Go would
// read U+FFFD. Whole pairs and escaped backslashes are what they are.
func TestSurrogates(t *testing.T) {
	for text, want := range map[string]string{
		`"a \ud83d b"`: `\ud83d alone`, `"\uDE00"`: `\uDE00 alone`, `"\ud83d\ud83d\ude00"`: `\ud83d alone`,
		`"\ud83d\n"`: `\ud83d alone`, `"\ud83d`: "alone", `"\ud83d\ude00 \uFFFD"`: "", `"\\ud83d"`: "", `"\\\ud83d"`: "alone",
	} {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(`{"text":`+text+"}\n"), 0o600))
		_, err := formattest.Open(t, path, dataset.Options{}).Read(0)
		check := func(err error) {
			if want == "" {
				require.NoError(t, err, text)
				return
			}
			var bad *dataset.BadSample
			require.ErrorAs(t, err, &bad, text)
			require.Contains(t, bad.Reason, want, text)
		}
		check(err)
		require.NoError(t, os.WriteFile(path, []byte(`{"messages":[{"role":"user","content":`+text+
			`},{"role":"assistant","content":"x"}]}`+"\n"), 0o600))
		_, err = formattest.Open(t, path, dataset.Options{Format: "openai"}).Read(0)
		check(err)
		d := formattest.SampleOf(`{"texts":[{"role":"user","content":` + text + `},{"role":"assistant","content":"x"}]}`)
		_, err = Converse(&d, "", dataset.Tags{})
		check(err)
	}
}
