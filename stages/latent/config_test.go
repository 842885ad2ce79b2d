package latent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// TestMarshal: a file of diffusers is written back to the byte, and settings survive being written.
func TestMarshal(t *testing.T) {
	for _, name := range goldens(t) {
		path := filepath.Join("testdata", name, "config.json")
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		c, err := ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(Marshal(c)), name)
	}
	for _, name := range Classes() {
		class, _ := Lookup(name)
		for _, s := range class.Sizes {
			c, err := Read("config.json", []byte(withClass(name, s.Keys)))
			require.NoError(t, err)
			again, err := Read("config.json", Marshal(c))
			require.NoError(t, err)
			require.Equal(t, c, again, s.Name)
		}
	}
}

// faults are settings that cannot act, by class, with the fault of each.
func faults() [][3]string {
	const kl, wan, qwen = "AutoencoderKL", "AutoencoderKLWan", "AutoencoderKLQwenImage"
	two := `"down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D"], ` +
		`"block_out_channels": [32, 64], `
	residual := `"is_residual": true, "base_dim": 4, `
	return [][3]string{
		{kl, `{"in_channel": 3}`, `in_channel: no AutoencoderKL has this key; did you mean "in_channels"?`},
		{kl, `{"z_dim": 3}`, "z_dim: no AutoencoderKL has this key"},
		{wan, `{"input_channels": 3}`, "input_channels: no AutoencoderKLWan has this key"},
		{kl, `{"in_channels": 0}`, "in_channels: 0 is out of range; set an integer from 1 to 16384"},
		{kl, `{"out_channels": -1}`, "out_channels: -1 is out of range"},
		{kl, `{"latent_channels": 99999}`, "latent_channels: 99999 is out of range"},
		{kl, `{"layers_per_block": 0}`, "layers_per_block: 0 is out of range; set an integer from 1 to 64"},
		{kl, `{"norm_num_groups": 0}`, "norm_num_groups: 0 is out of range"},
		{kl, `{"norm_num_groups": 24}`,
			"norm_num_groups: a level of 64 channels does not fall into 24 groups"},
		{kl, `{"block_out_channels": []}`, "block_out_channels: 0 levels; set a list of 1 to 8 integers"},
		{kl, `{"block_out_channels": [0]}`, "block_out_channels: 0 is out of range"},
		{kl, `{"sample_size": 0}`, "sample_size: 0 is out of range"},
		{kl, `{"act_fn": "sliu"}`, `act_fn: "sliu" is unknown; did you mean "silu"?`},
		{kl, "{" + two + `"up_block_types": ["UpDecoderBlock2D"]}`,
			"up_block_types: 1 types for 2 block_out_channels; set 2 types"},
		{kl, `{"down_block_types": ["KDownBlock2D"]}`, `down_block_types: "KDownBlock2D" is unknown`},
		{kl, `{"up_block_types": ["DownEncoderBlock2D"]}`, `up_block_types: "DownEncoderBlock2D" is unknown`},
		{kl, `{"scaling_factor": 0}`, "scaling_factor: 0 would leave nothing of latents"},
		{kl, `{"latents_mean": [1, 2, 3, 4]}`,
			"latents_mean: latents_std belongs to it; set both or neither"},
		{kl, `{"latents_std": [1, 2, 3, 4]}`, "latents_std: latents_mean belongs to it; set both or neither"},
		{kl, `{"latents_mean": [1], "latents_std": [1, 1, 1, 1]}`,
			"latents_mean: 1 numbers for latents of 4 channels; set 4 numbers"},
		{kl, `{"latents_mean": [1, 1, 1, 1], "latents_std": [1, 0, 1, 1]}`,
			"latents_std: 0 is no deviation of latents"},
		{kl, `{"latents_mean": [1, 1, 1, 1], "latents_std": [1, 1, 1, 1], "shift_factor": 1}`,
			"shift_factor: shift_factor and latents_mean both shift the latents; leave one of them null"},
		{wan, `{"base_dim": 0}`, "base_dim: 0 is out of range"},
		{wan, `{"z_dim": 48}`, "latents_mean: 16 numbers for latents of 48 channels; set 48 numbers"},
		{wan, `{"num_res_blocks": 0}`, "num_res_blocks: 0 is out of range"},
		{wan, `{"dim_mult": [1, 2]}`, "temperal_downsample: 3 values between 2 levels; set 1 values"},
		{wan, `{"dim_mult": [1, 0, 1, 1]}`, "dim_mult: 0 is out of range"},
		{wan, `{"temperal_downsample": [true, true, true]}`,
			"temperal_downsample: frames are halved 3 times; take at most 2"},
		{wan, `{"attn_scales": [0.3]}`,
			"attn_scales: no level has the scale 0.3; take some of [1 0.5 0.25 0.125]"},
		{qwen, `{"dropout": 0.1}`,
			"dropout: 0.1, and autoencoders are trained without dropout here; set 0.0"},
		{qwen, `{"input_channels": 0}`, "input_channels: 0 is out of range"},
		{wan, `{"in_channels": 0}`, "in_channels: 0 is out of range"},
		{wan, `{"decoder_base_dim": 0}`, "decoder_base_dim: 0 is out of range"},
		{wan, `{"patch_size": 0}`, "patch_size: 0 is out of range"},
		{wan, `{"patch_size": 2, "out_channels": 12}`,
			"in_channels: 3 channels are no patches of 2 by 2 pixels; take a multiple of patch_size²"},
		{wan, `{"patch_size": 2, "in_channels": 12, "out_channels": 12, "scale_factor_spatial": 8}`,
			"scale_factor_spatial: 8, but dim_mult, temperal_downsample and patch_size make it 16; set 16"},
		{wan, `{"scale_factor_temporal": 8}`, "scale_factor_temporal: 8, but dim_mult"},
		{wan, "{" + residual + `"attn_scales": [1.0]}`,
			"attn_scales: levels with is_residual have no attention"},
		{wan, "{" + residual + `"dim_mult": [1, 2, 2, 4]}`,
			"dim_mult: level 3 has no shortcut from 8 numbers to 16 channels"},
		{wan, "{" + residual + `"dim_mult": [1, 3, 7, 7]}`, "dim_mult: level 2 has no shortcut"},
		{wan, "{" + residual + `"dim_mult": [1, 3, 7, 7]}`, "level 2 of the decoder has no shortcut"},
		{wan, "{" + residual + `"dim_mult": [1, 1, 8, 1]}`,
			"dim_mult: level 2 of the decoder has no shortcut from 32 channels to 16 numbers"},
	}
}

