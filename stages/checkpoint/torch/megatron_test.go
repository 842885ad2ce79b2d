package torch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// golden is a case of bench/golden/megatron_files.py: what Megatron has written, and the same weights as
// transformers has them.
func golden(t *testing.T, kind string) (dir, like string, want checkpoint.Source) {
	t.Helper()
	dir, like = filepath.Join("testdata", "megatron-"+kind),
		filepath.Join("testdata", "megatron-"+kind+"-hf")
	d, err := checkpoint.OpenDir(like)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return dir, like, d
}

// TestReadsMegatron: what Megatron's own library has written, on one rank and on tp 2 and pp 2, is read as
// the tensors of Hugging Face.
func TestReadsMegatron(t *testing.T) {
	for _, kind := range []string{"dense", "experts", "latent", "dense-ranks", "experts-ranks",
		"latent-ranks"} {
		kind, ranks := strings.CutSuffix(kind, "-ranks")
		dir, like, want := golden(t, kind)
		if ranks {
			dir += "-ranks"
		}
		require.Equal(t, dir, MegatronDir(dir))
		src, dropped, err := OpenMegatron(dir, like)
		require.NoError(t, err, kind)
		require.Empty(t, dropped)
		same(t, want, src)
		require.NoError(t, src.Close())
	}
}

// TestWritesMegatron: what is written is read again, with the vocabulary filled up to a multiple;
// bench/golden/ megatron_files.py read KIND DIR has Megatron's own library load it.
func TestWritesMegatron(t *testing.T) {
	for _, kind := range []string{"dense", "experts", "latent"} {
		_, like, want := golden(t, kind)
		dir := t.TempDir()
		if to := os.Getenv("LFACTOR_MEGATRON_DIR"); to != "" {
			dir = filepath.Join(to, kind)
		}
		require.NoError(t, WriteMegatron(nil, dir, want, like, 128, Grid{}, nil))
		at := MegatronDir(dir)
		require.Equal(t, filepath.Join(dir, "release"), at)
		src, _, err := OpenMegatron(at, like)
		require.NoError(t, err)
		same(t, want, src)
		require.NoError(t, src.Close())
		d, err := OpenDCP(at)
		require.NoError(t, err)
		last := make([]byte, 16*4)
		padding := make([]byte, 16*4)
		require.NoError(t, d.ReadRanges("output_layer.weight", [][2]int{{19, 20}, {0, 16}}, last))
		require.NoError(t, d.ReadRanges("output_layer.weight", [][2]int{{127, 128}, {0, 16}}, padding))
		require.Equal(t, last, padding)
		require.NoError(t, d.Close())
	}
}

// TestWritesRanks: files of ranks for tp 2 and pp 2 have the tensors that Megatron's own have of the same
// weights, but for rows behind the vocabulary; norms have Transformer Engine's names.
func TestWritesRanks(t *testing.T) {
	_, like, src := golden(t, "dense")
	dir := t.TempDir()
	require.NoError(t, WriteRanks(nil, dir, src, like, 10, Grid{TP: 2, PP: 2}))
	open := func(path string) map[string]*view {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		a, err := openArchive(bytes.NewReader(b), path, 0, int64(len(b)))
		require.NoError(t, err)
		chunks, err := a.chunks()
		require.NoError(t, err)
		require.Len(t, chunks, 1)
		all, err := a.named(chunks[0])
		require.NoError(t, err)
		out := map[string]*view{}
		for name, v := range all {
			name = strings.Replace(name, "self_attention.linear_qkv.layer_norm_weight",
				"input_layernorm.weight", 1)
			out[strings.Replace(name, "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight", 1)] = v
		}
		return out
	}
	read := func(path string, v *view) []byte {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		raw := make([]byte, v.size())
		require.NoError(t, v.read(f, whole1(checkpoint.Info{Shape: v.shape})[0].box, raw))
		return raw
	}
	for _, rank := range []string{"mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"} {
		want := filepath.Join("testdata", "megatron-dense-ranks", rank, rankFile)
		got := filepath.Join(dir, releaseDir, rank, rankFile)
		theirs, ours := open(want), open(got)
		require.Len(t, ours, len(theirs))
		for name, v := range theirs {
			require.NotNil(t, ours[name], name)
			require.Equal(t, v.shape, ours[name].shape, name)
			require.Equal(t, read(want, v), read(got, ours[name]), name)
		}
	}
	require.ErrorContains(t, WriteRanks(nil, t.TempDir(), src, like, 1, Grid{TP: 3}),
		"no multiples of 3 ranks")
	require.ErrorContains(t, WriteRanks(nil, t.TempDir(), src, like, 1, Grid{PP: 2, VP: 2}),
		"2 layers are not to be shared")
	require.ErrorContains(t, WriteRanks(nil, t.TempDir(), src, like, 1, Grid{EP: 2}), "0 experts")
}

