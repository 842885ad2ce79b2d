//go:build cuda

package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// emulatedRanks opens a stream of an emulated device for each rank, the devices in turn, with random delays.
func emulatedRanks(t *testing.T) func(int) kernels.Backend {
	e := emulate.New(t)
	e.Set(t, "jitter", 20, 0)
	t.Setenv(cuda.LibraryVariable, e.Path)
	t.Setenv(cuda.ProductsVariable, e.Path)
	t.Setenv(cuda.AttentionVariable, e.Path)
	return func(rank int) kernels.Backend {
		b, err := kernels.Open("cuda", kernels.Options{Rank: rank, Strict: true})
		require.NoError(t, err)
		t.Cleanup(func() { kernels.Close(b) })
		return b
	}
}

// TestTrainOnEmulatedDevices: a dense model and one with experts train in a pipeline of two devices to the losses that
// the processor gives, within the bound of float32 sums of up to 32 terms in another order.
func TestTrainOnEmulatedDevices(t *testing.T) {
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	mixture := configs.Model{ModelType: "qwen3_moe"}
	keys := family.Mixture.Of(mixture)
	keys.Experts, keys.ExpertsEach, keys.ExpertWidth, keys.NormTopK, keys.BalanceCoef = 4, 2, 12, true, 0.01
	family.Mixture.Set(&mixture, keys)
	for name, m := range map[string]*family.Model{
		"llama":     small(t, configs.Model{ModelType: "llama"}),
		"qwen3_moe": small(t, mixture),
	} {
		t.Run(name, func(t *testing.T) {
			got := trainsAs(t, v, m, emulatedRanks(t))
			again, _ := v.train(t, m, 5, emulatedRanks(t))
			require.Equal(t, got, again, "the same bits in a second run")
		})
	}
}

// TestLowOnEmulatedDevices: a device rounds the operands of products as the processor does, with its own kernels
// alone. What comes out of an operation the conformance suite holds; here a sum in another order now and then moves
// an operand to its neighbour, up to a quarter away, which bounds how far losses may be.
func TestLowOnEmulatedDevices(t *testing.T) {
	for _, of := range []struct {
		precision string
		history   int
	}{{"block", 0}, {"mxfp8", 0}, {"nvfp4", 0}, {"tensor", 0}, {"delayed", 3}} {
		t.Run(of.precision, func(t *testing.T) {
			v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
			run := func(backend func(int) kernels.Backend) []float64 {
				return (&watched{spec: lowSpec(), precision: of.precision, history: of.history, steps: 3,
					backend: backend}).run(t, v, v.mesh()).losses
			}
			want, got := run(nil), run(emulatedRanks(t))
			require.InEpsilon(t, want[0], got[0], 5e-4)
			require.InEpsilonSlice(t, want, got, 1.5e-2)
		})
	}
}

// TestDeviceLostInRun: a device that fails in the middle ends the run with an error that names it;
// nothing waits for ever.
func TestDeviceLostInRun(t *testing.T) {
	e := emulate.New(t).Copy(t)
	t.Setenv(cuda.LibraryVariable, e.Path)
	t.Setenv(cuda.ProductsVariable, "none")
	t.Setenv(cuda.AttentionVariable, "none")
	of, closeAll, err := OpenBackends("cuda", Ranks(2), kernels.Options{Threads: 1})
	require.NoError(t, err)
	defer closeAll()
	e.Set(t, "lost after", 1500, -1)
	l, o := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}.run(t, small(t,
		configs.Model{ModelType: "llama"}), 50, of, nil)
	err = Run(l, o)
	require.ErrorContains(t, err, "device cuda:")
	require.ErrorContains(t, err,
		"CUDA_ERROR_LAUNCH_FAILED (719): a kernel failed; the device is lost to this process")
	require.NotContains(t, err.Error(), "a bug in lfactor")
}

// TestMixedDevices: ranks of one run on a processor, a GPU and a plug-in's device exchange what they need.
func TestMixedDevices(t *testing.T) {
	gpu, plugin := emulatedRanks(t), referencePlugin(t)
	v, m := variant{pp: 2, dp: 2, tp: 1, schedule: "1f1b"}, small(t, configs.Model{ModelType: "llama"})
	trainsAs(t, v, m, func(rank int) kernels.Backend {
		name := []string{kernels.CPU, "cuda", "xpu:" + plugin, "cuda"}[rank]
		if name == "cuda" {
			return gpu(rank)
		}
		b, err := kernels.Open(name, kernels.Options{Threads: 1})
		require.NoError(t, err)
		t.Cleanup(func() { kernels.Close(b) })
		return b
	})
}

