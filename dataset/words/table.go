package words

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"
)

//go:embed english.json
var englishJSON []byte

// class is a set of the classes that a character is in.
type class uint32

// The classes of english.json.
const (
	isPrefix class = 1 << iota
	isSuffix
	isInfix
	isBeforeDot
	isUpper
	isLower
	isLowerQuote
	isUpperQuote
	isAlpha
	isSpace
	isLetter
	isPunct
	isMark
	isDigit
	isWord
	isSentence
	isBlank
	isTerminal
)

var classNames = map[string]class{"prefix": isPrefix, "suffix": isSuffix, "infix": isInfix, "beforeDot": isBeforeDot,
	"upper": isUpper, "lower": isLower, "lowerQuote": isLowerQuote, "upperQuote": isUpperQuote, "alpha": isAlpha,
	"space": isSpace, "letter": isLetter, "punct": isPunct, "mark": isMark, "digit": isDigit, "word": isWord,
	"sentence": isSentence, "blank": isBlank, "terminal": isTerminal}

// pageBits is how many code points a page of the table of classes has, as a power of two.
const pageBits = 8

// english is the rules, read once.
type english struct {
	pages    [0x110000 >> pageBits]*[1 << pageBits]class
	units    map[string]bool
	currency map[string]bool
	rules    map[string][]int32   // a chunk's own cut, as lengths in bytes
	ruleMax  int                  // bytes of the longest
	affixed  map[string][]affixed // rules that affixes would cut, by their first word
	starts   [256]bool            // first bytes of the keys of affixed
}

// affixed is a rule as words of the text show it.
type affixed struct {
	rest []string // the words behind the first
}

var table = sync.OnceValue(func() *english {
	var f struct {
		Classes         map[string][][2]rune
		Units, Currency []string
		Rules, Affixed  [][]string
	}
	if err := json.Unmarshal(englishJSON, &f); err != nil {
		panic(fmt.Sprintf("words: english.json: %v", err)) // it is part of the program
	}
	e := &english{units: set(f.Units), currency: set(f.Currency), rules: map[string][]int32{},
		affixed: map[string][]affixed{}}
	for name, ranges := range f.Classes {
		bit, ok := classNames[name]
		if !ok {
			panic(fmt.Sprintf("words: english.json has a class %q", name))
		}
		for _, r := range ranges {
			for c := r[0]; c <= r[1]; c++ {
				e.page(c)[c&(1<<pageBits-1)] |= bit
			}
		}
	}
	empty := new([1 << pageBits]class)
	for i := range e.pages {
		if e.pages[i] == nil {
			e.pages[i] = empty
		}
	}
	for _, r := range f.Rules {
		for _, piece := range r[1:] {
			e.rules[r[0]] = append(e.rules[r[0]], int32(len(piece)))
		}
		e.ruleMax = max(e.ruleMax, len(r[0]))
	}
	for _, a := range f.Affixed {
		if a[1] != "" {
			e.affixed[a[1]] = append(e.affixed[a[1]], affixed{a[2:]})
			e.starts[a[1][0]] = true
		}
	}
	return e
})

// page returns the page of a character, to be written.
func (e *english) page(c rune) *[1 << pageBits]class {
	if e.pages[c>>pageBits] == nil {
		e.pages[c>>pageBits] = new([1 << pageBits]class)
	}
	return e.pages[c>>pageBits]
}

// of returns the classes of a character. What is no character has none.
func (e *english) of(c rune) class {
	if c < 0 || c > utf8.MaxRune {
		return 0
	}
	return e.pages[c>>pageBits][c&(1<<pageBits-1)]
}

// set makes a set of words.
func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range list {
		m[s] = true
	}
	return m
}
