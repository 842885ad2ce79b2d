package hf

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOwnHead: a head with other numbers than the table, in whatever file, is one of its own; a copy of the table, the
// head of another part, and that of an adapter that lies beside are not.
func TestOwnHead(t *testing.T) {
	for _, c := range []struct {
		files map[string]map[string]byte // first bytes of tensors
		own   bool
	}{
		{map[string]map[string]byte{"model": {"model.embed_tokens.weight": 1, "lm_head.weight": 2}}, true},
		{map[string]map[string]byte{"model-1": {"transformer.wte.weight": 1}, "model-2": {"lm_head.weight": 2}}, true},
		{map[string]map[string]byte{"model": {"language_model.model.embed_tokens.weight": 1,
			"language_model.lm_head.weight": 2}}, true},
		{map[string]map[string]byte{"model": {"model.embed_tokens.weight": 1, "lm_head.weight": 1}}, false},
		{map[string]map[string]byte{"model": {"model.embed_tokens.weight": 1, "mtp.lm_head.weight": 2}}, false},
		{map[string]map[string]byte{"model": {"model.embed_tokens.weight": 1},
			"adapter_model": {"base_model.model.lm_head.weight": 2}}, false},
		{map[string]map[string]byte{"model": {"model.embed_tokens.weight": 1, "model.layers.9.embed_tokens.weight": 3,
			"lm_head.weight": 1}}, false},
		{map[string]map[string]byte{"model": {"lm_head.weight": 1}}, false},
	} {
		dir := t.TempDir()
		for file, tensors := range c.files {
			head, body := map[string]any{}, []byte{}
			for name, first := range tensors {
				head[name] = map[string]any{"dtype": "BF16", "shape": []int{1, 2}, "data_offsets": []int{len(body), len(body) + 4}}
				body = append(body, first, 0, 0, 0)
			}
			text, err := json.Marshal(head)
			require.NoError(t, err)
			raw := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file+".safetensors"), append(raw, body...), 0o600))
		}
		require.Equal(t, c.own, OwnHead(dir), c.files)
	}
}
