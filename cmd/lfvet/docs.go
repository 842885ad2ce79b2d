package main

import (
	"go/ast"
	"go/token"
	"slices"
)

// checkDocs reports exported names without a comment, and packages without a package comment.
// Tests, generated files, methods of unexported types and plainMethods are exempt.
func checkDocs(m *module, r *report) {
	first := map[string]*source{}
	described := map[string]bool{}
	for _, f := range m.files {
		if f.test || f.ignored {
			continue
		}
		if first[f.dir] == nil {
			first[f.dir] = f
		}
		described[f.dir] = described[f.dir] || f.ast.Doc != nil
		if !f.generated {
			checkFileDocs(f, r)
		}
	}
	for _, f := range m.files {
		if first[f.dir] == f && !described[f.dir] {
			r.add(f, f.ast.Package, "doc", "package %s has no package comment", f.dir)
		}
	}
}

// plainMethods are known to every reader: a comment could only repeat the interface's.
var plainMethods = []string{"Error", "String", "Unwrap"}

func checkFileDocs(f *source, r *report) {
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			plain := d.Recv != nil && slices.Contains(plainMethods, d.Name.Name)
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !plain {
				r.add(f, d.Pos(), "doc", "%s is exported and has no comment", d.Name.Name)
			}
		case *ast.GenDecl:
			checkDeclDocs(f, d, r)
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// checkDeclDocs accepts a comment above the group, above the line or behind it.
func checkDeclDocs(f *source, d *ast.GenDecl, r *report) {
	if d.Tok == token.IMPORT {
		return
	}
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				r.add(f, s.Pos(), "doc", "%s is exported and has no comment", s.Name.Name)
			}
		case *ast.ValueSpec:
			if d.Doc != nil || s.Doc != nil || s.Comment != nil {
				continue
			}
			for _, n := range s.Names {
				if n.IsExported() {
					r.add(f, n.Pos(), "doc", "%s is exported and has no comment", n.Name)
				}
			}
		}
	}
}
