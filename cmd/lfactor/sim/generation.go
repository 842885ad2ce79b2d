package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/sim/rollouts"
	"github.com/lfactor/lfactor/sim/serving"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology/cost"
)

// generation is the machine that draws and trains.
type generation struct {
	cluster, software string
	tp                int
	passes            float64
}

func (g *generation) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.cluster, "cluster", "", "with RUN.yaml: the machine, one that comes with lfactor ("+
		strings.Join(configs.Clusters(), ", ")+") or a file")
	f.StringVar(&g.software, "software", "", "program that trains, as lfactor sim takes it")
	f.IntVar(&g.tp, "tp", 1, "devices of a sampler, which share the model")
	f.Float64Var(&g.passes, "passes", 0, "forward passes beside training, as for log-probabilities of a reference: a "+
		"third of a step's time each")
}

// times takes from a run file and a machine what flags have not said.
func (g *generation) times(c *cobra.Command, w *rollouts.World, args []string) error {
	f := c.Flags()
	switch {
	case (len(args) > 0) != (g.cluster != ""):
		return exit.Usagef("sim rollouts: RUN.yaml and --cluster give times together; without both they are flags")
	case len(args) == 0:
		for _, name := range []string{"software", "tp", "passes", "prompt"} {
			if f.Changed(name) {
				return exit.Usagef("sim rollouts: --%s is read with RUN.yaml and --cluster", name)
			}
		}
		return nil
	case g.tp < 1 || !(g.passes >= 0) || !(w.Prompt >= 1):
		return exit.Usagef("sim rollouts: --tp and --prompt are above 0, and --passes is not negative")
	}
	m, _, with, err := cli.OnMachine([]string{"--cluster", g.cluster, "--software", g.software}, args[1:])
	if err != nil {
		return err
	}
	cfg, err := setup.Config(args[0], "", with, false)
	if err != nil {
		return err
	}
	for _, of := range []struct {
		flag string
		to   *int
		is   int
	}{
		{"groups", &w.Groups, max(1, cfg.Run.Train.GlobalBatch/max(1, cfg.Run.Rollout.Group))},
		{"each", &w.Each, cfg.Run.Rollout.Group},
	} {
		if !f.Changed(of.flag) {
			*of.to = of.is
		}
	}
	if !f.Changed("most") {
		w.Most = float64(cfg.Run.Rollout.Max)
	}
	if !f.Changed("span") {
		w.Schedule.Span = int64(cfg.Run.Rollout.Span)
	}
	return g.priced(c, w, m, cfg)
}

// priced sets what the run's plan and its model take on the machine.
func (g *generation) priced(c *cobra.Command, w *rollouts.World, m *cost.Machine, cfg *configs.Config) error {
	if err := setup.Vocabulary(cfg); err != nil {
		return err
	}
	j, err := layout.FromConfig(cfg)
	if err != nil {
		return err
	}
	f, of, d := c.Flags(), j.Model, fit.Precisions[cfg.Run.Train.Precision]
	weights, token := serving.Memory(of, d)
	if need, have := float64(weights)+float64(token)*(w.Prompt+w.Most), float64(g.tp)*m.Least(); need > have {
		return exit.With(fmt.Errorf("sim rollouts: weights and one answer take %s, and %d devices of %s have %s: "+
			"try a larger --tp", unit.Bytes(need), g.tp, m.Name, unit.Bytes(have)), exit.Fit)
	}
	price := serving.On(rehearsal.Dispatching(m, of).Planned(g.tp, of.Low != nil), of, d, g.tp)
	said := []string{}
	if !f.Changed("token") {
		w.Price = func(answers int, context float64) float64 {
			keys := int(float64(answers) * context)
			return price(sample.Load{Rows: answers, Keys: keys, Heads: answers, Sequences: answers})
		}
		n := int(w.Prompt)
		w.Prefill = price(sample.Load{Rows: n, Keys: n, Heads: 1, Sequences: 1})
		full := w.Hold * w.Each
		t := unit.Seconds(w.Price(full, w.Prompt+w.Length))
		said = append(said, fmt.Sprintf("a token of %d answers %s", full, t))
	}
	if !f.Changed("train") {
		s, err := rehearsal.Simulate(c.Context(), cfg, rehearsal.Options{Machine: m})
		if err != nil {
			return err
		}
		share := (w.Prompt + mean(w)) / float64(cfg.Run.Data.SeqLen)
		w.Train = s.StepSeconds * share * (1 + g.passes/3)
		said = append(said, fmt.Sprintf("training %s (a step of whole sequences takes %s)", unit.Seconds(w.Train),
			unit.Seconds(s.StepSeconds)))
	}
	for flag, to := range map[string]*float64{"publish": &w.Publish, "load": &w.Load} {
		if !f.Changed(flag) {
			*to = m.Remote.Of(weights / int64(g.tp))
		}
	}
	said = append(said, fmt.Sprintf("weights on their way %s", unit.Seconds(w.Publish+w.Load)))
	fmt.Fprintln(c.ErrOrStderr(), "note: on "+m.Under()+": "+strings.Join(said, ", "))
	return nil
}

// mean is the mean number of an answer's tokens.
func mean(w *rollouts.World) float64 {
	const draws = 10000
	rng, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	for range draws {
		n := math.Ceil(w.Length * math.Exp(w.Spread*rng.NormFloat64()))
		if w.Most > 0 {
			n = min(n, w.Most)
		}
		sum += n
	}
	return sum / draws
}
