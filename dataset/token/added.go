package token

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// part is a stretch of the input: an added token (id >= 0) or text for the model.
type part struct {
	id    int32
	text  string // what stands there in the input
	first bool   // the stretch starts where the original text starts
}

// addedVocab finds added tokens: first the ones matched in the raw text, then, in the normalized rest, those
// that match in normalized form.
type addedVocab struct {
	raw, normalized matcher
	special         []bool // by id
	infos           map[int32]addedToken
}

// newAddedVocab builds the matchers and enters each added token, in the form the decoder sees, into tokens.
func newAddedVocab(list []addedToken, n normalizer, tokens []string) addedVocab {
	v := addedVocab{special: make([]bool, len(tokens)), infos: map[int32]addedToken{}}
	forms := map[int32]string{}
	specials := map[string]bool{}
	for _, a := range list {
		if a.Content == "" {
			continue
		}
		form := a.Content
		if a.Normalized && n != nil {
			form = n(form)
		}
		forms[a.ID] = form
		v.infos[a.ID] = a
		specials[a.Content] = specials[a.Content] || a.Special
	}
	for id, a := range v.infos {
		tokens[id] = forms[id]
		v.special[id] = specials[forms[id]]
		if a.Normalized {
			v.normalized.add(forms[id], id)
		} else {
			v.raw.add(a.Content, id)
		}
	}
	return v
}

// extract yields text as parts in order, normalizing what lies between added tokens.
func (v *addedVocab) extract(text string, n normalizer, yield func(part)) {
	v.find(&v.raw, text, true, func(p part) {
		if p.id >= 0 {
			yield(p)
			return
		}
		if n != nil {
			p.text = n(p.text)
		}
		v.find(&v.normalized, p.text, p.first, yield)
	})
}

// find cuts text at the matches of m, widened by lstrip and rstrip.
func (v *addedVocab) find(m *matcher, text string, first bool, yield func(part)) {
	done := 0
	for at := 0; ; {
		start, stop, id := m.next(text, at)
		if id < 0 {
			break
		}
		at = stop
		info := v.infos[id]
		if info.SingleWord && (endsInWord(text[:start]) || startsWithWord(text[stop:])) {
			continue
		}
		if info.Lstrip {
			start = max(len(strings.TrimRightFunc(text[:start], unicode.IsSpace)), done)
		}
		if info.Rstrip {
			stop += len(text[stop:]) - len(strings.TrimLeftFunc(text[stop:], unicode.IsSpace))
		}
		if done < start {
			yield(part{id: -1, text: text[done:start], first: first && done == 0})
		}
		yield(part{id: id, text: text[min(max(done, start), stop):stop]})
		done = stop
	}
	if done < len(text) {
		yield(part{id: -1, text: text[done:], first: first && done == 0})
	}
}

// isWord is what the library takes for a part of a word beside an added token that must be a single word.
func isWord(r rune) bool { return wordTable()(r) }

var wordTable = sync.OnceValue(func() func(rune) bool { return inClass("single_word") })

func endsInWord(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && isWord(r)
}

func startsWithWord(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && isWord(r)
}

// matcher finds the leftmost, longest occurrence of any of its words. It is a byte trie, entered only at
// bytes that start a word.
type matcher struct {
	starts [256]bool
	single int // the only starting byte, -1 when there are several; 0 in an empty matcher
	nodes  []trieNode
}

type trieNode struct {
	next map[byte]int32
	id   int32
}

// add enters a word into the trie. single stays set while all words begin with one byte, which a
// fast search can look for.
func (m *matcher) add(word string, id int32) {
	if word == "" {
		return
	}
	if m.nodes == nil {
		m.nodes = []trieNode{{next: map[byte]int32{}, id: -1}}
		m.single = int(word[0])
	}
	if m.single != int(word[0]) {
		m.single = -1
	}
	m.starts[word[0]] = true
	at := int32(0)
	for i := range len(word) {
		next, ok := m.nodes[at].next[word[i]]
		if !ok {
			next = int32(len(m.nodes))
			m.nodes[at].next[word[i]] = next
			m.nodes = append(m.nodes, trieNode{next: map[byte]int32{}, id: -1})
		}
		at = next
	}
	m.nodes[at].id = id
}

// next returns the first match at or after from, with id -1 when there is none.
func (m *matcher) next(text string, from int) (start, stop int, id int32) {
	if m.nodes == nil {
		return 0, 0, -1
	}
	for i := from; i < len(text); i++ {
		if m.single >= 0 {
			k := strings.IndexByte(text[i:], byte(m.single))
			if k < 0 {
				return 0, 0, -1
			}
			i += k
		} else if !m.starts[text[i]] {
			continue
		}
		if stop, id := m.longest(text, i); id >= 0 {
			return i, stop, id
		}
	}
	return 0, 0, -1
}

// longest finds the longest word that begins at from; id is -1 if none does.
func (m *matcher) longest(text string, from int) (stop int, id int32) {
	id = -1
	at := int32(0)
	for i := from; i < len(text); i++ {
		next, ok := m.nodes[at].next[text[i]]
		if !ok {
			break
		}
		if at = next; m.nodes[at].id >= 0 {
			stop, id = i+1, m.nodes[at].id
		}
	}
	return stop, id
}
