package sample

import (
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// topLevel is the noisiest of the thousand levels that FlowUniPC of Wan's code steps from, before its shift;
// it has it in float32.
const topLevel = float32(0.999)

// flowSteps is Wan's own sampler: UniPC on levels of flow matching, evenly spaced before their shift.
func flowSteps(shift float64, steps int) (*noise.Sampler, error) {
	s := noise.New("UniPCMultistepScheduler").(*noise.UniPC)
	s.Prediction, s.FlowSigmas, s.FlowShift = "flow_prediction", true, shift
	levels := make([]float64, steps)
	for i := range levels {
		levels[i] = float64(topLevel) * (1 - float64(i)/float64(steps))
	}
	return s.Sampler(noise.Options{Steps: steps, Sigmas: levels})
}

// Blocks draws a block of each item's clip and its actions together out of noise in so many steps: of the
// clip the last block has noise in X0 and the frames before it are known (family.NoisyPart), and so does
// X0 of the actions. What is said of frames with the caption is led away from what is said with that of
// nothing by the guidance of the model; actions are those with the caption.
func (g *Generator) Blocks(items []family.Encoded, steps int) error {
	d, f := g.m.Denoiser, g.m.Denoiser.Clip
	s, err := flowSteps(f.Acting, steps)
	if err != nil {
		return err
	}
	p := &Prediction{g: g, clips: true}
	defer p.Close()
	both := append([]family.Encoded(nil), items...)
	if f.Guide != 1 {
		both = append(both, items...)
	}
	acts, films := make([]noise.State, len(items)), make([]noise.State, len(items))
	known := make([]int, len(items))
	for i := range items {
		c := items[i].Clip
		known[i] = c.Known * c.Grid[1] * c.Grid[2] * f.Latents.Width()
		acts[i], films[i] = s.Begin(items[i].X0), s.Begin(c.X0[known[i]:])
	}
	for _, time := range s.Times {
		level := noise.Level{Alpha: 1, Time: time}
		for k := range both {
			i := k % len(items)
			x, c := &both[k], items[i].Clip
			x.X0, x.Noise, x.Level = s.Input(acts[i]), make([]float32, len(items[i].X0)), &level
			if copy(c.X0[known[i]:], s.Input(films[i])); k >= len(items) {
				x.Text = items[i].None
			}
			c.Noise, c.Levels = make([]float32, len(c.X0)), nil
			for range c.Grid[0] {
				c.Levels = append(c.Levels, level)
			}
		}
		out, err := p.Of(both)
		if err != nil {
			return err
		}
		actions := out
		for i := range both {
			out = out[both[i].Tokens()*d.Width():]
		}
		without := out
		for i := range items {
			without = without[len(items[i].Clip.X0):]
		}
		for i := range items {
			n, all := len(items[i].X0), len(items[i].Clip.X0)
			said := out[known[i]:all]
			if f.Guide != 1 {
				for j, v := range without[known[i]:all] {
					said[j] = v + float32(f.Guide)*(said[j]-v)
				}
				without = without[all:]
			}
			if acts[i], err = s.Step(acts[i], actions[:n], nil); err != nil {
				return err
			}
			if films[i], err = s.Step(films[i], said, nil); err != nil {
				return err
			}
			actions, out = actions[n:], out[all:]
		}
	}
	for i := range items {
		copy(items[i].X0, acts[i].X)
		copy(items[i].Clip.X0[known[i]:], films[i].X)
	}
	return nil
}
