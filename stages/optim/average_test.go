package optim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestAveragingDecay: the decays of diffusers' EMAModel(decay=0.9, update_after_step=2).get_decay,
// and with use_ema_warmup=True, power=2/3.
func TestAveragingDecay(t *testing.T) {
	e := Averaging{Decay: 0.9, After: 2}
	var got []float64
	for k := range 6 {
		got = append(got, e.At(int64(k+1)))
	}
	require.InDeltaSlice(t, []float64{0, 0, 0, 2. / 11, 3. / 12, 4. / 13}, got, 1e-15)
	require.Equal(t, 0.9, e.At(1000))
	e = Averaging{Decay: 0.9999, Power: 2. / 3}
	require.Zero(t, e.At(1))
	require.InDelta(t, 0.3700394750525634, e.At(2), 1e-15)
	require.InDelta(t, 0.7845565309968274, e.At(10), 1e-12)
}

// TestAveraging: an average follows the weights that each update leaves, whatever their optimizer; gradients
// that overflowed leave it as it is.
func TestAveraging(t *testing.T) {
	b := ref.New()
	for _, name := range Names() {
		if Averages(name) {
			continue // it keeps one by itself
		}
		c := Config{Name: name, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Momentum: 0.9,
			Average: Averaging{Decay: 0.3}}
		plain, err := Get(name)
		require.NoError(t, err)
		require.NotContains(t, plain.State, AverageState)
		o, err := Of(c)
		require.NoError(t, err)
		require.Equal(t, append(append([]string{}, plain.State...), AverageState), o.State)
		require.Equal(t, plain.Traffic(1)+8, o.Traffic(1))
		p := tensor.Of(tensor.F32, []float32{1, -2}, 2)
		var state []*tensor.Tensor
		for range o.State {
			state = append(state, tensor.Make(tensor.F32, 2))
		}
		average := state[len(state)-1].F32()
		want := [2]float32{}
		for update := range 5 {
			hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64,
				kernels.ClipLen)
			clip.F64()[kernels.ClipFactor] = 1
			if update == 3 {
				clip.F64()[kernels.ClipOverflow] = 1
			}
			o.Hyper(c, 0.1, int64(update+1), hyper.F64())
			g := tensor.Of(tensor.F32, []float32{0.5, float32(update) - 1}, 2)
			o.Apply(b, g, hyper, clip, p, state, nil, false)
			if update != 3 {
				for i, v := range p.F32() {
					want[i] -= float32((1 - c.Average.At(int64(update+1))) * float64(want[i]-v))
				}
			}
			require.InDeltaSlice(t, want[:], average, 1e-6, "%s, update %d", name, update)
		}
		require.NotEqual(t, p.F32(), average)
	}
	_, err := Of(Config{Name: "nothing"})
	require.ErrorContains(t, err, `optimizer "nothing": unknown`)
}