// TestMegatronIsTotal: a model that lacks a tensor of the file, or has one that the file lacks, or another
// shape, is refused with the tensor's name.
func TestMegatronIsTotal(t *testing.T) {
	dir, like, _ := golden(t, "dense")
	for want, change := range map[string]map[string]any{
		"k_layernorm.weight: extra":                        {"model_type": "llama"},
		"linear_qkv.bias: missing":                         {"model_type": "qwen2"},
		"[2 64 16], the model needs [3 64 16]":             {"num_hidden_layers": 3},
		"linear_fc1.weight: misshapen: shape [2 48 16]":    {"intermediate_size": 25},
		"word_embeddings.weight: misshapen: shape [20 16]": {"vocab_size": 21},
		`model_type is "bloom"`:                            {"model_type": "bloom"},
		"linear_qkv.weight: misshapen":                     {"num_key_value_heads": 1},
		"5 heads of 2 groups":                              {"num_attention_heads": 5},
	} {
		text, err := os.ReadFile(filepath.Join(like, "config.json"))
		require.NoError(t, err)
		var conf map[string]any
		require.NoError(t, json.Unmarshal(text, &conf))
		for k, v := range change {
			conf[k] = v
		}
		text, err = json.Marshal(conf)
		require.NoError(t, err)
		other := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(other, "config.json"), text, 0o600))
		_, _, err = OpenMegatron(dir, other)
		require.ErrorContains(t, err, want)
	}
}

// TestRanksAreAGrid: folders of ranks with one missing, or with a part of another shape, are refused.
func TestRanksAreAGrid(t *testing.T) {
	_, like, _ := golden(t, "dense")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/megatron-dense-ranks")))
	require.NoError(t, os.Rename(filepath.Join(dir, "mp_rank_01_001"), filepath.Join(dir, "mp_rank_01_002")))
	_, _, err := OpenMegatron(dir, like)
	require.ErrorContains(t, err, "4 folders of ranks, want tensor 2 × pipeline 3 × experts 1")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "mp_rank_01_002")))
	other, err := os.ReadFile("testdata/megatron-experts-ranks/mp_rank_01/model_optim_rng.pt")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "mp_rank_01_001"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mp_rank_01_001", "model_optim_rng.pt"), other,
		0o600))
	_, _, err = OpenMegatron(dir, like)
	require.Error(t, err)
}

// TestRanksOfExperts: folders of ranks of one stage whose second number is that of experts are read as that, for each
// grid that is written.
func TestRanksOfExperts(t *testing.T) {
	_, like, want := golden(t, "experts")
	for _, x := range []Grid{{EP: 3}, {TP: 2, EP: 3}, {PP: 2, EP: 3}, {PP: 2}} {
		dir := t.TempDir()
		require.NoError(t, WriteRanks(nil, dir, want, like, 1, x))
		src, _, err := OpenMegatron(MegatronDir(dir), like)
		require.NoError(t, err, "%+v", x)
		same(t, want, src)
		require.NoError(t, src.Close())
	}
}

