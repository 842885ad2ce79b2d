package family

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

var _ = RegisterMixer("latent_attention", func(s Spec, i int) block.Part { return s.latentLayer(i) })

// LatentKeys are the keys of latent attention.
type LatentKeys struct {
	QueryRank  int  `key:"q_lora_rank" flag:"q-lora-rank" default:"0" min:"0" max:"1048576" class:"fixed" doc:"Width of the latent row that queries are made from (arXiv:2405.04434, section 2.1); 0 makes them from the residual stream."`
	KeyRank    int  `key:"kv_lora_rank" flag:"kv-lora-rank" default:"0" min:"0" max:"1048576" class:"fixed" doc:"Width of the latent row that keys and values of all heads are made from."`
	KeyStill   int  `key:"qk_nope_head_dim" flag:"qk-head-dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Numbers of a head's query and key that do not turn, in latent attention."`
	KeyTurning int  `key:"qk_rope_head_dim" flag:"qk-pos-emb-head-dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Numbers of a head's query and key that turn, in latent attention; those of the key are the same for all heads."`
	ValueDim   int  `key:"v_head_dim" flag:"v-head-dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Width of a head's value, in latent attention."`
	Interleave bool `key:"rope_interleave" default:"true" class:"fixed" doc:"Neighbouring numbers turn together in latent attention; else a number of the first half with one of the second."`
}

// Latent is what models say of latent attention.
var Latent = configs.Declare("latent attention", configs.Rules[LatentKeys]{
	Complete: func(m *configs.Model, k LatentKeys) {
		if m.HeadDim == 0 {
			m.HeadDim = k.KeyTurning
		}
	}, Check: func(m configs.Model, k LatentKeys, at configs.Report) {
		if !m.Has("kv_lora_rank") {
			return
		}
		required(at, "kv_lora_rank", k.KeyRank)
		required(at, "qk_nope_head_dim", k.KeyStill)
		required(at, "qk_rope_head_dim", k.KeyTurning)
		required(at, "v_head_dim", k.ValueDim)
		if k.KeyTurning > 0 && m.HeadDim != k.KeyTurning {
			at("head_dim", fmt.Sprintf("%d, but the part of a head that turns has qk_rope_head_dim = %d",
				m.HeadDim, k.KeyTurning), "leave it out")
		}
	}})

// required reports a number that is not given.
func required(at configs.Report, key string, n int) {
	if n == 0 {
		at(key, "is not given", "")
	}
}

// LatentNames are the names of these keys.
var LatentNames = []string{"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}

// UseLatent is what the keys of a configuration say of latent attention, which all layers have.
func (s *Spec) UseLatent(c configs.Model) {
	k := Latent.Of(c)
	s.HeadDim, s.Rope.Dim = k.KeyTurning, k.KeyTurning
	s.Latent = block.Latent{Hidden: s.Hidden, Heads: s.Heads, QRank: k.QueryRank, KVRank: k.KeyRank, Bias: c.AttentionBias,
		Turning: k.KeyTurning, Still: k.KeyStill, Value: k.ValueDim, Pairs: k.Interleave,
		Norm:  block.Norm{Eps: 1e-6}, // of latents, whatever rms_norm_eps is
		Scale: s.Rope.ScoreScale() / math.Sqrt(float64(k.KeyTurning+k.KeyStill))}
	s.Mixers = nil
	for range s.Layers {
		s.Mixers = append(s.Mixers, "latent_attention")
	}
}

// LatentPlaces finds the parts of latent attention: checkpoints have the part of a query that turns behind
// the other, and keep in one matrix what makes the latent and the part of the key that all heads share, and
// in another what makes keys and values of it.
func LatentPlaces(c configs.Model, source func(string) Source) func(string) Source {
	k := Latent.Of(c)
	key, both := k.KeyStill+k.KeyTurning, k.KeyStill+k.ValueDim
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
			rows = heads(key, [2]int{k.KeyStill, key}, [2]int{0, k.KeyStill})
		case strings.Contains(name, ".kv_a_proj."):
			part, into, rows = ".kv_a_proj.", ".kv_a_proj_with_mqa.", [][2]int{{0, k.KeyRank}}
		case strings.Contains(name, ".k_rope_proj."):
			part, into, rows = ".k_rope_proj.", ".kv_a_proj_with_mqa.", [][2]int{{k.KeyRank, k.KeyRank + k.KeyTurning}}
		case strings.Contains(name, ".k_b_proj."):
			part, into, rows = ".k_b_proj.", ".kv_b_proj.", heads(both, [2]int{0, k.KeyStill})
		case strings.Contains(name, ".v_b_proj."):
			part, into, rows = ".v_b_proj.", ".kv_b_proj.", heads(both, [2]int{k.KeyStill, both})
		default:
			return source(name)
		}
		s := source(strings.Replace(name, part, into, 1))
		s.Rows = rows
		return s
	}
}
