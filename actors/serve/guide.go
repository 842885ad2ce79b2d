package serve

import (
	"encoding/json"
	"sync"

	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/sample/grammar"
)

// formatBody is what an answer's form may be said by: OpenAI's response_format, and vLLM's keys.
type formatBody struct {
	Format *struct {
		Type   string `json:"type"`
		Schema *struct {
			Name        json.RawMessage `json:"name"`
			Description json.RawMessage `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      json.RawMessage `json:"strict"` // forms hold always
		} `json:"json_schema"`
	} `json:"response_format"`
	guidedBody
	Structured *struct {
		JSON    json.RawMessage `json:"json"`
		Object  *bool           `json:"json_object"`
		Regex   *string         `json:"regex"`
		Choice  []string        `json:"choice"`
		Grammar *string         `json:"grammar"`
	} `json:"structured_outputs"`
}

// guidedBody has vLLM's older keys.
// In the words of the field: structured output, guided decoding.
type guidedBody struct {
	JSON    json.RawMessage `json:"guided_json"`
	Regex   *string         `json:"guided_regex"`
	Choice  []string        `json:"guided_choice"`
	Grammar *string         `json:"guided_grammar"`
}

// asks is one form that a request asks for: of a kind, by a text.
type asks struct{ param, kind, text string }

// compilers make grammars of the forms.
var compilers = map[string]func(text string) (*grammar.Grammar, error){
	"object":  func(string) (*grammar.Grammar, error) { return grammar.JSON(), nil },
	"schema":  func(text string) (*grammar.Grammar, error) { return grammar.Schema([]byte(text)) },
	"regex":   grammar.Regex,
	"grammar": grammar.GBNF,
	"choice": func(text string) (*grammar.Grammar, error) {
		list, _ := as[[]string]([]byte(text)) // it was written from one
		return grammar.Choice(list)
	},
}

// form is the form that an answer is to have, nil for any.
func (b *formatBody) form() (*asks, error) {
	var all []asks
	if f := b.Format; f != nil {
		switch f.Type {
		case "text":
		case "json_object":
			all = append(all, asks{"response_format", "object", ""})
		case "json_schema":
			if f.Schema == nil || f.Schema.Schema == nil {
				return nil, bad("response_format", "response_format has no json_schema.schema")
			}
			all = append(all, asks{"response_format", "schema", string(f.Schema.Schema)})
		default:
			return nil, bad("response_format",
				"response_format is %.40q, and none of text, json_object and json_schema", f.Type)
		}
	}
	g := b.guidedBody
	prefix := "guided_"
	if x := b.Structured; x != nil {
		if x.Object != nil && *x.Object {
			all = append(all, asks{"structured_outputs", "object", ""})
		}
		all = append(all, g.list(prefix)...)
		g, prefix = guidedBody{x.JSON, x.Regex, x.Choice, x.Grammar}, "structured_outputs."
	}
	all = append(all, g.list(prefix)...)
	switch {
	case len(all) == 0:
		return nil, nil
	case len(all) > 1:
		return nil, bad(all[1].param, "%s and %s both say what form the answer has", all[0].param, all[1].param)
	}
	return &all[0], nil
}

func (b *guidedBody) list(prefix string) (all []asks) {
	if len(b.JSON) > 0 && string(b.JSON) != "null" {
		text := string(b.JSON)
		if s, ok := as[string](b.JSON); ok { // the schema as a text
			text = s
		}
		all = append(all, asks{prefix + "json", "schema", text})
	}
	if b.Regex != nil {
		all = append(all, asks{prefix + "regex", "regex", *b.Regex})
	}
	if b.Choice != nil {
		text, _ := json.Marshal(b.Choice) // texts always marshal
		all = append(all, asks{prefix + "choice", "choice", string(text)})
	}
	if b.Grammar != nil {
		all = append(all, asks{prefix + "grammar", "grammar", *b.Grammar})
	}
	return all
}

// machinesMost bounds the forms that are kept for the next request.
const machinesMost = 16

// guides makes guides of forms. Machines are kept: what a form leads to is found once for all requests.
type guides struct {
	mu       sync.Mutex
	machines map[asks]*grammar.Machine
	once     sync.Once
	vocab    *grammar.Vocabulary
	marked   *grammar.Vocabulary // with the marks of calls; nil before it is made
}

// machine is that of a form.
func (s *Server) machine(a asks, compile func(text string) (*grammar.Grammar, error)) (*grammar.Machine, error) {
	g := &s.guides
	g.once.Do(func() { g.vocab = grammar.NewVocabulary(s.tok.Pieces()) })
	key := asks{kind: a.kind, text: a.text}
	g.mu.Lock()
	m := g.machines[key]
	g.mu.Unlock()
	if m != nil {
		return m, nil
	}
	x, err := compile(a.text)
	if err != nil {
		return nil, bad(a.param, "%s: %v", a.param, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.machines == nil || len(g.machines) >= machinesMost {
		g.machines = map[asks]*grammar.Machine{}
	}
	m = grammar.NewMachine(x)
	if m.Start() == nil { // nobody else has it yet
		return nil, bad(a.param, "%s: no text has this form, or texts may have it in too many ways at once", a.param)
	}
	g.machines[key] = m
	return m, nil
}

// guided sets the form of a request's answers.
func (s *Server) guided(a *asked, b *formatBody) error {
	form, err := b.form()
	if form == nil || err != nil {
		return err
	}
	m, err := s.machine(*form, compilers[form.kind])
	if err == nil {
		a.guide = &guide{v: s.guides.vocab, m: m, first: true}
	}
	return err
}

// guide is a place in a form. The loop alone asks it.
type guide struct {
	v     *grammar.Vocabulary
	m     *grammar.Machine
	s     *grammar.State // nil at the beginning
	first bool
}

var _ sample.Guide = (*guide)(nil)

func (g *guide) state() *grammar.State {
	if g.s == nil {
		return g.m.Start()
	}
	return g.s
}

// Allowed implements sample.Guide.
func (g *guide) Allowed() []uint64 {
	if s := g.state(); s != nil {
		return g.v.Allowed(s, g.first)
	}
	return nil // of the form is no text at all
}

// Ends implements sample.Guide.
func (g *guide) Ends() bool {
	s := g.state()
	return s != nil && s.Ends()
}

// After implements sample.Guide.
func (g *guide) After(id int32) sample.Guide {
	s := g.v.After(g.state(), id, g.first)
	if s == nil || s.Complete() {
		return nil
	}
	return &guide{g.v, g.m, s, false}
}
