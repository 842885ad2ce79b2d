package main

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// layerRule is one line of layers.txt.
type layerRule struct {
	line   int // in layers.txt
	layer  int
	allow  []string // packages of the same layer, and other modules
	forbid []string
}

// layerPolicy is layers.txt: what lies at the root, rules by package or pattern, and what tests may import besides.
type layerPolicy struct {
	root     []string // what lies at the root; none of it is checked if the line is absent
	rootLine int
	order    []string // the top-level folders, the lowest first; "<" between those that lie on one floor and the next
	rules    map[string]layerRule
	patterns []string // in the order of the file
	test     layerRule
}

// parseLayers reads which packages may import which, one per line; errors name the line.
func parseLayers(text string) (*layerPolicy, error) {
	p := &layerPolicy{rules: map[string]layerRule{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			return nil, fmt.Errorf("layers.txt:%d: want \"package: layer words…\"", n)
		}
		if name == "root" {
			p.root, p.rootLine = words, n
			continue
		}
		if name == "order" {
			p.order = words
			continue
		}
		layer, err := strconv.Atoi(words[0])
		if err != nil {
			return nil, fmt.Errorf("layers.txt:%d: %s: layer %q is not a number", n, name, words[0])
		}
		if err := p.set(strings.TrimSpace(name), newLayerRule(n, layer, words[1:])); err != nil {
			return nil, fmt.Errorf("layers.txt:%d: %w", n, err)
		}
	}
	return p, nil
}

func newLayerRule(line, layer int, words []string) layerRule {
	r := layerRule{line: line, layer: layer}
	for _, w := range words {
		if not, ok := strings.CutPrefix(w, "!"); ok {
			r.forbid = append(r.forbid, not)
		} else {
			r.allow = append(r.allow, w)
		}
	}
	return r
}

func (p *layerPolicy) set(name string, r layerRule) error {
	if name == "test" {
		p.test = r
		return nil
	}
	if _, ok := p.rules[name]; ok {
		return fmt.Errorf("%s has two lines", name)
	}
	p.rules[name] = r
	if strings.Contains(name, "*") {
		p.patterns = append(p.patterns, name)
	}
	return nil
}

// find returns the rule for a folder: its own line, else the first pattern that matches.
func (p *layerPolicy) find(dir string) (layerRule, bool) {
	if r, ok := p.rules[dir]; ok {
		return r, true
	}
	for _, pattern := range p.patterns {
		if ok, _ := path.Match(pattern, dir); ok { // a bad pattern matches nothing
			return p.rules[pattern], true
		}
	}
	return layerRule{}, false
}

// under says whether path is prefix or lies below it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func underAny(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return under(path, p) })
}

// floor is where the line "order" puts the top-level folder that dir lies in, the lowest being 0; -1 if it
// does not say.
func (p *layerPolicy) floor(dir string) int {
	top, _, _ := strings.Cut(dir, "/")
	n := 0
	for _, w := range p.order {
		switch w {
		case "<":
			n++
		case top:
			return n
		}
	}
	return -1
}

// climbs says why dir may not import short by the order of the top-level folders; "" if it may. Packages of
// one top-level folder are not its business.
func (p *layerPolicy) climbs(dir, short string) string {
	from, _, _ := strings.Cut(dir, "/")
	to, _, _ := strings.Cut(short, "/")
	switch low, high := p.floor(dir), p.floor(short); {
	case from == to || low < 0 || high < low:
		return ""
	case high == low:
		return fmt.Sprintf("%s and %s lie on one floor of the line \"order\" and do not know each other", from, to)
	default:
		return fmt.Sprintf("%s lies above %s on the line \"order\"", to, from)
	}
}

// refuses says why a file of dir under rule r may not import imp; "" if it may. short is imp without the
// module's name, ours whether it had that.
func (p *layerPolicy) refuses(dir string, r layerRule, test bool, short string, ours bool) string {
	if underAny(short, r.forbid) && !test {
		return "forbidden by name in layers.txt"
	}
	if !ours {
		return p.refusesModule(r, test, short)
	}
	if why := p.climbs(dir, short); why != "" && !(test && slices.Contains(r.allow, "test:"+short)) {
		return why
	}
	target, ok := p.find(short)
	switch {
	case !ok:
		return "it has no line in cmd/lfvet/layers.txt"
	case target.layer < r.layer || test && slices.Contains(r.allow, "test:"+short):
		return ""
	case target.layer > r.layer:
		return fmt.Sprintf("layer %d imports upwards, from layer %d", r.layer, target.layer)
	case test || slices.Contains(r.allow, short):
		return ""
	}
	return "same layer, and not on its line in layers.txt"
}

// refusesModule tells why a file may not import imp, or nothing if it may. The standard library is always allowed.
func (p *layerPolicy) refusesModule(r layerRule, test bool, imp string) string {
	first, _, _ := strings.Cut(imp, "/")
	standard := !strings.Contains(first, ".")
	if standard || underAny(imp, r.allow) || test && underAny(imp, p.test.allow) {
		return ""
	}
	return "a module that is not on its line in layers.txt"
}

// checkImports holds one file's imports to the policy.
func checkImports(m *module, p *layerPolicy, f *source, r *report) {
	rule, ok := p.find(f.dir)
	if !ok {
		r.add(f, f.ast.Package, "layers", "package %s has no line in cmd/lfvet/layers.txt", f.dir)
		return
	}
	if f.ignored {
		return
	}
	for _, spec := range f.ast.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser let it through, the compiler will not
		}
		short, ours := strings.CutPrefix(imp, m.name+"/")
		if ours && short == f.dir {
			continue // an external test of the package itself
		}
		if why := p.refuses(f.dir, rule, f.test, short, ours); why != "" {
			r.add(f, spec.Pos(), "layers", "%s imports %s: %s", f.dir, short, why)
		}
	}
}
