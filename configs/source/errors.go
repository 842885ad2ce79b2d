package source

import (
	"errors"
	"fmt"
	"strings"
)

// Error names the place of a setting, what is wrong with it, and what would be right.
type Error struct {
	File string // the file, "command line", or a flag
	Line int    // 0 where there are no lines
	Key  string // dotted, as in plan.tp; "" if the file as a whole is meant
	Why  string
	Try  string // "" if there is nothing to suggest
}

// Error implements error: "file:line: key: why; try".
func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&s, ":%d", e.Line)
	}
	if e.Key != "" {
		fmt.Fprintf(&s, ": %s", e.Key)
	}
	fmt.Fprintf(&s, ": %s", e.Why)
	if e.Try != "" {
		fmt.Fprintf(&s, "; %s", e.Try)
	}
	return s.String()
}

// Faults returns every *Error that err is made of, in order. A caller that prints one line a fault uses it.
func Faults(err error) []*Error {
	var one *Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []*Error
		for _, e := range joined.Unwrap() {
			out = append(out, Faults(e)...)
		}
		return out
	}
	if errors.As(err, &one) {
		return []*Error{one}
	}
	return nil
}

// DidYouMean returns `did you mean "x"?` for the nearest of known within a third of the word's length, else "".
func DidYouMean(word string, known []string) string {
	best, dist := "", len(word)/3+1
	for _, k := range known {
		if d := EditDistance(word, k); d < dist {
			best, dist = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// EditDistance is the number of letters to insert, delete, replace or swap with their neighbour (optimal
// string alignment). Words longer than 100 bytes are far from everything.
func EditDistance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return max(len(a), len(b))
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}

// OneOf lists alternatives for people.
func OneOf(words []string) string {
	return "one of " + strings.Join(words, ", ")
}

// Quoted shows at most the beginning of a value, without control characters.
func Quoted(s string) string {
	const shown = 60
	if r := []rune(s); len(r) > shown {
		s = string(r[:shown]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// Nearest suggests the known word that is most like a given one. If none is like it, it lists all of them.
func Nearest(word string, known []string) string {
	if try := DidYouMean(word, known); try != "" {
		return try
	}
	return OneOf(known)
}
