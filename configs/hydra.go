package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The subset of Hydra (hydra.cc, version 1.1 and later) that LoongForge's model files use: a defaults list of other files
// with packages, _self_, overrides, and OmegaConf's interpolations. Nothing of a file is run.

// hydraFilesMax bounds what one file may include.
const hydraFilesMax = 256

// hydraNode is a value of a composed tree, with the place that it was written in.
type hydraNode struct {
	o     Origin
	value *yaml.Node // a scalar or a list; nil for a mapping
	keys  []string   // of a mapping, in the order in which they came
	kids  map[string]*hydraNode
	busy  bool // its interpolation is being resolved
}

func newMapping(o Origin) *hydraNode { return &hydraNode{o: o, kids: map[string]*hydraNode{}} }

// hydraTree makes a tree of a parsed file, without the defaults list at its root.
func hydraTree(n *yaml.Node, o Origin, root bool) *hydraNode {
	if n.Kind != yaml.MappingNode {
		return &hydraNode{o: o, value: n}
	}
	out := newMapping(o)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if root && name == "defaults" {
			continue
		}
		if o.File != "" {
			o.Line = n.Content[i].Line
		}
		out.put(name, hydraTree(n.Content[i+1], o, false))
	}
	return out
}

func (n *hydraNode) put(name string, kid *hydraNode) {
	if _, ok := n.kids[name]; !ok {
		n.keys = append(n.keys, name)
	}
	n.kids[name] = kid
}

// merge lays another mapping over this one: what it says wins.
func (n *hydraNode) merge(over *hydraNode) {
	for _, name := range over.keys {
		kid := over.kids[name]
		if have := n.kids[name]; have != nil && have.kids != nil && kid.kids != nil {
			have.merge(kid)
			continue
		}
		n.put(name, kid)
	}
}

// at is the node of a path, nil if there is none; that of no path is the node itself.
func (n *hydraNode) at(path ...string) *hydraNode {
	for _, name := range path {
		if n == nil || n.kids == nil {
			return nil
		}
		n = n.kids[name]
	}
	return n
}

// text is the value of a scalar below, "" if there is none.
func (n *hydraNode) text(path ...string) string {
	if kid := n.at(path...); kid != nil && kid.scalar() {
		return kid.value.Value
	}
	return ""
}

// scalar reports whether the node is a value that is not null.
func (n *hydraNode) scalar() bool {
	return n.value != nil && n.value.Kind == yaml.ScalarNode && !n.null()
}

func (n *hydraNode) null() bool { return n.value != nil && n.value.Tag == "!!null" }

// kind names the value for messages.
func (n *hydraNode) kind() string {
	if n.value == nil {
		return "a mapping"
	}
	return nodeKind(n.value)
}

// on reports whether a switch below is true.
func (n *hydraNode) on(name string) bool { return strings.EqualFold(n.text(name), "true") }

// hydra composes a file.
type hydra struct {
	l      *loader
	root   string // directory of the file that was asked for
	tree   *hydraNode
	stack  []string
	files  int
	broken bool // the files include each other

	choices []*hydraChoice // of files of groups, strongest first
	groups  []hydraGroup   // that have been included, or could have been
}

// compose reads a file with all that it includes and applies overrides; interpolations are left. What is wrong is noted;
// the tree holds what could be read, and nil is returned if the file itself could not.
func (l *loader) compose(file string, overrides []string) *hydra {
	o := Origin{Layer: LayerLoong, File: file}
	h := &hydra{l: l, root: filepath.Dir(file), tree: newMapping(o)}
	before := len(l.errs)
	h.choose(overrides)
	h.include(file, o, nil)
	overrides = h.finishGroups(overrides)
	if len(l.errs) > before && (len(h.tree.keys) == 0 || h.broken) {
		return nil
	}
	for _, arg := range overrides {
		h.override(arg)
	}
	return h
}

var packageHeader = regexp.MustCompile(`(?m)^#\s*@package\s+(\S+)\s*$`)

