// Package maths compares answers to mathematical exercises, written in LaTeX or as one types: by their values
// where they are numbers or expressions, as sets, tuples, intervals, relations and matrices, else as texts.
package maths

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Gold is what an answer is compared with.
type Gold struct {
	node *node  // nil for a text
	text string // as said gives it
}

// textMost bounds a gold that is a text, in characters.
const textMost = 80

// boxesMost bounds the boxes that are one answer.
const boxesMost = 64

// Read reads a gold: an expression or a short text, alone, in \boxed{} or behind ####. It is an error where
// nothing can be compared with it.
func Read(text string) (*Gold, error) {
	found, marked, err := find(text)
	if err != nil {
		return nil, err
	}
	n, err := whole(found, marked)
	if err == nil {
		return &Gold{n, said(found)}, nil
	}
	s := said(found)
	switch {
	case s == "":
		return nil, errors.New("it is empty")
	case errors.Is(err, errBraces):
		return nil, err
	case (marked || utf8.RuneCountInString(strings.TrimSpace(found)) <= textMost &&
		!strings.ContainsAny(s, "0123456789")) && !strings.Contains(s, `\`):
		return &Gold{nil, s}, nil
	}
	if last := last(found); last != "" && !marked {
		if n, err := parse(last); err == nil {
			return &Gold{n, said(last)}, nil
		}
	}
	return nil, fmt.Errorf("neither an expression, since %w, nor a short text: %.60q", err, text)
}

// Is reports whether an answer ends up with what was asked.
func (g *Gold) Is(text string) bool {
	found, marked, err := find(text)
	if err != nil {
		return false
	}
	if g.text == said(found) {
		return true
	}
	if g.node == nil {
		return !marked && g.text == said(stated(found))
	}
	n, err := whole(found, marked)
	if err != nil && !marked {
		found = last(found)
		n, err = parse(found)
	}
	return err == nil && (g.text == said(found) || same(g.node, n))
}

// whole reads all of a text as mathematics. One without a mark that has words is prose, though its letters
// could be multiplied.
func whole(text string, marked bool) (*node, error) {
	if !marked {
		for w := range strings.FieldsSeq(text) {
			w = strings.Trim(w, ".,;:!?*")
			letters := strings.IndexFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }) < 0
			if letters && utf8.RuneCountInString(w) > 1 && !spoken[strings.ToLower(w)] && !units[w] &&
				w != strings.TrimSpace(text) {
				return nil, errWords
			}
		}
	}
	return parse(text)
}

// find is what a text gives as its answer: what stands in its last \boxed{}, or behind its last ####, and
// else all of it, which is not marked then.
func find(text string) (found string, marked bool, err error) {
	if at := box(text); at >= 0 {
		return boxes(text, at)
	}
	if i := strings.LastIndex(text, "####"); i >= 0 {
		found, _, _ = strings.Cut(strings.TrimSpace(text[i+len("####"):]), "\n")
		return found, true, nil
	}
	return text, false, nil
}

// box is where the last \boxed or \fbox begins, -1 for nowhere.
func box(text string) int {
	return max(strings.LastIndex(text, `\boxed`), strings.LastIndex(text, `\fbox`))
}

// boxes is what stands in the box that begins at a place, with those before it that belong to it: \boxed{1}, \boxed{2}.
func boxes(text string, at int) (string, bool, error) {
	inside := func(at int) (inner, rest string, ok bool) {
		return braced(strings.TrimPrefix(strings.TrimPrefix(text[at:], `\boxed`), `\fbox`))
	}
	out, _, ok := inside(at)
	if !ok {
		return "", true, errBraces
	}
	for end, n := at, 1; ; n++ {
		before := box(text[:end])
		if before < 0 || n == boxesMost {
			return out, true, nil
		}
		inner, rest, ok := inside(before)
		between := len(rest) - len(text[end:])
		if !ok || between < 0 || !joins(rest[:between]) {
			return out, true, nil
		}
		if inner != out {
			out = inner + "," + out
		}
		end = before
	}
}

// joins reports whether what stands between two boxes makes a list of them.
func joins(between string) bool {
	between = strings.Trim(between, " $,;\n")
	return between == "" || between == "and" || between == "or"
}

var (
	announced = regexp.MustCompile(`(?i)\banswer\b(?:[^.\n]{0,100}?\bis\b|\s*[:=])[ \t:*]*`)
	formula   = regexp.MustCompile(`(?s)\$\$(.+?)\$\$|\\\[(.+?)\\\]|\$([^$\n]+?)\$|\\\((.+?)\\\)`)
	figure    = regexp.MustCompile(`(?:^|[\s=(:$*])([-−]?\(?[-−]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)` +
		`(?:\s*[-+*/×÷^]\s*\(?[-−]?\d+(?:\.\d+)?\)?)*\)?\s*(?:\\?%|percent\b)?)`)
)

// stated is what a text says behind "answer is", else all of it.
func stated(text string) string {
	all := announced.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return text
	}
	line, _, _ := strings.Cut(text[all[len(all)-1][1]:], "\n")
	return strings.Trim(strings.TrimSpace(line), "*.")
}

// last is the answer of a text without a mark: what it says its answer is, its last formula, its last figure.
func last(text string) string {
	line := stated(text)
	if line != text {
		if _, err := parse(line); err == nil {
			return line
		}
		if m := formula.FindStringSubmatch(line); m != nil {
			return m[1] + m[2] + m[3] + m[4]
		}
		if m := figure.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	if all := formula.FindAllStringSubmatchIndex(text, -1); len(all) > 0 {
		at := all[len(all)-1]
		for k := 2; k < len(at); k += 2 {
			if at[k] < 0 {
				continue
			}
			if inner := text[at[k]:at[k+1]]; figure.FindString(text[at[1]:]) == "" {
				return inner
			}
		}
	}
	if all := figure.FindAllStringSubmatch(text, -1); len(all) > 0 {
		return all[len(all)-1][1]
	}
	return ""
}
