package trained

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

const layoutData = "../checkpoint/quant/testdata"

// layoutModel is a config.json of a model whose weights a layout keeps.
const layoutModel = `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 32, "rms_norm_eps": 1e-5,
"hidden_act": "silu", "tie_word_embeddings": false, "quantization_config": %s}`

// some is a source with some of its tensors.
type some struct {
	checkpoint.Source
	infos []checkpoint.Info
}

func (s some) Tensors() []checkpoint.Info { return s.infos }

// TestLayouts: each published layout of weights in few bits of layouts.txt is taken by its config.json and read to the bits that its
// library makes of it, or its config.json is refused with the names that tell it apart.
func TestLayouts(t *testing.T) {
	list, err := os.Open(filepath.Join(layoutData, "layouts.txt"))
	require.NoError(t, err)
	defer list.Close()
	read, refused, libraries := 0, 0, map[string]bool{}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		cell := strings.Split(lines.Text(), "|")
		require.Len(t, cell, 4, lines.Text())
		name, config, golden := strings.TrimSpace(cell[0])+", "+strings.TrimSpace(cell[1]), cell[2], strings.TrimSpace(cell[3])
		libraries[cell[0]] = true
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, layoutModel, config), 0o600))
		_, err := configs.ReadModel(dir)
		if golden == "" {
			refused++
			require.ErrorContains(t, err, "in a form that is not read", name)
			for _, key := range []string{"quant_method", "format", "checkpoint_format", "version", "quant_algo", "dtype"} {
				if _, rest, ok := strings.Cut(config, `"`+key+`": "`); ok {
					said, _, _ := strings.Cut(rest, `"`)
					require.ErrorContains(t, err, said, name)
				}
			}
			continue
		}
		read++
		require.NoError(t, err, name)
		file, matrix, _ := strings.Cut(golden, ":")
		sameLayout(t, name, dir, filepath.Join(layoutData, file+".safetensors"), matrix)
	}
	t.Logf("%d layouts of %d libraries: %d read, %d refused, 0 silent", read+refused, len(libraries), read, refused)
	require.Equal(t, []int{55, 39}, []int{read, refused})
}

// sameLayout holds a matrix of a file, read beside a config.json, to the golden numbers, rounded to their type.
func sameLayout(t *testing.T, name, dir, path, matrix string) {
	f, err := checkpoint.OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	of := some{Source: f}
	for _, i := range f.Tensors() {
		if strings.HasPrefix(i.Name, strings.TrimSuffix(matrix, "weight")) {
			of.infos = append(of.infos, i)
		}
	}
	src, err := quant.Dequantized(of, dir)
	require.NoError(t, err, name)
	require.True(t, quant.QuantizedAt(src, matrix), name)
	want := f.ByName["want."+matrix]
	box := checkpoint.Whole(want.Shape)
	got, expected := make([]byte, 4*checkpoint.BoxLen(box)), make([]byte, checkpoint.BoxLen(box)*want.DType.Bits()/8)
	require.NoError(t, src.ReadRanges(matrix, box, got))
	require.NoError(t, f.ReadRanges(want.Name, box, expected))
	if want.DType == checkpoint.F16 {
		numbers := make([]float32, len(got)/4)
		tensor.Widen(tensor.F32, got, numbers)
		got = got[:len(expected)]
		tensor.Narrow(tensor.F16, numbers, got)
	}
	require.Equal(t, expected, got, name)
}
