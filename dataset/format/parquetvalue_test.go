package format

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// parquetFiles is the folder of bench/golden/parquet_types.py: the small set, or the one that LFACTOR_PARQUET names.
func parquetFiles() string {
	if dir := os.Getenv("LFACTOR_PARQUET"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "parquet")
}

// Values of every type that pyarrow writes are those that were written.
func TestParquetTypes(t *testing.T) { sameParquet(t, parquetFiles(), 4) }

// With -long, values of 360 files that Python with pyarrow draws anew, named by LFACTOR_PYTHON or python3: every type in every codec.
func TestParquetDrawn(t *testing.T) {
	if !*long {
		t.Skip("360 files are held to pyarrow with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skipf("%s cannot import pyarrow (%v): no file is compared", python, err)
	}
	dir := t.TempDir()
	run := exec.Command(python, "bench/golden/parquet_types.py", dir, "360", "57")
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	require.Equal(t, 67*6, len(sameParquet(t, dir, 360)), "each type in each codec")
}

// sameParquet compares the files of a folder, of which each sixth has the same codec, and returns how many values there are of each type and codec.
func sameParquet(t *testing.T, dir string, least int) map[string]int {
	files, err := filepath.Glob(filepath.Join(dir, "*.want"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), least)
	bad, values, pairs := map[string]int{}, 0, map[string]int{}
	for k, want := range files {
		text, err := os.ReadFile(want)
		require.NoError(t, err)
		rows, err := OpenRows(strings.TrimSuffix(want, ".want")+".parquet", dataset.Options{})
		require.NoError(t, err)
		for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			b, _, err := rows.Record(int64(i))
			require.NoError(t, err)
			have, want := exact(t, b).(map[string]any), exact(t, []byte(line)).(map[string]any)
			require.Len(t, have, len(want))
			for name, v := range want {
				pairs[fmt.Sprint(name, " ", k%6)]++
				if values++; !assertEqual(v, have[name]) {
					if bad[name]++; bad[name] < 12 {
						t.Logf("%s row %d column %s: %v, want %v", rows.(*parquetFile).os.Name(), i, name, have[name], v)
					}
				}
			}
		}
		require.NoError(t, rows.Close())
	}
	require.Empty(t, bad)
	t.Logf("%d files, %d values of %d types in codecs", len(files), values, len(pairs))
	return pairs
}

func assertEqual(a, b any) bool {
	x, _ := json.Marshal(a) // what came from JSON goes to it
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// exact decodes JSON; whole numbers keep all digits.
func exact(t *testing.T, b []byte) any {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v), "%s", b)
	return normal(v)
}

func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = normal(x)
		}
	case []any:
		for i, x := range v {
			v[i] = normal(x)
		}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			x, _ := strconv.ParseFloat(v.String(), 64) // JSON's numbers are numbers
			return strconv.FormatFloat(x, 'f', -1, 64)
		}
		return v.String()
	}
	return v
}

func TestDecimalText(t *testing.T) {
	for want, x := range map[string]struct{ n, scale int64 }{"0.00": {0, 2}, "-0.05": {-5, 2}, "12.3": {123, 1},
		"-12300": {-123, -2}, "7": {7, 0}} {
		require.Equal(t, want, decimalText(big.NewInt(x.n), int(x.scale)))
	}
}

// Numbers with a fraction are written with one, as Python writes what it reads of such columns.
func TestFractions(t *testing.T) {
	for want, x := range map[string]float64{"3.0": 3, "-0.5": -0.5, "1e+22": 1e22, "1e-07": 1e-7, `"NaN"`: math.NaN()} {
		w := &rowWriter{}
		w.number(x, 64)
		require.Equal(t, want, w.out.String())
	}
}
