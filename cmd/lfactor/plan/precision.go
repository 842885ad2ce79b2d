package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/cost"
)

// recipe is what a way to multiply in few bits makes of a step, with the weights kept that cost more than they bring.
type recipe struct {
	Name    string   `json:"low_precision"`
	Seconds float64  `json:"step_seconds"`
	All     float64  `json:"all_seconds"`                  // with every weight of layers rounded
	Keep    []string `json:"low_precision_keep,omitempty"` // patterns of those that stay as they are
	Gains   []gain   `json:"gains"`
}

// gain is what rounding the weights of a kind brings beside all others.
type gain struct {
	Weights string  `json:"weights"`
	Seconds float64 `json:"seconds"` // below 0 it costs
}

// precisions is the answer: the best recipe first.
type precisions struct {
	Cluster string   `json:"cluster"`
	Plain   float64  `json:"step_seconds"` // without
	Recipes []recipe `json:"recipes"`
}

// precisionSearch prices a step of a run file's own plan with other precisions.
type precisionSearch struct {
	ctx  context.Context
	file string
	args []string
	m    *cost.Machine
}

// precisionNames are what --precision takes.
func precisionNames() []string {
	names := []string{"auto"}
	for _, p := range kernels.Precisions[1:] {
		names = append(names, p.Name)
	}
	return names
}

// choosePrecision says which recipe of train.low_precision, for which weights, makes the shortest step on a machine.
func choosePrecision(ctx context.Context, form, file string, mine, rest []string) error {
	wanted := cli.FlagValue(mine, "precision")
	if !slices.Contains(precisionNames(), wanted) {
		return exit.Usagef("--precision %s: want auto, or one of %s", wanted, strings.Join(precisionNames()[1:], ", "))
	}
	cluster := cmp.Or(cli.FlagValue(mine, "cluster"), "cpu")
	m, err := rehearsal.Machine(cluster)
	if err != nil {
		return err
	}
	s := precisionSearch{ctx, file, append(slices.Clone(rest), "train.adaptive.limit=0", "train.adaptive.lost=0"), m}
	out := precisions{Cluster: m.Under()}
	if out.Plain, _, err = s.step("none"); err != nil {
		return err
	}
	priced := map[[3]int]int{} // by the bits of the three products, which are all that prices depend on
	for _, p := range kernels.Precisions[1:] {
		bits := [3]int{p.Bits(kernels.OperandsForward), p.Bits(kernels.OperandsDX), p.Bits(kernels.OperandsDW)}
		at, known := priced[bits]
		switch {
		case wanted != "auto" && wanted != p.Name, wanted == "auto" && m.Flops4 == 0 && slices.Contains(bits[:], 4):
			continue
		case known:
			r := out.Recipes[at]
			r.Name = p.Name
			out.Recipes = append(out.Recipes, r)
			continue
		}
		fmt.Fprintf(os.Stderr, "pricing %s\n", p.Name)
		r, err := s.recipe(p.Name)
		if err != nil {
			return err
		}
		priced[bits] = len(out.Recipes)
		out.Recipes = append(out.Recipes, r)
	}
	slices.SortStableFunc(out.Recipes, func(a, b recipe) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return cli.EmitAs(cli.Out, form, out, func(w io.Writer) { out.print(w) })
}

// step is how long a step takes, and the kinds of weights that are rounded, as patterns.
func (s precisionSearch) step(low string, keep ...string) (seconds float64, kinds []string, err error) {
	for i := range keep {
		keep[i] = "'" + keep[i] + "'"
	}
	cfg, err := configs.Load(configs.Request{File: s.file, Getenv: os.Getenv, Args: append(slices.Clone(s.args),
		"train.low_precision="+low, "train.low_precision_keep=["+strings.Join(keep, ", ")+"]")})
	if err != nil {
		return 0, nil, err
	}
	if err := setup.Vocabulary(cfg); err != nil {
		return 0, nil, err
	}
	j, err := layout.FromConfig(cfg)
	if err != nil {
		return 0, nil, err
	}
	rehearsal.PriceOn(j, s.m)
	l, err := layout.New(j)
	if err != nil {
		return 0, nil, exit.With(err, exit.Usage)
	}
	if low != "none" {
		for _, p := range j.Model.Params(nil) {
			if k := kindOf(p.Name); (len(p.Shape) == 2 || p.Experts) && strings.HasSuffix(p.Name, ".weight") &&
				j.Model.Low(p.Name) > 0 && j.Model.Blocks[min(p.Block, len(j.Model.Blocks)-1)].Recompute &&
				!slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	var p planned
	err = p.simulate(s.ctx, l, s.m, false)
	return p.StepSeconds, kinds, err
}

// kindOf is the pattern of a weight in every layer.
func kindOf(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") == "" {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// recipe finds the weights that are better kept as they are: each that makes the step shorter when it alone is.
func (s precisionSearch) recipe(name string) (r recipe, err error) {
	r.Name = name
	all, kinds, err := s.step(name)
	if err != nil {
		return r, err
	}
	r.All, r.Seconds = all, all
	for _, k := range kinds {
		if len(kinds) == 1 {
			break // keeping all of them is no recipe
		}
		without, _, err := s.step(name, k)
		if err != nil {
			return r, err
		}
		r.Gains = append(r.Gains, gain{k, without - all})
		if without < all*(1-1e-9) {
			r.Keep = append(r.Keep, k)
		}
	}
	if n := len(r.Keep); n == 0 || n == len(kinds) {
		r.Keep = nil
		return r, nil
	}
	r.Seconds, _, err = s.step(name, slices.Clone(r.Keep)...)
	return r, err
}

// print shows the recipes, and of the best what each kind of weights brings.
func (p *precisions) print(w io.Writer) {
	t := cli.TextTable("train.low_precision", "step", "of one without", "kept as they are")
	t.AppendRow(table.Row{"none", fmt.Sprintf("%.4g s", p.Plain), "", ""})
	for _, r := range p.Recipes {
		t.AppendRow(table.Row{r.Name, fmt.Sprintf("%.4g s", r.Seconds), fmt.Sprintf("%.1f %%", 100*r.Seconds/p.Plain),
			strings.Join(r.Keep, "\n")})
	}
	t.Render()
	best := p.Recipes[0]
	if best.Seconds >= p.Plain {
		fmt.Fprintf(w, "nothing is faster than none on %s\n", p.Cluster)
		return
	}
	for _, g := range best.Gains {
		if g.Seconds == 0 { // it is never rounded, as a router
			continue
		}
		verb := "saves"
		if g.Seconds < 0 {
			verb = "costs"
		}
		fmt.Fprintf(w, "  %s %s %.3g ms a step\n", g.Weights, verb, 1e3*math.Abs(g.Seconds))
	}
	fmt.Fprintf(w, "train: {low_precision: %s, low_precision_keep: [%s]}\n", best.Name, strings.Join(best.Keep, ", "))
}
