package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForm: the form of messages has all records of values.go and lists.go, and their fields in order.
func TestForm(t *testing.T) {
	form := Form()
	require.Regexp(t, `(?m)^started down done tick .* holding $`, form)
	require.Regexp(t, `(?m)^Usage Loss:float64 Busy:float64 .* Stood:float64 Gap:float64$`, form)
	found := 0
	for _, file := range []string{"values.go", "lists.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if x, ok := n.(*ast.TypeSpec); ok {
				require.Regexp(t, `(?m)^`+x.Name.Name+` `, form, "%s is read by its place", x.Name.Name)
				found++
			}
			return true
		})
	}
	require.Greater(t, found, 9)
}
