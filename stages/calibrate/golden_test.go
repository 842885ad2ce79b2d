package calibrate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

// numbers are those of bench/golden/calibrate.py: what was read, in sixteenths, and two matrices in parts of 256.
type numbers struct {
	Group int
	X     [][]float64
	W     [][][]float64
}

func read(t *testing.T, name string, out any) {
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, out))
}

// given are the numbers, as a layer's inputs and its matrices.
func given(t *testing.T) (in *inputs, ms []*matrix) {
	var g numbers
	read(t, "inputs.json", &g)
	k := len(g.X[0])
	in = &inputs{sums: tensor.Make(tensor.F32, k, k), mags: make([]float64, k), rows: len(g.X),
		names: []string{"a", "b"}}
	for _, x := range g.X {
		for i := range x {
			for j := range x {
				in.sums.F32()[i*k+j] += float32(x[i] * x[j] / 256) // exact
			}
			in.mags[i] += max(x[i], -x[i]) / 16
		}
	}
	for _, w := range g.W {
		m := &matrix{w: mat.NewDense(len(w), k, nil)}
		for i, row := range w {
			for j, v := range row {
				m.w.Set(i, j, v/256)
			}
		}
		var fits bool
		m.coded, fits = quant.NewCoded(len(w), k, g.Group)
		require.True(t, fits)
		ms = append(ms, m)
	}
	return in, ms
}

type coded struct {
	Codes, Zeros [][]uint8
	Scales       [][]float32
}

// UnmarshalJSON reads codes as numbers, where []uint8 would be text.
func (c *coded) UnmarshalJSON(text []byte) error {
	var v struct {
		Codes, Zeros [][]int
		Scales       [][]float32
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	bytes := func(in [][]int) (out [][]uint8) {
		for _, row := range in {
			b := make([]uint8, len(row))
			for i, x := range row {
				b[i] = uint8(x)
			}
			out = append(out, b)
		}
		return out
	}
	c.Codes, c.Zeros, c.Scales = bytes(v.Codes), bytes(v.Zeros), v.Scales
	return nil
}

// same holds codes, scales and zeros to those of PyTorch; zero stands for zeros that it does not tell.
func same(t *testing.T, want coded, got *quant.Coded, zero uint8) {
	t.Helper()
	for r, row := range want.Codes {
		for c, code := range row {
			require.Equal(t, code, got.At(r, c), "row %d, column %d", r, c)
		}
		for g, s := range want.Scales[r] {
			scale, z := got.GroupAt(r, g)
			require.Equal(t, s, scale, "row %d, group %d", r, g)
			if want.Zeros != nil {
				zero = want.Zeros[r][g]
			}
			require.Equal(t, zero, z, "row %d, group %d", r, g)
		}
	}
}

// TestGPTQ: codes and scales are those that the paper's algorithm chooses in PyTorch, column by column in
// float64, of what the same rows read (bench/golden/calibrate.py); a column that nothing reads is 0.
func TestGPTQ(t *testing.T) {
	in, ms := given(t)
	u, dead, err := gptqFactor(symmetric(in), damping)
	require.NoError(t, err)
	require.True(t, dead[5])
	gptq(ms[0].w, u, dead, nil, ms[0].coded)
	var want coded
	read(t, "gptq.json", &want)
	same(t, want, ms[0].coded, 8)
}

// TestGPTQByActivations: with act-order, codes, scales and groups are those of the paper's algorithm in
// PyTorch on columns that are sorted first, and what the layout's reader gives has them.
func TestGPTQByActivations(t *testing.T) {
	in, ms := given(t)
	h := symmetric(in)
	order := actOrder(h)
	u, dead, err := gptqFactor(ordered(h, order), damping)
	require.NoError(t, err)
	gptq(ms[0].w, u, dead, order, ms[0].coded)
	var want coded
	var numbers struct{ Numbers [][]float32 }
	read(t, "gptq_order.json", &want)
	read(t, "gptq_order.json", &numbers)
	same(t, want, ms[0].coded, 8)
	for r, row := range numbers.Numbers {
		got := make([]float32, len(row))
		ms[0].coded.Row(r, got)
		require.Equal(t, row, got)
	}
}

// TestAWQ: the factors of columns that two layers share, and codes, scales and zeros of both, are those of
// llm-awq's search in PyTorch (bench/golden/calibrate.py).
func TestAWQ(t *testing.T) {
	in, ms := given(t)
	b := &blockOf{loaded: map[string]*matrix{"a": ms[0], "b": ms[1]},
		run: &grad.Runner{Backend: cpu.New(1), Pool: tensor.NewPool("test", 0)}}
	by, err := b.search(in, []string{"a", "b"})
	require.NoError(t, err)
	var want struct {
		By       []float64
		Matrices []coded
	}
	read(t, "awq.json", &want)
	require.InDeltaSlice(t, want.By, by, 1e-12)
	sums := in.sums.F32()
	k := len(by)
	for i := range sums {
		sums[i] /= float32(by[i/k] * by[i%k])
	}
	for i, m := range ms {
		m.multiply(by)
		m.awq(sums, true)
		same(t, want.Matrices[i], m.coded, 0)
	}
}

// TestSumsThatAreNot: a text whose states are not finite is an error and no codes.
func TestSumsThatAreNot(t *testing.T) {
	in, ms := given(t)
	nan := in.sums.F32()[0]
	nan -= nan
	in.sums.F32()[0] = nan / nan
	_, _, err := gptqFactor(symmetric(in), damping)
	require.ErrorContains(t, err, "not finite")
	b := &blockOf{loaded: map[string]*matrix{"a": ms[0]},
		run: &grad.Runner{Backend: cpu.New(1), Pool: tensor.NewPool("test", 0)}}
	_, err = b.search(in, []string{"a"})
	require.ErrorContains(t, err, "not finite")
}
