// Command mutants measures how many small faults a package's own tests find.
//
//	go run ./bench/mutants [-n 25] [-seed 1] [-timeout 2m] PACKAGE…
//
// For each package it draws n places of its code by the seed, changes one at a time (a comparison, an
// operator, a number, a condition, or a statement left out), and runs the package's own tests against the
// changed file through the compiler's overlay: no file of the tree is touched. A change that does not
// compile is drawn again. Tests that fail, or that do not end within the limit, have killed the mutant. What
// survives is listed with its place, and the table by package ends the output:
//
//	package        mutants  killed  equivalent  share
//	actors/core         25      22           1   0.92
//
// A mutant that no test can kill, because both programs do the same, is equivalent. Those stand with the reason in
// equivalent.txt beside this file, recognised by the file, the line's text and the change, and count neither way.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed equivalent.txt
var equivalentText string

// site is one change of one file: the bytes [from, to) become text.
type site struct {
	file     string // relative to the module's root
	line     int
	from, to int
	text     string
	what     string // the change in words, "< becomes <="
	source   string // the line, trimmed
}

// key names a site whatever its line number is.
func (s site) key() string {
	return s.file + " | " + s.source + " | " + s.what
}

// swaps are the operators that take each other's place.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.REM: token.MUL,
}

// finder collects the sites of one file.
type finder struct {
	file  string
	src   []byte
	fset  *token.FileSet
	sites []site
	// numbers that are given back beside an error, which nobody looks at
	beside map[*ast.BasicLit]bool
}

func (f *finder) add(from, to token.Pos, text, what string) {
	p := f.fset.Position(from)
	a, b := p.Offset, f.fset.Position(to).Offset
	begin := bytes.LastIndexByte(f.src[:a], '\n') + 1
	line, _, _ := bytes.Cut(f.src[begin:], []byte("\n"))
	f.sites = append(f.sites, site{file: f.file, line: p.Line, from: a, to: b, text: text, what: what,
		source: strings.TrimSpace(string(line))})
}

// visit adds the changes of one node.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.IMPORT
	case *ast.CallExpr:
		// The text of a message is not behaviour.
		if fun, ok := n.Fun.(*ast.Ident); ok && fun.Name == "panic" {
			return false
		}
	case *ast.BinaryExpr:
		if to, ok := swaps[n.Op]; ok {
			end := n.OpPos + token.Pos(len(n.Op.String()))
			f.add(n.OpPos, end, to.String(), n.Op.String()+" becomes "+to.String())
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.add(n.OpPos, n.OpPos+1, "", "! is left out")
		}
	case *ast.ReturnStmt:
		f.besideError(n)
	case *ast.BasicLit:
		if f.beside[n] {
			return false
		}
		if v, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
			f.add(n.Pos(), n.End(), strconv.Itoa(v+1), fmt.Sprintf("%d becomes %d", v, v+1))
		}
	case *ast.IfStmt:
		a, b := f.fset.Position(n.Cond.Pos()).Offset, f.fset.Position(n.Cond.End()).Offset
		f.add(n.Cond.Pos(), n.Cond.End(), "false && ("+string(f.src[a:b])+")", "the condition is false")
	case *ast.BranchStmt:
		if n.Label == nil && n.Tok != token.FALLTHROUGH {
			f.add(n.Pos(), n.End(), "", n.Tok.String()+" is left out")
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok {
			if fun, ok := call.Fun.(*ast.Ident); ok && fun.Name == "panic" {
				return false // what must never be is not tested
			}
		}
		f.add(n.Pos(), n.End(), "", "the statement is left out")
	case *ast.IncDecStmt:
		f.add(n.Pos(), n.End(), "", "the statement is left out")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.add(n.Pos(), n.End(), "", "the statement is left out")
		}
	}
	return true
}

// besideError remembers the numbers of a return whose last result is an error that was made or found there.
func (f *finder) besideError(n *ast.ReturnStmt) {
	if len(n.Results) < 2 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if call, ok := last.(*ast.CallExpr); ok {
		last = call.Fun
	}
	if !anError.Match(f.src[f.fset.Position(last.Pos()).Offset:f.fset.Position(last.End()).Offset]) {
		return
	}
	for _, r := range n.Results {
		if lit, ok := r.(*ast.BasicLit); ok {
			f.beside[lit] = true
		}
	}
}

