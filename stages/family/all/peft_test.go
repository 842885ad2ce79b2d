package all

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

var writeAdapters = flag.String("adapters", "",
	"directory to write an adapter of every family to, for bench/golden/peft_load.py")

// everyLinear are targets that match all linear layers of decoders, towers and projectors but the
// projection of patches.
var everyLinear = []string{"*.q_proj", "*.k_proj", "*.v_proj", "*.o_proj", "*.gate_proj", "*.up_proj",
	"*.down_proj", "*.input_proj", "*.attn.proj", "*.fc1", "*.fc2"}

// TestPEFTNames holds the names and shapes of adapters of every family to what PEFT's own loader took:
// ../../../stages/trained/testdata/peft.json has, of each golden model, the tensors that were loaded into
// layers of the model as transformers builds it (bench/golden/peft_load.py).
func TestPEFTNames(t *testing.T) {
	text, err := os.ReadFile("../../../stages/trained/testdata/peft.json")
	if *writeAdapters == "" {
		require.NoError(t, err)
	}
	want := map[string]map[string][]int{}
	if err == nil {
		require.NoError(t, json.Unmarshal(text, &want))
	}
	dirs, err := filepath.Glob("../testdata/*/config.json")
	require.NoError(t, err)
	refused := 0
	for _, file := range dirs {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c, err := configs.ReadModel(dir)
			require.NoError(t, err)
			if c.Description != "" {
				return // PEFT's loader needs a class
			}
			m, err := family.Build(c, 8)
			require.NoError(t, err)
			lora := &block.Lora{Targets: everyLinear, Rank: 2, Alpha: 6}
			if m.Spec.Mixes() { // PEFT takes the names of an MLP's layers for those of experts
				for _, target := range []string{"*.mlp.gate_proj", "*.mlp.shared_expert*.down_proj"} {
					some, err := m.PEFT(&block.Lora{Targets: []string{target}, Rank: 2, Alpha: 6})
					if err != nil {
						require.ErrorContains(t, err, "for one of the experts")
						refused++
					}
					require.Empty(t, some, "not all have a dense MLP or shared experts")
				}
				lora.Targets = everyLinear[:4]
			}
			all, err := m.PEFT(lora)
			require.NoError(t, err)
			if *writeAdapters != "" {
				writeAdapter(t, m, lora, all, filepath.Join(*writeAdapters, filepath.Base(dir)))
				return
			}
			got := map[string][]int{}
			for _, a := range all {
				for _, x := range a.Tensors(checkpoint.AdapterPrefix) {
					got[x.Name] = x.Shape
				}
			}
			require.NotNil(t, want[filepath.Base(dir)],
				"no result of PEFT's loader: run bench/golden/peft_load.py")
			require.Equal(t, want[filepath.Base(dir)], got)
		})
	}
	require.Greater(t, refused, 5, "mixtures with a dense MLP or shared experts")
}

// writeAdapter writes random adapters as an export does.
func writeAdapter(t *testing.T, m *family.Model, lora *block.Lora, all []family.Adapter, dir string) {
	var infos []checkpoint.Info
	for _, a := range all {
		infos = append(infos, a.Tensors(checkpoint.AdapterPrefix)...)
	}
	sink, err := checkpoint.NewAdapterWriter(dir, family.AdapterConfig(all, lora), infos)
	require.NoError(t, err)
	for i, a := range all {
		parts, err := a.Fill(func(name string, shape []int, dst []float32) error {
			m.Init(7, &grad.Param{Name: name + ".random", Shape: shape, Place: grad.Place{}},
				family.Region{To: shape[0]}, dst)
			return nil
		})
		require.NoError(t, err)
		for k, v := range parts {
			raw := make([]byte, 4*len(v))
			tensor.Narrow(tensor.F32, v, raw)
			require.NoError(t, sink.WriteRanges(infos[2*i+k].Name,
				[][2]int{{0, infos[2*i+k].Shape[0]}, {0, infos[2*i+k].Shape[1]}}, raw))
		}
	}
	require.NoError(t, sink.Commit())
}

// TestPEFTFused: the addition to a layer that is several of ours is the sum of theirs, each in its rows.
func TestPEFTFused(t *testing.T) {
	a := family.Adapter{Module: "attn", In: 2, Out: 3, Lora: &block.Lora{Rank: 1, Alpha: 2}, Parts: []family.AdapterPart{{Name: "q", Out: 2,
		Rows: [][2]int{{0, 1}, {2, 3}}}, {Name: "v", Out: 1, Rows: [][2]int{{1, 2}}}}}
	values := map[string][]float32{"q.lora_A.weight": {1, 2}, "q.lora_B.weight": {3, 4},
		"v.lora_A.weight": {5, 6}, "v.lora_B.weight": {7}}
	parts, err := a.Fill(func(name string, _ []int, dst []float32) error {
		copy(dst,
			values[name])
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2, 5, 6}, parts[0])
	require.Equal(t, []float32{3, 0, 0, 7, 4, 0}, parts[1])
	c := family.AdapterConfig([]family.Adapter{a}, &block.Lora{Rank: 1, Alpha: 2})
	require.Equal(t, 2, c.Ranks["attn"])
	require.Equal(t, 4.0, c.Alphas["attn"])
}

// TestPEFTConvolution: the projection of patches is a convolution in transformers, which has adapters of another shape.
func TestPEFTConvolution(t *testing.T) {
	c, err := configs.ReadModel("../testdata/qwen2-vl")
	require.NoError(t, err)
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	_, err = m.PEFT(&block.Lora{Targets: []string{"*.patch_embed.proj"}, Rank: 2, Alpha: 6})
	require.ErrorContains(t, err, "visual.patch_embed.proj is no linear layer of a checkpoint")
}

// TestRSLoRA: the additions of a run with lora.rslora are scaled by alpha/√rank, and PEFT scales a module of several parts, whose
// rank is theirs together, by the same.
func TestRSLoRA(t *testing.T) {
	lora := &block.Lora{Rank: 4, Alpha: 6, Root: true}
	require.Equal(t, 3.0, lora.Scale())
	require.Equal(t, 1.5, (&block.Lora{Rank: 4, Alpha: 6}).Scale())
	of := family.Adapter{Module: "attn.c_attn", Lora: lora, Parts: make([]family.AdapterPart, 3)}
	c := family.AdapterConfig([]family.Adapter{of}, lora)
	require.True(t, c.RSLoRA)
	require.Equal(t, 12, c.Ranks[`attn\.c_attn`])
	require.InDelta(t, 3, c.Alphas[`attn\.c_attn`]/math.Sqrt(12), 1e-12)
	lora.Root = false
	c = family.AdapterConfig([]family.Adapter{of}, lora)
	require.Equal(t, 18.0, c.Alphas[`attn\.c_attn`])
}

// TestPEFTGrows: finding a model's adapters allocates as a line does with its layers: the model is recorded as often for
// many as for few.
func TestPEFTGrows(t *testing.T) {
	allocs := func(layers int) float64 {
		m := family.Decoder("llama", family.Spec{Layers: layers, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32,
			Eps: 1e-6, Rope: block.Rope{Dim: 4, Theta: 10000}})
		return testing.AllocsPerRun(1, func() {
			_, err := m.PEFT(&block.Lora{Targets: []string{"*.q_proj"}, Rank: 2, Alpha: 2})
			require.NoError(t, err)
		})
	}
	require.Less(t, allocs(16)/allocs(4), 4.5)
}
