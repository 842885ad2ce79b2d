package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/kernels/objective"
)

// Figures are columns of a step's line that not every run has, by name; docs/json.md says what each is.
type Figures map[string]float64

// columns is a line without its figures, and numbers are those of its columns that are numbers.
type columns Metrics

var numbers = strings.Fields("step loss grad_norm lr tokens_per_second mfu data_wait_seconds peak_bytes loss_scale seconds " +
	"slowest_rank pass")

// MarshalJSON writes figures as columns among the others; one that is no number is left out.
func (m Metrics) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(columns(m))
	f := maps.Clone(m.Figures)
	maps.DeleteFunc(f, func(_ string, x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if err != nil || len(f) == 0 {
		return text, err
	}
	more, err := json.Marshal(f)
	return append(append(text[:len(text)-1], ','), more[1:]...), err
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Metrics) UnmarshalJSON(text []byte) error {
	all := map[string]any{}
	err := json.Unmarshal(text, (*columns)(m))
	if m.Figures = (Figures{}); err == nil {
		err = json.Unmarshal(text, &all)
	}
	for name, v := range all {
		if x, yes := v.(float64); yes && !slices.Contains(numbers, name) {
			m.Figures[name] = x
		}
	}
	return err
}

// counted takes how experts were used in a step, and what its loss has shown.
func (p *reporter) counted(m actors.Message) {
	loads := core.Loads(m.Values)
	if n := len(loads); loads[n-1].Block == core.Figures { // behind those of layers
		loads, p.figures = loads[:n-1], loads[n-1].Rows
	}
	if len(loads) > 0 {
		p.loads, p.loadsAt = loads, m.Step
	}
}

// looked takes what the loss of a step has shown: of each figure, or each named source, a sum and of how many.
func (m *Metrics) looked(sums []float64, sources []string) {
	for s, name := range sources {
		if 2*s+1 >= len(sums) {
			return
		}
		m.Figures["tokens/"+name] = sums[2*s+1]
		if sums[2*s+1] > 0 {
			m.Figures["loss/"+name] = sums[2*s] / sums[2*s+1]
		}
	}
	for f := 0; sources == nil && 2*f+1 < len(sums); f++ {
		if n := sums[2*f+1]; n > 0 {
			m.Figures[objective.Figures[f]] = sums[2*f] / n
		}
	}
	chosen, has := m.Figures["rewards/chosen"]
	if rejected, both := m.Figures["rewards/rejected"]; has && both { // also of single answers
		m.Figures["rewards/margins"] = chosen - rejected
	}
}

// gapped tells of the first step in which sampler and trainer differ, and why that may be.
func (p *reporter) gapped(step int64, d *rollout.DrawnGap) {
	if d == nil || d.Gap == 0 || p.gaps {
		return
	}
	p.gaps = true
	p.say("! step %d: log-probabilities of the sampler and the trainer differ by up to %.3g nats, of %d "+
		"tokens that were drawn by the weights that train on them: %s; ratios of policies are off by as "+
		"much", step, d.Gap, d.Tokens, p.r.whyGap())
}

// whyGap is what in a run's file has sampler and trainer compute otherwise.
func (r *Run) whyGap() string {
	switch t := &r.cfg.Run.Train; {
	case r.draws():
		return "what training draws at random, such as lora.dropout, the sampler does not"
	case t.LowPrecision != "none":
		return fmt.Sprintf("train.low_precision: %s rounds what training multiplies, and nothing that draws",
			t.LowPrecision)
	case t.QAT != "none":
		return fmt.Sprintf("train.qat: %s rounds the weights that training multiplies, and none that draw", t.QAT)
	case t.Router.Capacity > 0:
		return "train.router.capacity drops tokens that training has too many of, and the sampler drops none"
	}
	return "that is a fault of lfactor: please report it with run.yaml of log.dir"
}
