package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/sample"
)

// calls counts what a backend runs.
type calls struct {
	kernels.Backend
	n int
}

func (c *calls) Run(call *kernels.Call) { c.n++; c.Backend.Run(call) }

// firstBlock has a sample of a policy over blocks be one whose first block is drawn.
func firstBlock(d *family.Denoiser, x *family.Encoded) {
	if d.Clip == nil || d.Clip.Blocks == nil {
		return
	}
	x.X0 = x.X0[:len(x.X0)/x.Grid[0]]
	x.Levels, x.Grid[0], x.Noise = nil, 1, x.Noise[:len(x.X0)]
	c := x.Clip
	c.Part, c.Known, c.Levels, c.States = family.NoisyPart, 1, nil, nil
	c.Grid[0] = 1 + d.Clip.Blocks.Frames
	c.X0 = c.X0[:c.Tokens()*d.Clip.Latents.Width()]
	c.Noise, c.Given = c.Noise[:len(c.X0)], c.Given[:c.Tokens()*d.Clip.Latents.GivenWidth()]
}

// TestPoliciesSteady: what a policy makes of what it sees is computed once while noise becomes actions, and
// actions have the bits of one that computes it in every step; another view is seen.
func TestPoliciesSteady(t *testing.T) {
	t.Parallel()
	for _, name := range policies(t) {
		t.Run(name, func(t *testing.T) {
			g := openPolicy(t, name)
			b := &calls{Backend: cpu.New(1)}
			pool := tensor.NewPool("steady", 0)
			gen, err := sample.New(g.m, nil, tensor.F32, b, pool, func(p *grad.Param, r family.Region,
				dst []float32) error {
				_, err := g.w.Read(p, r, dst)
				return err
			})
			require.NoError(t, err)
			items := family.EncodedKey.Of(g.made.More)
			for i := range items { // a clip that was drawn, as a policy has it that acts
				firstBlock(g.m.Denoiser, &items[i])
				if c := items[i].Clip; c != nil && g.m.Denoiser.Clip.Rolls != nil {
					c.Part, c.Chunk, c.CleanLevels, items[i].Levels = family.CleanPart, c.Grid[0], nil, nil
				}
			}
			p := gen.NewPrediction()
			ask := func(p *sample.Prediction, time float32) (out []float32, n int) {
				for i := range items {
					items[i].Level = &noise.Level{Alpha: 1, Time: time}
				}
				before := b.n
				out, err := p.Of(items)
				require.NoError(t, err)
				return out, b.n - before
			}
			step := func(time float32) (first, later int) {
				got, later := ask(p, time)
				fresh := gen.NewPrediction()
				want, first := ask(fresh, time)
				fresh.Close()
				require.Equal(t, want, got)
				return first, later
			}
			first, same := step(70)
			require.Equal(t, first, same)
			first, later := step(20)
			require.Less(t, later, first)
			items[1].X0[0]++
			_, again := step(20)
			require.Equal(t, later, again)
			for _, view := range items[0].Views {
				if view != nil {
					view[0]++
				}
			}
			if v := items[0].Seen.Values; v != nil {
				v[0]++
			}
			if c := items[0].Clip; c != nil && g.m.Denoiser.Worded() { // which is drawn too
				items[0].IDs[0]++
			} else if c != nil {
				c.X0[0]++
			}
			_, other := step(20)
			require.Equal(t, first, other)
			p.Close()
			gen.Close()
			require.Zero(t, pool.Live())
		})
	}
}