// TestMoreFamilies: models of further families go to both of Megatron's forms and come back; of glm4-moe the first
// layer, whose attention differs from that of the other mixtures.
func TestMoreFamilies(t *testing.T) {
	for _, name := range []string{"glm4-moe", "phi3", "phi4", "smollm3", "ernie4.5", "gemma", "gemma2", "gemma3"} {
		like := filepath.Join("../../family/testdata", name)
		all, err := checkpoint.OpenDir(like)
		require.NoError(t, err)
		from := map[string]string{}
		for _, x := range all.Tensors() {
			if name == "ernie4.5" && strings.HasSuffix(x.Name, ".bias") {
				continue // of its published models those with use_bias: false
			}
			if name != "glm4-moe" || !strings.HasPrefix(x.Name, "model.layers.") || strings.HasPrefix(x.Name, "model.layers.0.") {
				from[x.Name] = x.Name
			}
		}
		if name == "glm4-moe" {
			text, err := os.ReadFile(filepath.Join(like, "config.json"))
			require.NoError(t, err)
			like = t.TempDir()
			text = bytes.Replace(text, []byte(`"num_hidden_layers": 3`), []byte(`"num_hidden_layers": 1`), 1)
			require.NoError(t, os.WriteFile(filepath.Join(like, "config.json"), text, 0o600))
		}
		want := checkpoint.Renamed(all, from)
		dist, ranks := t.TempDir(), t.TempDir()
		require.NoError(t, WriteMegatron(nil, dist, want, like, 1, Grid{}, nil), name)
		require.NoError(t, WriteRanks(nil, ranks, want, like, 1, Grid{TP: 2}), name)
		for _, dir := range []string{dist, ranks} {
			src, _, err := OpenMegatron(MegatronDir(dir), like)
			require.NoError(t, err, name)
			same(t, want, src)
			require.NoError(t, src.Close())
		}
		require.NoError(t, all.Close())
	}
}

