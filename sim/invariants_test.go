package sim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// promise is an invariant as the head of a file of actors/core states it.
type promise struct{ number, file, text, sequence, check, fault string }

var promisePattern = regexp.MustCompile(`^([A-Z]-\d+): (.+) Shown by (\w+), watched by Monitor\.(\w+), ` +
	`broken by "([^"]+)"\.$`)

// promises reads those of a file.
func promises(t *testing.T, path string) (out []promise) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	_, block, ok := strings.Cut(string(text),
		"// What always holds here (doc.go says how the lines read):\n//\n")
	if !ok {
		return nil
	}
	block, _, _ = strings.Cut(block, "\n\n")
	var each []string
	for line := range strings.SplitSeq(block, "\n") {
		if rest, more := strings.CutPrefix(line, "//     "); more {
			each[len(each)-1] += " " + rest
		} else {
			each = append(each, strings.TrimPrefix(line, "//   "))
		}
	}
	for _, x := range each {
		m := promisePattern.FindStringSubmatch(x)
		require.NotNil(t, m, "%s: %s", path, x)
		out = append(out, promise{m[1], filepath.Base(path), m[2], m[3], m[4], m[5]})
	}
	return out
}

// checks are the comments and bodies of the monitor's methods, by name.
func checks(t *testing.T) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"monitor.go", "ledger.go"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, text, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if x, ok := d.(*ast.FuncDecl); ok && x.Recv != nil && x.Doc != nil {
				out[x.Name.Name] = x.Doc.Text() + string(text[set.Position(x.Pos()).Offset:set.Position(x.End()).Offset])
			}
		}
	}
	return out
}

var numberPattern = regexp.MustCompile(`\b[A-Z]-\d+\b`)

// TestPromises: every numbered invariant of actors/core is stated once; the sequence that it names says that
// it shows it, the method of the monitor that it names says that it watches it and reports breaches, and the
// planted fault that it names is one that tests must find. Nobody speaks of a number that is not stated.
func TestPromises(t *testing.T) {
	core := filepath.Join("..", "actors", "core")
	files, err := filepath.Glob(filepath.Join(core, "*.go"))
	require.NoError(t, err)
	stated := map[string]bool{}
	methods := checks(t)
	for _, path := range files {
		for _, p := range promises(t, path) {
			require.False(t, stated[p.number], "%s is stated twice", p.number)
			stated[p.number] = true
			sequence, err := os.ReadFile(filepath.Join(core, "testdata", p.sequence+".txt"))
			require.NoError(t, err, p.number)
			require.Contains(t, numberPattern.FindAllString(string(sequence), -1), p.number, p.sequence)
			require.Contains(t, numberPattern.FindAllString(methods[p.check], -1), p.number, "Monitor.%s",
				p.check)
			require.True(t, p.check == "until" || strings.Contains(methods[p.check], "m.broken("), p.check)
			i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == p.fault })
			require.GreaterOrEqual(t, i, 0, "%s: no planted fault is called %q", p.number, p.fault)
			require.Empty(t, mutants[i].why, "%s: tests need not find %q", p.number, p.fault)
		}
	}
	require.Greater(t, len(stated), 20)
	said := ""
	for _, m := range methods {
		said += m
	}
	sequences, err := filepath.Glob(filepath.Join(core, "testdata", "*.txt"))
	require.NoError(t, err)
	for _, path := range sequences {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		said += string(text)
	}
	for _, number := range numberPattern.FindAllString(said, -1) {
		require.True(t, stated[number], "%s is not stated in actors/core", number)
	}
}