// TestEncoderOnProcessor: a component with ranks of its own on the processor feeds others on GPUs, and learns from
// them; losses are those of the processor alone, within the bound of float32 sums in another order.
func TestEncoderOnProcessor(t *testing.T) {
	train := func(b func(int) kernels.Backend) []float64 {
		return toyTrain(t, &layout.Design{Model: threeComponents(), Mesh: topology.Grid(2, 1, 1),
			Schedule: "1f1b", Micro: 8, Dims: map[string]int{"sound": 3, "state": 1},
			Parts: []*layout.PartPlan{{TP: 1, Over: layout.OverOwn, Ranks: 1, Fill: true}}},
			toyBatches(1), 3, b)
	}
	cpus := func(int) kernels.Backend { return cpu.New(1) }
	gpu := emulatedRanks(t)
	require.InEpsilonSlice(t, train(cpus), train(func(rank int) kernels.Backend {
		if rank >= 2 {
			return cpu.New(1)
		}
		return gpu(rank)
	}), 1e-5)
}

// TestOffloadOnEmulatedDevices: activations that wait on the host, copied by streams beside that of the
// kernels, change no bit, however the streams are delayed.
func TestOffloadOnEmulatedDevices(t *testing.T) {
	v, m := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, small(t, configs.Model{ModelType: "llama"})
	want, _ := v.train(t, m, 5, emulatedRanks(t))
	var losses []float64
	l, o := v.run(t, m, 5, emulatedRanks(t), &losses)
	j := *l.Design
	j.Offload = 1
	l, err := layout.New(&j)
	require.NoError(t, err)
	away, _ := l.Main(0).Copies(&l.Main(0).Segments(grad.F)[0])
	require.Positive(t, away)
	require.NoError(t, Run(l, o))
	require.Equal(t, want, losses)
}

// TestStateOnEmulatedDevices: optimizer state that waits in pinned memory, and comes and goes by streams beside
// that of the kernels, changes no bit, however the streams are delayed; where they do not wait for each other's
// events, it does.
func TestStateOnEmulatedDevices(t *testing.T) {
	e := emulate.New(t).Copy(t)
	e.Set(t, "jitter", 30, 0)
	t.Setenv(cuda.LibraryVariable, e.Path)
	t.Setenv(cuda.ProductsVariable, "none")
	t.Setenv(cuda.AttentionVariable, "none")
	train := func(v variant, share float64) (losses []float64, err error) {
		of, closeAll, err := OpenBackends("cuda", Ranks(v.dp), kernels.Options{Threads: 1, Strict: true})
		require.NoError(t, err)
		defer closeAll()
		l, o := v.run(t, small(t, configs.Model{ModelType: "llama"}), 5, of, &losses)
		j := *l.Design
		j.DType, j.OffloadState, j.Piece = tensor.BF16, share, 256
		l, err = layout.New(&j)
		require.NoError(t, err)
		err = Run(l, o)
		return losses, err
	}
	for _, v := range []variant{{pp: 1, dp: 2, tp: 1, zero: 1, schedule: "1f1b"},
		{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}} {
		want, err := train(v, 0)
		require.NoError(t, err)
		require.Len(t, want, 5)
		for _, share := range []float64{1, 0.5} {
			got, err := train(v, share)
			require.NoError(t, err)
			require.Equal(t, want, got, "%v, share %g", v, share)
		}
		if v.dp == 1 { // nothing but state that comes and goes waits for an event
			e.Set(t, "waits", 0, 1)
			got, err := train(v, 0)
			require.NoError(t, err)
			require.Equal(t, want, got)
			if got, err = train(v, 1); err == nil {
				require.NotEqual(t, want, got)
			}
		}
	}
}

// TestStateKeptOnEmulatedDevices: copies of state that waits in pinned memory are those of the newest update.
func TestStateKeptOnEmulatedDevices(t *testing.T) { keptAway(t, emulatedRanks(t)(0)) }