// TestFaults: every key that cannot act is refused by its line.
func TestFaults(t *testing.T) {
	for _, c := range faults() {
		_, err := Read("config.json", []byte(withClass(c[0], c[1])))
		require.ErrorContains(t, err, c[2], c[1])
		// Where the key is not there, a default does not fit.
		if key, _, _ := strings.Cut(c[2], ":"); strings.Contains(c[1], key) {
			require.ErrorContains(t, err, "config.json:1: "+key)
		}
	}
	_, err := Read("config.json", []byte(`{"_class_name": "AutoencoderTiny"}`))
	require.ErrorContains(t, err, `_class_name: "AutoencoderTiny" is unknown`)
	_, err = ReadFile(filepath.Join(t.TempDir(), "config.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestScale: latents are scaled as diffusers' pipelines do, there and back, and on a tape.
func TestScale(t *testing.T) {
	read := func(name string) *Model {
		c, err := ReadFile(filepath.Join("testdata", name, "config.json"))
		require.NoError(t, err)
		return c.Model()
	}
	z := func(shape ...int) *tensor.Tensor { return drawn(3, shape...) }
	flux, plain, both, wan := read("kl-flux"), read("kl"), read("kl-attention"), read("wan")
	for _, c := range []struct {
		m    *Model
		x    *tensor.Tensor
		want func(c int, v float64) float64
	}{
		{plain, z(2, 2, 3, 1), func(_ int, v float64) float64 { return v * 0.18215 }},
		{flux, z(1, 3, 2, 2), func(_ int, v float64) float64 { return (v - 0.1159) * 0.3611 }},
		{both, z(2, 1, 2, 2), func(_ int, v float64) float64 { return (v - 0.25) * 0.18215 / 1.5 }},
		{wan, z(2, 2, 1, 3, 2), func(c int, v float64) float64 {
			return (v - []float64{0.1, -0.2}[c]) / []float64{1.5, 0.75}[c]
		}},
	} {
		want, places := make([]float32, c.x.Len()), tensor.Len(c.x.Shape[2:])
		for i, v := range c.x.F32() {
			want[i] = float32(c.want(i/places%c.x.Shape[1], float64(v)))
		}
		raw := tensor.Of(tensor.F32, append([]float32{}, c.x.F32()...), c.x.Shape...)
		c.m.Scale.Normal(c.x)
		near(t, want, c.x.F32(), 1e-6, "normal")
		rows := last(raw)
		got := recorded(t, rows, func(r *block.Rec, x *grad.Value) *grad.Value {
			return c.m.Scale.RecordNormal(r, x)
		})
		near(t, last(c.x).F32(), got, 1e-6, "recorded")
		back := recorded(t, last(c.x), func(r *block.Rec, x *grad.Value) *grad.Value {
			return c.m.Scale.RecordRaw(r, x)
		})
		near(t, rows.F32(), back, 1e-6, "recorded back")
		c.m.Scale.Raw(c.x)
		near(t, raw.F32(), c.x.F32(), 1e-6, "raw")
	}
	require.Panics(t, func() { plain.Scale.Normal(z(1, 3, 2, 2)) })
}

// recorded is what f makes of x on a tape.
func recorded(t *testing.T, x *tensor.Tensor, f func(r *block.Rec, x *grad.Value) *grad.Value) []float32 {
	t.Helper()
	r := &block.Rec{T: grad.NewTape(grad.Options{DType: tensor.F32, NoGrad: true})}
	r.T.Output("y", f(r, r.T.Data("x", tensor.F32, x.Shape...)))
	pool := tensor.NewPool("scale", 0)
	run := grad.Runner{Backend: ref.New(), Pool: pool, Host: pool}
	frame := run.NewFrame(r.T.Finish(), map[string]*tensor.Tensor{"x": x.Retain()}, nil, nil)
	_, err := run.Step(frame, grad.F, 0, nil)
	require.NoError(t, err)
	return frame.Outputs()["y"].F32()
}

// TestSplit: logarithms of variances outside -30 … 20 are brought to the bounds, others stay to the bit, and
// the gradient is 0 outside.
func TestSplit(t *testing.T) {
	x := tensor.Of(tensor.F32, []float32{1, 2, 3, -31, 4, 5, 20.5, 0.1, 6, 7, -29.9, 1e6}, 1, 1, 3, 4)
	got := recorded(t, x, func(r *block.Rec, x *grad.Value) *grad.Value {
		mean, v := Split(r, x)
		return r.T.Concat(3, mean, v)
	})
	require.Equal(t, []float32{1, 2, 3, -30, 4, 5, 20, 0.1, 6, 7, -29.9, 20}, got)

	r := &block.Rec{T: grad.NewTape(grad.Options{DType: tensor.F32})}
	p := r.T.Param("p", []int{1, 1, 3, 4}, -1, 1, false)
	_, v := Split(r, p)
	zero := r.T.ConstOf("zeros", make([]float32, 6), 1, 1, 3, 2)
	r.T.Loss(r.T.PointLoss(v, zero, weights(r, 1, 1), nil, 1, 0))
	pool := tensor.NewPool("split", 0)
	run := grad.Runner{Backend: ref.New(), Pool: pool, Host: pool, Seed: 1,
		Params: map[string]*tensor.Tensor{"p": x}, Grads: map[string]*tensor.Tensor{}}
	frame := run.NewFrame(r.T.Finish(), nil, nil, nil)
	for _, phase := range []grad.Phase{grad.F, grad.B} {
		_, err := run.Step(frame, phase, 0, nil)
		require.NoError(t, err)
	}
	require.Equal(t, []float32{0, 0, 1, 0, 0, 0, 0, 1, 0, 0, -1, 0}, run.Grads["p"].F32())
}
