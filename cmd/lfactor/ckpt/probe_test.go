package ckpt

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestProbe: a destination with other weights ends with exit code 6, latent attention and experts are
// probed, and of a model that sees a note says that it was not.
func TestProbe(t *testing.T) {
	t.Parallel()
	golden := func(name string) string { return "../../../actors/" + name }
	policy, reference := golden("run/testdata/preference/policy"),
		golden("run/testdata/preference/reference")
	o := conversion{to: "hf", limit: 1 << 30}
	var out bytes.Buffer
	for _, dir := range []string{policy, golden("host/testdata/deepseek-v3-mtp"),
		golden("host/testdata/qwen3-next-mtp")} {
		out.Reset()
		require.NoError(t, o.probe(&out, dir, dir))
		require.Contains(t, out.String(), "differ by at most 0 ")
	}
	err := o.probe(&out, policy, reference)
	require.ErrorContains(t, err, "a tensor is wrong")
	var coded exit.Error
	require.ErrorAs(t, err, &coded)
	require.Equal(t, exit.Corrupt, coded.Code)
	err = o.probe(&out, policy, t.TempDir())
	require.ErrorContains(t, err, "its logits cannot be had")
	out.Reset()
	seeing := golden("host/testdata/qwen3.5-vision-mtp")
	require.NoError(t, o.probe(&out, seeing, seeing))
	require.Contains(t, out.String(), "is no model of text alone")
}

// TestApart: logits that differ are told from those that are rounded, and what is no number is never equal to one.
func TestApart(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for _, c := range []struct {
		a, b        []float32
		most, share float64
	}{
		{[]float32{3, 4}, []float32{3, 4}, 0, 0},
		{[]float32{3, 4}, []float32{3, 5}, 1, 0.2},
		{[]float32{0, 4}, []float32{2, 4}, 2, 0.5},
		{[]float32{3, nan}, []float32{3, nan}, 0, 0},
		{[]float32{3, nan}, []float32{3, 4}, math.Inf(1), math.Inf(1)},
		{[]float32{3, 4}, []float32{3, nan}, math.Inf(1), math.Inf(1)},
		{[]float32{3, 4}, []float32{3}, math.Inf(1), math.Inf(1)},
		{[]float32{0, 0}, []float32{1, 0}, 1, math.Inf(1)},
	} {
		most, share := apart(c.a, c.b)
		require.Equal(t, c.most, most, "%v %v", c.a, c.b)
		require.InDelta(t, 0, difference(c.share, share), 1e-12, "%v %v", c.a, c.b)
	}
}

func difference(a, b float64) float64 {
	if a == b {
		return 0
	}
	return a - b
}
