package family

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

// Qwen3-VL (dense): a tower with a position table that is interpolated to each picture's grid, features of some of its layers
// added to the decoder's first ones, and a decoder like Qwen3's with interleaved M-RoPE.
var _ = register(Family{ModelType: "qwen3_vl", Paper: "2511.21631",
	Build: func(c configs.Model) *Model {
		t := tower(c.Vision)
		t.Theta, t.PatchBias, t.Taps, t.Positions = 10000, true, 4, c.Vision.Positions
		v := qwenVision(c, t, block.Merger{Eps: 1e-6, Act: acts["gelu"]})
		v.Deepstack = map[int]block.Merger{}
		for _, layer := range c.Vision.Deepstack {
			v.Deepstack[layer] = block.Merger{Tower: &v.Tower, Out: c.Hidden, After: true, Eps: 1e-6, Act: acts["gelu"]}
		}
		m := Compose(Decoder("qwen3_vl", spec(c)), v)
		m.Source = qwen3VLSource(m)
		return m
	}})

// qwen3VLSource has two names for the linear layers of an MLP, everywhere in the tower.
func qwen3VLSource(m *Model) func(string) Source {
	names := map[string]string{"projector.norm": "model.visual.merger.norm", "projector.fc": "model.visual.merger.linear_fc"}
	for i := range len(m.Vision.Deepstack) {
		names[fmt.Sprintf("visual.deepstack.%d.norm", i)] = fmt.Sprintf("model.visual.deepstack_merger_list.%d.norm", i)
		names[fmt.Sprintf("visual.deepstack.%d.fc", i)] = fmt.Sprintf("model.visual.deepstack_merger_list.%d.linear_fc", i)
	}
	inner := qwenVLSource(m, "model.language_model.", "model.visual.", names)
	return func(name string) Source {
		s := inner(name)
		if strings.HasPrefix(name, "visual.blocks.") {
			s.Name = strings.Replace(s.Name, ".mlp.fc", ".mlp.linear_fc", 1)
		}
		return s
	}
}
