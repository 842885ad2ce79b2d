package gguf

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFewBits: routers are float32 beside few bits, as llama.cpp keeps them, and blocks whose scales are beyond
// float16 are told from others.
func TestFewBits(t *testing.T) {
	for _, name := range Written() {
		want := writtenTypes[name].t
		if want.few() {
			want = F32
		}
		require.Equal(t, want, writtenTypes[name].of("blk.0.ffn_gate_inp.weight", []int{8, 256}, &config{}), name)
		require.Equal(t, writtenTypes[name].t, writtenTypes[name].of("blk.0.ffn_up.weight", []int{8, 256}, &config{}),
			name)
		if !writtenTypes[name].t.few() {
			continue
		}
		x := make([]float32, 256)
		x[0], x[1] = 1, -1
		require.True(t, wholeBlocks(writtenTypes[name].t, writtenTypes[name].t.encode(nil, x)), name)
		x[0], x[1] = 1e9, -1e9
		require.True(t, beyond(x[0]) && beyond(x[1]))
		require.False(t, wholeBlocks(writtenTypes[name].t, writtenTypes[name].t.encode(nil, x)), name)
	}
}

// TestMixtures: llama.cpp's mixtures have its types, layer by layer: of models whose embedding is the head or not,
// with rows of no whole blocks, of 8 and of 16 experts, and of 80 layers (bench/golden/gguf_mixtures.py).
func TestMixtures(t *testing.T) {
	var cases []struct {
		Layers, Heads, Experts int
		KVHeads                int `json:"kv_heads"`
		Tied                   bool
		Shapes                 map[string][]int
		Types                  map[string]map[string]string
	}
	golden(t, "mixtures.json", &cases)
	require.Len(t, cases, 6)
	letters := map[Type]string{F32: ".", F16: "h", Q3_K: "3", Q4_K: "4", Q5_K: "5", Q6_K: "6", Q8_0: "8", Q4_0: "D",
		Q5_0: "E", Q5_1: "F"}
	for k, of := range cases {
		c := &config{layers: of.Layers, heads: of.Heads, kvHeads: of.KVHeads, experts: of.Experts, tied: of.Tied}
		require.Len(t, of.Types, len(mixtures))
		for dtype, want := range of.Types {
			for name, by := range want {
				got := ""
				for i := range len(by) {
					tensor := strings.ReplaceAll(name, "*", strconv.Itoa(i))
					got += letters[writtenTypes[dtype].of(tensor, of.Shapes[name], c)]
				}
				require.Equal(t, by, got, "model %d, %s, %s", k, dtype, name)
			}
		}
	}
}
