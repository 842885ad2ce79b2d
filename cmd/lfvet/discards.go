package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// discarded is an error that is thrown away, and the comment that says why.
type discarded struct {
	path   string
	line   int
	reason string // "" if there is none
}

// checkDiscards reports errors that are thrown away, `_ = f()` and `x, _ := f()`, without a comment on the
// line or right above it that says why: outside tests a reader must be able to tell a reason from an
// oversight. What the type checker does not know, of other modules, counts as an error.
func checkDiscards(m *module, r *report) {
	for _, d := range listDiscards(m, r) {
		if d.reason == "" {
			r.at(d.path, d.line, "discard", "an error is thrown away and nothing says why: handle it, or say beside "+
				"it why it does not matter")
		}
	}
}

// listDiscards finds every error that is thrown away outside tests, in the order of files.
func listDiscards(m *module, r *report) (all []discarded) {
	typed := newTypeChecker(m)
	for _, f := range m.files {
		if f.test || f.ignored || f.generated {
			continue
		}
		d := &discards{f: f, r: r}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && hasBlank(a.Lhs) {
				if d.info == nil {
					d.info, d.said = typed.check(f.dir), commentLines(r, f)
				}
				d.assign(a)
			}
			return true
		})
		all = append(all, d.found...)
	}
	return all
}

// discards are those of one file.
type discards struct {
	f     *source
	r     *report
	info  *types.Info
	said  map[int]string // comments by their lines, and by those right below one
	found []discarded
}

func hasBlank(l []ast.Expr) bool {
	for _, e := range l {
		if isIdent(e, "_") {
			return true
		}
	}
	return false
}

// commentLines are the lines on which a comment ends, and those right below one that has no statement before it.
func commentLines(r *report, f *source) map[int]string {
	code, said := map[int]bool{}, map[int]string{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(ast.Stmt); ok {
			code[r.fset.Position(s.Pos()).Line] = true
		}
		return true
	})
	for _, g := range f.ast.Comments {
		last := r.fset.Position(g.End()).Line
		text := strings.Join(strings.Fields(g.Text()), " ")
		said[last] = text
		if !code[r.fset.Position(g.Pos()).Line] {
			said[last+1] = text
		}
	}
	return said
}

// assign looks at one assignment with a blank on its left.
func (d *discards) assign(a *ast.AssignStmt) {
	if a.Tok != token.ASSIGN && a.Tok != token.DEFINE {
		return
	}
	for i, e := range a.Lhs {
		if isIdent(e, "_") && d.isError(a, i) {
			line := d.r.fset.Position(a.Pos()).Line
			d.found = append(d.found, discarded{d.f.path, line,
				cmp.Or(d.said[line], d.said[d.r.fset.Position(a.End()).Line])})
			return
		}
	}
}

// noErrors are functions of other modules whose last value is no error: numbers that the C calls give back,
// a place in a text.
var noErrors = []string{"purego.SyscallN", "uniseg.FirstGraphemeClusterInString"}

// calleeName is the package and name of a called function, as they stand.
func calleeName(c *ast.CallExpr) string {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}

// isError reports whether value i of an assignment is an error, or of a type that is not known.
func (d *discards) isError(a *ast.AssignStmt, i int) bool {
	rhs := a.Rhs[min(i, len(a.Rhs)-1)]
	call, ok := rhs.(*ast.CallExpr)
	if !ok {
		return false // a look-up, an assertion, a value that is there for its type
	}
	t := d.info.Types[call].Type
	if tuple, ok := t.(*types.Tuple); ok && i < tuple.Len() && len(a.Rhs) == 1 {
		t = tuple.At(i).Type()
	}
	if t == nil || t == types.Typ[types.Invalid] { // of another module: errors come last
		return i == len(a.Lhs)-1 && !slices.Contains(noErrors, calleeName(call))
	}
	return types.Identical(t, types.Universe.Lookup("error").Type())
}