// anError matches what an error is called, and the functions that make one.
var anError = regexp.MustCompile(`^(err|fmt\.Errorf|errors\..*|exit\..*)$`)

// sites returns every change of a source file.
func sites(file string, src []byte) ([]site, error) {
	f := &finder{file: file, src: src, fset: token.NewFileSet(), beside: map[*ast.BasicLit]bool{}}
	tree, err := parser.ParseFile(f.fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(tree, f.visit)
	return f.sites, nil
}

// apply returns the source with one change made.
func (s site) apply(src []byte) []byte {
	return slices.Concat(src[:s.from], []byte(s.text), src[s.to:])
}

// verdict is what the tests said of a mutant.
type verdict int

const (
	survived verdict = iota
	killed
	invalid // it does not compile
)

// tester runs the tests of packages against changed files.
type tester struct {
	root, temp string
	limit      time.Duration
}

// run tests one mutant.
func (t *tester) run(pkg string, s site, src []byte) (verdict, error) {
	changed := filepath.Join(t.temp, "mutant.go")
	overlay := filepath.Join(t.temp, "overlay.json")
	list, err := json.Marshal(map[string]any{
		"Replace": map[string]string{filepath.Join(t.root, s.file): changed},
	})
	if err != nil {
		return 0, err
	}
	for name, data := range map[string][]byte{changed: s.apply(src), overlay: list} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return 0, err
		}
	}
	// The compiler and the linker get time of their own on top of the limit, which is go test's.
	ctx, cancel := context.WithTimeout(context.Background(), t.limit+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-failfast", "-count=1",
		"-timeout", t.limit.String(), "./"+pkg)
	cmd.Dir = t.root
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return survived, nil
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return invalid, nil
	}
	return killed, nil
}

// score is a package's line of the table.
type score struct {
	pkg                         string
	mutants, killed, equivalent int
}

// measure draws and tests n mutants of a package.
func (t *tester) measure(pkg string, n int, seed uint64, equivalent map[string]bool) (score, error) {
	files, err := filepath.Glob(filepath.Join(t.root, pkg, "*.go"))
	if err != nil {
		return score{}, err
	}
	var all []site
	sources := map[string][]byte{}
	for _, path := range files {
		rel, err := filepath.Rel(t.root, path)
		if err != nil {
			return score{}, err
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return score{}, err
		}
		found, err := sites(rel, src)
		if err != nil {
			return score{}, err
		}
		sources[rel] = src
		all = append(all, found...)
	}
	s := score{pkg: pkg}
	draw := rand.New(rand.NewPCG(seed, uint64(len(pkg))))
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, m := range all {
		if s.mutants == n {
			break
		}
		if equivalent[m.key()] || equivalent[m.file+" | "+m.source+" | *"] {
			s.mutants++
			s.equivalent++
			continue
		}
		v, err := t.run(pkg, m, sources[m.file])
		if err != nil {
			return s, err
		}
		switch v {
		case survived:
			s.mutants++
			fmt.Printf("%s:%d: %s: survived\n\t%s\n", m.file, m.line, m.what, m.source)
		case killed:
			s.mutants++
			s.killed++
		}
	}
	return s, nil
}

// known reads equivalent.txt: a line "file | source line | change | reason" each; # begins a comment.
func known(text string) (map[string]bool, error) {
	keys := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndex(line, " | ")
		if at < 0 || strings.Count(line, " | ") < 3 {
			return nil, fmt.Errorf("equivalent.txt:%d: want file | source line | change | reason", i+1)
		}
		keys[line[:at]] = true
	}
	return keys, nil
}

func run() error {
	n := flag.Int("n", 25, "mutants of each package")
	seed := flag.Uint64("seed", 1, "what the mutants are drawn by")
	limit := flag.Duration("timeout", 2*time.Minute, "limit for the tests of one mutant")
	flag.Parse()
	equivalent, err := known(equivalentText)
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}
	t := &tester{root: strings.TrimSpace(string(out)), limit: *limit}
	if t.temp, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(t.temp)
	var scores []score
	for _, pkg := range flag.Args() {
		s, err := t.measure(filepath.Clean(pkg), *n, *seed, equivalent)
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		scores = append(scores, s)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package\tmutants\tkilled\tequivalent\tshare")
	for _, s := range scores {
		share := float64(s.killed) / float64(max(1, s.mutants-s.equivalent))
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.2f\n", s.pkg, s.mutants, s.killed, s.equivalent, share)
	}
	return w.Flush()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}
