package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// writtenFiles is how many sources a demo writes itself where there is no Go installation.
const writtenFiles = 1500

// writer writes one source by rules: what is declared is what is used, so that there is more to learn than which
// token follows which.
type writer struct {
	*rand.Rand
	strings.Builder
	kinds  []kind   // that are declared
	fields []string // of the receiver
	locals []string
}

// kind is a struct that has been declared.
type kind struct {
	name   string
	fields []string
}

var (
	nouns = strings.Fields("buffer table index header record field token stream block cache entry frame group key " +
		"label limit message node offset packet page parser path queue ratio reader region result reply scanner " +
		"section segment server session state symbol target timer value window writer")
	doings = strings.Fields("add append check clear close copy count decode encode fill find flush format grow insert " +
		"join lookup merge next open parse peek print push read remove reset scan search seek " +
		"skip sort split store trim update visit write")
	basics = strings.Fields("int string bool byte int64 error float64")
)

func (w *writer) of(list []string) string { return list[w.IntN(len(list))] }

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (w *writer) line(depth int, format string, args ...any) {
	w.WriteString(strings.Repeat("\t", depth))
	fmt.Fprintf(w, format+"\n", args...)
}

// some draws different words.
func (w *writer) some(n int) (out []string) {
	for _, i := range w.Perm(len(nouns))[:n] {
		out = append(out, nouns[i])
	}
	return out
}

// written is the n-th source, the same wherever it is written.
func written(n int) string {
	w := &writer{Rand: rand.New(rand.NewPCG(uint64(n), 0))}
	w.line(0, "// Package %s %ss %ss.", w.of(nouns), w.of(doings), w.of(nouns))
	w.line(0, "package %s\n", w.of(nouns))
	w.line(0, "import (\n\t\"errors\"\n\t\"fmt\"\n)\n")
	for range 1 + w.IntN(3) {
		k := kind{upper(w.of(nouns)) + upper(w.of(nouns)), w.some(2 + w.IntN(4))}
		w.line(0, "// %s is a %s that %ss a %s.", k.name, w.of(nouns), w.of(doings), w.of(nouns))
		w.line(0, "type %s struct {", k.name)
		for _, f := range k.fields {
			w.line(1, "%s %s", f, w.of(basics))
		}
		w.line(0, "}\n")
		w.kinds = append(w.kinds, k)
	}
	for range 4 + w.IntN(8) {
		w.method(w.kinds[w.IntN(len(w.kinds))])
	}
	return w.String()
}

// method writes one of a kind, whose statements use its fields, its parameters and what was declared before.
func (w *writer) method(k kind) {
	name, param := upper(w.of(doings))+upper(w.of(nouns)), w.of(nouns)
	self := strings.ToLower(k.name[:1])
	w.fields, w.locals = nil, []string{param}
	for _, f := range k.fields {
		w.fields = append(w.fields, self+"."+f)
	}
	w.line(0, "// %s %ss the %s of %s.", name, w.of(doings), param, self)
	w.line(0, "func (%s *%s) %s(%s []byte) (int, error) {", self, k.name, name, param)
	w.line(1, "if len(%s) == 0 {\n\t\treturn 0, errors.New(\"%s: no %s\")\n\t}", param, strings.ToLower(name), param)
	for range 2 + w.IntN(5) {
		w.statement(1)
	}
	w.line(1, "return %s, nil", w.used())
	w.line(0, "}\n")
}

func (w *writer) used() string {
	if w.IntN(2) == 0 {
		return w.of(w.fields)
	}
	return w.of(w.locals)
}

func (w *writer) statement(depth int) {
	switch n := w.IntN(7); {
	case n < 2:
		name := w.of(nouns)
		w.line(depth, "%s := %s + %d", name, w.used(), w.IntN(16))
		w.locals = append(w.locals, name)
	case n == 2 && depth < 3:
		w.line(depth, "if %s > %s {", w.used(), w.used())
		w.inner(depth)
	case n == 3 && depth < 3:
		w.line(depth, "for i := range %s {", w.locals[0])
		w.line(depth+1, "%s += int(%s[i])", w.of(w.fields), w.locals[0])
		w.inner(depth)
	case n == 4:
		w.line(depth, "if err := %s(%s); err != nil {", w.of(doings), w.used())
		w.line(depth+1, "return 0, fmt.Errorf(\"%s %%d: %%w\", %s, err)", w.of(doings), w.used())
		w.line(depth, "}")
	default:
		w.line(depth, "%s = %s", w.of(w.fields), w.used())
	}
}

// inner writes a block, whose names end with it.
func (w *writer) inner(depth int) {
	was := len(w.locals)
	for range 1 + w.IntN(2) {
		w.statement(depth + 1)
	}
	w.locals = w.locals[:was]
	w.line(depth, "}")
}
