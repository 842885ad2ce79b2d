package all

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestClaims holds every published size to the parameter count that its file claims.
func TestClaims(t *testing.T) {
	for _, name := range configs.Models() {
		c, err := configs.Published(name)
		require.NoError(t, err, name)
		m, err := family.Build(c, 0)
		require.NoError(t, err, name)
		require.Equal(t, int64(c.Parameters), m.Count(), name)
		if m.Spec.Mixes() {
			require.Equal(t, int64(c.Active), m.Active(), name)
		} else {
			require.Zero(t, c.Active, name)
		}
	}
}

// TestBalanced: cuts cover the blocks, none is empty, and the heaviest stage is within one block of the mean.
func TestBalanced(t *testing.T) {
	c, err := configs.Published("llama/3-8b")
	require.NoError(t, err)
	m, err := family.Build(c, 0)
	require.NoError(t, err)
	for n := 1; n <= len(m.Blocks); n++ {
		cuts, err := m.Balanced(n, 0)
		require.NoError(t, err)
		require.Len(t, cuts, n+1)
		require.Equal(t, []int{0, len(m.Blocks)}, []int{cuts[0], cuts[n]})
		total, most := 0.0, 0.0
		for s := range n {
			require.Less(t, cuts[s], cuts[s+1], "stage %d of %d is empty", s, n)
			w := 0.0
			for _, b := range m.Blocks[cuts[s]:cuts[s+1]] {
				w += b.Weight
			}
			total, most = total+w, max(most, w)
		}
		require.LessOrEqual(t, most, total/float64(n)+2)
	}
	// attention over long sequences is work that layers have and the head does not
	short, err := m.Balanced(2, 0)
	require.NoError(t, err)
	long, err := m.Balanced(2, 1<<17)
	require.NoError(t, err)
	require.Equal(t, []int{0, 18, 34}, short)
	require.Equal(t, []int{0, 17, 34}, long)
	require.InDelta(t, 0.5*(2*32*128*4096)/(4096*4096*2+2*4096*1024+3*4096*14336),
		m.Blocks[1].Work(4096)-m.Blocks[1].Weight, 1e-9)
	require.Equal(t, m.Blocks[33].Weight, m.Blocks[33].Work(4096))
	_, err = m.Balanced(len(m.Blocks)+1, 0)
	require.ErrorContains(t, err, "try plan.pp=")
}

// TestGPT2Layouts: the published checkpoints of GPT-2 lack the prefix that transformers' class writes, and
// are opened and kept as they are; masks that they carry are no parameters.
func TestGPT2Layouts(t *testing.T) {
	c, err := configs.ReadModel("../testdata/gpt2")
	require.NoError(t, err)
	own, err := checkpoint.OpenFile("../testdata/gpt2/model.safetensors")
	require.NoError(t, err)
	defer own.Close()
	read := func(src checkpoint.Source, name string) []float32 {
		m, err := family.Build(c, 8)
		require.NoError(t, err)
		w, err := m.OpenWeights(src, "gpt2")
		require.NoError(t, err)
		for _, p := range m.Params(nil) {
			if p.Name == name {
				v := make([]float32, tensor.Len(p.Shape))
				ok, err := w.Read(p, family.Region{To: p.Shape[0]}, v)
				require.True(t, ok)
				require.NoError(t, err)
				return v
			}
		}
		return nil
	}
	for _, name := range []string{"model.layers.1.self_attn.v_proj.weight", "model.embed_positions.weight"} {
		require.Equal(t, read(own, name), read(bare{own}, name), name)
	}
}

// bare is a checkpoint without the prefix of names, and with a mask.
type bare struct{ checkpoint.Source }

func (b bare) Tensors() (out []checkpoint.Info) {
	for _, i := range b.Source.Tensors() {
		i.Name = strings.TrimPrefix(i.Name, "transformer.")
		out = append(out, i)
	}
	return append(out, checkpoint.Info{Name: "h.0.attn.bias", DType: "F32", Shape: []int{1, 1, 64, 64}})
}

func (b bare) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	return b.Source.ReadRanges("transformer."+name, ranges, dst)
}

// TestGemmaScale: transformers rounds Gemma's factor on embeddings to their dtype: 59.75 in bfloat16 for a
// width of 3584, whose root is 59.8665.
func TestGemmaScale(t *testing.T) {
	c, err := configs.Published("gemma/2-9b")
	require.NoError(t, err)
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	require.Equal(t, 59.75, m.Spec.EmbedFactor(tensor.BF16))
	require.InDelta(t, math.Sqrt(3584), m.Spec.EmbedFactor(tensor.F32), 1e-5)
}