// include merges a file, and what it includes, into the tree at a package; from is the place that names it.
func (h *hydra) include(file string, from Origin, pkg []string) {
	file = filepath.Clean(file)
	if i := slices.Index(h.stack, file); i >= 0 {
		h.l.fail(from, "defaults", "the files include each other: "+strings.Join(append(h.stack[i:], file), " → "), "remove one of the includes")
		h.broken = true
		return
	}
	if h.files++; h.files > hydraFilesMax {
		h.l.fail(from, "defaults", fmt.Sprintf("more than %d files", hydraFilesMax), "")
		return
	}
	if _, err := os.Stat(file); err != nil && h.files > 1 {
		h.l.fail(from, "defaults", file+": no such file", nearestFile(file))
		return
	}
	text, err := readFile(file)
	var root *yaml.Node
	if err == nil {
		root, err = parseYAML(file, text)
	}
	if err != nil {
		h.l.errs = append(h.l.errs, err)
		return
	}
	if header := packageHeader.FindSubmatch(text); header != nil {
		pkg = packagePath(string(header[1]), pkg)
	}
	h.stack = append(h.stack, file)
	defer func() { h.stack = h.stack[:len(h.stack)-1] }()
	o := Origin{Layer: LayerLoong, File: file, Line: 1}
	self, done := hydraTree(root, o, true), false
	place := func() {
		if !done {
			h.mount(pkg, o).merge(self)
		}
		done = true
	}
	h.defaults(file, lookup(root, "defaults"), pkg, place)
	place() // a file that does not say _self_ stands over what it includes
}

// nearestFile suggests the file of a similar name in the same directory.
func nearestFile(file string) string {
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return "there is no directory " + filepath.Dir(file)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	if try := didYouMean(strings.TrimSuffix(filepath.Base(file), ".yaml"), names); try != "" || len(names) == 0 {
		return try
	}
	return oneOf(names)
}

// mount is the mapping at a package, made if need be.
func (h *hydra) mount(pkg []string, o Origin) *hydraNode {
	n := h.tree
	for _, name := range pkg {
		kid := n.kids[name]
		if kid == nil || kid.kids == nil {
			kid = newMapping(o)
			n.put(name, kid)
		}
		n = kid
	}
	return n
}

// packagePath is where a file named with a package goes; within is the package of the file that names it.
func packagePath(name string, within []string) []string {
	switch rest, global := strings.CutPrefix(name, "_global_"); {
	case name == "_here_":
		return within
	case global:
		return strings.FieldsFunc(rest, func(r rune) bool { return r == '.' })
	}
	return slices.Concat(within, strings.Split(name, "."))
}

// defaults goes through the entries of a defaults list in order; self stands for the file's own keys.
func (h *hydra) defaults(file string, list *yaml.Node, pkg []string, self func()) {
	if list == nil {
		return
	}
	o := Origin{Layer: LayerLoong, File: file, Line: list.Line}
	if list.Kind != yaml.SequenceNode {
		h.l.fail(o, "defaults", nodeKind(list)+", want a list", "")
		return
	}
	for _, item := range list.Content {
		o.Line = item.Line
		h.overrideEntry(file, item, pkg, o) // before any entry is included
	}
	for _, item := range list.Content {
		o.Line = item.Line
		if item.Kind == yaml.ScalarNode && item.Value == "_self_" {
			self()
			continue
		}
		h.entry(file, item, pkg, o)
	}
}

// entry includes what one entry names: name, group/name, group: name, or group@package: name, also with several names. Of a
// group, another choice may have been made.
func (h *hydra) entry(file string, item *yaml.Node, pkg []string, o Origin) {
	if item.Kind == yaml.ScalarNode && item.Tag != "!!null" {
		name, at, _ := strings.Cut(item.Value, "@")
		group := ""
		if i := strings.LastIndex(name, "/"); i >= 0 {
			group, name = name[:i], name[i+1:]
		}
		if inner, ok := h.inner(group, at, []string{name}, pkg, o); ok {
			h.named(h.groupDir(file, group), name, inner, o, false)
		}
		return
	}
	if item.Kind != yaml.MappingNode || len(item.Content) != 2 || strings.TrimSpace(item.Content[0].Value) == "" {
		h.l.fail(o, "defaults", nodeKind(item)+", want path@package: name", "")
		return
	}
	words := strings.Fields(item.Content[0].Value)
	if len(words) == 2 && words[0] == "override" {
		return // it was read before
	}
	optional := len(words) == 2 && words[0] == "optional"
	group, at, _ := strings.Cut(words[len(words)-1], "@")
	names, ok := h.options(item.Content[1], words[len(words)-1], o)
	inner, okPackage := h.inner(group, at, names, pkg, o)
	if !okPackage {
		return
	}
	if c := h.chosen(hydraGroup{h.groupDir(file, group), inner}); c != nil {
		names, ok, optional, o = c.names, true, false, c.o
	}
	if !ok {
		return
	}
	for _, name := range names {
		if name == "???" {
			h.l.fail(o, "defaults", words[len(words)-1]+": no file is chosen", "put the name of a file in place of ???, or choose on the command line: group=name")
			continue
		}
		h.named(h.groupDir(file, group), name, inner, o, optional)
	}
}

