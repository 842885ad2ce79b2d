package diffusers

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/source"
)

type inner struct {
	Rate float64 `json:"rate"`
}

// sample has a field of each kind that settings have.
type sample struct {
	inner
	On      bool      `json:"on"`
	Layers  int       `json:"layers"`
	Factor  *float64  `json:"factor"`
	Size    *int      `json:"size"`
	Kinds   []string  `json:"kinds"`
	Widths  []int     `json:"widths"`
	Means   []float64 `json:"means"`
	Halves  []bool    `json:"halves"`
	Kind    string    `json:"kind"`
	Tile    Size      `json:"tile"`
	Sides   Size      `json:"sides"`
	private int
}

func read(text string) (*sample, *Faults) {
	s, f := &sample{Layers: 2, Kind: "plain"}, New("config.json")
	raw := f.Object([]byte(text), "give another file")
	if raw != nil && f.Class(raw, "sample", []string{"Sample"}) != "" {
		f.Fill(s, raw, []string{"older"}, "no sample")
	}
	return s, f
}

// TestRead: values of every kind, those of keys that lie elsewhere, and the defaults of absent ones.
func TestRead(t *testing.T) {
	s, f := read(`{"_class_name": "Sample", "_diffusers_version": "0.1", "_name_or_path": "x", "older": 3,
		"rate": -Infinity, "on": true, "factor": 0.5, "size": null, "kinds": ["a"], "widths": [1, 2],
		"means": null, "halves": [false], "tile": 8, "sides": [8, 9]}`)
	require.NoError(t, f.Err())
	half := 0.5
	require.Equal(t, &sample{inner: inner{math.Inf(-1)}, On: true, Layers: 2, Factor: &half,
		Kinds: []string{"a"}, Widths: []int{1, 2}, Halves: []bool{false}, Kind: "plain",
		Tile: Size{8}, Sides: Size{8, 9}}, s)
	require.True(t, f.Has("size"))
	require.False(t, f.Has("kind"))
	again, f := read(string(Marshal("Sample", s)))
	require.NoError(t, f.Err())
	require.Equal(t, s, again)
}

// TestMarshal: the text is diffusers', with keys in order.
func TestMarshal(t *testing.T) {
	half, two := 1.0, 2
	require.Equal(t, `{
  "_class_name": "Sample",
  "_diffusers_version": "0.42.1",
  "factor": 1.0,
  "halves": null,
  "kind": "",
  "kinds": [],
  "layers": 0,
  "means": [
    1e-7,
    2.0
  ],
  "on": false,
  "rate": Infinity,
  "sides": [
    2,
    2
  ],
  "size": 2,
  "tile": 7,
  "widths": null
}
`, string(Marshal("Sample", &sample{inner: inner{math.Inf(1)}, Factor: &half, Size: &two, Kinds: []string{},
		Means: []float64{1e-7, 2}, Sides: Size{2, 2}, Tile: Size{7}})))
}

// TestFaults: each fault has its file, line and key, and all are reported.
func TestFaults(t *testing.T) {
	for _, c := range [][2]string{
		{`[1]`,
			"config.json:1: no JSON object: it begins with [; give another file"},
		{"{\"_class_name\": \"Sample\",\n\"layers\": }",
			"config.json:2: no JSON object: invalid character '}'"},
		{`{"_class_name": "Sample"} {}`,
			"more text behind the object"},
		{`{"_class_name": "Sampel"}`,
			`config.json:1: _class_name: "Sampel" is unknown; did you mean "Sample"?`},
		{`{}`,
			"_class_name: the file does not say which sample it is of; set one of Sample"},
		{"{\"_class_name\": \"Sample\",\n\"layer\": 1}",
			`config.json:2: layer: no sample has this key; did you mean "layers"?`},
		{`{"_class_name": "Sample", "layers": 1, "layers": 2}`,
			"layers: the key is given twice; leave one"},
		{`{"_class_name": "Sample", "layers": 1.5}`,
			`layers: "1.5" where an integer belongs`},
		{`{"_class_name": "Sample", "layers": null}`,
			"layers: null where an integer belongs"},
		{`{"_class_name": "Sample", "kinds": [1]}`,
			`kinds: "[1]" where a list of strings or null belongs`},
		{`{"_class_name": "Sample", "factor": "a"}`,
			`factor: "\"a\"" where a number or null belongs`},
		{`{"_class_name": "Sample", "halves": 1}`,
			`halves: "1" where a list of true and false or null belongs`},
		{`{"_class_name": "Sample", "tile": "a"}`,
			`tile: "\"a\"" where an integer or a list of integers belongs`},
		{`{"_class_name": "Sample", "on": 1}`,
			`on: "1" where true or false belongs`},
		{strings.Repeat(" ", fileMax+1),
			"more than 1048576 bytes"},
		{`{"_class_name": "Sample", "private": 1, "rate": "x"}`,
			"private: no sample has this key"},
		{`{"_class_name": "Sample", "kind": 1, "kinds": "a"}`,
			"kinds: "},
		{`{"_class_name": "Sample", "widths": [1, "a"], "kind": "a"}`,
			"where a list of integers or null belongs"},
	} {
		_, f := read(c[0])
		require.ErrorContains(t, f.Err(), c[1])
	}
	f := New("a.json")
	f.Within("x", 2, 0, 1)
	f.Within("y", 1, 0, 1)
	f.OneOf("z", "aa", "bb")
	require.Len(t, source.Faults(f.Err()), 2)
	require.EqualError(t, f.Err(), "a.json: x: 2 is out of range; set a number from 0 to 1\n"+
		"a.json: z: \"aa\" is unknown; one of bb")
	require.Zero(t, (&sample{}).private)
}

// TestReadFile: what is not there is an error of the system, and no more is read than settings may have.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	_, err := ReadFile(path, "an autoencoder's settings")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "an autoencoder's settings")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("a", fileMax+9)), 0o644))
	text, err := ReadFile(path, "")
	require.NoError(t, err)
	require.Len(t, text, fileMax+1)
}
