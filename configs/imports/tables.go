package imports

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed tables/*.txt
var files embed.FS

// table is what is done with the keys of one tool; axolotl.txt says what its lines mean.
type table struct {
	steps    map[string]step
	prefixes []string // keys with a * at their end, the longest first
	usual    map[string]any
}

// step is what is done with one key: a verb, and a key of ours, words or a reason.
type step struct{ verb, rest string }

// read reads a tool's table and those that it includes.
func read(name string) (*table, error) {
	text, err := files.ReadFile("tables/" + name + ".txt")
	if err != nil {
		return nil, err
	}
	t := &table{steps: map[string]step{}, usual: map[string]any{}}
	var now step
	for line := range strings.Lines(string(text)) {
		switch words := strings.Fields(line); {
		case len(words) == 0 || words[0] == "#" || line[0] == '#':
		case line[0] != '\t':
			now.verb, now.rest, _ = strings.Cut(strings.TrimSpace(line), " ")
			if now.verb == "include" {
				if t, err = read(now.rest); err != nil {
					return nil, err
				}
			}
		case now.verb == "usual":
			var v any
			if err := yaml.Unmarshal([]byte(words[1]), &v); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", name, words[0], err)
			}
			t.usual[words[0]] = v
		default:
			for _, key := range words {
				t.steps[key] = now
			}
		}
	}
	t.prefixes = nil
	for key := range t.steps {
		if strings.HasSuffix(key, "*") {
			t.prefixes = append(t.prefixes, key)
		}
	}
	slices.SortFunc(t.prefixes, func(a, b string) int { return len(b) - len(a) })
	return t, nil
}

// step is what is done with a key.
func (t *table) step(key string) (step, bool) {
	if s, ok := t.steps[key]; ok {
		return s, true
	}
	for _, p := range t.prefixes {
		if strings.HasPrefix(key, p[:len(p)-1]) {
			return t.steps[p], true
		}
	}
	return step{}, false
}

// take does what a step says with a key.
func (r *reading) take(s step, key string, v any) {
	ours, rest, _ := strings.Cut(s.rest, " ")
	switch s.verb {
	case "=":
		r.set(key, ours, plain(v))
	case "on":
		if !on(v) {
			r.same(key, "is off there, as here")
			return
		}
		r.set(key, ours, scalar(rest))
	case "word":
		r.word(key, ours, rest, v)
	case "as":
		r.same(key, "is read as "+s.rest)
	case "same":
		r.same(key, s.rest)
	case "do":
		rules[s.rest](r, key, v)
	case "no":
		if off(v) {
			r.same(key, "is off there, as here")
			return
		}
		r.differ(key, v, s.rest)
	default:
		r.differ(key, v, s.rest)
	}
}

// scalar is a value of a table as YAML has it; * is a list of it.
func scalar(text string) (v any) {
	if text == "*" {
		return []string{text}
	}
	_ = yaml.Unmarshal([]byte(text), &v) // tables hold scalars, and each is tried by a test
	return v
}

// word takes over one of some words, each as theirs=ours; without ours the setting stays as it is by itself.
func (r *reading) word(key, ours, words string, v any) {
	for _, w := range strings.Fields(words) {
		theirs, mine, _ := strings.Cut(w, "=")
		switch {
		case !strings.EqualFold(theirs, fmt.Sprint(v)):
		case mine == "":
			r.same(key, "is what "+ours+" is by itself")
			return
		default:
			r.set(key, ours, scalar(mine))
			return
		}
	}
	r.differ(key, v, "has no like here; "+ours+" stays as it is: lfactor config explain "+ours)
}
