package recipe

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

var long = flag.Bool("long", false, "run the long tests")

// typedRecipe carries out a recipe that keeps everything, and returns its report.
func typedRecipe(t *testing.T, as, steps string, paths ...string) (out string, rep *Report, err error) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "out")
	r, err := load(t, t.TempDir(), fmt.Sprintf("output: %s\ninputs:\n  - {text_key: string, paths: [%s]}\n%soutputs: [{format: %s}]\n", out,
		strings.Join(paths, ", "), steps, as))
	require.NoError(t, err)
	rep, err = Run(context.Background(), r, nil, dataset.Remote{})
	return out, rep, err
}

// rowsOf are the rows of a Parquet file whose text is no null, as JSON, and its columns with their types.
func rowsOf(t *testing.T, path string) (rows []string, schema string, meta map[string]string) {
	r, err := format.OpenRows(path, dataset.Options{})
	require.NoError(t, err)
	for i := range r.Len() {
		b, _, err := r.Record(i)
		require.NoError(t, err)
		if !strings.Contains(string(b), `"string":null`) {
			rows = append(rows, string(b))
		}
	}
	require.NoError(t, r.Close())
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	p, err := parquet.OpenFile(f, info.Size())
	require.NoError(t, err)
	meta = map[string]string{}
	for _, kv := range p.Metadata().KeyValueMetadata {
		meta[kv.Key] = kv.Value
	}
	var b strings.Builder
	for _, e := range p.Metadata().Schema[1:] {
		logical := strings.NewReplacer("INT(32,true)", "<nil>", "INT(64,true)", "<nil>").Replace(fmt.Sprint(e.LogicalType.Value)) // the same
		fmt.Fprintln(&b, e.Name, e.Type.V, e.RepetitionType.V, logical)
	}
	return rows, b.String(), meta
}

// Values, types and Arrow's schema of Parquet's files of every type that pyarrow writes are the same behind a recipe that keeps everything.
func TestTypedColumns(t *testing.T) {
	files, err := filepath.Glob("../format/testdata/parquet/*.parquet")
	require.NoError(t, err)
	kept := 0
	for _, path := range files {
		path, err := filepath.Abs(path)
		require.NoError(t, err)
		rows, schema, meta := rowsOf(t, path)
		if len(rows) == 0 {
			continue
		}
		out, rep, err := typedRecipe(t, "parquet", "", path)
		require.NoError(t, err)
		require.Empty(t, rep.Outputs[0].Note)
		have, as, said := rowsOf(t, filepath.Join(out, "data-00000.parquet"))
		require.Equal(t, rows, have)
		require.Equal(t, schema, as)
		require.Equal(t, meta, said)
		kept++
		_, rep, err = typedRecipe(t, "jsonl", "", path)
		require.NoError(t, err)
		require.Contains(t, rep.Outputs[0].Note, "jsonl has no types: texts are ")
		require.Contains(t, rep.Outputs[0].Note, "decimal5_2 (")
		require.NotContains(t, rep.Outputs[0].Note, "uint64")
	}
	require.Positive(t, kept)
}

// tableFile writes a Parquet file of rows.
func tableFile[T any](t *testing.T, dir, name string, rows ...T) string {
	path := filepath.Join(dir, name)
	require.NoError(t, parquet.WriteFile(path, rows))
	return path
}

