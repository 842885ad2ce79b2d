package token

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fastChunk is chunk c of bench/golden/fast.py, [8 3].
func fastChunk(c int) [][]float64 {
	out := make([][]float64, 8)
	for t := range out {
		for d := range 3 {
			v := math.Sin(0.37*float64(c)+0.11*float64(d+1)*float64(t)*float64(1+c%5)) * 0.8
			if c%7 == d && t > 4 {
				v += 0.3
			}
			out[t] = append(out[t], v)
		}
	}
	return out
}

// TestFAST: fitted to the same chunks, the tokenizer has the vocabulary and the merges of the published
// processor, and makes the same tokens of 1,000 chunks; what it decodes is as far from the actions.
func TestFAST(t *testing.T) {
	published, err := OpenFAST("testdata/fast")
	require.NoError(t, err)
	var chunks [][][]float64
	for c := range 1000 {
		chunks = append(chunks, fastChunk(c))
	}
	fitted, err := FitFAST(chunks[:400], 10, 400)
	require.NoError(t, err)
	require.Equal(t, published.Least, fitted.Least)
	type model struct {
		Model struct {
			Vocab  map[string]int32
			Merges [][2]string
		}
	}
	var want, got model
	require.NoError(t, json.Unmarshal(published.file, &want))
	require.NoError(t, json.Unmarshal(fitted.file, &got))
	require.Equal(t, want, got)

	dir := t.TempDir()
	require.NoError(t, fitted.Save(dir))
	again, err := OpenFAST(dir)
	require.NoError(t, err)
	b, err := os.ReadFile("testdata/fast/ids.json")
	require.NoError(t, err)
	var golden struct {
		IDs   [][]int32
		Worst float64
	}
	require.NoError(t, json.Unmarshal(b, &golden))
	worst := 0.0
	for i, c := range chunks {
		ids, err := again.Encode(c)
		require.NoError(t, err)
		require.Equal(t, golden.IDs[i], ids, "chunk %d", i)
		back, err := published.Decode(ids, 8, 3)
		require.NoError(t, err)
		for k := range c {
			for d, v := range c[k] {
				worst = max(worst, math.Abs(back[k][d]-v))
			}
		}
	}
	require.InDelta(t, golden.Worst, worst, 1e-9)
}

// TestFASTRefuses: what is no chunk, and tokens that are of none.
func TestFASTRefuses(t *testing.T) {
	f, err := OpenFAST("testdata/fast")
	require.NoError(t, err)
	for _, c := range []struct {
		chunk [][]float64
		want  string
	}{{nil, "without actions"}, {[][]float64{{}}, "without actions"}, {[][]float64{{1, 2}, {1}},
		"action 1 has 1 numbers"},
		{[][]float64{{math.NaN()}}, "is NaN"}, {[][]float64{{1e9}}, "about -1 to 1"}} {
		_, err := f.Encode(c.chunk)
		require.ErrorContains(t, err, c.want)
	}
	low, err := f.Encode([][]float64{{-1e3}})
	require.NoError(t, err)
	least, err := f.Encode([][]float64{{float64(f.Least) / f.Scale}})
	require.NoError(t, err)
	require.Equal(t, least, low)
	back, err := f.Decode([]int32{0}, 2, 3)
	require.ErrorIs(t, err, ErrChunk)
	require.Equal(t, [][]float64{{0, 0, 0}, {0, 0, 0}}, back)
	_, err = FitFAST(nil, 10, 100)
	require.ErrorContains(t, err, "no chunks")
	_, err = FitFAST([][][]float64{{{1}}, {{-1}}}, 100, 100)
	require.ErrorContains(t, err, "no room for coefficients from -100 to 100")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "processor_config.json"), []byte(`{"scale": 0}`), 0o644))
	_, err = OpenFAST(dir)
	require.ErrorContains(t, err, "want scale above 0")
}

// TestBins: tokens as OpenVLA's ActionTokenizer makes them, with numpy.digitize (bins.json of bench/golden/fast.py).
func TestBins(t *testing.T) {
	b, err := os.ReadFile("testdata/fast/bins.json")
	require.NoError(t, err)
	var want struct {
		Values  []float64
		IDs     []int32
		Decoded []float64
	}
	require.NoError(t, json.Unmarshal(b, &want))
	bins := Bins{Vocab: 32000}
	require.Equal(t, want.IDs, bins.Encode(want.Values))
	require.InDeltaSlice(t, want.Decoded, bins.Decode(want.IDs), 1e-15)
	require.Equal(t, []int32{31999}, bins.Encode([]float64{math.NaN()}))
	require.Equal(t, bins.Decode([]int32{31745}), bins.Decode([]int32{7}))
}

// TestFASTGuide: whatever tokens are taken of those that are allowed, a chunk of the shape comes of them.
func TestFASTGuide(t *testing.T) {
	f, err := OpenFAST("testdata/fast")
	require.NoError(t, err)
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		g := f.Guide(8, 3)
		require.False(t, g.Allows(-1))
		require.False(t, g.Allows(int32(f.VocabSize())))
		for !g.Done() {
			var may []int32
			for id := range int32(f.VocabSize()) {
				if g.Allows(id) {
					may = append(may, id)
				}
			}
			require.NotEmpty(t, may)
			g.Take(may[draw.IntN(len(may))])
		}
		_, err := f.Decode(g.Tokens(), 8, 3)
		require.NoError(t, err)
	}
	chunk := fastChunk(3)
	ids, err := f.Encode(chunk)
	require.NoError(t, err)
	g := f.Guide(8, 3)
	for _, id := range ids { // what a policy learns is allowed
		require.True(t, g.Allows(id))
		g.Take(id)
	}
	require.True(t, g.Done())
}
