package family

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Phase is a run of steps in which a model learns by a loss of its own, as one that learns a code book before it learns
// to say its codes.
type Phase struct {
	Name  string
	Steps int64 // how many it has; 0 are all that come, of the last phase
	// Learns reports whether a parameter is learnt in it; others, their optimizers' state and the values of their rules
	// stay as they are.
	Learns func(param string) bool
	// Mark is a parameter [1] that is 1 in files of models which have learnt the phase, and Key the key of the model that
	// says how many steps it has; "" for none.
	Mark, Key string
}

// Dim is the dimension of microbatches that is there in the phase, for Block.Of, Port.Of and records: a plan is made, and
// memory counted, for a microbatch of all phases at once.
func (p Phase) Dim() string { return "phase." + p.Name }

// SetPhases has the model learn in phases, in order.
func (m *Model) SetPhases(all ...Phase) {
	for i, p := range all {
		if (p.Steps == 0) != (i == len(all)-1) {
			panic(fmt.Sprintf("family: phase %s of %s has %d steps", p.Name, m.Family, p.Steps))
		}
	}
	m.Phases, m.Modalities = all, append(m.Modalities, phases(all))
}

// phases is the modality by which microbatches of a phase have traces of their own: classes are none, one for each
// phase, and that of all together.
type phases []Phase

// of is the phase of a step, counted from 1; a step below 1 is of the last.
func (p phases) of(step int64) (at int) {
	for before := int64(0); at < len(p)-1 && (step < 1 || step > before+p[at].Steps); at++ {
		before += p[at].Steps
	}
	return at
}

// Learns reports whether a step learns a parameter, and how many of the steps before it did not: what an optimizer
// corrects its averages by counts from there. Steps that are skipped for an overflow count as steps.
func (m *Model) Learns(param string, step int64) (learns bool, missed int64) {
	at := phases(m.Phases).of(step)
	for _, p := range m.Phases[:at] {
		if !p.Learns(param) {
			missed += p.Steps
		}
	}
	return len(m.Phases) == 0 || m.Phases[at].Learns(param), missed
}

func (p phases) Classes() int32                                         { return int32(len(p)) + 2 }
func (p phases) Class(in *Inputs) int32                                 { return int32(p.of(in.Step)) + 1 }
func (p phases) Planned(int, map[string]int) int32                      { return int32(len(p)) + 1 }
func (p phases) Tensors(*Inputs, block.Shape) map[string]*tensor.Tensor { return nil }

func (p phases) Dims(_ int, class int32) map[string]int {
	dims := map[string]int{}
	for i, x := range p {
		if class == int32(i)+1 || class > int32(len(p)) {
			dims[x.Dim()] = 1
		}
	}
	return dims
}

// Relearns is the key of the first phase that a checkpoint has learnt and that a run would learn anew, "" for none.
func (w *Weights) Relearns() (string, error) {
	for _, p := range w.m.Phases {
		mark := []float32{0}
		if p.Mark == "" {
			continue
		}
		_, err := w.Read(&grad.Param{Name: p.Mark, Shape: []int{1}, Fixed: true}, Region{To: 1}, mark)
		if err != nil || mark[0] == 1 {
			return p.Key, err
		}
	}
	return "", nil
}
