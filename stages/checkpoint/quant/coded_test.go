package quant

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// randomCoded is a matrix of random codes.
func randomCoded(t *testing.T, rows, cols, group int) *Coded {
	c, fits := NewCoded(rows, cols, group)
	require.True(t, fits)
	r := rand.New(rand.NewPCG(1, uint64(rows)))
	for i := range rows {
		for g := range cols / group {
			c.SetGroup(i, g, r.Float32(), uint8(r.IntN(16)))
		}
		for j := range cols {
			c.Set(i, j, uint8(r.IntN(16)))
		}
	}
	return c
}

// TestRecode: matrices in codes are written in GPTQ's and AWQ's layouts, whole or a few rows at a time,
// and what reads those gives the numbers of the codes; others stay, and one that was changed has its new numbers.
func TestRecode(t *testing.T) {
	for _, form := range []string{"gptq", "awq"} {
		src := quantSource(t, checkpoint.BF16)
		a, b := randomCoded(t, 256, 256, 64), randomCoded(t, 8, 64, 64)
		norm := make([]float32, 64)
		for i := range norm {
			norm[i] = float32(i) / 4
		}
		few, config, err := Recode(src, form, 64, map[string]*Coded{"a.weight": a, "head.weight": b},
			map[string][]float32{"norm.weight": norm})
		require.NoError(t, err)
		require.Contains(t, string(config), `"group_size":64`)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), mustJSON(t, map[string]any{
			"quantization_config": json.RawMessage(config)}), 0o644))
		whole, err := Dequantized(few, dir)
		require.NoError(t, err)
		for name, c := range map[string]*Coded{"a.weight": a, "head.weight": b} {
			got, err := (&finder{src: whole}).floats(infoOf(whole, name), [2]int{0, c.Rows}, [2]int{0,
				c.Cols})
			require.NoError(t, err)
			want := make([]float32, c.Cols)
			for r := range c.Rows {
				c.Row(r, want)
				require.Equal(t, want, got[r*c.Cols:(r+1)*c.Cols], "%s %s, row %d", form, name, r)
			}
		}
		got, err := (&finder{src: whole}).floats(infoOf(whole, "norm.weight"), [2]int{0, 64})
		require.NoError(t, err)
		require.Equal(t, norm, got)
		same, err := (&finder{src: whole}).floats(infoOf(whole, "b.weight"), [2]int{0, 130}, [2]int{0, 320})
		require.NoError(t, err)
		old, err := (&finder{src: src}).floats(infoOf(src, "b.weight"), [2]int{0, 130}, [2]int{0, 320})
		require.NoError(t, err)
		require.Equal(t, old, same)
		words := infoOf(few, "a.qweight")
		all := make([]byte, words.Bytes)
		ranges := [][2]int{{0, words.Shape[0]}, {0, words.Shape[1]}}
		require.NoError(t, few.ReadRanges(words.Name, ranges, all))
		part := make([]byte, 4*3*5)
		require.NoError(t, few.ReadRanges(words.Name, [][2]int{{2, 5}, {1, 6}}, part))
		for i := range 3 {
			at := 4 * ((2+i)*words.Shape[1] + 1)
			require.Equal(t, all[at:at+20], part[20*i:20*(i+1)])
		}
		require.Error(t, few.ReadRanges(words.Name, ranges, part))
	}
	_, _, err := Recode(quantSource(t, checkpoint.F32), "marlin", 64, nil, nil)
	require.Error(t, err)
	for _, shape := range [][3]int{{4, 64, 32}, {8, 48, 32}, {8, 12, 4}, {0, 64, 32}, {8, 64, 0}} {
		_, fits := NewCoded(shape[0], shape[1], shape[2])
		require.False(t, fits, "%v", shape)
	}
}

func infoOf(src checkpoint.Source, name string) checkpoint.Info {
	for _, t := range src.Tensors() {
		if t.Name == name {
			return t
		}
	}
	return checkpoint.Info{}
}

func mustJSON(t *testing.T, v any) []byte {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// TestRecodeOrdered: GPTQ's layout says which group a column is of, where act-order mixes them; AWQ's cannot.
func TestRecodeOrdered(t *testing.T) {
	a := randomCoded(t, 8, 64, 8)
	order := rand.New(rand.NewPCG(2, 2)).Perm(64)
	a.SetOrder(order)
	few, config, err := Recode(quantSource(t, checkpoint.F32), "gptq", 8, map[string]*Coded{"head.weight": a}, nil)
	require.NoError(t, err)
	require.Contains(t, string(config), `"desc_act":true`)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), mustJSON(t, map[string]any{
		"quantization_config": json.RawMessage(config)}), 0o644))
	whole, err := Dequantized(few, dir)
	require.NoError(t, err)
	got, err := (&finder{src: whole}).floats(infoOf(whole, "head.weight"), [2]int{0, 8}, [2]int{0, 64})
	require.NoError(t, err)
	want := make([]float32, 64)
	for r := range 8 {
		a.Row(r, want)
		require.Equal(t, want, got[r*64:(r+1)*64])
		scale, zero := a.GroupAt(r, 0)
		require.Equal(t, float32(int(a.At(r, order[7]))-int(zero))*scale, want[order[7]])
	}
	_, _, err = Recode(quantSource(t, checkpoint.F32), "awq", 8, map[string]*Coded{"head.weight": a}, nil)
	require.ErrorContains(t, err, "has no place")
}
