// Command lfvet holds the project to its own rules: import layers and who owns which module (layers.txt),
// what lies at the root and under which names, no I/O and no chance in protocols, limits on size, and a
// comment on every exported name.
//
//	go run ./cmd/lfvet [folder]
//	go run ./cmd/lfvet -discards [folder]
//	go run ./cmd/lfvet -kinds [folder]
//	go run ./cmd/lfvet -picture [folder] > docs/house.svg
//
// -discards lists the errors that the code throws away, each with the reason that stands beside it; -kinds lists
// the lines that ask of which kind a model or a sample is, outside of the rooms of tasks; -picture draws the folders with
// their packages and imports.
//
// It prints one finding a line as "file:line: rule: text" and exits 1 if there is one. Rules are purely textual apart
// from the search for ranges over maps, which needs types; nothing is built or downloaded.
package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed layers.txt
var layersText string

// finding is one broken rule at one place.
type finding struct {
	path string
	line int
	rule string
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.text) }

// report collects findings.
type report struct {
	fset  *token.FileSet
	found []finding
}

func (r *report) add(f *source, pos token.Pos, rule, format string, args ...any) {
	r.at(f.path, r.fset.Position(pos).Line, rule, format, args...)
}

// at reports a finding by path and line.
func (r *report) at(path string, line int, rule, format string, args ...any) {
	r.found = append(r.found, finding{path, line, rule, fmt.Sprintf(format, args...)})
}

// vet applies every rule to the module at root; layers is the text of the import policy.
func vet(root, layers string) ([]finding, error) {
	policy, err := parseLayers(layers)
	if err != nil {
		return nil, err
	}
	m, err := load(root)
	if err != nil {
		return nil, err
	}
	if err := findStandard(); err != nil {
		return nil, err
	}
	r := &report{fset: m.fset}
	for _, f := range m.files {
		checkImports(m, policy, f, r)
		checkSizes(f, r)
		checkBreadth(f, r)
		checkMarks(f, r)
		checkSleep(f, r)
	}
	if err := checkTree(root, policy, r); err != nil {
		return nil, err
	}
	checkStale(m, policy, r)
	checkWidth(m, r)
	checkRooms(m, r)
	checkDocs(m, r)
	checkProtocols(m, r)
	checkDiscards(m, r)
	asked, err := listKinds(m, m.text)
	if err != nil {
		return nil, err
	}
	for _, q := range asked {
		if q.reason == "" {
			r.found = append(r.found, finding{q.path, q.line, "kind", "asks of which kind something is: take what its " +
				"task says, or a table of kinds, or say why behind //lfvet:kind"})
		}
	}
	slices.SortFunc(r.found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line), cmp.Compare(a.rule, b.rule),
			cmp.Compare(a.text, b.text))
	})
	return r.found, nil
}

// moduleRoot is the nearest folder at or above dir that has a go.mod.
func moduleRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s: no go.mod here or above", dir)
		}
	}
}

func run(args []string, out, errs io.Writer) int {
	show := ""
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		show, args = args[0], args[1:]
	}
	dir := "."
	if len(args) > 0 {
		dir = args[0]
	}
	root, err := moduleRoot(dir)
	if err != nil {
		fmt.Fprintln(errs, "lfvet:", err)
		return 2
	}
	if show != "" {
		return list(show, root, out, errs)
	}
	found, err := vet(root, layersText)
	if err != nil {
		fmt.Fprintln(errs, "lfvet:", err)
		return 2
	}
	for _, f := range found {
		fmt.Fprintln(out, f)
	}
	if len(found) > 0 {
		return 1
	}
	return 0
}

// list prints what -discards, -kinds and -picture show.
func list(what, root string, out, errs io.Writer) int {
	m, err := load(root)
	policy, layersErr := parseLayers(layersText)
	if err = errors.Join(err, layersErr); err != nil {
		fmt.Fprintln(errs, "lfvet:", err)
		return 2
	}
	switch what {
	case "-picture":
		picture(m, policy, out)
		return 0
	case "-kinds":
		return kinds(m, out, errs)
	case "-discards":
	default:
		fmt.Fprintf(errs, "lfvet: %s: want -discards, -kinds or -picture\n", what)
		return 2
	}
	for _, d := range listDiscards(m, &report{fset: m.fset}) {
		fmt.Fprintf(out, "%s:%d: %s\n", d.path, d.line, d.reason)
	}
	return 0
}

// text is the content of a file of the module.
func (m *module) text(path string) (string, error) {
	b, err := os.ReadFile(filepath.Join(m.root, path))
	return string(b), err
}

// kinds prints the lines that ask for a kind, and how many of them have no reason.
func kinds(m *module, out, errs io.Writer) int {
	all, err := listKinds(m, m.text)
	if err != nil {
		fmt.Fprintln(errs, "lfvet:", err)
		return 2
	}
	bare := 0
	for _, q := range all {
		if q.reason == "" {
			bare++
		}
		fmt.Fprintf(out, "%s:%d: %s%s\n", q.path, q.line, q.text, map[bool]string{true: "  // " + q.reason}[q.reason != ""])
	}
	fmt.Fprintf(out, "%d questions of kind, %d without a reason\n", len(all), bare)
	return 0
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
