package family

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

// Qwen3-VL (dense): a tower with a position table that is interpolated to each picture's grid, features of some of its layers
// added to the decoder's first ones, and a decoder like Qwen3's with interleaved M-RoPE.
var _ = register(Family{ModelType: "qwen3_vl", Paper: "2511.21631",
	Build: func(c configs.Model) *Model {
		return composed("qwen3_vl", c, "model.visual.", map[string]string{"projector.norm": "model.visual.merger.norm", "projector.fc": "model.visual.merger.linear_fc"},
			textAt("model.language_model."))
	}})

var _ = registerEncoder("qwen3_vl", encoder{projector: "merger", source: qwen3TowerSource,
	build: func(c configs.Model) *Vision {
		t := tower(c.Vision)
		t.Theta, t.PatchBias, t.Taps, t.Positions = 10000, true, 4, c.Vision.Positions
		v := vision(c.Vision, t)
		v.Deepstack = map[int]block.Merger{}
		for _, layer := range c.Vision.Deepstack {
			v.Deepstack[layer] = block.Merger{Tower: &v.Tower, Out: c.Hidden, After: true, Eps: 1e-6, Act: acts["gelu"]}
		}
		return v
	}})

// qwen3TowerSource has two names for the linear layers of an MLP, everywhere in the tower.
func qwen3TowerSource(v *Vision) func(string) Source {
	inner, rename := fusedSource(v), strings.NewReplacer(".fc1.", ".linear_fc1.", ".fc2.", ".linear_fc2.", "deepstack.", "deepstack_merger_list.")
	return func(name string) Source {
		s := inner(name)
		s.Name = rename.Replace(s.Name)
		return s
	}
}
