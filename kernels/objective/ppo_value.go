package objective

// ppo_value trains the head of values of ppo: half the square of its distance to the return, which may not
// shrink by a step of more than clip_value from the value when drawn.
var _ = register(Loss{Name: "ppo_value", Source: "arXiv:1707.06347, as TRL and verl have it",
	Score: true, Part: true, Doc: "value_weight·½·max((V − R)², (clip(V) − R)²), a mean over tokens",
	Reads: []string{"value_weight", "clip_value"}, Of: func(p *Params, r *Rows, grad []float64) (loss float64) {
		for i, s := range r.Seq {
			w := p.Value * float64(r.Weight[i]) / 2
			if s < 0 || w == 0 {
				continue
			}
			v, to, old := float64(r.LogP[i]), r.at(i, Return), r.at(i, Worth)
			held := min(max(v, old-p.ClipValue), old+p.ClipValue)
			switch a, b := v-to, held-to; {
			case a*a >= b*b:
				loss += w * a * a
				grad[i] += 2 * w * a
			default: // what is held does not move
				loss += w * b * b
			}
		}
		return loss
	}})
