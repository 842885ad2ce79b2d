package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology"
)

// policiesDir has the cases of bench/golden/policies.py.
const policiesDir = "../../stages/family/robots/testdata"

// policyCase is golden.json of one of them.
type policyCase struct {
	Samples []struct {
		Tokens []int32
		Views  []bool
		Time   float64
		Robot  int32
		Step   int // of a scheduler's levels, in the place of a time
		Pad    int
		// of the clip beside the actions: the time of its noise, and frames of its latents that are not learnt
		ClipTime float64 `json:"clip_time"`
		ClipPad  int     `json:"clip_pad"`
		// of one that goes on chunk by chunk: which of a thousand levels its parts have, frames of a chunk,
		// and how far it sees
		Levels        map[string][]int
		Chunk, Window int
	}
	Loss       float64
	Losses     []float64
	Dead       []string
	Parameters int64
	Stored     int64 // numbers of a file, if there are more than learn
	Real       int
	Views      int    // that all samples have
	Grid       [3]int // of the patches of each, where a language model hosts the policy
	// what gives actions behind a vision-language model, nil where the model says it itself
	Policy *configs.Policy
}

// openPolicy opens one of them.
func openPolicy(t *testing.T, name string) *denoised {
	dir := filepath.Join(policiesDir, name)
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var want policyCase
	require.NoError(t, json.Unmarshal(text, &want))
	g := &denoised{Loss: want.Loss, Losses: want.Losses, Dead: want.Dead, Parameters: max(want.Parameters,
		want.Stored)}
	g.t = t
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	g.m, err = family.Build(c, 0)
	require.NoError(t, err)
	if want.Policy != nil {
		require.NoError(t, g.m.ActBy(want.Policy))
	}
	d := g.m.Denoiser
	d.Real = want.Real
	target, ok := noise.Lookup("flow_prediction")
	require.True(t, ok)
	if d.Process.Target = target; d.Learns != nil {
		d.Learns(&d.Process)
	}
	file, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	g.w, err = g.m.OpenWeights(file, dir)
	require.NoError(t, err)
	g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.file.Close() })

	if d.Hosted {
		g.hosts(&want)
		return g
	}
	g.tells(&want)
	return g
}

// tells makes the microbatch of a policy that reads its samples itself.
func (g *denoised) tells(want *policyCase) {
	d, t := g.m.Denoiser, g.t
	mb := family.Microbatch{Cu: []int32{0}}
	var items []family.Encoded
	for i, s := range want.Samples {
		x := family.Encoded{From: mb.Cu[i], X0: g.floats(fmt.Sprintf("actions.%d", i)),
			Noise: g.floats(fmt.Sprintf("noise.%d", i)), State: g.floats(fmt.Sprintf("state.%d", i)),
			IDs: s.Tokens, Robot: s.Robot,
			Pad: s.Pad, Grid: d.ChunkGrid(),
			Level: &noise.Level{Alpha: float32(1 - s.Time), Sigma: float32(s.Time),
				Time: float32(1000 * s.Time)}}
		n := len(x.X0) / d.Width()
		for range want.Views {
			s.Views = append(s.Views, true)
		}
		if d.Scheduler != nil {
			table := d.Process.Levels.Table() // the noisiest first
			x.Level = &table[len(table)-1-s.Step]
		}
		for k, there := range s.Views {
			var patches []float32
			if there {
				patches = d.Sight.Cut(g.floats(fmt.Sprintf("image.%d.%d", i, k)))
			}
			x.Views = append(x.Views, patches)
		}
		if f := d.Clip; f != nil {
			grid := f.Grid()
			shape := [4]int{f.Latents.Channels}
			for a := range grid {
				shape[a+1] = grid[a] * f.Latents.Patch[a]
			}
			if !d.Worded() {
				x.Text = d.Padded(g.floats(fmt.Sprintf("text.%d", i)))
			}
			x.Clip = &family.Clip{Grid: grid, Pad: s.ClipPad, Chunk: s.Chunk, Window: s.Window,
				X0:    f.Latents.Tokens(shape, g.floats(fmt.Sprintf("clip.%d", i))),
				Noise: f.Latents.Tokens(shape, g.floats(fmt.Sprintf("clip_noise.%d", i))),
				Level: &noise.Level{Alpha: float32(1 - s.ClipTime), Sigma: float32(s.ClipTime),
					Time: float32(1000 * s.ClipTime)}}
			g.inBlocks(&x, shape, i)
			if f.Rolls != nil || f.Blocks != nil {
				levels := func(name string, p *family.Process) (out []noise.Level) {
					for _, k := range s.Levels[name] {
						out = append(out, p.Levels.Table()[k])
					}
					return out
				}
				x.Levels, x.Clip.Levels = levels("actions", &d.Process), levels("clip", &f.Latents.Process)
				x.Clip.CleanLevels = levels("clean", &f.Latents.Process)
				if f.Rolls != nil {
					x.Clip.CleanNoise = f.Latents.Tokens(shape, g.floats(fmt.Sprintf("clean_noise.%d", i)))
				}
			}
		}
		items = append(items, x)
		mb.Cu = append(mb.Cu, mb.Cu[i]+int32(n))
	}
	n := int(mb.Cu[len(mb.Cu)-1])
	require.NoError(t, d.Check(items, n))
	mb.IDs, mb.Targets, mb.Positions = make([]int32, n), make([]int32, n), make([]int32, n)
	for range n {
		mb.Weights = append(mb.Weights, 1/float32(n))
	}
	mb.More = family.EncodedKey.With(mb.More, items)
	g.made = &mb
}

