package gguf

import (
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
		require.Equal(t, want, writtenTypes[name].of("blk.0.ffn_gate_inp.weight", []int{8, 256}), name)
		require.Equal(t, writtenTypes[name].t, writtenTypes[name].of("blk.0.ffn_up.weight", []int{8, 256}),
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
