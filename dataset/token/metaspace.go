package token

import (
	"fmt"
	"strings"
)

// metaspace replaces spaces by a visible character, puts one in front where the scheme says so, and cuts before each.
type metaspace struct {
	mark   string
	scheme string // "always", "first", "never"
	cutter *cutter
}

// metaspaceSplit reads the settings of SentencePiece's way to mark spaces; files of different age
// name them differently.
func (f *splitFile) metaspaceSplit() ([]splitter, error) {
	scheme := f.PrependScheme
	if scheme == "" {
		scheme = "always"
	}
	if f.AddPrefixSpace != nil && !*f.AddPrefixSpace {
		scheme = "never"
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return nil, fmt.Errorf("prepend_scheme %q is not supported", scheme)
	}
	if f.Replacement == "" {
		return nil, fmt.Errorf("replacement is empty")
	}
	m := &metaspace{mark: f.Replacement, scheme: scheme}
	if f.Split == nil || *f.Split {
		m.cutter = &cutter{find: literalFinder(f.Replacement), behavior: mergedWithNext}
	}
	return []splitter{m}, nil
}

// split replaces spaces by the mark and puts one in front, always or at the begin of the text
// alone, as the scheme says.
func (m *metaspace) split(text string, first bool, yield func(string, bool)) {
	text = strings.ReplaceAll(text, " ", m.mark)
	if (m.scheme == "always" || m.scheme == "first" && first) && !strings.HasPrefix(text, m.mark) {
		text = m.mark + text
	}
	if m.cutter == nil {
		yield(text, first)
		return
	}
	m.cutter.split(text, first, yield)
}