// inBlocks gives sample i what a policy over blocks reads: states of later blocks, features of the first
// frame, and what is given beside latents of a shape.
func (g *denoised) inBlocks(x *family.Encoded, shape [4]int, i int) {
	f, n := g.m.Denoiser.Clip, g.m.Denoiser.Sight.State
	if f.Blocks == nil {
		return
	}
	x.State, x.Clip.States = x.State[:n], x.State[n:]
	x.Image = g.floats(fmt.Sprintf("image.%d", i))
	if shape[0] = f.Latents.Given; shape[0] > 0 {
		x.Clip.Given = f.Latents.Tokens(shape, g.floats(fmt.Sprintf("given.%d", i)))
	}
}

// hosts makes the microbatch of a policy that a language model hosts.
func (g *denoised) hosts(want *policyCase) {
	mb, d := &family.Microbatch{Cu: []int32{0}}, g.m.Denoiser
	var items []family.Encoded
	for i, s := range want.Samples {
		from := mb.Cu[i]
		items = append(items, family.Encoded{From: from, Told: len(s.Tokens), IDs: s.Tokens,
			Grid: d.ChunkGrid(),
			X0:   g.floats(fmt.Sprintf("actions.%d", i)), Noise: g.floats(fmt.Sprintf("noise.%d", i)),
			State: g.floats(fmt.Sprintf("state.%d", i)), Robot: s.Robot, Pad: s.Pad, Level: &noise.Level{
				Alpha: float32(1 - s.Time), Sigma: float32(s.Time), Time: float32(1000 * s.Time)}})
		if d.Scheduler != nil {
			table := d.Process.Levels.Table()
			items[i].Level = &table[len(table)-1-s.Step]
		}
		mb.IDs = append(mb.IDs, s.Tokens...)
		at := 0
		for k := range s.Views {
			mb.Images.Values = append(mb.Images.Values, g.floats(fmt.Sprintf("image.%d.%d", i, k))...)
			p := family.Grid{T: want.Grid[0], H: want.Grid[1], W: want.Grid[2]}
			for int(s.Tokens[at]) != g.m.Config.Vision.ImageToken {
				at++
			}
			end := at + g.m.Vision.Features(p)
			for row := at; row < end; row++ {
				mb.IDs[int(from)+row] = -1
			}
			x := &items[i]
			p.Spans = [][2]int32{{int32(at), int32(end)}}
			x.Seen.Grids = append(x.Seen.Grids, p)
			x.Seen.Values = append(x.Seen.Values, g.floats(fmt.Sprintf("image.%d.%d", i, k))...)
			p.Spans = [][2]int32{{from + int32(at), from + int32(end)}}
			at = end
			mb.Images.Grids = append(mb.Images.Grids, p)
		}
		for range d.Readouts {
			mb.IDs = append(mb.IDs, -1)
		}
		for k := range len(s.Tokens) + d.Readouts {
			mb.Positions, mb.Targets = append(mb.Positions, int32(k)), append(mb.Targets, -100)
			mb.Weights = append(mb.Weights, 0)
		}
		mb.Weights[len(mb.Weights)-1] = 1 / float32(len(want.Samples))
		mb.Cu = append(mb.Cu, int32(len(mb.IDs)))
	}
	require.NoError(g.t, d.Check(items, len(mb.IDs)))
	mb.More = family.EncodedKey.With(mb.More, items)
	g.made = mb
}

