package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
	"github.com/lfactor/lfactor/dataset/store"
)

// squeezed are the compressed forms of a text, by the ending of their names.
func squeezed(t *testing.T, text string) map[string][]byte {
	t.Helper()
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return map[string][]byte{".gz": gz.Bytes(), ".zst": z.EncodeAll([]byte(text), nil)}
}

// TestCompressedRecords: JSON lines and arrays, of texts and of conversations, read alike whether they are
// compressed or not; damage is an error.
func TestCompressedRecords(t *testing.T) {
	var lines, chats []string
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf(`{"text":"text %d %s"}`, i, strings.Repeat("x", i%90)))
		chats = append(chats, fmt.Sprintf(`{"messages":[{"role":"user","content":"q%d"},{"role":"assistant","content":"a"}]}`, i))
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.jsonl": strings.Join(lines, "\n"), "b.json": "[" +
		strings.Join(lines, ",\n") + "]", "c.jsonl": strings.Join(chats, "\n")} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		want := formattest.Open(t, path, dataset.Options{})
		docs := formattest.ReadAll(t, want)
		require.Len(t, docs, 3000)
		for ending, b := range squeezed(t, text) {
			require.NoError(t, os.WriteFile(path+ending, b, 0o600))
			for _, o := range []dataset.Options{{}, {IndexDir: t.TempDir()}} {
				s := formattest.Open(t, path+ending, o)
				require.Equal(t, want.Kind(), s.Kind(), name+ending)
				require.Equal(t, docs, formattest.ReadAll(t, s), name+ending)
				d, err := s.Read(1500)
				require.NoError(t, err)
				require.Equal(t, docs[1500].Text, d.Text)
			}
			require.NoError(t, os.WriteFile(path+ending, b[:len(b)/2], 0o600))
			_, err := dataset.Open(path+ending, dataset.Options{})
			require.ErrorContains(t, err, "the compressed data are damaged", name+ending)
		}
	}
}

// TestParquetCodecs: all codecs are read. The files are pyarrow's.
func TestParquetCodecs(t *testing.T) {
	for _, codec := range []string{"snappy", "gzip", "brotli", "zstd", "none", "lz4"} {
		docs := formattest.ReadAll(t, formattest.Open(t, filepath.Join("testdata", "codecs", codec+".parquet"), dataset.Options{}))
		require.Len(t, docs, 40)
		require.Equal(t, "row 39 abc abc abc abc ", docs[39].Text)
	}
	type row struct { // what is not read may be compressed as it likes
		Other string `parquet:"other,lz4"`
		Text  string `parquet:"text,zstd"`
	}
	path := filepath.Join(t.TempDir(), "x.parquet")
	require.NoError(t, parquet.WriteFile(path, []row{{"o", "one"}, {"p", "two"}}))
	d, err := formattest.Open(t, path, dataset.Options{}).Read(1)
	require.NoError(t, err)
	require.Equal(t, "two", d.Text)
	d, err = formattest.Open(t, path, dataset.Options{TextKey: "other"}).Read(1)
	require.NoError(t, err)
	require.Equal(t, "p", d.Text)
}

// TestLinks: files, folders and whole data sets may be links, as in Hugging Face's cache, whose folder may
// be named as it is.
func TestLinks(t *testing.T) {
	hub := filepath.Join(t.TempDir(), "datasets--org--name")
	blobs, snap := filepath.Join(hub, "blobs"), filepath.Join(hub, "snapshots", "0123abc", "data")
	for _, d := range []string{blobs, snap, filepath.Join(hub, "refs")} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	for i, name := range []string{"train-0.jsonl", "train-1.jsonl", "a.txt"} {
		blob := filepath.Join(blobs, fmt.Sprint("b", i))
		line, err := json.Marshal(map[string]string{"text": name})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(blob, line, 0o600))
		require.NoError(t, os.Symlink(filepath.Join("..", "..", "..", "blobs", filepath.Base(blob)),
			filepath.Join(snap, name)))
	}
	_, err := dataset.Open(hub, dataset.Options{})
	require.ErrorContains(t, err, "without a main revision")
	require.NoError(t, os.WriteFile(filepath.Join(hub, "refs", "main"), []byte("0123abc"), 0o600))
	texts := func(path string) (out []string) {
		for _, d := range formattest.ReadAll(t, formattest.Open(t, path, dataset.Options{})) {
			out = append(out, d.Text)
		}
		return out
	}
	require.Equal(t, []string{"train-0.jsonl", "train-1.jsonl"}, texts(hub))
	require.Equal(t, []string{"train-0.jsonl"}, texts(filepath.Join(snap, "train-0.jsonl")))
	require.Equal(t, []string{`{"text":"a.txt"}`}, texts(snap))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(snap, link))
	require.Equal(t, []string{`{"text":"a.txt"}`}, texts(link))
	for i := range 2 { // a gated repository: names without files
		require.NoError(t, os.Remove(filepath.Join(snap, fmt.Sprintf("train-%d.jsonl", i))))
	}
	_, err = dataset.Open(hub, dataset.Options{})
	require.ErrorContains(t, err, "it may not have been downloaded")
}

// TestFullFingerprint: an edit in the middle of a large file without a change of its size shows in full
// fingerprints, and in others where it lies within the parts that they cover.
func TestFullFingerprint(t *testing.T) {
	line := `{"text":"` + strings.Repeat("a", 1000) + `"}` + "\n"
	text := strings.Repeat(line, 1000)
	dir := t.TempDir()
	print := func(name, text string, full bool) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return formattest.Open(t, path, dataset.Options{Full: full}).Fingerprint()
	}
	for _, name := range []string{"a.jsonl", "a.txt"} {
		edited := text[:300_000] + "b" + text[300_001:]
		require.Equal(t, print(name, text, false), print(name, edited, false), "the parts do not cover it")
		require.NotEqual(t, print(name, text, true), print(name, edited, true))
		require.Equal(t, print(name, text, true), print(name, text, true))
		require.NotEqual(t, print(name, text, true), print(name, text, false))
	}
	require.NotEqual(t, print("a.jsonl", text, false), print("a.jsonl", "{\"text\":\"b"+text[10:], false))
}

// An index of more places than it holds in memory lies on disk, and is the same.
func TestIndexHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("{\"text\":\"a\"}\n\n{\"text\":\"bcd\"}\n",
		50)), 0o600))
	f, err := store.Open(path)
	require.NoError(t, err)
	defer f.Close()
	want, err := heldIndex(f, scanLines, 100)
	require.NoError(t, err)
	require.Nil(t, want.file)
	for _, most := range []int{0, 1, 99} {
		x, err := heldIndex(f, scanLines, most)
		require.NoError(t, err)
		require.NotNil(t, x.file)
		require.Equal(t, want.n, x.n)
		for i := range x.n {
			a, err := want.at(i)
			require.NoError(t, err)
			b, err := x.at(i)
			require.NoError(t, err)
			require.Equal(t, a, b)
		}
		require.NoError(t, x.close())
	}
	bad := scan(func(r *bufio.Reader, yield func(span) error) error { return fmt.Errorf("bad") })
	_, err = heldIndex(f, bad, 0)
	require.ErrorContains(t, err, "bad")
}
