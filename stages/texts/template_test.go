package texts

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	_ "github.com/lfactor/lfactor/stages/family/all"
)

const qwenDir = "../family/testdata/qwen2.5-vl"

// Qwen2.5-VL gives transformers' last hidden states of text, and its template is diffusers'.
func TestQwenIsTransformers(t *testing.T) {
	var want struct {
		IDs        [][]int32
		States     [][][]float32
		Template   string
		Drop, Most int
	}
	text, err := os.ReadFile("testdata/qwen.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	require.Equal(t, Template{want.Template, want.Drop, want.Most}, QwenImage)
	for on, b := range backends(t) {
		x, err := OpenDecoder(qwenDir, b, tensor.F32, Template{Text: "{}", Most: 9})
		require.NoError(t, err)
		states, err := x.Encode(want.IDs)
		require.NoError(t, err)
		for i, s := range states {
			require.Len(t, s, len(want.IDs[i])*x.Width)
			for j, row := range want.States[i] {
				d := near(s[j*x.Width:][:x.Width], row)
				require.Less(t, d, 1e-5, "%s: caption %d, token %d", on, i, j)
			}
		}
		x.Template.Drop = 2
		dropped, err := x.Encode(want.IDs[2:])
		require.NoError(t, err)
		require.Equal(t, states[2][2*x.Width:], dropped[0])
		_, err = x.Encode(want.IDs)
		require.ErrorContains(t, err, "caption 1: 1 tokens, of which the first 2 are dropped")
		_, err = x.Encode([][]int32{{1, 2, 120}})
		require.ErrorContains(t, err, "caption 0: the id 120 is outside of the vocabulary of 120")
		x.Close()
	}
}

// A template holds the tokens before the caption to those that it drops, and cuts what is too long.
func TestTemplate(t *testing.T) {
	tok := tokenizerOf(t, "clip")
	before, err := tok.IDs("describe the image:", 77)
	require.NoError(t, err)
	p := Template{Text: "describe the image:{}!", Drop: len(before) - 2, Most: 3}
	require.NoError(t, p.Check(tok))
	ids, err := p.Tokens(tok, "a")
	require.NoError(t, err)
	require.Len(t, ids, p.Drop+2)
	ids, err = p.Tokens(tok, "a fox jumps over a lazy dog")
	require.NoError(t, err)
	require.Len(t, ids, p.Drop+3)
	p.Drop++
	require.ErrorContains(t, p.Check(tok), "tokens of "+tok.dir+", and ")
	require.ErrorContains(t, Template{Text: "x"}.Check(tok), "no place for a caption")
	_, err = OpenDecoder(t.TempDir(), ref.New(), tensor.F32, p)
	require.ErrorContains(t, err, "config.json")
	bare := t.TempDir()
	text, err := os.ReadFile(qwenDir + "/config.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bare+"/config.json", text, 0o600))
	_, err = OpenDecoder(bare, ref.New(), tensor.F32, p)
	require.ErrorContains(t, err, "neither model.safetensors nor")
	x, err := OpenDecoder(qwenDir, ref.New(), tensor.F32, p)
	require.NoError(t, err)
	defer x.Close()
	_, err = x.Captions(tok, "a")
	require.ErrorContains(t, err, "take the tokenizer that the template was made for")
	x.Template = Template{Text: "{}", Most: 4}
	_, err = x.Captions(tok, "a fox")
	require.ErrorContains(t, err, "outside of the vocabulary of 120", "the tokenizer is another's")
}
