package format

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
)

// lz4Files is the folder of bench/golden/parquet_lz4.py: the small set, or the one that LFACTOR_LZ4 names.
func lz4Files() string {
	if dir := os.Getenv("LFACTOR_LZ4"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "lz4")
}

// Rows of files compressed with LZ4 are pyarrow's: texts alone, and all columns.
func TestParquetLZ4(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(lz4Files(), "*.parquet"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6)
	for _, path := range files {
		text, err := os.ReadFile(strings.TrimSuffix(path, ".parquet") + ".want")
		require.NoError(t, err)
		s := formattest.Open(t, path, dataset.Options{})
		i := int64(0)
		for line := range strings.Lines(string(text)) {
			var want map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &want))
			d, err := s.Read(i)
			require.NoError(t, err)
			require.Equal(t, want["text"], d.Text, "%s row %d", path, i)
			raw, _, err := s.(dataset.Columned).Columns(i)
			require.NoError(t, err)
			var have map[string]any
			require.NoError(t, json.Unmarshal(raw, &have))
			require.Equal(t, want, have, "%s row %d", path, i)
			i++
		}
		require.Equal(t, i, s.Len())
	}
}

// Damage anywhere in the pages is a bad sample or an error, never a crash, a hang or memory without end, and
// rows that are read though bytes were changed are at least as many as the file says.
func TestParquetLZ4Damaged(t *testing.T) {
	good, err := os.ReadFile("testdata/codecs/lz4.parquet")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.parquet")
	bad := 0
	for at := 4; at < len(good)-8; at++ {
		b := append([]byte{}, good...)
		b[at] ^= 0x5a
		require.NoError(t, os.WriteFile(path, b, 0o600))
		s, err := dataset.Open(path, dataset.Options{})
		for i := int64(0); err == nil && i < s.Len(); i++ {
			_, err = s.Read(i)
		}
		if err != nil {
			bad++
		}
		if s != nil {
			require.NoError(t, s.Close())
		}
	}
	require.Greater(t, bad, 100)
}

// Hadoop's framing of blocks is told from a bare block.
func TestHadoopLZ4(t *testing.T) {
	var in []byte
	want := ""
	for _, text := range []string{strings.Repeat("abc ", 90), strings.Repeat("xy", 50)} {
		want += text
		b := make([]byte, lz4.CompressBlockBound(len(text)))
		n, err := lz4.CompressBlock([]byte(text), b, nil)
		require.NoError(t, err)
		in = binary.BigEndian.AppendUint32(in, uint32(len(text)))
		in = append(binary.BigEndian.AppendUint32(in, uint32(n)), b[:n]...)
	}
	out := make([]byte, len(want))
	require.True(t, hadoopLZ4(out, in))
	require.Equal(t, want, string(out))
	require.False(t, hadoopLZ4(out, in[:len(in)-1]))
	require.False(t, hadoopLZ4(make([]byte, len(want)+1), in))
	require.False(t, hadoopLZ4(out, in[8:]))
}
