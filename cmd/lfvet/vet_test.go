package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write the findings of testdata/bad to want.txt")

// TestRepository holds the project itself to its rules.
func TestRepository(t *testing.T) {
	root, err := moduleRoot(".")
	require.NoError(t, err)
	found, err := vet(root, layersText)
	require.NoError(t, err)
	for _, f := range found {
		t.Error(f)
	}
}

// TestPicture: the picture of the house is what the imports are, and the data's way leads through packages
// that there are.
func TestPicture(t *testing.T) {
	root, err := moduleRoot(".")
	require.NoError(t, err)
	var got, errs bytes.Buffer
	require.Zero(t, run([]string{"-picture", root}, &got, &errs), errs.String())
	want, err := os.ReadFile(filepath.Join(root, picturePath))
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "go run ./cmd/lfvet -picture > "+picturePath)
	for _, s := range dataWay {
		require.Contains(t, got.String(), ">"+s[0]+"</text>", "no package %s", s[0])
	}
}

// planted copies testdata/bad to a new folder and adds the files that odd.txt names: the module zip of this
// project could not hold them.
func planted(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/bad")))
	names, err := os.ReadFile("testdata/bad/odd.txt")
	require.NoError(t, err)
	for name := range strings.Lines(string(names)) {
		name, err := strconv.Unquote(strings.TrimSpace(name))
		require.NoError(t, err)
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	}
	return root
}

// TestPlanted finds every planted violation in testdata/bad and nothing else.
func TestPlanted(t *testing.T) {
	layers, err := os.ReadFile("testdata/bad/layers.txt")
	require.NoError(t, err)
	found, err := vet(planted(t), string(layers))
	require.NoError(t, err)
	var got strings.Builder
	for _, f := range found {
		fmt.Fprintln(&got, f)
	}
	want := filepath.Join("testdata", "bad", "want.txt")
	if *rewrite {
		require.NoError(t, os.WriteFile(want, []byte(got.String()), 0o644))
	}
	text, err := os.ReadFile(want)
	require.NoError(t, err)
	require.Equal(t, string(text), got.String())
}

func TestParseLayersNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"a: 0\na: 1\n":       "layers.txt:2: a has two lines",
		"# note\na\n":        `layers.txt:2: want "package: layer words…"`,
		"a: high\n":          `layers.txt:1: a: layer "high" is not a number`,
		"\na: 0 b\nb/*: x\n": `layers.txt:3: b/*: layer "x" is not a number`,
	} {
		_, err := parseLayers(text)
		require.EqualError(t, err, want)
	}
}

// TestPolicy pins what each arrow of the real policy says, so that a loosened line is seen.
func TestPolicy(t *testing.T) {
	p, err := parseLayers(layersText)
	require.NoError(t, err)
	for arrow, want := range map[string]string{
		"kernels/cpu > kernels":                                "",
		"kernels > kernels/tensor":                             "",
		"kernels/tensor > kernels":                             "same layer",
		"kernels > kernels/grad":                               "upwards",
		"actors/core > actors/host":                            "upwards",
		"sim > actors/host":                                    "same layer",
		"actors/layout > actors/host":                          "upwards",
		"sim > kernels/grad":                                   "forbidden",
		"actors/core > sim/planner":                            "sim lies above actors",
		"stages/optim > actors/wire":                           "actors lies above stages",
		"configs > kernels/tensor":                             "on one floor",
		"sim > actors/core":                                    "",
		"stages/optim > stages/checkpoint":                     "same layer",
		"actors/core > github.com/asynkron/protoactor-go":      "not on its line",
		"actors/host > github.com/asynkron/protoactor-go/cell": "",
		"cmd/lfactor > github.com/apache/arrow/go/v17/arrow":   "not on its line",
		"actors/wire > github.com/apache/arrow/go/v17/arrow":   "",
		"pipeline/plan > nowhere":                              "no line",
		"topology > fmt":                                       "",
	} {
		from, to, _ := strings.Cut(arrow, " > ")
		rule, ok := p.find(from)
		require.True(t, ok, from)
		why := p.refuses(from, rule, false, to, !strings.Contains(to, ".") && to != "fmt")
		if want == "" {
			require.Empty(t, why, arrow)
		} else {
			require.Contains(t, why, want, arrow)
		}
	}
}

func TestRunExitCodes(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 1, run([]string{"testdata/bad/low"}, &out, &errs), "the whole module of a folder is checked")
	require.Contains(t, out.String(), "low/low_test.go:12: sleep: ")
	require.Empty(t, errs.String())

	require.Equal(t, 2, run([]string{t.TempDir()}, &out, &errs))
	require.Contains(t, errs.String(), "no go.mod here or above")
}
