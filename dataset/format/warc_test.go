package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// Records, their headers and texts are those that warcio reads, by bench/golden/warc.py; the texts of pages
// are given here, since every library takes other ones.
func TestWARC(t *testing.T) {
	var want map[string][]struct{ URL, Date, ID, Type, Status, Text string }
	b, err := os.ReadFile("testdata/warc/small.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &want))
	pages := []string{"Stone & wood\nThe river runs past the house.\nIt is not far.\nGo there.\na b\none\ntwo",
		"Café naïve über", "Привет, мир", "Plain text,\nas it is.\n", "", "日本語の文", "nothing is said: é 你好"}
	for name, list := range want {
		s := open(t, filepath.Join("testdata", "warc", name), dataset.Options{})
		require.Equal(t, int64(len(list)), s.Len(), name)
		for i, w := range list {
			text, bad := w.Text, w.Status != "" && w.Status != "200"
			if w.Type == "response" {
				text = pages[i]
			}
			d, err := s.Read(int64(i))
			raw, _, also := s.(dataset.Columned).Columns(int64(i))
			if bad {
				var is *dataset.BadSample
				require.True(t, errors.As(err, &is))
				require.Contains(t, is.Reason, "the server answered")
				require.Error(t, also)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, also)
			require.Equal(t, text, d.Text, "%s %d", name, i)
			var c struct{ Text, URL, Date, ID string }
			require.NoError(t, json.Unmarshal(raw, &c))
			require.Equal(t, []string{text, w.URL, w.Date, w.ID}, []string{c.Text, c.URL, c.Date, c.ID})
		}
	}
}

// An archive that is damaged is an error that says where, and records that are no pages are bad with their
// place.
func TestWARCDamaged(t *testing.T) {
	f, err := os.Open("testdata/warc/small.warc.wet.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = b.ReadFrom(z)
	require.NoError(t, err)
	whole := b.String()
	second := 10 + strings.Index(whole[10:], "WARC/1.0")
	dir := t.TempDir()
	for text, want := range map[string]string{
		whole[:len(whole)-40]:     "bytes of content are told, and the file ends before them",
		whole[:second+30]:         "a header ends early",
		whole[:second] + "xx\r\n": "stands where a record should begin",
		strings.Replace(whole, "Content-Length: ", "Content-Length: -", 1): "is no Content-Length",
	} {
		path := filepath.Join(dir, "x.wet")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := dataset.Open(path, dataset.Options{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "the record at byte ")
	}
	path := filepath.Join(dir, "y.warc")
	page := "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nxx"
	require.NoError(t, os.WriteFile(path,
		[]byte("WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 43\r\n\r\n"+
			page[:43]+"\r\n\r\n"), 0o600))
	_, err = open(t, path, dataset.Options{}).Read(0)
	require.ErrorContains(t, err, "its Content-Encoding is br: archives that keep bodies as they were sent are not read")
}

// What Python's libraries write with bzip2 and xz, also as several streams, is read as text and as shards.
func TestMoreCodecs(t *testing.T) {
	for _, end := range []string{".bz2", ".xz"} {
		docs := readAll(t, open(t, filepath.Join("testdata", "codecs", "lines.jsonl"+end),
			dataset.Options{}))
		require.Len(t, docs, 500, end)
		require.Equal(t, "text 499 "+strings.Repeat("x", 499%90), docs[499].Text)
		docs = readAll(t, open(t, filepath.Join("testdata", "codecs", "shard.tar"+end), dataset.Options{}))
		require.Len(t, docs, 60, end)
		require.Equal(t, "caption 59", string(docs[59].Parts[0].Bytes))
		b, err := os.ReadFile(filepath.Join("testdata", "codecs", "lines.jsonl"+end))
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "x.jsonl"+end)
		require.NoError(t, os.WriteFile(path, b[:len(b)*2/3], 0o600))
		_, err = dataset.Open(path, dataset.Options{})
		require.ErrorContains(t, err, "the compressed data are damaged", end)
	}
}
