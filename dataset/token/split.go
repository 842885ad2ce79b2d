package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// splitter is one pre-tokenizer: it yields the pieces of text in order. first says that text starts where
// the whole input starts, which Metaspace's "first" scheme asks for.
type splitter interface {
	split(text string, first bool, yield func(piece string, first bool))
}

// finder yields the non-overlapping matches of a pattern in text, in order.
type finder func(text string, yield func(start, stop int))

type splitFile struct {
	Pattern          pattern `json:"pattern"`
	Behavior         string  `json:"behavior"`
	Invert           bool    `json:"invert"`
	AddPrefixSpace   *bool   `json:"add_prefix_space"`
	UseRegex         *bool   `json:"use_regex"`
	Replacement      string  `json:"replacement"`
	PrependScheme    string  `json:"prepend_scheme"`
	Split            *bool   `json:"split"`
	IndividualDigits bool    `json:"individual_digits"`
}

// parseSplits returns the pre-tokenizers and whether the last of them maps text to the byte-level alphabet.
func parseSplits(raw json.RawMessage) (splits []splitter, byteLevel bool, err error) {
	leaves, err := flatten(raw, "pre_tokenizer", "pretokenizers", 0)
	if err != nil {
		return nil, false, err
	}
	for _, l := range leaves {
		typ, err := typeOf(l)
		if err != nil {
			return nil, false, fmt.Errorf("tokenizer.json: pre_tokenizer: %w", err)
		}
		if byteLevel {
			return nil, false, fmt.Errorf("tokenizer.json: pre_tokenizer: %s after ByteLevel is not supported", typ)
		}
		byteLevel = typ == "ByteLevel"
		more, err := parseOneSplit(typ, l)
		if err != nil {
			return nil, false, fmt.Errorf("tokenizer.json: pre_tokenizer: %s: %w", typ, err)
		}
		splits = append(splits, more...)
	}
	return splits, byteLevel, nil
}

// parseOneSplit reads one step that cuts text before the model sees it; an unknown kind is refused.
func parseOneSplit(typ string, raw json.RawMessage) ([]splitter, error) {
	var f splitFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	switch typ {
	case "ByteLevel":
		return byteLevelSplits(f), nil
	case "Split":
		return f.patternSplit()
	case "Metaspace":
		return f.metaspaceSplit()
	case "Digits":
		return charSplit(inClass("Digits"), map[bool]string{true: "Isolated", false: "Contiguous"}[f.IndividualDigits])
	case "Punctuation":
		if f.Behavior == "" {
			f.Behavior = "Isolated"
		}
		return charSplit(inClass("Punctuation"), f.Behavior)
	case "WhitespaceSplit":
		return charSplit(inClass("\\s"), "Removed")
	case "Whitespace":
		return []splitter{&cutter{find: findWords, behavior: removed, invert: true}}, nil
	case "BertPreTokenizer":
		words, err := charSplit(inClass("\\s"), "Removed")
		marks, err2 := charSplit(inClass("Bert"), "Isolated")
		return append(words, marks...), errors.Join(err, err2)
	}
	return nil, fmt.Errorf("not supported")
}

// byteLevelSplits are the steps of GPT-2: a space in front, then its own expression, each unless the file turns it off.
func byteLevelSplits(f splitFile) (out []splitter) {
	if f.AddPrefixSpace == nil || *f.AddPrefixSpace {
		out = append(out, prefixSpace{})
	}
	if f.UseRegex == nil || *f.UseRegex {
		out = append(out, scanner(scanGPT2))
	}
	return out
}

type prefixSpace struct{}

func (prefixSpace) split(text string, first bool, yield func(string, bool)) {
	if text[0] != ' ' {
		text = " " + text
	}
	yield(text, first)
}

// patternSplit cuts by an expression. Well-known expressions have scanners written for them, which are much faster.
func (f *splitFile) patternSplit() ([]splitter, error) {
	if f.Pattern.Regex != nil && f.Behavior == "Isolated" {
		if scan, ok := knownScanners[*f.Pattern.Regex]; ok {
			return []splitter{scan}, nil
		}
	}
	b, err := parseBehavior(f.Behavior)
	if err != nil {
		return nil, err
	}
	find, err := f.Pattern.finder()
	return []splitter{&cutter{find: find, behavior: b, invert: f.Invert}}, err
}

