package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fb "github.com/google/flatbuffers/go"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// arrowFiles is the folder of bench/golden/arrow_files.py: the small set, or the one that LFACTOR_ARROW names.
func arrowFiles() string {
	if dir := os.Getenv("LFACTOR_ARROW"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "arrow")
}

// Rows of Arrow's files, streams and Feather are pyarrow's, in any order.
func TestArrow(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(arrowFiles(), "*.want"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 8)
	for _, want := range files {
		text, err := os.ReadFile(want)
		require.NoError(t, err)
		path, err := filepath.Glob(strings.TrimSuffix(want, ".want") + ".[af]*")
		require.NoError(t, err)
		s := formattest.Open(t, path[0], dataset.Options{})
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		require.Equal(t, int64(len(lines)), s.Len(), path[0])
		for k := range lines {
			i := (k*7 + 3) % len(lines)
			if len(lines)%7 == 0 {
				i = k
			}
			var want, have map[string]any
			require.NoError(t, json.Unmarshal([]byte(lines[i]), &want))
			d, err := s.Read(int64(i))
			require.NoError(t, err)
			require.Equal(t, want["text"], d.Text, "%s row %d", path[0], i)
			raw, _, err := s.(dataset.Columned).Columns(int64(i))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &have), "%s", raw)
			require.Equal(t, want, have, "%s row %d", path[0], i)
		}
	}
}

// A stream of Arrow is one whatever its name is.
func TestArrowStreamNamed(t *testing.T) {
	files, err := filepath.Glob("testdata/arrow/*.arrow")
	require.NoError(t, err)
	streams := 0
	for _, from := range files {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		if bytes.HasPrefix(b, []byte(arrowMagic)) {
			continue
		}
		streams++
		want := formattest.ReadAll(t, formattest.Open(t, from, dataset.Options{}))
		for _, name := range []string{"x.arrows", "x.bin2", "x"} {
			path := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(path, b, 0o600))
			have := formattest.ReadAll(t, formattest.Open(t, path, dataset.Options{}))
			require.Len(t, have, len(want))
			for i := range have {
				require.Equal(t, want[i].Text, have[i].Text)
			}
		}
	}
	require.Positive(t, streams)
}

// A folder of save_to_disk is its shards, in their order, and not what was computed beside them.
func TestArrowSaved(t *testing.T) {
	docs := formattest.ReadAll(t, formattest.Open(t, filepath.Join("testdata", "arrow", "saved"), dataset.Options{}))
	require.Len(t, docs, 25)
	require.Equal(t, "row 24 é", docs[24].Text)
}

// What is no Arrow file, or one of a form that is not read, is told with its place and remedy.
func TestArrowRefused(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"FEA1xxxxxxxxxxx":                  "it is Feather of version 1; write it anew",
		"ARROW1\x00\x00":                   "it ends at byte 8 without a footer",
		"ARROW1\x00\x00nonsense......":     "it ends at byte 22 without a footer",
		"{\"text\": \"a\"}\n":              "as no Arrow file does",
		"\xff\xff\xff\xff\x00\x00\x00\x7f": "has a description of 2130706432 bytes",
		"":                                 "too few for an Arrow file",
	} {
		path := filepath.Join(dir, "x.arrow")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := dataset.Open(path, dataset.Options{})
		require.ErrorContains(t, err, want, "%q", text)
	}
	files, err := filepath.Glob("testdata/arrow/0*.arrow")
	require.NoError(t, err)
	_, err = dataset.Open(files[0], dataset.Options{TextKey: "id"})
	require.ErrorContains(t, err, `it has no column of texts named "id"; its columns are`)
}

// Data sets of Lance are refused with the way out, and a folder that only has a folder of such a name is none.
func TestLance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.lance")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "_versions"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	_, err := dataset.Open(dir, dataset.Options{})
	require.ErrorContains(t, err, "it is a data set of Lance, which is not read: write it as Arrow")
	file := filepath.Join(dir, "data", "a.lance")
	require.NoError(t, os.WriteFile(file, []byte("texts and so on LANC"), 0o600))
	_, err = dataset.Open(file, dataset.Options{})
	require.ErrorContains(t, err, "it is a file of Lance")
}

