package gguf

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

func unzip(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "dataset", "token", "testdata", name))
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(b))
	require.NoError(t, err)
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	return out
}

// toyShapes are the tensors of a family's toy, with a head of its own or without.
func toyShapes(f *family, vocab int, head bool) map[string][]int {
	shapes := map[string][]int{"model.embed_tokens.weight": {vocab, 64}, "model.norm.weight": {64}}
	if head {
		shapes["lm_head.weight"] = []int{vocab, 64}
	}
	for ours := range f.inLayers() {
		for n := range 3 {
			name := fmt.Sprintf("model.layers.%d.%s.", n, ours)
			shape := map[string][]int{"self_attn.q_proj": {64, 64}, "self_attn.k_proj": {32, 64},
				"self_attn.v_proj": {32, 64}, "self_attn.o_proj": {64, 64}, "mlp.gate_proj": {96, 64},
				"mlp.up_proj": {96, 64}, "mlp.down_proj": {64, 96}, "self_attn.q_norm": {16},
				"self_attn.k_norm": {16}}[ours]
			if shape == nil {
				shape = []int{64}
			}
			shapes[name+"weight"] = shape
			if strings.HasSuffix(ours, "q_proj") || strings.HasSuffix(ours, "k_proj") {
				if f.arch == "qwen2" || f.modelType == "llama" {
					shapes[name+"bias"] = shape[:1]
				}
			}
		}
	}
	if f.moe != nil {
		for n := range 3 {
			at, width := fmt.Sprintf("model.layers.%d.", n), 96
			if f.moe.mlp != "" {
				width = 32
			}
			shapes[at+f.moe.router+".weight"] = []int{4, 64}
			for x := range 4 {
				for i, shape := range [][]int{{width, 64}, {width, 64}, {64, width}} {
					shapes[at+strings.Replace(f.moe.each[i], "*", fmt.Sprint(x), 1)+".weight"] = shape
				}
			}
		}
	}
	return shapes
}

// toy is a Hugging Face directory of a family with random weights: three layers of width 64, in float32.
func toy(t testing.TB, f *family, vocab int, more map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	conf := map[string]any{"model_type": f.modelType, "hidden_size": 64, "intermediate_size": 96,
		"num_hidden_layers":   3,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
		"rms_norm_eps": 1e-5, "rope_theta": 1e6, "vocab_size": vocab, "tie_word_embeddings": f.tied,
		"bos_token_id": 1,
		"eos_token_id": 2, "query_pre_attn_scalar": 16, "sliding_window": nil}
	if f.arch == "gemma2" {
		conf["attn_logit_softcapping"], conf["final_logit_softcapping"] = 50, 30
	}
	if f.window {
		conf["sliding_window"] = 32
	}
	if f.moe != nil {
		conf[f.moe.count], conf[f.moe.used] = 4, 2
		if f.moe.mlp != "" {
			conf[f.moe.mlp], conf["norm_topk_prob"], conf["decoder_sparse_step"] = 32, true, 1
		}
	}
	for k, v := range more {
		conf[k] = v
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), marshal(conf), 0o600))
	shapes := toyShapes(f, vocab, conf["tie_word_embeddings"] == false)
	var infos []checkpoint.Info
	for name, shape := range shapes {
		infos = append(infos, checkpoint.Info{Name: name, DType: checkpoint.F32, Shape: shape})
	}
	w, err := checkpoint.NewWriter(dir, infos, 0)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, x := range infos {
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		b := make([]byte, 4*n)
		for i := range n { // of few bits, so that one can be added to it and taken away
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.IntN(4001)-2000)/4096))
		}
		require.NoError(t, w.WriteTensor(x.Name, b))
	}
	require.NoError(t, w.Commit())
	return dir
}

// withTokenizer puts a tokenizer of dataset/token's golden data into a directory.
func withTokenizer(t testing.TB, dir, name string) *token.Tokenizer {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"),
		unzip(t, name+".tokenizer.json.gz"), 0o600))
	tok, _, err := token.LoadDir(dir)
	require.NoError(t, err)
	return tok
}

