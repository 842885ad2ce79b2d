package decide

import "strings"

// Hidden takes the place of what is not shown.
const Hidden = "[hidden]"

// Hide hides what stands before the @ of an address in a text, as in https://user:password@host, and the
// query of one, which is where signed addresses have their signature.
func Hide(text string) string {
	var out strings.Builder
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			return out.String() + text
		}
		rest := text[i+3:]
		n := strings.IndexAny(rest, " \t\n\"'<>,;")
		if n < 0 {
			n = len(rest)
		}
		out.WriteString(text[:i+3])
		out.WriteString(hideAddress(rest[:n]))
		text = rest[n:]
	}
}

// hideAddress is what follows the :// of an address, without what is secret there.
func hideAddress(a string) string {
	end := strings.IndexAny(a, "/?#")
	if end < 0 {
		end = len(a)
	}
	if at := strings.LastIndexByte(a[:end], '@'); at >= 0 {
		a = Hidden + a[at:]
	}
	if path, query, ok := strings.Cut(a, "?"); ok && query != "" {
		a = path + "?" + Hidden
	}
	return a
}
