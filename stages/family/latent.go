package family

import (
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

var _ = RegisterMixer("latent_attention", func(s Spec, i int) block.Part { return s.latentLayer(i) })

// latentKeys are the keys of configurations with latent attention.
var latentKeys = []string{"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
	"v_head_dim"}

// latent is what the keys of a configuration say of latent attention, which all layers have.
func (s *Spec) latent(c configs.Model) {
	s.HeadDim, s.Rope.Dim = c.KeyTurning, c.KeyTurning
	s.Latent = block.Latent{Hidden: s.Hidden, Heads: s.Heads, QRank: c.QueryRank, KVRank: c.KeyRank,
		Turning: c.KeyTurning, Still: c.KeyStill, Value: c.ValueDim, Pairs: true,
		Norm:  block.Norm{Eps: 1e-6}, // of latents, whatever rms_norm_eps is
		Scale: s.Rope.ScoreScale() / math.Sqrt(float64(c.KeyTurning+c.KeyStill))}
	s.Mixers = nil
	for range s.Layers {
		s.Mixers = append(s.Mixers, "latent_attention")
	}
}

// latentPlaces finds the parts of latent attention: checkpoints have the part of a query that turns behind
// the other, and keep in one matrix what makes the latent and the part of the key that all heads share, and
// in another what makes keys and values of it.
func latentPlaces(c configs.Model, source func(string) Source) func(string) Source {
	key, both := c.KeyStill+c.KeyTurning, c.KeyStill+c.ValueDim
	heads := func(width int, parts ...[2]int) (rows [][2]int) {
		for h := range c.Heads {
			for _, p := range parts {
				rows = append(rows, [2]int{h*width + p[0], h*width + p[1]})
			}
		}
		return rows
	}
	return func(name string) Source {
		rows, part, into := [][2]int(nil), "", ""
		switch {
		case strings.Contains(name, ".q_proj."), strings.Contains(name, ".q_b_proj."):
			rows = heads(key, [2]int{c.KeyStill, key}, [2]int{0, c.KeyStill})
		case strings.Contains(name, ".kv_a_proj."):
			part, into, rows = ".kv_a_proj.", ".kv_a_proj_with_mqa.", [][2]int{{0, c.KeyRank}}
		case strings.Contains(name, ".k_rope_proj."):
			part, into, rows = ".k_rope_proj.", ".kv_a_proj_with_mqa.", [][2]int{{c.KeyRank, c.KeyRank +
				c.KeyTurning}}
		case strings.Contains(name, ".k_b_proj."):
			part, into, rows = ".k_b_proj.", ".kv_b_proj.", heads(both, [2]int{0, c.KeyStill})
		case strings.Contains(name, ".v_b_proj."):
			part, into, rows = ".v_b_proj.", ".kv_b_proj.", heads(both, [2]int{c.KeyStill, both})
		default:
			return source(name)
		}
		s := source(strings.Replace(name, part, into, 1))
		s.Rows = rows
		return s
	}
}