// Of files with other columns the union is written; one column of two types is an error that names both, and what has no types keeps none.
func TestTypedUnion(t *testing.T) {
	type one struct {
		String string `parquet:"string"`
		N      int64  `parquet:"n"`
	}
	type other struct {
		X      *float32 `parquet:"x,optional"`
		String string   `parquet:"string"`
	}
	type wrong struct {
		String string `parquet:"string"`
		N      string `parquet:"n"`
	}
	dir, x := t.TempDir(), float32(0.5)
	a, b := tableFile(t, dir, "a.parquet", one{"a", 1 << 60}), tableFile(t, dir, "b.parquet", other{&x, "b"}, other{nil, "c"})
	out, _, err := typedRecipe(t, "parquet", "", a, b)
	require.NoError(t, err)
	rows, schema, _ := rowsOf(t, filepath.Join(out, "data-00000.parquet"))
	require.Equal(t, []string{`{"string":"a","n":1152921504606846976,"x":null}`, `{"string":"b","n":null,"x":0.5}`, `{"string":"c","n":null,"x":null}`}, rows)
	require.Contains(t, schema, "n INT64 OPTIONAL")
	c := tableFile(t, dir, "c.parquet", wrong{"c", "d"})
	_, _, err = typedRecipe(t, "parquet", "", a, c)
	require.ErrorContains(t, err, `column "n" is `)
	require.ErrorContains(t, err, a)
	require.ErrorContains(t, err, c)
	d := write(t, dir, "d.jsonl", `{"string":"d","n":3}`+"\n")
	out, rep, err := typedRecipe(t, "parquet", "", a, d)
	require.NoError(t, err)
	require.Contains(t, rep.Outputs[0].Note, "d.jsonl has no types")
	rows, _, _ = rowsOf(t, filepath.Join(out, "data-00000.parquet"))
	require.Equal(t, `{"text":"d","metadata":"{\"n\":3}"}`, rows[1])
}

// A column that a step makes has the type that fits all its values. Bytes that could be base64 stay bytes.
func TestTypedMade(t *testing.T) {
	type row struct {
		String string `parquet:"string"`
		Raw    []byte `parquet:"raw"`
	}
	coded := base64.StdEncoding.EncodeToString([]byte{0xff, 0xfe, 0x80})
	path := tableFile(t, t.TempDir(), "a.parquet", row{"a", []byte(coded)}, row{"b", []byte{0xff, 0xfe, 0x80}})
	c, err := format.TypedColumns(path)
	require.NoError(t, err)
	for _, v := range []string{"i 1", "i -3", "f 1", "f 0.5", "f 7", "b true", `s "x"`, "n null", "m 1", `m "x"`, "string 3"} {
		name, value, _ := strings.Cut(v, " ")
		c.Learn(name, json.RawMessage(value))
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "out.parquet"))
	require.NoError(t, err)
	w, err := c.NewWriter(f)
	require.NoError(t, err)
	require.NoError(t, w.Add(func(name string) json.RawMessage {
		return json.RawMessage(map[string]string{"string": `"a"`, "raw": `"AA=="`, "i": "-3", "f": "7", "b": "true", "s": `"x"`}[name])
	}))
	require.ErrorContains(t, w.Add(func(name string) json.RawMessage {
		return json.RawMessage(map[string]string{"string": "3", "raw": `""`}[name])
	}), `column "string"`)
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	_, schema, _ := rowsOf(t, f.Name())
	for _, want := range []string{"i INT64 OPTIONAL", "f DOUBLE OPTIONAL", "b BOOLEAN OPTIONAL", "s BYTE_ARRAY OPTIONAL STRING", "m BYTE_ARRAY OPTIONAL STRING"} {
		require.Contains(t, schema, want)
	}
	out, _, err := typedRecipe(t, "parquet", "", path)
	require.NoError(t, err)
	before, _, _ := rowsOf(t, path)
	after, _, _ := rowsOf(t, filepath.Join(out, "data-00000.parquet"))
	require.Equal(t, before, after)
	require.Contains(t, before[0], `\u00`, "a text that reads as base64 says that it is none")
}

// With -long, 48 files of 67 types in six codecs that pyarrow draws, and the same as Arrow's, have pyarrow's schema and values behind a recipe.
func TestTypedDrawn(t *testing.T) {
	if !*long {
		t.Skip("48 files are resharded and held to pyarrow with -long")
	}
	python, lfactor := os.Getenv("LFACTOR_PYTHON"), filepath.Join(t.TempDir(), "lfactor")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skipf("%s cannot import pyarrow (%v): no file is compared", python, err)
	}
	build := exec.Command("go", "build", "-o", lfactor, "./cmd/lfactor")
	build.Dir = "../.."
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	run := exec.Command(python, "bench/golden/typed_columns.py", lfactor, t.TempDir(), "48", "57")
	run.Dir = "../.."
	text, err = run.CombinedOutput()
	require.NoError(t, err, string(text))
	t.Log(string(text))
}
