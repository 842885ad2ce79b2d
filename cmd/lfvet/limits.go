package main

import (
	"go/ast"
	"regexp"
	"strings"
)

// Limits on size, in lines.
const (
	funcLinesMax     = 70
	fileLinesMax     = 500
	testFileLinesMax = 800
	columnsMax       = 120
	wideMax          = 5 // of a thousand lines, for what cannot be cut: raw strings and addresses
)

// columns is the width of a line whose tabs are four columns wide.
func columns(line string) int {
	n := 0
	for _, c := range line {
		if n++; c == '\t' {
			n += 3 - (n-1)%4
		}
	}
	return n
}

// checkWidth reports that too many lines of the module are wide, by the files with most of them.
func checkWidth(m *module, r *report) {
	lines, wide, most := 0, 0, &source{}
	for _, f := range m.files {
		if f.generated {
			continue
		}
		lines, wide = lines+f.lines, wide+f.wide
		if f.wide > most.wide {
			most = f
		}
	}
	if 1000*wide > wideMax*lines {
		r.at(most.path, 1, "width",
			"%d of the module's %d lines end behind column %d, limit %d in 1000; most are here, %d",
			wide, lines, columnsMax, wideMax, most.wide)
	}
}

// checkSizes reports long functions and files. Generated files are exempt; a long function is excused
// by a line "//lfvet:long reason" right above it.
func checkSizes(f *source, r *report) {
	if f.generated {
		return
	}
	limit := fileLinesMax
	if f.test {
		limit = testFileLinesMax
	}
	if f.lines > limit {
		r.add(f, f.ast.Package, "file", "%d lines, limit %d: split it by what its parts are about", f.lines, limit)
	}
	excused := directives(r, f, "long")
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first, last := r.fset.Position(fn.Type.Func).Line, r.fset.Position(fn.End()).Line
		if n := last - first + 1; n > funcLinesMax && !excused[first-1] {
			r.add(f, fn.Type.Func, "func", "%s has %d lines, limit %d", fn.Name.Name, n, funcLinesMax)
		}
	}
}

// directives returns the lines of f that carry "//lfvet:name reason"; one without a reason is a finding.
func directives(r *report, f *source, name string) map[int]bool {
	lines := map[int]bool{}
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			reason, ok := strings.CutPrefix(c.Text, "//lfvet:"+name)
			switch {
			case !ok:
			case strings.TrimSpace(reason) == "":
				r.add(f, c.Pos(), "excuse", "//lfvet:%s without a reason", name)
			default:
				lines[r.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

var mark = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

// checkMarks reports marks of unfinished work in comments.
func checkMarks(f *source, r *report) {
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			if word := mark.FindString(c.Text); word != "" {
				r.add(f, c.Pos(), "mark", "%s: finish it, or say what the code does instead", word)
			}
		}
	}
}

// checkSleep reports waiting on the wall clock in tests.
func checkSleep(f *source, r *report) {
	if !f.test {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" && isIdent(sel.X, "time") {
			r.add(f, sel.Pos(), "sleep", "time.Sleep in a test: wait for the event itself, or use testing/synctest")
		}
		return true
	})
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
