// Package hydra composes files as Hydra does (hydra.cc, version 1.1 and later), in the subset that
// LoongForge's model files use: a defaults list of other files with packages, _self_, overrides, config
// groups, and OmegaConf's interpolations. Nothing of a file is run. Faults go to a source.Sink; the tree
// that comes out names the place of every value.
package hydra

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// filesMax bounds what one file may include.
const filesMax = 256

// Node is a value of a composed tree, with the place that it was written in.
type Node struct {
	O     source.Origin
	Value *yaml.Node // a scalar or a list; nil for a mapping
	Keys  []string   // of a mapping, in the order in which they came
	Kids  map[string]*Node
	busy  bool // its interpolation is being resolved
}

// NewMapping is an empty mapping.
func NewMapping(o source.Origin) *Node { return &Node{O: o, Kids: map[string]*Node{}} }

// newTree makes a tree of a parsed file, without the defaults list at its root.
func newTree(n *yaml.Node, o source.Origin, root bool) *Node {
	if n.Kind != yaml.MappingNode {
		return &Node{O: o, Value: n}
	}
	out := NewMapping(o)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if root && name == "defaults" {
			continue
		}
		if o.File != "" {
			o.Line = n.Content[i].Line
		}
		out.Put(name, newTree(n.Content[i+1], o, false))
	}
	return out
}

// Put sets the value below a name.
func (n *Node) Put(name string, kid *Node) {
	if _, ok := n.Kids[name]; !ok {
		n.Keys = append(n.Keys, name)
	}
	n.Kids[name] = kid
}

// merge lays another mapping over this one: what it says wins.
func (n *Node) merge(over *Node) {
	for _, name := range over.Keys {
		kid := over.Kids[name]
		if have := n.Kids[name]; have != nil && have.Kids != nil && kid.Kids != nil {
			have.merge(kid)
			continue
		}
		n.Put(name, kid)
	}
}

// At is the node of a path, nil if there is none; that of no path is the node itself.
func (n *Node) At(path ...string) *Node {
	for _, name := range path {
		if n == nil || n.Kids == nil {
			return nil
		}
		n = n.Kids[name]
	}
	return n
}

// Text is the value of a scalar below, "" if there is none.
func (n *Node) Text(path ...string) string {
	if kid := n.At(path...); kid != nil && kid.Scalar() {
		return kid.Value.Value
	}
	return ""
}

// Scalar reports whether the node is a value that is not null.
func (n *Node) Scalar() bool {
	return n.Value != nil && n.Value.Kind == yaml.ScalarNode && !n.Null()
}

// Null reports whether the node is an explicit null.
func (n *Node) Null() bool { return n.Value != nil && n.Value.Tag == "!!null" }

// Kind names the value for messages.
func (n *Node) Kind() string {
	if n.Value == nil {
		return "a mapping"
	}
	return source.NodeKind(n.Value)
}

// On reports whether a switch below is true.
func (n *Node) On(name string) bool { return strings.EqualFold(n.Text(name), "true") }

// Composition is a file with all that it includes.
type Composition struct {
	Tree   *Node
	sink   source.Sink
	getenv func(string) string
	root   string // directory of the file that was asked for
	stack  []string
	files  int
	broken bool // the files include each other

	choices []*choice  // of files of groups, strongest first
	groups  []included // that have been included, or could have been
}

// Compose reads a file with all that it includes and applies overrides; interpolations are left to Resolve.
// What is wrong goes to the sink; the tree holds what could be read, and nil is returned if the file itself
// could not. getenv answers ${oc.env:…} and may be nil.
func Compose(sink source.Sink, getenv func(string) string, file string, overrides []string) *Composition {
	o := source.Origin{Layer: source.LayerLoong, File: file}
	h := &Composition{Tree: NewMapping(o), sink: sink, getenv: getenv, root: filepath.Dir(file)}
	before := sink.Faults()
	h.choose(overrides)
	h.include(file, o, nil)
	overrides = h.finishGroups(overrides)
	if sink.Faults() > before && (len(h.Tree.Keys) == 0 || h.broken) {
		return nil
	}
	for _, arg := range overrides {
		h.override(arg)
	}
	return h
}

