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

// Config groups: a directory of files of which one is chosen. A file chooses in its defaults list, whoever
// includes that file can choose otherwise with an override entry, and the command line with group=name.

// included is a group at the package where its file goes.
type included struct {
	dir string
	pkg []string
}

// String is how the group can be named on the command line.
func (g included) String() string {
	if len(g.pkg) == 0 {
		return filepath.Base(g.dir) + "@_global_"
	}
	return filepath.Base(g.dir) + "@" + strings.Join(g.pkg, ".")
}

// choice is a choice of files for a group that some other file includes.
type choice struct {
	o     source.Origin
	group string   // as it was given
	dir   string   // what it means exactly
	pkg   []string // where the group goes; nil: wherever it does
	names []string // of the files; none: the group is left out
	add   bool     // the file is included if nobody includes the group
	maybe bool     // the argument may set a key of this name as well
	hit   []included
}

// groupPattern matches group=name and group@package=name, with + or without, and ~group.
var groupPattern = regexp.MustCompile(`^(~|\+{0,2})([^=@~+][^=@]*)(?:@([A-Za-z0-9_.]+))?(=(?s:(.*)))?$`)

// GroupArg says whether an argument can only mean a group: it has a path or a package, which keys do not.
func GroupArg(arg string) bool {
	m := groupPattern.FindStringSubmatch(arg)
	return m != nil && (m[3] != "" || strings.Contains(m[2], "/")) && (m[1] == "~" || m[4] != "")
}

// choose takes up the choices among arguments; later ones are stronger.
func (h *Composition) choose(args []string) {
	for _, arg := range args {
		m := groupPattern.FindStringSubmatch(arg)
		bare := m != nil && !strings.Contains(m[2], ".") && (m[1] == "~" || m[4] != "")
		if !GroupArg(arg) && !bare {
			continue
		}
		c := &choice{o: source.Origin{Layer: source.LayerTop, Text: arg}, group: m[2],
			dir: filepath.Join(h.root, m[2]), add: m[1] == "+", maybe: !GroupArg(arg)}
		if m[3] != "" {
			c.pkg = packagePath(m[3], nil)
		}
		if m[1] != "~" {
			node, err := source.ParseValue(m[5])
			switch {
			case err == nil && node.Kind != yaml.MappingNode:
				c.names, _ = h.options(node, m[2], c.o)
			case c.maybe:
				continue // a key's value
			default:
				h.sink.Fail(c.o, m[2], source.Quoted(m[5])+", want the name of a file", "")
			}
		}
		h.choices = append([]*choice{c}, h.choices...)
	}
}

// overrideEntry takes up an override entry of a defaults list. It is weaker than those of the files that
// include this one.
func (h *Composition) overrideEntry(file string, item *yaml.Node, pkg []string, o source.Origin) {
	if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
		return
	}
	words := strings.Fields(item.Content[0].Value)
	if len(words) != 2 || words[0] != "override" || strings.HasPrefix(strings.TrimPrefix(words[1], "/"), "hydra/") {
		return // what is Hydra's own, as its logging, means nothing here
	}
	group, at, _ := strings.Cut(words[1], "@")
	names, ok := h.options(item.Content[1], words[1], o)
	if !ok {
		return
	}
	c := &choice{o: o, group: group, dir: h.groupDir(file, group), names: names}
	if at != "" {
		c.pkg = packagePath(at, pkg)
	}
	h.choices = append(h.choices, c)
}

// chosen is the strongest choice that was made for a group, nil without any.
func (h *Composition) chosen(g included) (strongest *choice) {
	h.groups = append(h.groups, g)
	for _, c := range h.choices {
		if !c.means(g) {
			continue
		}
		if c.hit = append(c.hit, g); strongest == nil {
			strongest = c
		}
	}
	return strongest
}

// means says whether a choice is for a group: its path is the group's, or the end of it, and so is its
// package, if given.
func (c *choice) means(g included) bool {
	if c.pkg != nil && !slices.Equal(c.pkg, g.pkg) {
		return false
	}
	end := "/" + strings.TrimPrefix(filepath.ToSlash(filepath.Clean(c.group)), "/")
	return c.dir == g.dir || !strings.Contains(c.group, "..") && strings.HasSuffix("/"+filepath.ToSlash(g.dir), end)
}

// finishGroups includes what was to be added, and reports choices for groups that no file includes. It
// returns the arguments among args that are left: values of keys.
func (h *Composition) finishGroups(args []string) []string {
	taken := map[string]bool{}
	for _, c := range slices.Backward(h.choices) {
		key := h.Tree.At(strings.ReplaceAll(c.group, "-",
			"_")) != nil || h.nearGroup(c) == "" || source.DidYouMean(c.group, h.Tree.Keys) != ""
		if len(c.hit) == 0 && c.maybe && key {
			continue
		}
		taken[c.o.Text] = true
		if other := slices.IndexFunc(c.hit,
			func(g included) bool { return g.String() != c.hit[0].String() }); other > 0 {
			h.sink.Fail(c.o, c.group, fmt.Sprintf("is included more than once, as %s and %s", c.hit[0],
				c.hit[other]), "choose for one of them, by its package")
		} else if len(c.hit) == 0 {
			h.unmatched(c)
		}
	}
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return taken[arg] })
}

// unmatched includes the file of a choice that adds a group. Any other is a fault: no file includes its group.
func (h *Composition) unmatched(c *choice) {
	info, err := os.Stat(c.dir)
	switch {
	case c.add && err == nil && info.IsDir() && c.pkg != nil:
		for _, name := range c.names {
			h.named(c.dir, name, c.pkg, c.o, false)
		}
		return
	case c.add && err == nil && info.IsDir():
		h.sink.Fail(c.o, c.group, "where it goes is not said",
			fmt.Sprintf("write +%s@model.peft_config=…, or another package", c.group))
		return
	}
	var at []string
	for _, g := range h.groups {
		if (&choice{group: c.group, dir: c.dir}).means(g) {
			at = append(at, g.String())
		}
	}
	try := h.nearGroup(c)
	switch {
	case len(at) > 0:
		h.sink.Fail(c.o, c.group, "is not included at "+strings.Join(c.pkg, "."), source.OneOf(at))
		return
	case try == "" && len(h.groups) > 0:
		try = source.OneOf(h.groupNames())
	case try == "":
		try = "the file includes none"
	}
	h.sink.Fail(c.o, c.group, "no file includes such a group", try)
}

// groupNames are the last words of the groups' paths, each once.
func (h *Composition) groupNames() []string {
	var out []string
	for _, g := range h.groups {
		out = append(out, filepath.Base(g.dir))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nearGroup suggests a group with a name like that of a choice.
func (h *Composition) nearGroup(c *choice) string {
	return source.DidYouMean(filepath.Base(c.group), h.groupNames())
}
