package configs

import (
	"regexp"
	"strings"
)

// Alternatives of a key may have a part that the user fills in: what stands behind the colon of
// cuda:NUMBER, of cuda:UUID and of xpu:PATH.
var forms = map[string]string{":NUMBER": ":[0-9]+", ":UUID": ":(GPU|MIG)-[0-9a-fA-F-]+", ":PATH": ":.+"}

// form is the regular expression of an alternative, and whether there is a part to fill in.
func form(word string) (pattern string, open bool) {
	for end, p := range forms {
		if head, ok := strings.CutSuffix(word, end); ok {
			return regexp.QuoteMeta(head) + p, true
		}
	}
	return regexp.QuoteMeta(word), false
}

// matches tells whether a value is an alternative.
func matches(word, value string) bool {
	p, open := form(word)
	return !open && word == value || open && regexp.MustCompile("^"+p+"$").MatchString(value)
}

// alternatives adds the alternatives of a key to its schema: a list, or a pattern where some are to be filled in.
func (k Key) alternatives(schema map[string]any) {
	var all []string
	some := false
	for _, word := range k.OneOf {
		p, open := form(word)
		all, some = append(all, p), some || open
	}
	switch {
	case some:
		schema["pattern"] = "^(" + strings.Join(all, "|") + ")$"
	case len(all) > 0:
		schema["enum"] = k.OneOf
	}
}
