package recipe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset/curate"
)

// ref is a place that documents come from: an input, or a step.
type ref struct {
	input bool
	at    int
}

// stage is work between places where documents lie on disk: its sink signs them, or they are written.
type stage struct {
	step, output int // the sink: a step with state, or an output; -1 for the other
	paths        []path
}

// path is a way of documents through steps without state.
type path struct {
	from   ref   // an input, or a step with state
	steps  []int // in order, without the sink
	counts int   // of source and steps together, how many an earlier path has counted already
}

// pathsMax bounds the ways through a recipe.
const pathsMax = 256

// find returns what a name stands for.
func (r *Recipe) find(name string) (ref, bool) {
	if i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Name == name }); i >= 0 {
		return ref{at: i}, true
	}
	i := slices.IndexFunc(r.Inputs, func(in Input) bool { return in.Name == name })
	return ref{true, i}, i >= 0
}

// check looks at how the parts of a recipe go together.
func (r *Recipe) check(in *curate.Reader) {
	seen := map[string]string{}
	unique := func(name, key string, line int) {
		if was, ok := seen[name]; ok {
			in.Fail(line, key, fmt.Sprintf("%s has the name %q too", was, name), "give it another name")
		}
		seen[name] = strings.TrimSuffix(key, ".name")
	}
	for i, v := range r.Inputs {
		unique(v.Name, fmt.Sprintf("inputs[%d].name", i), v.line)
	}
	for i, s := range r.Steps {
		unique(s.Name, fmt.Sprintf("steps[%d].name", i), s.line)
	}
	clear(seen)
	for i, o := range r.Outputs {
		unique(o.Name, fmt.Sprintf("outputs[%d].name", i), o.line)
	}
	r.link(in)
	if len(in.Faults) > 0 {
		return
	}
	r.checkCircles(in)
	if len(in.Faults) > 0 {
		return
	}
	r.checkUse(in)
	r.checkColumns(in)
}

// link fills in what "from" leaves out and checks the names in it.
func (r *Recipe) link(in *curate.Reader) {
	var all, known []string
	for _, v := range r.Inputs {
		all = append(all, v.Name)
	}
	known = append(known, all...)
	for _, s := range r.Steps {
		known = append(known, s.Name)
	}
	resolve := func(from []string, key string, line, before int) []string {
		switch {
		case len(from) == 0 && before >= 0:
			return []string{r.Steps[before].Name}
		case len(from) == 0:
			return all
		}
		for i, name := range from {
			if _, ok := r.find(name); !ok {
				in.Fail(line, key+".from", fmt.Sprintf("there is no input or step %q", name),
					source.Nearest(name, known))
			}
			if slices.Contains(from[:i], name) {
				in.Fail(line, key+".from", fmt.Sprintf("%q is there twice", name), "its documents would come twice")
			}
		}
		return from
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		s.From = resolve(s.From, fmt.Sprintf("steps[%d]", i), s.line, i-1)
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		o.From = resolve(o.From, fmt.Sprintf("outputs[%d]", i), o.line, len(r.Steps)-1)
	}
}

// checkCircles refuses steps that wait for each other, and names them in their order.
func (r *Recipe) checkCircles(in *curate.Reader) {
	state := make([]int, len(r.Steps)) // 1: on the way, 2: done
	var way []string
	var visit func(i int) bool
	visit = func(i int) bool {
		name := r.Steps[i].Name
		if state[i] == 1 {
			at := slices.Index(way, name)
			in.Fail(r.Steps[i].line, fmt.Sprintf("steps[%d].from", i), "the steps wait for each other in a circle: "+
				strings.Join(append(way[at:], name), " ← "), "let one of them read an input")
			return false
		}
		if state[i] == 2 {
			return true
		}
		state[i] = 1
		way = append(way, name)
		for _, f := range r.Steps[i].From {
			if p, _ := r.find(f); !p.input && !visit(p.at) {
				return false
			}
		}
		way = way[:len(way)-1]
		state[i] = 2
		return true
	}
	for i := range r.Steps {
		if !visit(i) {
			return
		}
	}
}