func (p pattern) finder() (finder, error) {
	switch {
	case p.Regex != nil:
		return compileRegex(*p.Regex)
	case p.String != nil && *p.String != "":
		return literalFinder(*p.String), nil
	}
	return nil, fmt.Errorf("pattern is neither a Regex nor a String that is not empty")
}

// literalFinder finds a fixed text, without overlaps.
func literalFinder(lit string) finder {
	return func(text string, yield func(start, stop int)) {
		for at := 0; ; {
			i := strings.Index(text[at:], lit)
			if i < 0 {
				return
			}
			yield(at+i, at+i+len(lit))
			at += i + len(lit)
		}
	}
}

// findWords finds \w+|[^\w\s]+ of Rust's regular expressions.
func findWords(text string, yield func(start, stop int)) {
	space := inClass("\\s")
	start, before := 0, 0
	for i, r := range text {
		kind := 2
		if isWord(r) {
			kind = 1
		} else if space(r) {
			kind = 0
		}
		if kind != before {
			if before != 0 {
				yield(start, i)
			}
			start, before = i, kind
		}
	}
	if before != 0 {
		yield(start, len(text))
	}
}

// charSplit cuts at characters of a class; behavior says what becomes of them.
func charSplit(is func(rune) bool, behavior string) ([]splitter, error) {
	b, err := parseBehavior(behavior)
	find := func(text string, yield func(start, stop int)) {
		for i, r := range text {
			if is(r) {
				yield(i, i+utf8.RuneLen(r))
			}
		}
	}
	return []splitter{&cutter{find: find, behavior: b}}, err
}

// behavior says what becomes of the matches of a pattern.
type behavior int

const (
	isolated behavior = iota
	removed
	mergedWithPrevious
	mergedWithNext
	contiguous
)

var behaviors = map[string]behavior{"Isolated": isolated, "Removed": removed, "MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext": mergedWithNext, "Contiguous": contiguous}

func parseBehavior(name string) (behavior, error) {
	b, ok := behaviors[name]
	if !ok {
		return 0, fmt.Errorf("behavior %q is not supported", name)
	}
	return b, nil
}

// cutter cuts text at the matches of a pattern.
type cutter struct {
	find     finder
	behavior behavior
	invert   bool
}

// cut is a stretch of text that is a match of the pattern or lies between matches.
type cut struct {
	start, stop int
	match       bool
}

func (c *cutter) split(text string, first bool, yield func(string, bool)) {
	if c.behavior == isolated {
		c.isolate(text, first, yield)
		return
	}
	for _, s := range c.behavior.join(c.cuts(text)) {
		if s.start < s.stop {
			yield(text[s.start:s.stop], first && s.start == 0)
		}
	}
}

// isolate yields matches and what lies between them.
func (c *cutter) isolate(text string, first bool, yield func(string, bool)) {
	done := 0
	c.find(text, func(start, stop int) {
		if done < start {
			yield(text[done:start], first && done == 0)
		}
		if start < stop {
			yield(text[start:stop], first && start == 0)
		}
		done = stop
	})
	if done < len(text) {
		yield(text[done:], first && done == 0)
	}
}

// cuts covers text with matches and what lies between.
func (c *cutter) cuts(text string) []cut {
	var out []cut
	done := 0
	c.find(text, func(start, stop int) {
		if done < start {
			out = append(out, cut{done, start, c.invert})
		}
		out = append(out, cut{start, stop, !c.invert})
		done = stop
	})
	if done < len(text) {
		out = append(out, cut{done, len(text), c.invert})
	}
	return out
}

// join merges or drops cuts as b says, in their place.
func (b behavior) join(cuts []cut) []cut {
	out, before := cuts[:0], false
	for i, c := range cuts {
		after := before // whether the cut before is a match
		before = c.match
		switch {
		case b == removed && c.match:
		case b == contiguous && i > 0 && c.match == after, b == mergedWithPrevious && i > 0 && c.match && !after,
			b == mergedWithNext && i > 0 && after && !c.match:
			out[len(out)-1].stop = c.stop
		default:
			out = append(out, c)
		}
	}
	return out
}
