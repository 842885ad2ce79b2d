package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Calls is how a model writes calls of tools: From, then calls with Between between them, then To. A call
// is Name and the tool's name as JSON, or bare, Arguments and the arguments as JSON, and End.
type Calls struct {
	From, Name, Arguments, End, Between, To string
	Mark                                    string // of From, what tells that calls begin; "" is all of it
	Bare                                    bool   // names have no quotes

	Tools       []Tool
	Least, Most int // calls; Most < 0 has no bound
	// Free lets a text without Mark stand before the calls; with Least 0 it may be all. White space
	// of From may be missing then, as models that begin calls themselves write it.
	Free bool
}

// Tool is a function that a model may call.
type Tool struct {
	Name       string
	Parameters json.RawMessage // a schema, nil for any object
}

// Grammar is the texts that call tools in this way.
func (c *Calls) Grammar() (*Grammar, error) {
	rules := jsonRules()
	var tools []node
	for i, t := range c.Tools {
		arguments := ref(ruleObject)
		if t.Parameters != nil {
			var err error
			if arguments, err = schemaNode(t.Parameters, rules, fmt.Sprintf(" tool %d", i)); err != nil {
				return nil, fmt.Errorf("parameters of %s: %w", t.Name, err)
			}
		}
		name := t.Name
		if !c.Bare {
			raw, err := json.Marshal(t.Name)
			if err != nil {
				return nil, err
			}
			name = string(raw)
		}
		tools = append(tools, seq(lit(c.Name+name+c.Arguments), arguments, lit(c.End)))
	}
	rules["call"] = alt(tools...)
	most := c.Most
	if most > 0 {
		most--
	}
	from := lit(c.From)
	if c.Free {
		from = loosely(c.From)
	}
	calls := seq(from, ref("call"), rep(seq(lit(c.Between), ref("call")), max(0, c.Least-1), most), lit(c.To))
	if c.Least == 0 {
		calls = opt(calls)
	}
	rules["text"] = calls
	if c.Free {
		mark := c.Mark
		if mark == "" {
			mark = c.From
		}
		rules["text"] = seq(without([]rune(mark), rules), calls)
	}
	return compile(rules, "text")
}

// loosely is a text of which white space may be missing.
func loosely(text string) node {
	var parts []node
	for len(text) > 0 {
		word := strings.TrimLeftFunc(text, unicode.IsSpace)
		if blank := text[:len(text)-len(word)]; blank != "" {
			parts = append(parts, opt(lit(blank)))
		}
		end := strings.IndexFunc(word, unicode.IsSpace)
		if end < 0 {
			end = len(word)
		}
		if end > 0 {
			parts = append(parts, lit(word[:end]))
		}
		text = word[end:]
	}
	return seq(parts...)
}

// without is any text in which a word does not come: a state for each part of the word that the text ends
// with (Knuth, Morris and Pratt, doi:10.1137/0206024).
func without(word []rune, rules map[string]node) node {
	state := func(n int) string { return fmt.Sprintf(" free %d", n) }
	next := func(n int, c rune) int { // behind n characters of the word and c
		at := append(append([]rune{}, word[:n]...), c)
		for len(at) > 0 && string(at) != string(word[:len(at)]) {
			at = at[1:]
		}
		return len(at)
	}
	for n := range word {
		var known [][2]rune
		ways := []node{seq()}
		for i, c := range word {
			if slices.Contains(word[:i], c) {
				continue // said before
			}
			known = append(known, [2]rune{c, c})
			if to := next(n, c); to < len(word) {
				ways = append(ways, seq(lit(string(c)), ref(state(to))))
			}
		}
		rules[state(n)] = alt(append(ways, seq(node{kind: class, runes: others(known)}, ref(state(0))))...)
	}
	return ref(state(0))
}
