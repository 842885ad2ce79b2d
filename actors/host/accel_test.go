//go:build xpu || cuda

package host

import (
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/stages/family"
)

// small is a model of two layers of a published family.
func small(t *testing.T, c configs.Model) *family.Model {
	c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Vocab = 2, 16, 4, 2, 4, 32
	c.Intermediate, c.MaxPositions, c.RopeTheta, c.NormEps, c.InitRange, c.Act = 24, 64,
		10000, 1e-6, 0.2, "silu"
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	return m
}

// trainsAs trains a model for five steps on devices, to the losses that the processor gives, within the
// bound of float32 sums of up to 32 terms in another order.
func trainsAs(t *testing.T, v variant, m *family.Model, device func(int) kernels.Backend) []float64 {
	want, norms := v.train(t, m, 5, func(int) kernels.Backend { return cpu.New(1) })
	got, gn := v.train(t, m, 5, device)
	require.Len(t, got, 5)
	for i := range want {
		require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v", i+1, got,
			want)
		require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 2e-4, "gradient norm of step %d", i+1)
	}
	return got
}

// referencePlugin builds the reference plug-in; without a compiler the test is skipped, and says so.
func referencePlugin(t *testing.T) string {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped: the plug-in is built with gcc, which is not installed")
	}
	path := filepath.Join(t.TempDir(), "reference.so")
	source := filepath.Join("..", "..", "kernels", "xpu", "plugin", "reference.c")
	c := exec.Command(compiler, "-std=c11", "-O2", "-shared", "-fPIC", source, "-o", path, "-lm",
		"-lpthread")
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return path
}

// TestTrainOnPlugin: a dense model trains in a pipeline of two devices of the reference plug-in, which
// the run finds by its path.
func TestTrainOnPlugin(t *testing.T) {
	of, closeAll, err := OpenBackends("xpu:"+referencePlugin(t), Ranks(2), kernels.Options{Threads: 1})
	require.NoError(t, err)
	defer closeAll()
	trainsAs(t, variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, small(t,
		configs.Model{ModelType: "llama"}), of)
}