// options reads the names of files behind a group: one, several, or null for none.
func (h *hydra) options(value *yaml.Node, key string, o Origin) (names []string, ok bool) {
	list := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		list = value.Content
	}
	for _, n := range list {
		switch {
		case n.Kind != yaml.ScalarNode:
			h.l.fail(o, "defaults", fmt.Sprintf("%s: %s, want the name of a file", key, nodeKind(n)), "")
			return nil, false
		case n.Tag != "!!null":
			names = append(names, n.Value)
		}
	}
	return names, true
}

// groupDir is the directory of a group that a file names.
func (h *hydra) groupDir(file, group string) string {
	if strings.HasPrefix(group, "/") {
		return filepath.Join(h.root, group)
	}
	return filepath.Join(filepath.Dir(file), group)
}

// inner is the package of a group's files.
func (h *hydra) inner(group, at string, names, pkg []string, o Origin) ([]string, bool) {
	switch {
	case at != "":
		return packagePath(at, pkg), true
	case strings.Contains(group, ".."):
		name := "name"
		if len(names) > 0 {
			name = names[0]
		}
		h.l.fail(o, "defaults", fmt.Sprintf("%s: where it goes is not said", group), fmt.Sprintf("write %s@model.foundation: %s, or another package", group, name))
		return nil, false
	case group != "":
		return slices.Concat(pkg, strings.Split(strings.Trim(group, "/"), "/")), true
	}
	return pkg, true
}

// named includes one file of a directory at a package.
func (h *hydra) named(dir, name string, pkg []string, o Origin, optional bool) {
	path := filepath.Join(dir, name)
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		path += ".yaml"
	}
	if _, err := os.Stat(path); err != nil && optional {
		return
	}
	h.include(path, o, pkg)
}

// hydraOverride matches +a.b=c, ++a.b=c and a.b=c; deletions are ~a.b, with or without a value.
var (
	hydraOverride = regexp.MustCompile(`^\+{0,2}([A-Za-z_][A-Za-z0-9_.-]*)=`)
	hydraDelete   = regexp.MustCompile(`^~([A-Za-z_][A-Za-z0-9_.-]*)(=.*)?$`)
)

// override sets or deletes a value. Hyphens in keys are underscores. Whether there is such a key is checked with all others.
func (h *hydra) override(arg string) {
	o := Origin{Layer: layerTop, Text: arg}
	split := func(key string) []string { return strings.Split(strings.ReplaceAll(key, "-", "_"), ".") }
	if m := hydraDelete.FindStringSubmatch(arg); m != nil {
		path := split(m[1])
		parent, last := h.tree.at(path[:len(path)-1]...), path[len(path)-1]
		if parent.at(last) == nil {
			try := ""
			if parent != nil {
				try = didYouMean(last, parent.keys)
			}
			h.l.fail(o, strings.Join(path, "."), "there is nothing to remove", try)
			return
		}
		delete(parent.kids, last)
		parent.keys = slices.DeleteFunc(parent.keys, func(k string) bool { return k == last })
		return
	}
	m := hydraOverride.FindStringSubmatch(arg)
	path := split(m[1])
	value, err := parseValue(arg[len(m[0]):])
	if err != nil {
		h.l.fail(o, strings.Join(path, "."), "the value is no YAML", "quote it")
		return
	}
	if have := h.tree.at(path...); have != nil && have.scalar() && value.Kind == yaml.ScalarNode && have.value.Value != value.Value {
		h.l.c.Notices = append(h.l.c.Notices, fmt.Sprintf("%s: %s from %s overrules %s from %s", strings.Join(path, "."), value.Value, o, have.value.Value, have.o))
	}
	over := newMapping(o)
	over.put(path[len(path)-1], hydraTree(value, o, false))
	for i := len(path) - 2; i >= 0; i-- {
		outer := newMapping(o)
		outer.put(path[i], over)
		over = outer
	}
	h.tree.merge(over)
}
