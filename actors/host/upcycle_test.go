package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// TestUpcycled: a mixture of copies of a dense model's MLPs gives the logits that transformers gives of the
// dense model, whatever its routers say. What has no mixture, and numbers that make none, are refused.
func TestUpcycled(t *testing.T) {
	for _, name := range []string{"qwen3", "qwen3-tied", "mistral", "llama3.1"} {
		g := openGolden(t, name)
		dense := g.m
		c, err := family.Upcycled(dense.Config, 5, 3)
		require.NoError(t, err, name)
		g.m, err = family.Build(c, 24)
		require.NoError(t, err)
		require.True(t, g.m.Spec.Mixes())
		whole := g.m.UpcycledFrom(dense, g.w, 7)
		g.own = func(kind string, p *grad.Param, at family.Region, dst []float32) (bool, error) {
			require.Len(t, dst, tensor.Len(p.Shape), "one device has all of it")
			return kind == "param", whole(p, dst)
		}
		_, logits := g.forward(goldenBackends["cpu"](), tensor.F32, true)
		_, want := g.read("logits")
		require.LessOrEqual(t, relative(logits, want), 1e-4, name)
	}
	c := openGolden(t, "gpt2").m.Config
	_, err := family.Upcycled(c, 4, 2)
	require.ErrorContains(t, err,
		"model_type gpt2: there is no family of mixtures with its layers; those of [llama mistral "+
			"qwen3] have one")
	c = openGolden(t, "qwen3").m.Config
	for _, n := range [][2]int{{1, 1}, {4, 5}, {4, 0}} {
		_, err := family.Upcycled(c, n[0], n[1])
		require.ErrorContains(t, err, "want at least two experts")
	}
}
