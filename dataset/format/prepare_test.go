package format

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// JSON is written as Python's json.dumps writes it.
func TestPyJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":[1,2.50,{"b":null}],"c":"ü\n\"\\\/"}`: `{"a": [1, 2.50, {"b": null}], "c": "\u00fc\n\"\\/"}`,
		"\"\U0001F389\\u007f\\u0001\\t\"":           `"\ud83c\udf89\u007f\u0001\t"`,
		` [ ] `:                                     `[]`, `{}`: `{}`, `true`: `true`, `[[],[[]]]`: `[[], [[]]]`,
		`{"a":{},"a":{"k":[]}}`: `{"a": {}, "a": {"k": []}}`,
	} {
		got, err := pyJSON([]byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(got))
	}
	_, err := pyJSON([]byte(`{"a":`))
	require.Error(t, err)
}

func FuzzPyJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x",{"b":null}],"c":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, have any
		if json.Unmarshal(b, &want) != nil {
			return
		}
		got, err := pyJSON(b)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(got, &have), "%s", got)
		require.Equal(t, want, have)
	})
}

// sqliteWalk visits a tree and returns its cells in order; no page may be empty.
func sqliteWalk(t *testing.T, b []byte, page uint32) (cells [][]byte) {
	p := b[int64(page-1)*sqlitePage : int64(page)*sqlitePage]
	varint := func(b []byte) (v uint64, n int) {
		for {
			v = v<<7 | uint64(b[n]&0x7f)
			n++
			if b[n-1] < 0x80 {
				return v, n
			}
		}
	}
	n, at := int(binary.BigEndian.Uint16(p[3:])), 8
	inner := p[0] == 0x05 || p[0] == 0x02
	if inner {
		at = 12
	}
	require.Positive(t, n)
	for i := range n {
		c := p[binary.BigEndian.Uint16(p[at+2*i:]):]
		if inner {
			cells = append(cells, sqliteWalk(t, b, binary.BigEndian.Uint32(c))...)
			c = c[4:]
		}
		if p[0] == 0x05 {
			continue
		}
		size, k := varint(c)
		if p[0] == 0x0d {
			_, k2 := varint(c[k:])
			k += k2
		}
		cells = append(cells, c[k:k+int(size)])
	}
	if inner {
		cells = append(cells, sqliteWalk(t, b, binary.BigEndian.Uint32(p[8:]))...)
	}
	return cells
}

// Trees of any size hold all rows and entries in order, and no page is empty. That SQLite itself finds
// nothing wrong with such files bench/golden/webdataset_convert.py tells.
func TestSQLiteTrees(t *testing.T) {
	for _, n := range []int{1, 2, 400, 401, 402, 1500, 1501, 40_000} {
		path := filepath.Join(t.TempDir(), "x.sqlite")
		w, err := createSQLite(path)
		require.NoError(t, err)
		record := func(i int) []byte {
			return sqliteRecord(fmt.Sprintf("%06d%s", i, strings.Repeat("x", 30+i%7)), int64(i))
		}
		table, index := w.table(n, record), w.index(n, record)
		w.define("table", "t", "t", table, "CREATE TABLE t (a TEXT, b INTEGER)")
		require.NoError(t, w.close())
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Zero(t, len(b)%sqlitePage)
		for _, root := range []uint32{table, index} {
			cells := sqliteWalk(t, b, root)
			require.Len(t, cells, n)
			for i := range cells {
				require.Equal(t, record(i), cells[i])
			}
		}
	}
}

// Keys that come twice, shards without samples and keys too long for the index are refused with their place.
func TestPrepareEnergonRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, keys ...string) {
		w, err := CreateShard(filepath.Join(dir, name))
		require.NoError(t, err)
		for _, k := range keys {
			require.NoError(t, w.Add(k, []dataset.Part{{Name: "txt", Bytes: []byte("x")}}))
		}
		require.NoError(t, w.Close())
	}
	write("a.tar", "x", "y")
	write("b.tar", "z", "x")
	write("c.tar")
	write("d.tar", strings.Repeat("k", 5000))
	for shard, want := range map[string]string{
		"b.tar": `the key "x" comes twice, in shards 0 and 1`, "c.tar": "no samples",
		"d.tar": "over the limit", "e.tar": "no such file"} {
		_, err := PrepareEnergon(dir, EnergonPlan{Shards: []string{"a.tar", shard}})
		require.ErrorContains(t, err, want)
		_, err = os.Stat(dir + "/.nv-meta/split.yaml")
		require.True(t, errors.Is(err, os.ErrNotExist), "half of a description is none")
	}
}
