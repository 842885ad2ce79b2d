package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// source is one parsed Go file of the module.
type source struct {
	path      string // from the module's root, with slashes
	dir       string // path without the file's name; "." at the root
	test      bool   // a _test.go file that is no model (modelDirs)
	generated bool   // carries "// Code generated … DO NOT EDIT."
	ignored   bool   // "//go:build ignore": a program run by hand, no part of its package
	lines     int
	wide      int // lines that end behind columnsMax, those of keys' tags apart: they cannot be cut
	ast       *ast.File
}

// module is a parsed tree of Go files. Build tags are not applied: every variant is held to the rules.
type module struct {
	root  string
	name  string // the module's path, from go.mod
	fset  *token.FileSet
	files []*source
}

// load parses every Go file under root except testdata, hidden folders and nested modules.
func load(root string) (*module, error) {
	name, err := moduleName(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	m := &module{root: root, name: name, fset: token.NewFileSet()}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipDir(root, p)
		case !strings.HasSuffix(p, ".go"):
			return nil
		}
		return m.parse(p)
	})
	return m, err
}

// skipDir says whether a folder lies outside of the module or holds no code of it.
func skipDir(root, p string) error {
	if p == root {
		return nil
	}
	base := filepath.Base(p)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func (m *module) parse(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(m.root, file)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	tree, err := parser.ParseFile(m.fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	wide := 0
	for line := range strings.Lines(string(text)) {
		if columns(strings.TrimRight(line, "\n")) > columnsMax && !strings.Contains(line, "`key:\"") {
			wide++
		}
	}
	m.files = append(m.files, &source{
		wide: wide,
		path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go") && !isModel(rel, tree),
		generated: ast.IsGenerated(tree), ignored: buildIgnored(tree),
		lines: strings.Count(string(text), "\n"), ast: tree,
	})
	return nil
}

// modelDirs hold what only the tests of the same folder run: a model of the world, an emulator. Its files are _test.go
// files, and are held to every rule of code; those that import package testing are the tests.
var modelDirs = []string{"kernels/cpu/emulate", "sim/heads"}

func isModel(rel string, tree *ast.File) bool {
	return slices.Contains(modelDirs, path.Dir(rel)) && !slices.ContainsFunc(tree.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == `"testing"`
	})
}

func buildIgnored(f *ast.File) bool {
	for _, g := range f.Comments {
		if g.Pos() > f.Package {
			return false
		}
		for _, c := range g.List {
			if strings.TrimSpace(c.Text) == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

func moduleName(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("%s: no module line", file)
}