// policies are the cases.
func policies(t *testing.T) (names []string) {
	entries, err := os.ReadDir(policiesDir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.NotEmpty(t, names)
	return names
}

// TestPolicies holds policies to lerobot as TestDenoisers holds models of diffusion to diffusers: what
// they say of noisy actions, or the actions that they give at once, and the loss within 1e-5, every gradient
// within 1e-4, twenty steps of AdamW within 1e-4, and what ten steps of Euler give within 1e-5.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, name := range policies(t) {
		t.Run(name, func(t *testing.T) {
			g := openPolicy(t, name)
			require.Equal(t, g.Parameters, g.m.Count())
			said := "pred.%d"
			if g.m.Denoiser.Once {
				said = "acted.%d"
			}
			var want []float64
			for i := range g.made.Cu[1:] {
				_, v := g.read(fmt.Sprintf(said, i))
				want = append(want, v...)
			}
			for bn, make := range goldenBackends {
				_, got := g.forward(make(), tensor.F32, true)
				require.LessOrEqual(t, relative(got[:len(want)], want), 1e-5, bn)
				loss, _ := g.forward(make(), tensor.F32, false)
				require.InEpsilon(t, g.Loss, loss, 1e-5, bn)
			}
			g.trains(topology.Grid(1, 1, 1), 20, nil)
			switch {
			case g.m.Denoiser.Clip != nil && g.m.Denoiser.Clip.Blocks != nil:
				g.drawsBlocks()
			case g.m.Denoiser.Scheduler != nil:
				g.draws()
			case !g.m.Denoiser.Once:
				g.acts()
			}
		})
	}
}

// acts holds what ten steps of Euler give to lerobot's actions.
func (g *denoised) acts() {
	const steps = 10
	items := family.EncodedKey.Of(g.made.More)
	var acted []float64
	if g.m.Denoiser.Clip != nil && g.m.Denoiser.Clip.Steps > 0 {
		g.films(items, steps)
	}
	if g.m.Denoiser.Worded() {
		defer g.clips(items)()
	}
	for i := range items {
		items[i].X0, items[i].Noise = g.floats(fmt.Sprintf("start.%d", i)), make([]float32, len(items[i].X0))
		clear(items[i].X0[:g.m.Denoiser.Still(&items[i])])
		_, v := g.read(fmt.Sprintf("acted.%d", i))
		acted = append(acted, v...)
	}
	var got []float32
	for step := range steps {
		for i := range items {
			t, _ := g.m.Denoiser.Step(step, steps)
			items[i].Level = &noise.Level{Alpha: 1, Time: 1000 * float32(t)}
		}
		_, v := g.forward(goldenBackends["cpu"](), tensor.F32, true)
		got = nil
		for i := range items {
			d, n := g.m.Denoiser, len(items[i].X0)
			t, by := d.Step(step, steps)
			clear(v[i*n : i*n+d.Still(&items[i])])
			d.Advance(items[i].X0, g.floats(fmt.Sprintf("start.%d", i)), v[i*n:(i+1)*n], 0, t, by)
			if step == steps-1 {
				d.Finish(items[i].X0)
			}
			got = append(got, items[i].X0...)
		}
		if g.m.Denoiser.Worded() {
			_, by := g.m.Denoiser.Step(step, steps)
			g.m.Denoiser.AdvanceClips(items, v[len(got):], by)
		}
	}
	require.LessOrEqual(g.t, relative(got, acted), 1e-5)
}

// clips begins clips that are drawn together with the actions behind the frames that are seen; what it
// returns holds what was drawn to the reference's.
func (g *denoised) clips(items []family.Encoded) func() {
	f := g.m.Denoiser.Clip
	grid := f.Grid()
	shape := [4]int{f.Latents.Channels, grid[0] * f.Latents.Patch[0], grid[1] * f.Latents.Patch[1],
		grid[2] * f.Latents.Patch[2]}
	for i := range items {
		c := items[i].Clip
		start := f.Latents.Tokens(shape, g.floats(fmt.Sprintf("clip_start.%d", i)))
		copy(start, c.X0[:grid[1]*grid[2]*f.Latents.Width()])
		c.X0, c.Noise = start, make([]float32, len(start))
	}
	return func() {
		var got []float32
		var want []float64
		for i := range items {
			got = append(got, items[i].Clip.X0...)
			for _, v := range f.Latents.Tokens(shape, g.floats(fmt.Sprintf("drawn.%d", i))) {
				want = append(want, float64(v))
			}
		}
		require.LessOrEqual(g.t, relative(got, want), 1e-5)
	}
}