// TestOwnHeadOfTied: a head in the files of a model whose config.json calls it tied is the model's, as transformers
// has it: it is written, and read again where the files are beside; without them its numbers are not dropped in
// silence.
func TestOwnHeadOfTied(t *testing.T) {
	_, like, want := golden(t, "dense")
	text, err := os.ReadFile(filepath.Join(like, "config.json"))
	require.NoError(t, err)
	tied := strings.Replace(string(text), `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, 1)
	require.NotEqual(t, string(text), tied)
	beside, alone, out := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{beside, alone} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(tied), 0o600))
	}
	require.NoError(t, checkpoint.BuildDir(nil, beside, want, 1<<30))
	require.NoError(t, WriteMegatron(nil, out, want, beside, 128, Grid{}, nil))
	src, _, err := OpenMegatron(MegatronDir(out), beside)
	require.NoError(t, err)
	same(t, want, src)
	require.NoError(t, src.Close())
	_, _, err = OpenMegatron(MegatronDir(out), alone)
	require.ErrorContains(t, err, "set that to false")
}

// TestModelOfArgs: the model of Megatron's files is found by the settings that lie in them, of both forms, and is read as with
// the config.json of the model; settings of no family are refused by name.
func TestModelOfArgs(t *testing.T) {
	for kind, more := range map[string]map[string]any{"dense": {}, "experts": {"num_experts": int64(3)}} {
		_, like, want := golden(t, kind)
		text, err := os.ReadFile(filepath.Join(like, "config.json"))
		require.NoError(t, err)
		var c map[string]any
		require.NoError(t, json.Unmarshal(text, &c))
		args := map[string]any{"swiglu": true, "normalization": "RMSNorm", "group_query_attention": true, "qk_layernorm": true,
			"position_embedding_type": "rope", "mtp_num_layers": nil, "untie_embeddings_and_output_weights": true,
			"norm_epsilon": 1e-5, "rotary_base": int64(1000000)}
		for _, k := range argKeys {
			if n, ok := c[k[1]].(float64); ok && args[k[0]] == nil {
				args[k[0]] = int64(n)
			}
		}
		maps.Copy(args, more)
		dist, ranks := t.TempDir(), t.TempDir()
		require.NoError(t, WriteMegatron(nil, dist, want, like, 1, Grid{}, nil))
		none, err := ModelOf(MegatronDir(dist))
		require.NoError(t, err)
		require.Nil(t, none)
		require.NoError(t, os.MkdirAll(filepath.Join(ranks, "mp_rank_00"), 0o700))
		for _, path := range []string{filepath.Join(ranks, "mp_rank_00", rankFile), filepath.Join(MegatronDir(dist), "common.pt")} {
			putArgs(t, path, args)
			at := MegatronDir(dist)
			if filepath.Base(path) == rankFile {
				at = ranks
			}
			text, err := ModelOf(at)
			require.NoError(t, err)
			var got map[string]any
			require.NoError(t, json.Unmarshal(text, &got))
			for key, v := range c {
				if got[key] != nil {
					require.Equal(t, v, got[key], key)
				}
			}
			require.Equal(t, c["model_type"], got["model_type"])
			own := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(own, "config.json"), text, 0o600))
			src, _, err := OpenMegatron(MegatronDir(dist), own)
			require.NoError(t, err)
			same(t, want, src)
			require.NoError(t, src.Close())
			own1 := maps.Clone(args)
			own1["position_embedding_type"] = "learned_absolute"
			putArgs(t, path, own1)
			_, err = ModelOf(at)
			require.ErrorContains(t, err, "Megatron's own GPT of learned positions")
			for arg, v := range map[string]any{"swiglu": false, "normalization": "LayerNorm", "add_bias_linear": true,
				"window_size": int64(8), "moe_shared_expert_intermediate_size": int64(8), "add_qkv_bias": true} {
				wrong := maps.Clone(args)
				wrong[arg] = v
				putArgs(t, path, wrong)
				_, err := ModelOf(at)
				require.ErrorContains(t, err, "its args have "+arg+" = ")
			}
		}
	}
}

// TestModelOfLatentArgs: DeepSeek's models are found by Megatron's settings of latent attention: V3 as with the config.json that Hugging
// Face's file has, V2 by a router of softmax; what Megatron computes otherwise, and what is missing, is refused by name.
func TestModelOfLatentArgs(t *testing.T) {
	_, like, want := golden(t, "latent")
	text, err := os.ReadFile(filepath.Join(like, "config.json"))
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(text, &c))
	args := map[string]any{"swiglu": true, "normalization": "RMSNorm", "qk_layernorm": true, "position_embedding_type": "rope",
		"untie_embeddings_and_output_weights": true, "norm_epsilon": 1e-6, "rotary_base": int64(10000), "multi_latent_attention": true,
		"kv_channels": int64(4), "num_experts": int64(3), "moe_layer_freq": &list{[]any{int64(0), int64(1)}}, "rope_type": "yarn",
		"moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": true, "moe_router_topk_scaling_factor": 2.5,
		"moe_shared_expert_intermediate_size": int64(12), "rotary_scaling_factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
	for _, k := range slices.Concat(argKeys, latentKeys) {
		if n, ok := c[k[1]].(float64); ok && args[k[0]] == nil {
			args[k[0]] = int64(n)
		}
	}
	dist := t.TempDir()
	require.NoError(t, WriteMegatron(nil, dist, want, like, 1, Grid{}, nil))
	of := func(more map[string]any) (got map[string]any, text []byte, err error) {
		all := maps.Clone(args)
		maps.Copy(all, more)
		putArgs(t, filepath.Join(MegatronDir(dist), "common.pt"), all)
		if text, err = ModelOf(MegatronDir(dist)); err == nil {
			require.NoError(t, json.Unmarshal(text, &got))
		}
		return got, text, err
	}
	got, text, err := of(nil)
	require.NoError(t, err)
	for key, v := range c {
		if key != "rope_interleave" { // of latent attention without a key
			require.Equal(t, v, got[key], key)
		}
	}
	require.NotContains(t, got, "head_dim")
	require.NotContains(t, got, "rope_scaling")
	own := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(own, "config.json"), text, 0o600))
	src, _, err := OpenMegatron(MegatronDir(dist), own)
	require.NoError(t, err)
	same(t, want, src)
	require.NoError(t, src.Close())

	soft := map[string]any{"moe_router_score_function": "softmax", "moe_router_enable_expert_bias": false, "moe_router_pre_softmax": true,
		"q_lora_rank": nil, "moe_router_num_groups": int64(3), "moe_router_group_topk": int64(2), "rotary_scaling_factor": int64(40),
		"mscale": 0.707, "mscale_all_dim": 0.707, "max_position_embeddings": int64(4096)}
	got, _, err = of(soft)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"rope_type": "yarn", "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32.0,
		"beta_slow": 1.0, "original_max_position_embeddings": 4096.0}, got["rope_scaling"])
	require.Equal(t, []any{"deepseek_v2", "group_limited_greedy", false, 3.0, 2.0, nil}, []any{got["model_type"], got["topk_method"],
		got["norm_topk_prob"], got["n_group"], got["topk_group"], got["q_lora_rank"]})
	for arg, v := range map[string]any{"kv_lora_rank": nil, "v_head_dim": nil, "qk_head_dim": nil, "num_experts": nil, "qk_layernorm": false,
		"moe_router_score_function": "softmax", "moe_layer_freq": int64(2), "moe_shared_expert_intermediate_size": int64(13),
		"mtp_num_layers": int64(1), "add_qkv_bias": true} {
		_, _, err := of(map[string]any{arg: v})
		require.ErrorContains(t, err, "its args have "+arg+" = ", arg)
	}
	for arg, v := range map[string]any{"moe_router_pre_softmax": false, "moe_router_group_topk": int64(1), "mscale_all_dim": 0.0,
		"moe_layer_freq": &list{[]any{int64(1), int64(0)}}} {
		more := maps.Clone(soft)
		more[arg] = v
		_, _, err := of(more)
		require.ErrorContains(t, err, "its args have "+arg+" = ", arg)
	}
}

// putArgs writes a file of torch.save that has settings of a training alone.
func putArgs(t *testing.T, path string, args map[string]any) {
	p := &pickler{}
	var fields []func()
	for _, name := range sortedKeys(args) {
		fields = append(fields, p.field(name, func() {
			switch v := args[name].(type) {
			case nil:
				p.op('N')
			case bool:
				p.op(map[bool]byte{false: 0x89, true: 0x88}[v])
			case int64:
				p.int(v)
			case float64:
				p.b = binary.BigEndian.AppendUint64(append(p.b, 'G'), math.Float64bits(v))
			case string:
				p.text(v)
			case *list:
				p.op(']', '(')
				for _, n := range v.items {
					p.int(n.(int64))
				}
				p.op('e')
			}
		}))
	}
	p.op(0x80, 2, '}', '(')
	p.text("args")
	p.object(global{"argparse", "Namespace"}, fields...)
	p.op('u', '.')
	f := &archives{path: path}
	require.NoError(t, f.add("common", p.b, nil))
	_ = os.Remove(path)
	require.NoError(t, checkpoint.Build(nil, []checkpoint.Planned{f.planned()}, nil))
}

// unfused are the tensors of a golden model by the names that are published: experts one by one, under the names of form.
func unfused(t *testing.T, src checkpoint.Source, form expertNames, rename ...string) checkpoint.Source {
	var list []*composed
	add := func(name string, rest []int, p piece) {
		name = strings.NewReplacer(rename...).Replace(name)
		list = append(list, &composed{name: name, rest: rest, parts: map[string][]piece{place0(nil): {p}}})
	}
	for _, x := range src.Tensors() {
		layer, end, found := strings.Cut(x.Name, "mlp.experts.")
		if !found {
			if len(x.Shape) == 2 && x.Shape[0] == 1 && strings.HasSuffix(x.Name, "_bias") {
				name := strings.NewReplacer(rename...).Replace(x.Name)
				list = append(list, &composed{name: name, lead: []int{1}, parts: map[string][]piece{"[0]": {{x.Name, []int{0}, 0, x.Shape[1]}}}})
				continue
			}
			add(x.Name, x.Shape[1:], piece{x.Name, nil, 0, x.Shape[0]})
			continue
		}
		for e := range x.Shape[0] {
			if end == "down_proj" {
				add(fmt.Sprintf(layer+form.down+".weight", e), x.Shape[2:], piece{x.Name, []int{e}, 0, x.Shape[1]})
				continue
			}
			half := x.Shape[1] / 2
			add(fmt.Sprintf(layer+form.gate+".weight", e), x.Shape[2:], piece{x.Name, []int{e}, 0, half})
			add(fmt.Sprintf(layer+form.up+".weight", e), x.Shape[2:], piece{x.Name, []int{e}, half, half})
		}
	}
	out, err := assemble(src, list)
	require.NoError(t, err)
	return out
}

// TestFamiliesOfExperts: OLMoE, MiniMax-M2 and ERNIE's mixtures go to both of Megatron's forms and come back, by the names that
// are published; files in which experts of a layer share a tensor make the same.
func TestFamiliesOfExperts(t *testing.T) {
	for name, x := range map[string]struct {
		form   expertNames
		rename []string
	}{"olmoe": {form: plainExperts}, "qwen3.5": {}, "qwen3.5-moe": {form: plainExperts}, "qwen3-moe": {form: plainExperts}, "deepseek-v3": {form: plainExperts},
		"ernie4.5-moe": {plainExperts, []string{"mlp.gate.moe_statics", "mlp.moe_statics"}},
		"minimax-m2":   {blockExperts, []string{"mlp.gate.", "block_sparse_moe.gate.", "mlp.e_score", "block_sparse_moe.e_score"}}} {
		like := filepath.Join("../../family/testdata", name)
		all, err := checkpoint.OpenDir(like)
		require.NoError(t, err)
		want := unfused(t, all, x.form, x.rename...)
		sources := []checkpoint.Source{want}
		if name != "minimax-m2" {
			from := map[string]string{}
			for _, info := range all.Tensors() {
				from[strings.NewReplacer(x.rename...).Replace(info.Name)] = info.Name
			}
			if sources = append(sources, checkpoint.Renamed(all, from)); strings.HasPrefix(name, "qwen3.5") {
				sources = sources[1:]
			}
		}
		for _, src := range sources {
			dist, ranks := t.TempDir(), t.TempDir()
			require.NoError(t, WriteMegatron(nil, dist, src, like, 1, Grid{}, nil), name)
			require.NoError(t, WriteRanks(nil, ranks, src, like, 1, Grid{}), name)
			want := want
			if strings.HasPrefix(name, "qwen3.5") { // published so
				want = src
			}
			for _, dir := range []string{dist, ranks} {
				back, _, err := OpenMegatron(MegatronDir(dir), like)
				require.NoError(t, err, name)
				same(t, want, back)
				require.NoError(t, back.Close())
			}
		}
		require.NoError(t, all.Close())
	}
	for name, why := range map[string]string{"gpt-oss": "gate and up by turns", "glm5": "indexers have no names", "olmo2": "no norm before attention",
		"gpt2": "learned positions, LayerNorm and GELU"} {
		_, _, err := OpenMegatron("testdata/megatron-dense", filepath.Join("../../family/testdata", name))
		require.ErrorContains(t, err, why, name)
	}
}
