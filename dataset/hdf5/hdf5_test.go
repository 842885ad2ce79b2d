package hdf5

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what bench/golden/hdf5.py read of a file by h5py.
type golden struct {
	Data map[string]struct {
		Shape  []int
		Values []float64
	}
	Names []string
	Attrs map[string]string
}

func open(t testing.TB, name string) *File {
	b, err := os.ReadFile(filepath.Join("testdata", name+".hdf5"))
	require.NoError(t, err)
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	return f
}

// TestFiles: names, values and texts of files are those that h5py reads, whole and row by row.
func TestFiles(t *testing.T) {
	b, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var all map[string]golden
	require.NoError(t, json.Unmarshal(b, &all))
	require.GreaterOrEqual(t, len(all), 20)
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			root, err := open(t, name).Root()
			require.NoError(t, err)
			names, err := root.Names()
			require.NoError(t, err)
			require.Equal(t, want.Names, names)
			for path, v := range want.Data {
				o, err := root.Find(path)
				require.NoError(t, err)
				d, err := o.Data()
				require.NoError(t, err, path)
				require.Equal(t, v.Shape, d.Shape)
				raw, err := d.Rows(0, d.Shape[0])
				require.NoError(t, err, path)
				got, err := d.Numbers(raw)
				require.NoError(t, err)
				require.Equal(t, v.Values, got, path)
				for i := range d.Shape[0] {
					row, err := d.Rows(i, 1)
					require.NoError(t, err)
					require.Equal(t, raw[i*d.Row():(i+1)*d.Row()], row)
				}
			}
			for key, text := range want.Attrs {
				o, err := root.Find("deep")
				require.NoError(t, err)
				got, err := o.Attribute(key)
				require.NoError(t, err)
				require.Equal(t, text, got)
			}
		})
	}
}

// TestFaults: what is not there, or no file of HDF5, is said.
func TestFaults(t *testing.T) {
	_, err := Open(strings.NewReader("hello"), 5)
	require.ErrorContains(t, err, "no file of HDF5")
	root, err := open(t, "whole").Root()
	require.NoError(t, err)
	_, err = root.Find("deep/er/v99")
	require.ErrorContains(t, err, `no "v99"`)
	o, err := root.Find("deep/er/v0")
	require.NoError(t, err)
	d, err := o.Data()
	require.NoError(t, err)
	_, err = d.Rows(3, 100)
	require.ErrorContains(t, err, "not there")
	_, err = root.Data()
	require.ErrorContains(t, err, "no data set")
	text, err := o.Attribute("none")
	require.NoError(t, err)
	require.Empty(t, text)
}

// FuzzFile: no file makes it crash, or read without an end.
func FuzzFile(f *testing.F) {
	for _, name := range []string{"all", "latest108", "grown", "robomimic"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".hdf5"))
		require.NoError(f, err)
		f.Add(b[:min(len(b), 24<<10)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		var visit func(o *Object, depth int)
		left := 200
		visit = func(o *Object, depth int) {
			names, err := o.Names()
			if left = max(0, left-1); err != nil || depth > 4 {
				return
			}
			_, _ = o.Attribute("text") // faults are what is looked for
			if d, err := o.Data(); err == nil && len(d.Shape) > 0 && d.Row() < 1<<16 {
				if raw, err := d.Rows(0, min(d.Shape[0], 16)); err == nil {
					_, _ = d.Numbers(raw) // the same
				}
			}
			for _, name := range names {
				if left == 0 {
					return
				}
				if child, err := o.Find(name); err == nil && name != "" {
					visit(child, depth+1)
				}
			}
		}
		if root, err := h.Root(); err == nil {
			visit(root, 0)
		}
	})
}