// checkUse refuses steps and inputs that nothing is written of.
func (r *Recipe) checkUse(in *curate.Reader) {
	used := map[ref]bool{}
	var mark func(from []string)
	mark = func(from []string) {
		for _, f := range from {
			p, _ := r.find(f)
			if !used[p] {
				used[p] = true
				if !p.input {
					mark(r.Steps[p.at].From)
				}
			}
		}
	}
	for _, o := range r.Outputs {
		mark(o.From)
	}
	for i, s := range r.Steps {
		if !used[ref{at: i}] {
			in.Fail(s.line, fmt.Sprintf("steps[%d]", i),
				fmt.Sprintf("nothing is written of what %q lets through", s.Name),
				"name it in from of a step or an output")
		}
	}
	for i, v := range r.Inputs {
		if !used[ref{true, i}] {
			in.Fail(v.line, fmt.Sprintf("inputs[%d]", i), fmt.Sprintf("nothing reads %q", v.Name),
				"name it in from of a step")
		}
	}
}

// checkColumns refuses steps that write the same column on one way, and steps that read one which is
// written behind them.
func (r *Recipe) checkColumns(in *curate.Reader) {
	var visit func(i int) map[string]int
	memo := map[int]map[string]int{}
	visit = func(i int) map[string]int {
		if m, ok := memo[i]; ok {
			return m
		}
		m := map[string]int{} // the step that wrote each column
		for _, f := range r.Steps[i].From {
			if p, _ := r.find(f); !p.input {
				for c, by := range visit(p.at) {
					m[c] = by
				}
			}
		}
		for _, c := range r.Steps[i].step.Columns().Writes {
			if by, ok := m[c]; ok {
				in.Fail(r.Steps[i].line, fmt.Sprintf("steps[%d]", i),
					fmt.Sprintf("steps %q and %q both write column %q", r.Steps[by].Name, r.Steps[i].Name, c),
					"give one of them another column, or leave it out")
			}
			m[c] = i
		}
		memo[i] = m
		return m
	}
	writers := map[string]int{}
	for i := range r.Steps {
		visit(i)
		for _, c := range r.Steps[i].step.Columns().Writes {
			writers[c] = i
		}
	}
	for i, s := range r.Steps {
		for _, c := range s.step.Columns().Reads {
			if by, ok := writers[c]; ok {
				if _, before := memo[i][c]; !before {
					in.Fail(s.line, fmt.Sprintf("steps[%d]", i), fmt.Sprintf("it reads column %q, which %q writes "+
						"and which it does not stand behind", c, r.Steps[by].Name), "put it behind that step")
				}
			}
		}
	}
}

// cut makes the stages: one for each step with state, each behind those that it reads, then the outputs.
func (r *Recipe) cut() error {
	done := map[int]bool{}
	counted := map[string]bool{}
	var need func(from []string) error
	add := func(s stage, from []string) error {
		if err := need(from); err != nil {
			return err
		}
		var err error
		if s.paths, err = r.paths(from, nil, nil); err != nil {
			return err
		}
		for i := range s.paths {
			s.paths[i].count(counted)
		}
		r.stages = append(r.stages, s)
		return nil
	}
	need = func(from []string) error {
		for _, f := range from {
			p, _ := r.find(f)
			if p.input || done[p.at] {
				continue
			}
			done[p.at] = true
			s := &r.Steps[p.at]
			var err error
			if s.state() != nil {
				err = add(stage{step: p.at, output: -1}, s.From)
			} else {
				err = need(s.From)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for i, o := range r.Outputs {
		if err := add(stage{step: -1, output: i}, o.From); err != nil {
			return err
		}
	}
	return nil
}

// paths lists the ways from places where documents lie to a sink, in the order of their documents. tail is
// the steps behind, in order.
func (r *Recipe) paths(from []string, tail []int, out []path) ([]path, error) {
	var err error
	for _, f := range from {
		p, _ := r.find(f)
		if p.input || r.Steps[p.at].state() != nil {
			out = append(out, path{from: p, steps: slices.Clone(tail)})
		} else if out, err = r.paths(r.Steps[p.at].From, append([]int{p.at}, tail...), out); err != nil {
			return nil, err
		}
		if len(out) > pathsMax {
			return nil, fmt.Errorf("%s: documents have over %d ways through the steps; use fewer branches",
				r.file, pathsMax)
		}
	}
	return out, nil
}

// count sets how much of a path an earlier one has counted, so that each document is counted once where ways
// have a beginning in common.
func (p *path) count(seen map[string]bool) {
	key := fmt.Sprint(p.from)
	fresh := func(k string) bool {
		if seen[k] {
			return false
		}
		seen[k] = true
		return true
	}
	if !fresh(key) {
		p.counts = 1
	}
	for _, s := range p.steps {
		key += fmt.Sprint(" ", s)
		if !fresh(key) {
			p.counts++
		}
	}
}

// stageOf returns the number of the stage that signs for a step.
func (r *Recipe) stageOf(step int) int {
	return slices.IndexFunc(r.stages, func(s stage) bool { return s.step == step })
}
