package latent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/opaque"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// drawn is a tensor of normal numbers.
func drawn(sample uint64, shape ...int) *tensor.Tensor {
	x := tensor.Make(tensor.F32, shape...)
	noise.Key{Sample: sample}.Fill(x.F32(), 0)
	return x
}

// clips are the goldens of clips.
var clips = []string{"wan", "wan-attention", "wan-residual", "qwen"}

// TestChunks: a clip in chunks of any length is what it is at once.
func TestChunks(t *testing.T) {
	b := cpu.New(2)
	defer b.Close()
	for _, name := range clips {
		g := openGolden(t, name)
		a := g.open(b)
		for _, frames := range []int{1, 2, 4, 5} {
			pixels := drawn(1, 2, a.In, 1+(frames-1)*a.Frames, 2*a.Side, a.Side)
			latents := drawn(2, 2, a.Latent, frames, 2, 1)
			a.Chunk = 0
			mean, logVariance, err := a.Encode(pixels)
			require.NoError(t, err)
			decoded, err := a.Decode(latents)
			require.NoError(t, err)
			for _, a.Chunk = range []int{1, 2, 3, 9} {
				what := fmt.Sprintf("%s: %d frames by %d", name, frames, a.Chunk)
				m, v, err := a.Encode(pixels)
				require.NoError(t, err)
				require.Equal(t, mean.F32(), m.F32(), what)
				require.Equal(t, logVariance.F32(), v.F32(), what)
				d, err := a.Decode(latents)
				require.NoError(t, err)
				near(t, decoded.F32(), d.F32(), sumsBound, what)
			}
		}
	}
}

// TestChunkMemory: the memory of chunks does not grow with the clip, and is less than that of the clip at once.
func TestChunkMemory(t *testing.T) {
	for _, name := range clips {
		g := openGolden(t, name)
		peak := func(frames, chunk int) int64 {
			a := g.open(ref.New())
			a.Chunk = chunk
			_, _, err := a.Encode(drawn(1, 1, a.In, 1+(frames-1)*a.Frames, 4*a.Side, 4*a.Side))
			require.NoError(t, err)
			_, err = a.Decode(drawn(2, 1, a.Latent, frames, 4, 4))
			require.NoError(t, err)
			return a.run.Pool.Peak()
		}
		require.Equal(t, peak(4, 1), peak(9, 1), name)
		require.Less(t, peak(9, 1), peak(9, 0), name)
	}
}

// TestEncoderBy: one record that takes a clip in parts gives the bits of the whole.
func TestEncoderBy(t *testing.T) {
	for _, name := range clips {
		g := openGolden(t, name)
		a := g.open(cpu.New(2))
		x := drawn(3, 2, a.In, 1+4*a.Frames, 2*a.Side, a.Side)
		whole, _, err := a.Encode(x)
		require.NoError(t, err)
		blocks := a.encoder
		for _, by := range []int{1, 2, 3, 9} {
			a.encoder = func(_ way, name string) []Block {
				return []Block{(&Model{Frames: a.Frames, encoder: blocks}).EncoderBy(name, by)}
			}
			part, _, err := a.Encode(x)
			require.NoError(t, err)
			require.Equal(t, whole.F32(), part.F32(), "%s by %d", name, by)
		}
		a.encoder = blocks
		kernels.Close(a.run.Backend)
	}
}

// TestEncoderByMemory: what Wan's encoder of 81 frames of 64×64 pixels holds, one frame of latents at a time, is a
// small part of what it holds at once, and grows with the clip by little more than pixels and moments.
func TestEncoderByMemory(t *testing.T) {
	c, err := Read("config.json", []byte(`{"_class_name": "AutoencoderKLWan"}`))
	require.NoError(t, err)
	m := c.Model()
	held := func(frames int, blocks ...Block) int64 {
		r := &block.Rec{T: grad.NewTape(grad.Options{NoGrad: true})}
		r.T.Output("y", run(r, blocks, r.T.Data("x", tensor.F32, 1, frames, 64, 64, m.In)))
		return r.T.Finish().Memory(false, 1).Peak[grad.F]
	}
	part := held(81, m.EncoderBy("", 1))
	require.Less(t, 8*part, held(81, m.Encoder("")...))
	require.Less(t, held(161, m.EncoderBy("", 1))-part, int64(3*80*64*64*m.In*4))
}

