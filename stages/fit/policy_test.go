package fit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// table has the layout that LoongForge's tools/benchmark_te_parallel_layers.py exports.
const table = `{"version": 1, "speedup_threshold": 1.0, "rules": {
 "layernorm_column": {"qkv": [{"tp": 1, "min_tokens": 4096, "measured_speedup": 1.1}, {"tp": 2,
	"min_tokens": 8192}],
   "fc1": [{"tp": 1, "min_tokens": 99999999}]},
 "column": {"qkv": [{"tp": 1, "min_tokens": 5000}]},
 "row": {"proj": [{"tp": 1, "min_tokens": 1}]},
 "column_grouped": [{"etp": 1, "num_gemms": 8, "min_tokens": 2048}]}}`

// TestPolicy: a table takes weights by kind, name, ranks and tokens; of doubled rules the larger holds, and what is
// not in it is not taken.
func TestPolicy(t *testing.T) {
	p, err := ParsePolicy("table", []byte(table))
	require.NoError(t, err)
	q, gate := "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_proj.weight"
	require.False(t, p.Takes(q, false, 4999, 1, 1, 0))
	require.True(t, p.Takes(q, false, 5000, 1, 1, 0))
	require.True(t, p.Takes(q, false, 8192, 2, 1, 0))
	require.False(t, p.Takes(q, false, 8192, 4, 1, 0), "no rule of four ranks")
	require.False(t, p.Takes(gate, false, 1<<20, 1, 1, 0))
	require.True(t, p.Takes("model.layers.0.self_attn.o_proj.weight", false, 1, 1, 1, 0))
	require.False(t, p.Takes("model.layers.0.mlp.down_proj.weight", false, 1<<20, 1, 1, 0),
		"not in the table")
	require.False(t, p.Takes("model.layers.0.mlp.odd.weight", false, 1<<20, 1, 1, 0))
	expert := "model.layers.0.mlp.experts.up_proj.weight"
	require.True(t, p.Takes(expert, true, 2048, 4, 1, 8))
	require.False(t, p.Takes(expert, true, 2047, 1, 1, 8))
	require.False(t, p.Takes(expert, true, 2048, 1, 1, 4))
	for text, want := range map[string]string{"{": "unexpected end", `{"version": 2}`: "version 2, want 1",
		`{"version": 1, "rules": {"sideways": {}}}`:         "rules.sideways: unknown kind",
		`{"version": 1, "rules": {"row": {"proj": "all"}}}`: "rules.row: json"} {
		_, err := ParsePolicy("table", []byte(text))
		require.ErrorContains(t, err, "table: ")
		require.ErrorContains(t, err, want)
	}
	_, err = ReadPolicy(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzPolicy: no text ends but in a table or an error, and a table answers.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(table))
	f.Add([]byte(`{"version": 1, "rules": {"row": {"proj": [{"tp": 1}]}}}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if p, err := ParsePolicy("table", text); err == nil {
			p.Takes("a.q_proj.weight", false, 1, 1, 1, 1)
			p.Takes("a.up_proj.weight", true, 1, 1, 1, 1)
		}
	})
}
