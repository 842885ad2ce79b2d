package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// layersPath is where findings about layers.txt itself are reported.
const layersPath = "cmd/lfvet/layers.txt"

// checkStale reports lines of layers.txt for packages that do not exist, and words for packages that do not
// exist or for modules that none of the line's packages imports: what nothing needs must not stay permitted.
func checkStale(m *module, p *layerPolicy, r *report) {
	imports := map[string][]string{} // of each folder with Go files
	for _, f := range m.files {
		list := imports[f.dir]
		for _, s := range f.ast.Imports {
			if imp, err := strconv.Unquote(s.Path.Value); err == nil {
				list = append(list, imp)
			}
		}
		imports[f.dir] = list
	}
	for name, rule := range p.rules {
		var used []string
		found := false
		for dir, list := range imports {
			if ok, _ := path.Match(name, dir); ok { // a bad pattern matches nothing
				found, used = true, append(used, list...)
			}
		}
		if !found {
			r.at(layersPath, rule.line, "stale", "%s: there is no such package", name)
			continue
		}
		p.staleWords(name, rule, imports, used, r)
	}
	for _, name := range p.root {
		if _, err := os.Lstat(filepath.Join(m.root, name)); err != nil {
			r.at(layersPath, p.rootLine, "stale", "root: there is no %s", name)
		}
	}
	if p.test.line > 0 {
		var used []string
		for _, f := range m.files {
			if f.test {
				used = append(used, imports[f.dir]...)
			}
		}
		p.staleWords("test", p.test, imports, used, r)
	}
}

// staleWords holds the words of one line to what its packages import.
func (p *layerPolicy) staleWords(name string, rule layerRule, imports map[string][]string, used []string, r *report) {
	for _, w := range rule.allow {
		if !strings.Contains(w, ".") {
			if _, ok := imports[strings.TrimPrefix(w, "test:")]; !ok {
				r.at(layersPath, rule.line, "stale", "%s: there is no package %s", name, w)
			}
		} else if !slices.ContainsFunc(used, func(imp string) bool { return under(imp, w) }) {
			r.at(layersPath, rule.line, "stale", "%s: nothing there imports %s", name, w)
		}
	}
	for _, w := range rule.forbid {
		top, _, _ := strings.Cut(w, "/")
		if slices.Contains(p.root, top) && !anyUnder(imports, w) {
			r.at(layersPath, rule.line, "stale", "%s: there is no package %s", name, w)
		}
	}
}

// anyUnder reports whether a folder with Go files is prefix or lies below it.
func anyUnder(imports map[string][]string, prefix string) bool {
	for dir := range imports {
		if under(dir, prefix) {
			return true
		}
	}
	return false
}
