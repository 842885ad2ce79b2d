package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"strings"
)

// typeChecker finds the types of expressions in the module's packages from source alone. Packages of
// other modules are empty to it: what comes from there has an unknown type.
type typeChecker struct {
	m     *module
	std   types.ImporterFrom
	cache map[string]*types.Package
	infos map[string]*types.Info
	busy  map[string]bool // guards against import cycles, which the compiler reports better
}

func newTypeChecker(m *module) *typeChecker {
	std := importer.ForCompiler(token.NewFileSet(), "source", nil).(types.ImporterFrom)
	return &typeChecker{m: m, std: std, cache: map[string]*types.Package{}, infos: map[string]*types.Info{},
		busy: map[string]bool{}}
}

// findStandard says where the standard library lies to a program that was built with -trimpath, which does not know
// it: without the library's types every discarded value of it might be an error.
func findStandard() error {
	if build.Default.GOROOT != "" {
		return nil
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("lfvet looks for the standard library: go env GOROOT: %w", err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(root))
	return nil
}

// check returns what is known of the package in dir, function bodies included.
func (c *typeChecker) check(dir string) *types.Info {
	if info := c.infos[dir]; info != nil {
		return info
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}}
	c.infos[dir] = info
	c.typeCheck(dir, info, false)
	return info
}

// Import implements types.Importer.
func (c *typeChecker) Import(path string) (*types.Package, error) { return c.ImportFrom(path, "", 0) }

// ImportFrom implements types.ImporterFrom.
func (c *typeChecker) ImportFrom(path, dir string, mode types.ImportMode) (*types.Package, error) {
	if p := c.cache[path]; p != nil {
		return p, nil
	}
	p := c.load(path, mode)
	c.cache[path] = p
	return p, nil
}

// load gives the types of a package. Those of other modules, and of cycles, are left empty, as the
// checks need none of them.
func (c *typeChecker) load(path string, mode types.ImportMode) *types.Package {
	first, _, _ := strings.Cut(path, "/")
	short, ours := strings.CutPrefix(path, c.m.name+"/")
	switch {
	case ours && !c.busy[path]:
		c.busy[path] = true
		defer delete(c.busy, path)
		return c.typeCheck(short, nil, true)
	case !ours && !strings.Contains(first, "."):
		if p, err := c.std.ImportFrom(path, "", mode); err == nil {
			return p
		}
	}
	empty := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	empty.MarkComplete()
	return empty
}

// typeCheck goes on past errors: a name it cannot resolve is no finding of its own.
func (c *typeChecker) typeCheck(dir string, info *types.Info, headersOnly bool) *types.Package {
	var files []*ast.File
	for _, f := range c.m.files {
		if f.dir == dir && !f.test && !f.ignored && c.built(f) {
			files = append(files, f.ast)
		}
	}
	conf := types.Config{Importer: c, IgnoreFuncBodies: headersOnly, FakeImportC: true, Error: func(error) {}}
	p, _ := conf.Check(c.m.name+"/"+dir, c.m.fset, files, info) // the compiler reports errors better
	return p
}

// built applies build tags: two variants of one declaration would hide each other.
func (c *typeChecker) built(f *source) bool {
	ok, err := build.Default.MatchFile(filepath.Join(c.m.root, f.dir), filepath.Base(f.path))
	return err != nil || ok
}
