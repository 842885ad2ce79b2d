package token

import (
	"strings"
)

// stopMark is a place in a text of a token that can stop an answer.
type stopMark struct{ from, to int }

// stopMarks finds the tokens that can stop an answer: special ones and the tokenizer's EOS, but not those
// that begin or fill a text.
func (t *Tokenizer) stopMarks(tmpl *Template, text string) []stopMark {
	eos, hasEOS := t.TokenID(tmpl.special["eos_token"])
	not := map[int32]bool{}
	for _, name := range []string{"bos_token", "pad_token"} {
		if id, ok := t.TokenID(tmpl.special[name]); ok && !(hasEOS && id == eos) {
			not[id] = true
		}
	}
	var out []stopMark
	at := 0
	t.added.find(&t.added.raw, text, true, func(p part) {
		if p.id >= 0 && !not[p.id] && (t.added.special[p.id] || hasEOS && p.id == eos) {
			out = append(out, stopMark{at, at + len(p.text)})
		}
		at += len(p.text)
	})
	return out
}

// EndlessNote is what is to be said of conversations from which a model does not learn to stop.
const EndlessNote = "no answer that is learnt ends in a token that stops it, so the model will not learn to stop: " +
	"write one behind answers in the chat template, as {{ eos_token }}"

// Stops tells whether the answers that a template writes teach a token that stops them.
func (t *Template) Stops(tok *Tokenizer) bool {
	_, _, stopped, err := encodeChat(tok, t, []Message{{Role: "user", Content: "a"},
		{Role: "assistant", Content: "b"}}, ChatOptions{}, nil)
	return err != nil || stopped
}

// Endless tells whether conversations were encoded and none of them taught a token that stops an answer.
func (c *Chat) Endless() bool { return c.unstopped.Load() > 0 && c.stopped.Load() == 0 }

// endsInStop tells whether text, which ends at end, ends in one of the marks and white space.
func endsInStop(text string, end int, marks []stopMark) bool {
	from := end - len(text)
	end -= len(text) - len(strings.TrimRight(text, " \t\r\n"))
	for _, m := range marks {
		if m.from >= from && m.to >= end && m.from < end {
			return true
		}
	}
	return false
}

// nextStop is the end of the mark that follows at, behind nothing but white space; at where none does.
func nextStop(text string, at int, marks []stopMark) int {
	for _, m := range marks {
		if m.from >= at && strings.TrimSpace(text[at:m.from]) == "" {
			return m.to
		}
	}
	return at
}

// stopsAll tells whether one of the spans ends in a token that can stop an answer, or there are none.
func (t *Tokenizer) stopsAll(tmpl *Template, text string, spans [][2]int) bool {
	if len(spans) == 0 {
		return true
	}
	marks := t.stopMarks(tmpl, text)
	for _, s := range spans {
		if endsInStop(text[s[0]:s[1]], s[1], marks) {
			return true
		}
	}
	return false
}
