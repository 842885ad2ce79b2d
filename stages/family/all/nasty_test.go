package all

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

var long = flag.Bool("long", false, "run the long tier as well")

// nasty are values that no key, or hardly one, can have.
var nasty = []string{`null`, `-1`, `0`, `0.5`, `1e30`, `-1e30`, `9223372036854775807`, `99999999999999999999`,
	`"NaN"`, `""`, `"x"`, `[]`, `{}`, `true`, `[0, 0, 0]`, `[[1], {"a": null}]`, `{"a": {"b": [1]}}`}

// nastyPlaces are a file's keys, one below another where their values are mappings.
func nastyPlaces(m map[string]any, at []string) (out [][]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		path := append(slices.Clone(at), key)
		out = append(out, path)
		if below, ok := m[key].(map[string]any); ok {
			out = append(out, nastyPlaces(below, path)...)
		}
	}
	return out
}

// TestNasty: a policy's config.json that has a value in any of its places that none can have is refused with
// the folder's name, or read as a model that can be built, written and read again.
func TestNasty(t *testing.T) {
	files, err := filepath.Glob("../robots/testdata/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	type one struct {
		file  string
		path  []string
		value string
	}
	var cases []one
	for _, file := range files {
		var whole map[string]any
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &whole))
		for _, path := range nastyPlaces(whole, nil) {
			for _, v := range nasty {
				cases = append(cases, one{file, path, v})
			}
		}
	}
	if !*long {
		r := rand.New(rand.NewPCG(1, 2))
		r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		cases = cases[:400]
	}
	dir := t.TempDir()
	for _, c := range cases {
		what := fmt.Sprintf("%s of %s as %s", strings.Join(c.path, "."),
			filepath.Base(filepath.Dir(c.file)), c.value)
		require.NotPanics(t, func() { nastyFile(t, dir, c.file, c.path, c.value, what) }, what)
	}
}

// nastyFile reads a file with a value in a place.
func nastyFile(t *testing.T, dir, file string, path []string, value, what string) {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var whole map[string]any
	require.NoError(t, json.Unmarshal(b, &whole))
	m := whole
	for _, key := range path[:len(path)-1] {
		m = m[key].(map[string]any)
	}
	m[path[len(path)-1]] = json.RawMessage(value)
	read := func(text []byte) (configs.Model, error) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
		return configs.ReadModel(dir)
	}
	if b, err = json.Marshal(whole); err != nil {
		t.Fatal(what, err)
	}
	c, err := read(b)
	if err != nil {
		require.ErrorContains(t, err, dir, what)
		return
	}
	if _, err := family.Build(c, 0); err != nil {
		require.NotEmpty(t, err.Error(), what)
		return
	}
	text := c.HFConfig("float32")
	again, err := read(text)
	if assert.NoError(t, err, what) {
		assert.JSONEq(t, string(text), string(again.HFConfig("float32")), what)
	}
}