// films draws the clips that actions follow, holds them to lerobot's, and gives the first actions, which do nothing.
func (g *denoised) films(items []family.Encoded, steps int) {
	f := g.m.Denoiser.Clip
	grid := f.Grid()
	shape := [4]int{f.Latents.Channels, grid[0] * f.Latents.Patch[0], grid[1] * f.Latents.Patch[1],
		grid[2] * f.Latents.Patch[2]}
	first := grid[1] * grid[2] * f.Latents.Width()
	gen, err := sample.New(g.m, nil, tensor.F32, goldenBackends["cpu"](), tensor.NewPool("film", 0),
		func(p *grad.Param, r family.Region, dst []float32) error {
			_, err := g.w.Read(p, r, dst)
			return err
		})
	require.NoError(g.t, err)
	defer gen.Close()
	var want []float64
	for i := range items {
		x := &items[i]
		seen := x.Clip.X0
		x.Clip = &family.Clip{Grid: grid, Known: 1, Chunk: grid[0], Window: 64,
			X0: f.Latents.Tokens(shape, g.floats(fmt.Sprintf("clip_start.%d", i)))}
		copy(x.Clip.X0[:first], seen)
		x.None = g.m.Denoiser.Padded(g.floats(fmt.Sprintf("none.%d", i)))
		for _, v := range f.Latents.Tokens(shape, g.floats(fmt.Sprintf("drawn.%d", i))) {
			want = append(want, float64(v))
		}
		x.Levels, x.Clean = nil, 1
	}
	require.NoError(g.t, gen.Film(items, steps))
	var got []float32
	for _, x := range items {
		got = append(got, x.Clip.X0...)
	}
	require.LessOrEqual(g.t, relative(got, want), 1e-5)
}

// drawsBlocks holds what ten steps of UniPC give to LoongForge's: the first block of frames with its actions,
// and the second behind what was seen meanwhile, for which LoongForge keeps keys and values.
func (g *denoised) drawsBlocks() {
	d := g.m.Denoiser
	f := d.Clip
	gen, err := sample.New(g.m, nil, tensor.F32, goldenBackends["cpu"](), tensor.NewPool("blocks", 0),
		func(p *grad.Param, r family.Region, dst []float32) error {
			_, err := g.w.Read(p, r, dst)
			return err
		})
	require.NoError(g.t, err)
	defer gen.Close()
	learnt := family.EncodedKey.Of(g.made.More)
	for b, of := range []string{"", "later_"} {
		items := append([]family.Encoded(nil), learnt...)
		var got []float32
		var want []float64
		wants := func(name string, i int) []float32 {
			grid := items[i].Clip.Grid
			return f.Latents.Tokens([4]int{f.Latents.Channels, f.Blocks.Frames, grid[1] * f.Latents.Patch[1],
				grid[2] * f.Latents.Patch[2]}, g.floats(fmt.Sprintf("%s%s.%d", of, name, i)))
		}
		for i := range items {
			x, clip := &items[i], *learnt[i].Clip
			clip.Known, clip.Part, clip.States, clip.Levels = 1+b*f.Blocks.Frames, family.NoisyPart, nil, nil
			clip.Grid[0] = clip.Known + f.Blocks.Frames
			x.Clip = &clip
			known := clip.Known * clip.Grid[1] * clip.Grid[2] * f.Latents.Width()
			clip.X0 = append(clip.X0[:known:known], wants("clip_start", i)...)
			clip.Given = clip.Given[:clip.Tokens()*f.Latents.GivenWidth()]
			if b > 0 {
				x.State = learnt[i].Clip.States[:d.Sight.State]
			}
			x.Levels, x.X0 = nil, g.floats(fmt.Sprintf("%sstart.%d", of, i))
			x.Grid[0], x.None = 1, d.Padded(g.floats(fmt.Sprintf("none.%d", i)))
		}
		require.NoError(g.t, gen.Blocks(items, 10))
		for i, x := range items {
			known := x.Clip.Known * x.Clip.Grid[1] * x.Clip.Grid[2] * f.Latents.Width()
			got = append(append(got, x.X0...), x.Clip.X0[known:]...)
			_, v := g.read(fmt.Sprintf("%sacted.%d", of, i))
			want = append(want, v...)
			for _, v := range wants("drawn", i) {
				want = append(want, float64(v))
			}
		}
		require.LessOrEqual(g.t, relative(got, want), 1e-5, of)
	}
}