// TestBits: neither threads nor other samples beside one change the bits, and a device whose memory the host
// cannot read gives those of the definition.
func TestBits(t *testing.T) {
	for _, name := range goldens(t) {
		g := openGolden(t, name)
		compute := func(b kernels.Backend, n int) (out []float32) {
			a := g.open(b)
			pixels, latents := g.read("pixels"), g.read("latents")
			if n > 0 {
				pixels, latents = pixels.RowSlice(0, n), latents.RowSlice(0, n)
			}
			mean, logVariance, err := a.Encode(pixels)
			require.NoError(t, err)
			decoded, err := a.Decode(latents)
			require.NoError(t, err)
			for _, x := range []*tensor.Tensor{mean, logVariance, decoded} {
				out = append(out, x.RowSlice(0, 1).F32()...)
			}
			return out
		}
		one, three, device := cpu.New(1), cpu.New(3), opaque.New(5)
		require.Equal(t, compute(one, 0), compute(three, 0), name)
		require.Equal(t, compute(one, 0), compute(one, 1), name)
		want := compute(ref.New(), 0)
		require.Equal(t, want, compute(device, 0), name)
		for _, b := range []kernels.Backend{one, three, device} {
			kernels.Close(b)
		}
	}
}

// TestFits: what fits neither encoder nor decoder is refused before anything is allocated, with what would.
func TestFits(t *testing.T) {
	open := func(name string) *Autoencoder { return openGolden(t, name).open(ref.New()) }
	kl, wan := open("kl"), open("wan")
	for _, c := range []struct {
		a     *Autoencoder
		shape []int
		want  string
	}{
		{kl, []int{1, 3, 7, 8}, "latent: pixels [1 3 7 8]: a side of 7 is no multiple of 2; take 6 or 8"},
		{kl, []int{1, 3, 8, 1}, "latent: pixels [1 3 8 1]: a side of 1 is no multiple of 2; take 2"},
		{kl, []int{3, 8, 8}, "latent: pixels [3 8 8] have 3 axes; AutoencoderKL has 4, [n c h w]"},
		{kl, []int{1, 4, 8, 8}, "latent: pixels [1 4 8 8] have 4 channels; the autoencoder has 3 of them"},
		{wan, []int{1, 3, 8, 8}, "latent: pixels [1 3 8 8] have 4 axes; AutoencoderKLWan has 5, [n c t h w]"},
		{wan, []int{1, 3, 6, 8, 8},
			"latent: pixels [1 3 6 8 8]: 6 frames are not 1 + a multiple of 4; take 5 or 9"},
		{wan, []int{1, 3, 5, 8, 6},
			"latent: pixels [1 3 5 8 6]: a side of 6 is no multiple of 4; take 4 or 8"},
		{wan, []int{1, 3, 0, 8, 8}, "every axis has at least one place"},
		{wan, []int{1 << 40, 3, 1 << 30, 8, 8}, "all together at most 8589934592"},
		{kl, []int{1 << 12, 3, 1 << 11, 1 << 11}, "all together at most 8589934592"},
	} {
		_, _, err := c.a.Encode(&tensor.Tensor{DType: tensor.F32, Shape: c.shape})
		require.ErrorContains(t, err, c.want)
	}
	for _, c := range []struct {
		a     *Autoencoder
		shape []int
		want  string
	}{
		{kl, []int{1, 3, 8, 8}, "latent: latents [1 3 8 8] have 3 channels; the autoencoder has 2 of them"},
		{wan, []int{1, 2, 8, 8},
			"latent: latents [1 2 8 8] have 4 axes; AutoencoderKLWan has 5, [n c t h w]"},
		{wan, []int{1, 2, 1, 1 << 16, 1 << 14}, "their pixels are 51539607552 numbers, at most 8589934592"},
	} {
		_, err := c.a.Decode(&tensor.Tensor{DType: tensor.F32, Shape: c.shape})
		require.ErrorContains(t, err, c.want)
	}
}

// TestBudget: a backend with too little memory is an error that names what did not fit, and nothing is kept.
func TestBudget(t *testing.T) {
	a := openGolden(t, "wan").open(ref.New())
	pool := tensor.NewPool("small", 20_000)
	a.run.Pool, a.run.Host = pool, pool
	_, _, err := a.Encode(drawn(1, 1, a.In, 1, 64, 64))
	var over *tensor.BudgetError
	require.ErrorAs(t, err, &over)
	a.Chunk = 1
	_, err = a.Decode(drawn(1, 1, a.Latent, 3, 4, 4))
	require.ErrorAs(t, err, &over)
	require.Zero(t, pool.Buffers())
}
