package family

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
)

// upcycles are, by a dense family, the mixtures whose layers are its own but for their MLPs.
var upcycles = map[string]string{"qwen3": "qwen3_moe", "llama": "mixtral", "mistral": "mixtral"}

// Upcycled is a dense model with so many copies of each MLP as experts, of which each token goes to some
// (arXiv:2212.05055). Their weights add up to 1, so that the model computes what the dense one did until they part.
func Upcycled(c configs.Model, experts, each int) (configs.Model, error) {
	to, ok := upcycles[c.ModelType]
	switch {
	case !ok:
		return c, fmt.Errorf("model_type %s: there is no family of mixtures with its layers; those of %v have one",
			c.ModelType, names(upcycles))
	case experts < 2 || each < 1 || each > experts:
		return c, fmt.Errorf("%d of %d experts a token: want at least two experts, and no more a token than there are",
			each, experts)
	}
	c.ModelType, c.Architectures = to, []string{hf.Families()[to].Class}
	k := Mixture.Of(c)
	k.Experts, k.ExpertsEach, k.BalanceCoef = experts, each, 0.001
	c.Parameters, c.Active, c.Names, c.Source = 0, 0, nil, ""
	if to == "qwen3_moe" {
		k.ExpertWidth, k.NormTopK = c.Intermediate, true
	}
	Mixture.Set(&c, k)
	_, err := Build(c, 0)
	return c, err
}

// UpcycledFrom fills whole parameters of an upcycled model from the dense model's weights; routers begin at random.
func (m *Model) UpcycledFrom(dense *Model, w *Weights, seed uint64) func(p *grad.Param, dst []float32) error {
	params := map[string]*grad.Param{}
	for _, p := range dense.Params(nil) {
		params[p.Name] = p
	}
	return func(p *grad.Param, dst []float32) error {
		if strings.HasSuffix(p.Name, ".mlp.gate.weight") {
			m.Init(seed, p, Whole(p), dst)
			return nil
		}
		from := params[strings.Replace(p.Name, ".experts.", ".", 1)]
		if from == nil {
			return fmt.Errorf("the dense model has nothing that %s could come from", p.Name)
		}
		copies := 1
		if len(p.Shape) == 3 {
			copies = p.Shape[0]
		}
		n := len(dst) / copies
		if _, err := w.Read(from, Whole(from), dst[:n]); err != nil {
			return err
		}
		for i := 1; i < copies; i++ {
			copy(dst[i*n:(i+1)*n], dst[:n])
		}
		return nil
	}
}