// Overrides makes a tree of overrides alone.
func Overrides(sink source.Sink, getenv func(string) string, overrides []string) *Composition {
	h := &Composition{Tree: NewMapping(source.Origin{Layer: source.LayerTop}), sink: sink, getenv: getenv, root: "."}
	for _, arg := range overrides {
		h.override(arg)
	}
	return h
}

// Deletes says whether an argument removes a key, as ~a.b does.
func Deletes(arg string) bool { return deletePattern.MatchString(arg) }

var packageHeader = regexp.MustCompile(`(?m)^#\s*@package\s+(\S+)\s*$`)

// include merges a file, and what it includes, into the tree at a package; from is the place that names it.
func (h *Composition) include(file string, from source.Origin, pkg []string) {
	file = filepath.Clean(file)
	if i := slices.Index(h.stack, file); i >= 0 {
		h.sink.Fail(from, "defaults", "the files include each other: "+strings.Join(append(h.stack[i:],
			file), " → "), "remove one of the includes")
		h.broken = true
		return
	}
	if h.files++; h.files > filesMax {
		h.sink.Fail(from, "defaults", fmt.Sprintf("more than %d files", filesMax), "")
		return
	}
	if _, err := os.Stat(file); err != nil && h.files > 1 {
		h.sink.Fail(from, "defaults", file+": no such file", nearestFile(file))
		return
	}
	text, err := source.ReadFile(file)
	var root *yaml.Node
	if err == nil {
		root, err = source.ParseYAML(file, text)
	}
	if err != nil {
		h.sink.Report(err)
		return
	}
	if header := packageHeader.FindSubmatch(text); header != nil {
		pkg = packagePath(string(header[1]), pkg)
	}
	h.stack = append(h.stack, file)
	defer func() { h.stack = h.stack[:len(h.stack)-1] }()
	o := source.Origin{Layer: source.LayerLoong, File: file, Line: 1}
	self, done := newTree(root, o, true), false
	place := func() {
		if !done {
			h.mount(pkg, o).merge(self)
		}
		done = true
	}
	h.defaults(file, source.Lookup(root, "defaults"), pkg, place)
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
	if try := source.DidYouMean(strings.TrimSuffix(filepath.Base(file), ".yaml"), names); try != "" || len(names) == 0 {
		return try
	}
	return source.OneOf(names)
}

