// Package jinja evaluates the part of the Jinja language that chat templates use, as Hugging Face's
// `transformers` sets it up: trim_blocks and lstrip_blocks, loop controls, {% generation %}, tojson without
// escapes, raise_exception, strftime_now, and no changes to lists or dicts.
//
// A template cannot read files, import, or run for ever: steps, output and nesting are bounded. Inheritance,
// include and import are refused when a template is parsed.
//
// A library in its place would be gonja, which follows Django's language in part: its v2.9.1 renders 126 of
// the 165 conversations in testdata as transformers does ({% generation %} taken out for it), and 37 of the
// 114 expressions and statements as jinja2 does; this package all of them.
//
// Language reference: https://jinja.palletsprojects.com/en/stable/templates/
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of one rendering.
const (
	stepsMax  = 2_000_000 // evaluated nodes, and work that grows with the size of values
	outputMax = 16 << 20  // bytes of output, and of any one string
	sourceMax = 1 << 20   // bytes of a template
	rangeMax  = 100_000   // elements of a range
	textStep  = 512       // bytes of text that count as one step
)

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct{ body []stmt }

// Error is a fault in a template or in what it was given.
type Error struct {
	Line   int    // line of the template, 1 is the first
	Msg    string // what is wrong
	Raised bool   // the template itself called raise_exception with Msg
}

func (e *Error) Error() string { return fmt.Sprintf("chat template line %d: %s", e.Line, e.Msg) }

// Options of one rendering.
type Options struct {
	Now time.Time // what strftime_now formats
}

// Output is a rendered template.
type Output struct {
	Text        string
	Generations [][2]int // byte ranges of Text that {% generation %} blocks wrote, in order
	HasBlocks   bool     // the template has {% generation %} blocks, whether or not they were reached
}

// Parse reads a template. The error is an *Error.
func Parse(src string) (*Template, error) {
	if len(src) > sourceMax {
		return nil, &Error{Line: 1, Msg: fmt.Sprintf("the template has %d bytes, over the limit of %d",
			len(src), sourceMax)}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Line: 1, Msg: "the template is not UTF-8"}
	}
	tokens, err := lex(src)
	if err != nil {
		return nil, lexError(err)
	}
	p := &parser{tokens: tokens}
	body, err := p.parseTemplate()
	if err != nil {
		return nil, p.fail(err)
	}
	return &Template{body}, nil
}

// lexError takes the line out of the lexer's message.
func lexError(err error) error {
	e := &Error{Line: 1}
	if _, scan := fmt.Sscanf(err.Error(), "line %d:", &e.Line); scan == nil {
		_, e.Msg, _ = strings.Cut(err.Error(), ": ")
	}
	return e
}

// Render evaluates the template with the given variables. The error is an *Error.
func (t *Template) Render(vars *Map, o Options) (Output, error) {
	s := &state{now: o.Now, out: &strings.Builder{}, globals: globals()}
	top := &scope{}
	for _, k := range vars.Keys() {
		v, _ := vars.Get(k)
		top.set(word(k), v)
	}
	s.hasBlocks = hasGeneration(t.body)
	_, err := s.run(t.body, top)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Msg: err.Error()}
		}
		return Output{}, e
	}
	return Output{Text: s.out.String(), Generations: s.spans, HasBlocks: s.hasBlocks}, nil
}

// state is one rendering under way.
type state struct {
	now       time.Time
	out       *strings.Builder
	captures  int // nesting of buffers: macros, block sets, filter blocks
	spans     [][2]int
	steps     int
	depth     int
	hasBlocks bool
	globals   map[string]any
}

// scope is a set of names; inner scopes see outer ones and set only their own. Scopes are small and many,
// one for each turn of a loop, so a list serves better than a map.
type scope struct {
	vars   []variable
	parent *scope
}

type variable struct {
	name  string
	value any
}

func (sc *scope) child() *scope { return &scope{parent: sc} }

func (sc *scope) set(name string, v any) {
	for i := range sc.vars {
		if sc.vars[i].name == name {
			sc.vars[i].value = v
			return
		}
	}
	sc.vars = append(sc.vars, variable{name, v})
}

func (sc *scope) lookup(name string) (any, bool) {
	for ; sc != nil; sc = sc.parent {
		for i := range sc.vars {
			if sc.vars[i].name == name {
				return sc.vars[i].value, true
			}
		}
	}
	return nil, false
}

// charge counts work and ends a rendering that does too much of it.
func (s *state) charge(n int) error {
	if s.steps += n; s.steps > stepsMax {
		return fmt.Errorf("the template takes over %d steps", stepsMax)
	}
	return nil
}

// chargeText counts the making of a string of n bytes.
func (s *state) chargeText(n int) error {
	if n > outputMax {
		return fmt.Errorf("a text of %d bytes is over the limit of %d", n, outputMax)
	}
	return s.charge(1 + n/textStep)
}

// text is str(v), counted.
func (s *state) text(v any) (string, error) {
	t := str(v)
	return t, s.chargeText(len(t))
}

func (s *state) write(text string) error {
	if n := s.out.Len() + len(text); n > outputMax {
		return fmt.Errorf("an output of %d bytes is over the limit of %d", n, outputMax)
	}
	s.out.WriteString(text)
	return s.chargeText(len(text))
}

// capture runs f with output going to a buffer, and returns what f wrote.
func (s *state) capture(f func() error) (string, error) {
	outer := s.out
	s.out = &strings.Builder{}
	s.captures++
	err := f()
	text := s.out.String()
	s.out = outer
	s.captures--
	return text, err
}

// enter counts the nesting of calls; the returned function leaves again.
func (s *state) enter() (func(), error) {
	if s.depth++; s.depth > depthMax {
		return nil, fmt.Errorf("calls are nested over %d deep", depthMax)
	}
	return func() { s.depth-- }, nil
}
