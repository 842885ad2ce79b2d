package quant

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

const mergeDir = "testdata/merge"

// TestMerge: a model with an adapter added to it, whole or in parts, is what PEFT's merge_and_unload makes of
// it (bench/golden/peft_merge.py) within the rounding of float32; tensors without additions are the base's.
func TestMerge(t *testing.T) {
	for _, c := range []string{"plain", "root", "dora", "patterns", "table", "turned"} {
		base := "base.safetensors"
		if c == "turned" {
			base = "turned.safetensors"
		}
		f, err := checkpoint.OpenFile(filepath.Join(mergeDir, base))
		require.NoError(t, err)
		src, err := Merge(f, filepath.Join(mergeDir, c), Base{})
		require.NoError(t, err, c)
		wants, err := checkpoint.OpenFile(filepath.Join(mergeDir, c, "want.safetensors"))
		require.NoError(t, err)
		changed := 0
		for _, i := range src.Tensors() {
			want, of := checkpoint.Source(wants), wants.ByName[i.Name]
			if of.Name == "" {
				want = f
			} else {
				changed++
			}
			boxes := [][][2]int{checkpoint.Whole(i.Shape)}
			if len(i.Shape) == 2 {
				boxes = append(boxes, [][2]int{{1, i.Shape[0]}, {2, 5}})
			}
			for _, box := range boxes {
				got, exp := make([]byte, 4*checkpoint.BoxLen(box)), make([]byte, 4*checkpoint.BoxLen(box))
				require.NoError(t, src.ReadRanges(i.Name, box, got))
				require.NoError(t, want.ReadRanges(i.Name, box, exp))
				for at := 0; at < len(got); at += 4 {
					x := math.Float32frombits(binary.LittleEndian.Uint32(got[at:]))
					y := math.Float32frombits(binary.LittleEndian.Uint32(exp[at:]))
					require.InDelta(t, y, x, 2e-6*(1+math.Abs(float64(y))), "%s: %s", c, i.Name)
				}
			}
		}
		require.Len(t, wants.Tensors(), changed, c)
		require.NoError(t, src.Close())
		require.NoError(t, wants.Close())
	}
}

// TestMergeRefused: an adapter of another model, one that lacks a matrix, has another rank than it says, or
// computes what no weights have, is refused by a tensor's name or a key.
func TestMergeRefused(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(mergeDir, "plain", "adapter_config.json"))
	require.NoError(t, err)
	model, err := os.ReadFile(filepath.Join(mergeDir, "plain", "adapter_model.safetensors"))
	require.NoError(t, err)
	merge := func(base, conf string, file []byte) error {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, checkpoint.AdapterConfigName), []byte(conf), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, checkpoint.AdapterName), file, 0o644))
		f, err := checkpoint.OpenFile(filepath.Join(mergeDir, base))
		require.NoError(t, err)
		defer f.Close()
		_, err = Merge(f, dir, Base{})
		return err
	}
	with := func(old, now string) string {
		require.Contains(t, string(text), old)
		return strings.Replace(string(text), old, now, 1)
	}
	for _, c := range []struct {
		base, conf string
		file       []byte
		why        string
	}{
		{"turned.safetensors", string(text), model, "are no addition to layers.0.down.weight"},
		{"plain/adapter_model.safetensors", string(text), model,
			"the base model has no weight of layers.0.down"},
		{"base.safetensors", with(`"r": 2`, `"r": 4`), model, "rank 4, and the matrices have 2"},
		{"base.safetensors", with(`"LORA"`, `"IA3"`), model, "only LORA can be added"},
		{"base.safetensors", with(`"use_qalora": false`, `"use_qalora": true`), model,
			"use_qalora: true cannot"},
		{"base.safetensors", with(`"use_qalora": false`, `"use_later": true`), model, "no key of PEFT 0.21"},
		{"base.safetensors", with(`"init_lora_weights": true`, `"init_lora_weights": "corda"`), model,
			"path_initial_model_for_weight_conversion"},
		{"base.safetensors", with(`"rank_pattern": {}`, `"rank_pattern": {"(": 3}`), model, "pattern"},
		{"base.safetensors", with(`"down",`, ""), model, "layers.0.down.lora_A.weight: extra: by target_modules"},
		{"base.safetensors", with(`"exclude_modules": null`, `"exclude_modules": ".*[.]1[.]down"`), model,
			"layers.1.down.lora_A.weight: extra: by exclude_modules"},
		{"base.safetensors", with(`"exclude_modules": null`, `"exclude_modules": ".*(?<![.]0)[.]down"`), model,
			"layers.1.down.lora_A.weight: extra: by exclude_modules"},
		{"base.safetensors", with(`"layers_to_transform": null`, `"layers_to_transform": [1]`), model,
			"layers.0.down.lora_A.weight: extra: by layers_to_transform"},
		{"base.safetensors", string(text), []byte(strings.Replace(string(model), "0.up.lora_B",
			"0.up.lora_C", 1)),
			"layers.0.up.lora_B.weight: missing"},
		{"base.safetensors", string(text), []byte(strings.Replace(string(model), "0.up.lora_A",
			"0.up.lora_C", 1)),
			"layers.0.up.lora_C.weight"},
	} {
		err := merge(c.base, c.conf, c.file)
		var fault *checkpoint.Error
		require.ErrorAs(t, err, &fault, c.why)
		require.ErrorContains(t, err, c.why)
	}
}