// mount is the mapping at a package, made if need be.
func (h *Composition) mount(pkg []string, o source.Origin) *Node {
	n := h.Tree
	for _, name := range pkg {
		kid := n.Kids[name]
		if kid == nil || kid.Kids == nil {
			kid = NewMapping(o)
			n.Put(name, kid)
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
func (h *Composition) defaults(file string, list *yaml.Node, pkg []string, self func()) {
	if list == nil {
		return
	}
	o := source.Origin{Layer: source.LayerLoong, File: file, Line: list.Line}
	if list.Kind != yaml.SequenceNode {
		h.sink.Fail(o, "defaults", source.NodeKind(list)+", want a list", "")
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

// entry includes what one entry names: name, group/name, group: name, or group@package: name, also with
// several names. Of a group, another choice may have been made.
func (h *Composition) entry(file string, item *yaml.Node, pkg []string, o source.Origin) {
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
		h.sink.Fail(o, "defaults", source.NodeKind(item)+", want path@package: name", "")
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
	if c := h.chosen(included{h.groupDir(file, group), inner}); c != nil {
		names, ok, optional, o = c.names, true, false, c.o
	}
	if !ok {
		return
	}
	for _, name := range names {
		if name == "???" {
			h.sink.Fail(o, "defaults", words[len(words)-1]+": no file is chosen",
				"put the name of a file in place of ???, or choose on the command line: group=name")
			continue
		}
		h.named(h.groupDir(file, group), name, inner, o, optional)
	}
}

// options reads the names of files behind a group: one, several, or null for none.
func (h *Composition) options(value *yaml.Node, key string, o source.Origin) (names []string, ok bool) {
	list := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		list = value.Content
	}
	for _, n := range list {
		switch {
		case n.Kind != yaml.ScalarNode:
			h.sink.Fail(o, "defaults", fmt.Sprintf("%s: %s, want the name of a file", key, source.NodeKind(n)), "")
			return nil, false
		case n.Tag != "!!null":
			names = append(names, n.Value)
		}
	}
	return names, true
}

// groupDir is the directory of a group that a file names.
func (h *Composition) groupDir(file, group string) string {
	if strings.HasPrefix(group, "/") {
		return filepath.Join(h.root, group)
	}
	return filepath.Join(filepath.Dir(file), group)
}

// inner is the package of a group's files.
func (h *Composition) inner(group, at string, names, pkg []string, o source.Origin) ([]string, bool) {
	switch {
	case at != "":
		return packagePath(at, pkg), true
	case strings.Contains(group, ".."):
		name := "name"
		if len(names) > 0 {
			name = names[0]
		}
		h.sink.Fail(o, "defaults", fmt.Sprintf("%s: where it goes is not said", group),
			fmt.Sprintf("write %s@model.foundation: %s, or another package", group, name))
		return nil, false
	case group != "":
		return slices.Concat(pkg, strings.Split(strings.Trim(group, "/"), "/")), true
	}
	return pkg, true
}

// named includes one file of a directory at a package.
func (h *Composition) named(dir, name string, pkg []string, o source.Origin, optional bool) {
	path := filepath.Join(dir, name)
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		path += ".yaml"
	}
	if _, err := os.Stat(path); err != nil && optional {
		return
	}
	h.include(path, o, pkg)
}

// overridePattern matches +a.b=c, ++a.b=c and a.b=c; deletions are ~a.b, with or without a value.
var (
	overridePattern = regexp.MustCompile(`^\+{0,2}([A-Za-z_][A-Za-z0-9_.-]*)=`)
	deletePattern   = regexp.MustCompile(`^~([A-Za-z_][A-Za-z0-9_.-]*)(=.*)?$`)
)

// override sets or deletes a value. Hyphens in keys are underscores. Whether there is such a key is checked
// with all others.
func (h *Composition) override(arg string) {
	o := source.Origin{Layer: source.LayerTop, Text: arg}
	split := func(key string) []string { return strings.Split(strings.ReplaceAll(key, "-", "_"), ".") }
	if m := deletePattern.FindStringSubmatch(arg); m != nil {
		path := split(m[1])
		parent, last := h.Tree.At(path[:len(path)-1]...), path[len(path)-1]
		if parent.At(last) == nil {
			try := ""
			if parent != nil {
				try = source.DidYouMean(last, parent.Keys)
			}
			h.sink.Fail(o, strings.Join(path, "."), "there is nothing to remove", try)
			return
		}
		delete(parent.Kids, last)
		parent.Keys = slices.DeleteFunc(parent.Keys, func(k string) bool { return k == last })
		return
	}
	m := overridePattern.FindStringSubmatch(arg)
	path := split(m[1])
	value, err := source.ParseValue(arg[len(m[0]):])
	if err != nil {
		h.sink.Fail(o, strings.Join(path, "."), "the value is no YAML", "quote it")
		return
	}
	if have := h.Tree.At(path...); have != nil && have.Scalar() && value.Kind == yaml.ScalarNode &&
		have.Value.Value != value.Value {
		h.sink.Note(fmt.Sprintf("%s: %s from %s overrules %s from %s", strings.Join(path, "."), value.Value,
			o, have.Value.Value, have.O))
	}
	over := NewMapping(o)
	over.Put(path[len(path)-1], newTree(value, o, false))
	for i := len(path) - 2; i >= 0; i-- {
		outer := NewMapping(o)
		outer.Put(path[i], over)
		over = outer
	}
	h.Tree.merge(over)
}
