package token

import "unicode/utf8"

// scanner cuts text without a regular-expression engine: it returns the end of the piece that starts at
// from. The expressions below cover every text, so a piece always follows.
type scanner func(text string, from int) (end int)

func (s scanner) split(text string, first bool, yield func(string, bool)) {
	for from := 0; from < len(text); {
		end := s(text, from)
		yield(text[from:end], first && from == 0)
		from = end
	}
}

// The regular expressions that have a scanner. A test compares each scanner with the expression run by an engine.
const (
	regexLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	regexQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	regexGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

var knownScanners = map[string]scanner{
	regexLlama3: func(text string, from int) int { return scanCL(text, from, 3) },
	regexQwen2:  func(text string, from int) int { return scanCL(text, from, 1) },
	regexGPT2:   scanGPT2,
}

// classAt returns the classes and the size of the character at i, and size 0 at the end.
func classAt(text string, i int) (class uint8, size int) {
	if i >= len(text) {
		return 0, 0
	}
	if c := text[i]; c < utf8.RuneSelf {
		return classTable()[c], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return classOf(r), size
}

// run returns the end of the characters from i on whose classes have a bit of want.
func run(text string, i int, want uint8) int {
	for {
		class, size := classAt(text, i)
		if class&want == 0 {
			return i
		}
		i += size
	}
}

// runNot returns the end of the characters from i on whose classes have no bit of stop.
func runNot(text string, i int, stop uint8) int {
	for {
		class, size := classAt(text, i)
		if size == 0 || class&stop != 0 {
			return i
		}
		i += size
	}
}

const wordy = letter | number

// scanCL follows the expression of cl100k, Llama 3 and Qwen; digits is how many \p{N} one piece may hold.
func scanCL(text string, from, digits int) int {
	class, size := classAt(text, from)
	if text[from] == '\'' {
		if n := contraction(text[from+1:], true); n > 0 {
			return from + 1 + n
		}
	}
	if class&letter != 0 {
		return run(text, from+size, letter)
	}
	if class&(number|newline) == 0 {
		if end := run(text, from+size, letter); end > from+size {
			return end
		}
	}
	if class&number != 0 {
		return upTo(text, from+size, digits-1)
	}
	start := from
	if text[from] == ' ' {
		start++
	}
	if end := runNot(text, start, space|wordy); end > start {
		return run(text, end, newline)
	}
	return scanSpace(text, from, true)
}

// scanGPT2 follows the expression of GPT-2.
func scanGPT2(text string, from int) int {
	if text[from] == '\'' {
		if n := contraction(text[from+1:], false); n > 0 {
			return from + 1 + n
		}
	}
	start := from
	if text[from] == ' ' {
		start++
	}
	for _, class := range [...]uint8{letter, number} {
		if end := run(text, start, class); end > start {
			return end
		}
	}
	if end := runNot(text, start, space|wordy); end > start {
		return end
	}
	return scanSpace(text, from, false)
}

// upTo takes at most n more characters of class number.
func upTo(text string, i, n int) int {
	for ; n > 0; n-- {
		class, size := classAt(text, i)
		if class&number == 0 {
			break
		}
		i += size
	}
	return i
}

// scanSpace takes a run of white space: through its last newline where lines is set and it has one, else all
// but its last character where text follows, for that one begins the next piece.
func scanSpace(text string, from int, lines bool) int {
	end, last, line := from, from, 0
	for {
		class, size := classAt(text, end)
		if class&space == 0 {
			break
		}
		last = end
		end += size
		if class&newline != 0 {
			line = end
		}
	}
	switch {
	case lines && line > 0:
		return line
	case end == len(text) || last == from:
		return end
	}
	return last
}

// contraction returns the length of s, t, re, ve, m, ll or d at the start of rest. Folding takes U+017F for s.
func contraction(rest string, fold bool) int {
	if rest == "" {
		return 0
	}
	a := lower(rest[0], fold)
	switch a {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v', 'l':
		second := byte('e')
		if a == 'l' {
			second = 'l'
		}
		if len(rest) > 1 && lower(rest[1], fold) == second {
			return 2
		}
	case 0xc5:
		if fold && len(rest) > 1 && rest[1] == 0xbf {
			return 2
		}
	}
	return 0
}

func lower(c byte, fold bool) byte {
	if fold && c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