// vocabOf is the size of such a tokenizer's vocabulary.
func vocabOf(t testing.TB, name string) int { return withTokenizer(t, t.TempDir(), name).VocabSize() }

// TestRoundTrip: a model of every family goes to a file and comes back with the same bytes, and the same settings.
func TestRoundTrip(t *testing.T) {
	for i := range families {
		f := &families[i]
		dir := toy(t, f, vocabOf(t, "qwen")+10, nil)
		tok := withTokenizer(t, dir, "qwen")
		file, back := filepath.Join(t.TempDir(), "x.gguf"), filepath.Join(t.TempDir(), "back")
		require.NoError(t, Export(nil, dir, file, "f32"), f.arch)
		require.NoError(t, Import(nil, file, back, "", 0), f.arch)
		a, err := checkpoint.OpenDir(dir)
		require.NoError(t, err)
		b, err := checkpoint.OpenDir(back)
		require.NoError(t, err)
		diff, err := checkpoint.Diff(a, b)
		require.NoError(t, err)
		require.Empty(t, diff, f.arch)
		var old, now map[string]any
		for path, into := range map[string]*map[string]any{dir: &old, back: &now} {
			text, err := os.ReadFile(filepath.Join(path, "config.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, into))
		}
		for key, v := range old {
			if v != nil && key != "query_pre_attn_scalar" && key != "bos_token_id" && key != "eos_token_id" {
				require.Equal(t, v, now[key], "%s: %s", f.arch, key)
			}
		}
		again, _, err := token.LoadDir(back)
		require.NoError(t, err)
		require.Equal(t, tok.VocabSize(), again.VocabSize())
		sameIDs(t, tok, again)
		boxes(t, file, back)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// boxes holds parts of tensors that are read to the whole.
func boxes(t *testing.T, file, back string) {
	m, err := Open(file)
	require.NoError(t, err)
	defer m.Close()
	d, err := checkpoint.OpenDir(back)
	require.NoError(t, err)
	defer d.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, x := range m.Tensors() {
		for range 5 {
			n, box := 4, [][2]int{}
			for _, s := range x.Shape {
				from := rng.IntN(s)
				to := from + rng.IntN(s-from+1)
				box, n = append(box, [2]int{from, to}), n*(to-from)
			}
			got, want := make([]byte, n), make([]byte, n)
			require.NoError(t, m.ReadRanges(x.Name, box, got), x.Name)
			require.NoError(t, d.ReadRanges(x.Name, box, want), x.Name)
			require.Equal(t, want, got, "%s %v", x.Name, box)
		}
	}
}

// sameIDs compares what two tokenizers make of texts.
func sameIDs(t *testing.T, a, b *token.Tokenizer) {
	t.Helper()
	for line := range bytes.Lines(unzip(t, "text.jsonl.gz")) {
		var text string
		require.NoError(t, json.Unmarshal(line, &text))
		require.Equal(t, a.Encode(text, true), b.Encode(text, true), "%.60q", text)
	}
}

// TestQuantizedParts: parts of quantized tensors are those of the whole, across the borders of blocks.
func TestQuantizedParts(t *testing.T) {
	dir := toy(t, &families[0], vocabOf(t, "qwen")+10, nil)
	withTokenizer(t, dir, "qwen")
	for _, dtype := range Written()[1:] {
		file, back := filepath.Join(t.TempDir(), "x.gguf"), filepath.Join(t.TempDir(), "back")
		require.NoError(t, Export(nil, dir, file, dtype))
		require.NoError(t, Import(nil, file, back, "f32", 0))
		m, err := Open(file)
		require.NoError(t, err)
		for _, x := range m.File.Tensors { // norms and biases are float32
			require.Equal(t, len(x.Shape) == 1, x.Type == F32, x.Name)
		}
		require.NoError(t, m.Close())
		if dtype[0] == 'q' {
			boxes(t, file, back)
		}
	}
}

// TestTokenizers: tokenizers of every kind go to a file and come back with the same ids.
func TestTokenizers(t *testing.T) {
	for _, name := range []string{"qwen", "llama3", "trained", "sentencepiece"} {
		dir := toy(t, &families[0], vocabOf(t, name)+30, nil)
		tok := withTokenizer(t, dir, name)
		file, back := filepath.Join(t.TempDir(), "x.gguf"), filepath.Join(t.TempDir(), "back")
		conf := `{"bos_token":"<s>","eos_token":"</s>","chat_template":"{{ bos_token }}é<&>"}`
		if name != "sentencepiece" {
			conf = `{"chat_template":"{{ bos_token }}é<&>"}`
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(conf), 0o600))
		require.NoError(t, Export(nil, dir, file, "f16"), name)
		require.NoError(t, Import(nil, file, back, "", 0), name)
		again, c, err := token.LoadDir(back)
		require.NoError(t, err, name)
		require.Equal(t, "{{ bos_token }}é<&>", c.ChatTemplate)
		sameIDs(t, tok, again)
	}
}

// TestRefused: what a file cannot say, and what it lacks, is named.
func TestRefused(t *testing.T) {
	for want, more := range map[string]map[string]any{
		"rope_scaling of type \"dynamic\"": {"rope_scaling": map[string]any{"rope_type": "dynamic",
			"factor": 2}},
		"rope_scaling.attention_factor": {"rope_scaling": map[string]any{"rope_type": "yarn",
			"factor": 2, "attention_factor": 1}},
		"some layers have a window":           {"model_type": "mistral", "sliding_window": 16},
		"model_type is \"mamba\"":             {"model_type": "mamba"},
		"hidden_act is \"relu\"":              {"hidden_act": "relu"},
		"num_attention_heads is 2.5":          {"num_attention_heads": 2.5},
		"embed_tokens.weight: misshapen: 400": {},
	} {
		dir := toy(t, &families[0], 400, more)
		withTokenizer(t, dir, "qwen")
		file := filepath.Join(t.TempDir(), "x.gguf")
		require.ErrorContains(t, Export(nil, dir, file, ""), want)
		require.NoFileExists(t, file)
		require.NoFileExists(t, file+".partial")
	}
	gemma := &families[3]
	require.Equal(t, "gemma2", gemma.arch)
	dir := toy(t, gemma, 400, map[string]any{"query_pre_attn_scalar": 20})
	require.ErrorContains(t, Export(nil, dir, filepath.Join(dir, "x.gguf"), ""), "query_pre_attn_scalar "+
		"is 20")
}

// TestIncomplete: a file with a tensor too few or too many is refused, with its name.
func TestIncomplete(t *testing.T) {
	dir := toy(t, &families[1], vocabOf(t, "qwen")+10, nil)
	withTokenizer(t, dir, "qwen")
	file := filepath.Join(t.TempDir(), "x.gguf")
	require.NoError(t, Export(nil, dir, file, "q8_0"))
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for old, want := range map[string][2]string{
		"blk.1.ffn_up.weight": {"blk.1.ffn_uq.weight", "blk.1.ffn_up.weight: missing"},
		"output_norm.weight":  {"output_nork.weight", "output_nork.weight: extra"},
		"qwen2.block_count":   {"qwen2.block_counT", "qwen2.block_count is not there"},
	} {
		require.NoError(t, os.WriteFile(file, bytes.Replace(b, []byte(old), []byte(want[0]), 1), 0o600))
		_, err := Open(file)
		require.ErrorContains(t, err, want[1])
	}
}

// TestLlama3Factors: the rule that a tensor of factors follows from is found again, and factors of none refused.
func TestLlama3Factors(t *testing.T) {
	rule := map[string]any{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
		"high_freq_factor":                 4.0,
		"original_max_position_embeddings": 8192}
	dir := toy(t, &families[0], vocabOf(t, "qwen")+10, map[string]any{"rope_scaling": rule})
	withTokenizer(t, dir, "qwen")
	file := filepath.Join(t.TempDir(), "x.gguf")
	require.NoError(t, Export(nil, dir, file, "q8_0"))
	m, err := Open(file)
	require.NoError(t, err)
	var conf struct {
		Scaling map[string]any `json:"rope_scaling"`
	}
	require.NoError(t, json.Unmarshal(m.Config(""), &conf))
	want := map[string]any{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
		"high_freq_factor":                 4.0,
		"original_max_position_embeddings": 8192.0}
	require.Equal(t, want, conf.Scaling)
	var at int64
	for _, x := range m.File.Tensors {
		if x.Name == "rope_freqs.weight" {
			at = x.Offset
		}
	}
	require.NoError(t, m.Close())
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)), at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = Open(file)
	require.ErrorContains(t, err, "rope_freqs.weight: malformed")
}

// TestOwnHeadOfTied: a head in the files of a model whose config.json calls it tied is written, as transformers uses
// it, and refused where llama.cpp's architecture has none.
func TestOwnHeadOfTied(t *testing.T) {
	for i := range families {
		f := &families[i]
		if f.arch != "llama" && !f.tied {
			continue
		}
		dir := toy(t, f, vocabOf(t, "qwen"), map[string]any{"tie_word_embeddings": false})
		withTokenizer(t, dir, "qwen")
		path := filepath.Join(dir, "config.json")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		text = []byte(strings.Replace(string(text), `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, 1))
		require.Contains(t, string(text), `"tie_word_embeddings": true`)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		file := filepath.Join(t.TempDir(), "x.gguf")
		err = Export(nil, dir, file, "f32")
		if f.tied {
			require.ErrorContains(t, err, "has the embedding as its head", f.arch)
			continue
		}
		require.NoError(t, err)
		back := filepath.Join(t.TempDir(), "back")
		require.NoError(t, Import(nil, file, back, "", 0))
		a, err := checkpoint.OpenDir(dir)
		require.NoError(t, err)
		b, err := checkpoint.OpenDir(back)
		require.NoError(t, err)
		diff, err := checkpoint.Diff(a, b)
		require.NoError(t, err)
		require.Empty(t, diff)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// TestTrueTexts: a part of a split file, a pointer, a folder without a tokenizer and one whose tokenizer has no merges
// are named as what they are.
func TestTrueTexts(t *testing.T) {
	err := (&Model{File: &File{path: "x.gguf", Meta: Meta{"split.count": int64(3), "split.no": int64(1)}}}).open()
	require.ErrorContains(t, err, "part 2 of 3 of a split file")
	_, err = parse(strings.NewReader("version https://git-lfs.github.com/spec/v1\n"), "x.gguf", 50)
	require.ErrorContains(t, err, "is a pointer of Git LFS")
	f := &families[slices.IndexFunc(families, func(f family) bool { return f.arch == "llama" })]
	dir, file := toy(t, f, vocabOf(t, "qwen"), nil), filepath.Join(t.TempDir(), "x.gguf")
	require.ErrorContains(t, Export(nil, dir, file, "f32"), "a GGUF file has its tokenizer in it")
	withTokenizer(t, dir, "qwen")
	path := filepath.Join(dir, "tokenizer.json")
	var all map[string]any
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	all["model"].(map[string]any)["merges"] = []any{}
	require.NoError(t, os.WriteFile(path, marshal(all), 0o600))
	require.ErrorContains(t, Export(nil, dir, file, "f32"), "model.merges is empty")
	_, err = os.Stat(file)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestExpertsOfTransformers5: a config.json that transformers 5 saved says num_local_experts of Qwen3's mixtures, too.
func TestExpertsOfTransformers5(t *testing.T) {
	for _, f := range families {
		if f.modelType != "qwen3_moe" {
			continue
		}
		dir := toy(t, &f, 64, map[string]any{f.moe.count: nil, "num_local_experts": 4})
		e := &exporter{family: &f, raw: map[string]any{}}
		text, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &e.raw))
		require.NoError(t, e.readExperts())
		require.Equal(t, 4, e.config.experts)
	}
}