// A byte that is changed anywhere, or an end that is missing, is no crash.
func TestArrowDamaged(t *testing.T) {
	files, err := filepath.Glob("testdata/arrow/*.[af]*")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.arrow")
	bad := 0
	for n, name := range files {
		good, err := os.ReadFile(name)
		require.NoError(t, err)
		for at := n % 5; at < len(good); at += 1 + len(good)/60 {
			for _, b := range [][]byte{good[:at], append(append(append([]byte{}, good[:at]...),
				good[at]^0x5a), good[at+1:]...)} {
				require.NoError(t, os.WriteFile(path, b, 0o600))
				s, err := dataset.Open(path, dataset.Options{Format: "arrow"})
				if err != nil {
					bad++
					continue
				}
				for i := range s.Len() {
					if _, err := s.Read(i); err != nil {
						bad++
						break
					}
				}
				require.NoError(t, s.Close())
			}
		}
	}
	require.Greater(t, bad, 300)
}

// FuzzTable: every file of a table opens or is refused, and every row is read or bad.
func FuzzTable(f *testing.F) {
	for _, name := range []string{"arrow/01.arrow", "arrow/02.feather", "arrow/05.arrow",
		"codecs/lz4.parquet"} {
		b, err := os.ReadFile("testdata/" + name)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		table := tableOf(path, b)
		if table == nil {
			return
		}
		_, _ = table.columns(path)
		r, err := table.open(path, dataset.Options{})
		if err != nil {
			return
		}
		for i := range min(r.Len(), 50) {
			_, _, _ = r.Record(i) // it is bad or it is not
		}
		require.NoError(t, r.Close())
	})
}

// A file that save_to_disk lists and that is not there is told, as is one of another folder.
func TestArrowSavedMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "arrow", "saved"))))
	require.NoError(t, os.Remove(filepath.Join(dir, "data-00001-of-00002.arrow")))
	_, err := dataset.Open(dir, dataset.Options{})
	require.ErrorContains(t, err, "state.json lists data-00001-of-00002.arrow, which is not there; put it back")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"),
		[]byte(`{"_data_files": [{"filename": "../x.arrow"}]}`), 0o600))
	_, err = dataset.Open(dir, dataset.Options{})
	require.ErrorContains(t, err, `state.json lists "../x.arrow", which is no file of the folder`)
}

// What lies behind the end of a stream is told, not left out; without a mark a stream ends where its file does.
func TestArrowBehindEnd(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("testdata", "arrow", "saved", "data-00000-of-00002.arrow"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.arrow")
	require.NoError(t, os.WriteFile(path, append(good[:len(good):len(good)], good...), 0o600))
	_, err = dataset.Open(path, dataset.Options{})
	require.ErrorContains(t, err, fmt.Sprintf("%d bytes follow the end of the stream at byte %d", len(good),
		len(good)-8))
	require.NoError(t, os.WriteFile(path, good[:len(good)-8], 0o600))
	require.NoError(t, formattest.Open(t, path, dataset.Options{}).Close())
}

// Rows that a record batch announces are held to what can be decoded and to its first column.
func TestArrowRowsAnnounced(t *testing.T) {
	var written bytes.Buffer
	w := NewArrowTexts(&written)
	for _, text := range []string{"a", "b", "c"} {
		require.NoError(t, w.Add(text, "{}"))
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "x.arrow")
	require.NoError(t, os.WriteFile(path, written.Bytes(), 0o600))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	a, err := openArrowFile(path, dataset.Options{})
	require.NoError(t, err)
	defer a.Close()
	m := a.batches[0]
	meta := good[m.at+8:]
	head := fb.Table{Bytes: meta, Pos: fb.GetUOffsetT(meta)}
	var batch fb.Table
	head.Union(&batch, fb.UOffsetT(head.Offset(8)))
	rows := int(m.at) + 8 + int(batch.Pos) + int(batch.Offset(4))
	nodes := int(m.at) + 8 + int(batch.Vector(fb.UOffsetT(batch.Offset(6))))
	for _, c := range []struct {
		rows, first uint64
		want        string
	}{
		{1 << 40, 1 << 40, "has 1099511627776 rows, over the limit of 8388608"},
		{1<<63 - 1, 3, "over the limit of"},
		{1 << 63, 3, "has -9223372036854775808 rows"},
		{1 << 20, 3, "has 1048576 rows, and a column of 3"},
		{3, 3, ""},
	} {
		b := bytes.Clone(good)
		require.EqualValues(t, 3, binary.LittleEndian.Uint64(b[rows:]))
		require.EqualValues(t, 3, binary.LittleEndian.Uint64(b[nodes:]))
		binary.LittleEndian.PutUint64(b[rows:], c.rows)
		binary.LittleEndian.PutUint64(b[nodes:], c.first)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		s, err := dataset.Open(path, dataset.Options{})
		if c.want == "" {
			require.NoError(t, err)
			require.NoError(t, s.Close())
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}