// draws holds what ten steps of the model's own scheduler give, and of DDIM's, to lerobot's actions, with its noise.
func (g *denoised) draws() {
	items := family.EncodedKey.Of(g.made.More)
	zero := make([]float32, len(items[0].X0))
	for _, name := range []string{"acted", "implicit"} {
		s := g.m.Denoiser.Scheduler
		if name == "implicit" {
			d := *noise.New("DDIMScheduler").(*noise.DDIM)
			d.Betas, d.Clip = s.(*noise.DDPM).Betas, s.(*noise.DDPM).Clip
			s = &d
		}
		p, err := s.Sampler(noise.Options{Steps: 10})
		require.NoError(g.t, err)
		states, want := make([]noise.State, len(items)), []float64(nil)
		for i := range items {
			states[i] = p.Begin(g.floats(fmt.Sprintf("start.%d", i)))
			_, v := g.read(fmt.Sprintf("%s.%d", name, i))
			want = append(want, v...)
		}
		for step, time := range p.Times {
			for i := range items {
				items[i].X0, items[i].Noise = p.Input(states[i]), zero
				items[i].Level = &noise.Level{Alpha: 1, Time: time}
			}
			_, out := g.forward(goldenBackends["cpu"](), tensor.F32, true)
			for i, n := range states {
				states[i], err = p.Step(n, out[i*len(zero):(i+1)*len(zero)],
					g.floats(fmt.Sprintf("added.%d.%d", i, step)))
				require.NoError(g.t, err)
			}
		}
		var got []float32
		for i := range states {
			got = append(got, states[i].X...)
		}
		require.LessOrEqual(g.t, relative(got, want), 1e-5, name)
	}
}

// TestPoliciesPlans trains policies under plans of each axis and holds three steps to those of one device
// in PyTorch. Those that read views whole share out no rows.
func TestPoliciesPlans(t *testing.T) {
	t.Parallel()
	for _, name := range policies(t) {
		for _, v := range denoisePlans {
			if v.ring {
				continue // of one sequence alone: captions and actions are two
			}
			t.Run(name+" "+v.String(), func(t *testing.T) {
				g := openPolicy(t, name)
				if g.m.Denoiser.Canvas && !g.m.Denoiser.Hosted && v.cp > 1 {
					t.Skip("models of convolutions share no rows out")
				}
				g.each = g.alone(v.dp)
				parts, rows := 2*v.cp*v.tp, int(g.made.Cu[1])
				mesh := layout.MeshOf(&configs.Plan{PP: v.pp, DP: v.dp, TP: v.tp, CP: v.cp, Ulysses: v.u,
					EP: 1, ETP: 1})
				g.trains(mesh, 3, func(j *layout.Design) {
					j.Schedule, j.Zero, j.SeqParallel, j.Recompute = v.schedule, v.zero, v.sp, v.recompute
					j.Micro, j.Rows = 2/v.dp, (rows+parts-1)/parts*parts
					j.Overlap = v.overlap
				})
			})
		}
	}
}

// besides are tensors of a checkpoint with others beside them.
type besides struct {
	checkpoint.Source
	more []checkpoint.Info
}

func (b besides) Tensors() []checkpoint.Info { return append(b.Source.Tensors(), b.more...) }

// TestPolicyBeside: a checkpoint of DreamZero may have the frozen encoders too, and no other tensors.
func TestPolicyBeside(t *testing.T) {
	g := openPolicy(t, "dreamzero")
	dir := filepath.Join(policiesDir, "dreamzero")
	file, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	defer file.Close()
	for name, fits := range map[string]bool{"action_head.vae.model.conv1.weight": true,
		"action_head.text_encoder.norm.weight": true, "action_head.model.more": false} {
		_, err := g.m.OpenWeights(besides{file, []checkpoint.Info{{Name: name, DType: checkpoint.F32,
			Shape: []int{1}}}}, dir)
		require.Equal(t, fits, err == nil, "%s: %v", name, err)
	}
}
