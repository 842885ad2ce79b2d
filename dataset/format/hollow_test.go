package format_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	_ "github.com/lfactor/lfactor/dataset/format"
)

// hollowFiles are files by their name: with what gzip, zstd, bzip2, xz and pyarrow write of nothing, as base64, and
// texts.
var hollowFiles = []struct{ name, packed, text, why string }{
	{"zero.jsonl", "", "", "is empty"},
	{"blank.jsonl", "", " \n\n", "is empty"},
	{"list.json", "", "[]", "is empty"},
	{"zero.txt", "", "", "is empty"},
	{"zero.parquet", "", "", "is empty"},
	{"zero.jsonl.gz", "", "", "is empty"},
	{"a.jsonl.gz", "H4sICDOYDWsAA2EuanNvbmwAAwAAAAAAAAAAAA==", "", "is empty"},
	{"blank.jsonl.gz", "H4sICDOYDWsAA3cuanNvbmwAU+DiAgBmnjbdAwAAAA==", "", "is empty"},
	{"a.jsonl.zst", "KLUv/SQAAQAAmenYUQ==", "", "is empty"},
	{"a.jsonl.bz2", "QlpoORdyRThQkAAAAAA=", "", "is empty"},
	{"a.jsonl.xz", "/Td6WFoAAATm1rRGAAAAABzfRCEftvN9AQAAAAAEWVo=", "", "is empty"},
	{"rows.parquet", rowless, "", "is empty"},
	{"columns.parquet", columnless, "", "it is no Parquet file, has no columns, or is damaged"},
	{"damaged.jsonl.gz", "H4sICDOYDWsAA3cuanNvbmwAU+Di", "", "compressed data"},
	{"folder/", "", "", "is empty"},
	{"none.jsonl", "", "", "no such file"},
	{"one.jsonl", "", "{\"text\": \"a\"}\n", ""},
	{"bad.jsonl", "", "{", ""},
}

// Tables without rows, and without columns.
const (
	rowless = "" +
		"UEFSMRUEFQAVAkwVABUAEgAAABUEGSw1ABgGc2NoZW1hFQIAFQwlAhgEdGV4dCUATBwAAAAWABkcGRwmABwVDBklAAYZGAR0ZXh0FQIWABYcFh" +
		"4mACYIKRwVBBUAFQIAAAAWHBYAJggWHgAZHBgMQVJST1c6c2NoZW1hGKABLy8vLy8zQUFBQUFRQUFBQUFBQUtBQXdBQmdBRkFBZ0FDZ0FBQUFB" +
		"QkJBQU1BQUFBQ0FBSUFBQUFCQUFJQUFBQUJBQUFBQUVBQUFBVUFBQUFFQUFVQUFnQUJnQUhBQXdBQUFBUUFCQUFBQUFBQUFFRkVBQUFBQndBQU" +
		"FBRUFBQUFBQUFBQUFRQUFBQjBaWGgwQUFBQUFBUUFCQUFFQUFBQQAYIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGRwcAAAANAEA" +
		"AFBBUjE="
	columnless = "" +
		"UEFSMRUEGRw1ABgGc2NoZW1hFQAAFgAZHBkMFgAWACYAFgAAGRwYDEFSUk9XOnNjaGVtYRhMLy8vLy96QUFBQUFRQUFBQUFBQUtBQXdBQmdBRk" +
		"FBZ0FDZ0FBQUFBQkJBQU1BQUFBQ0FBSUFBQUFCQUFJQUFBQUJBQUFBQUFBQUFBPQAYIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4x" +
		"GQwApAAAAFBBUjE="
)

// TestHollow: a path without documents says so, whatever it is packed by, and one that cannot be opened says why.
func TestHollow(t *testing.T) {
	for _, c := range hollowFiles {
		path := filepath.Join(t.TempDir(), c.name)
		text, err := base64.StdEncoding.DecodeString(c.packed)
		require.NoError(t, err)
		switch {
		case strings.HasSuffix(c.name, "/"):
			require.NoError(t, os.Mkdir(path, 0o755))
		case c.name != "none.jsonl":
			require.NoError(t, os.WriteFile(path, append(text, c.text...), 0o600))
		}
		if why := dataset.Hollow(path); c.why == "" {
			require.Empty(t, why, c.name)
		} else {
			require.Contains(t, why, c.why, c.name)
		}
	}
}
