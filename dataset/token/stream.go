package token

import "strings"

// Stream decodes ids one at a time, for showing text while it is sampled. The texts it returns, joined,
// are what Decode returns for all the ids together, except that a character is held back until all its bytes have come.
type Stream struct {
	tok         *Tokenizer
	skipSpecial bool
	ids         []int32 // the last ids shown, as context, and those not yet shown
	shown       int     // how many of ids are context
	prefix      string  // text of ids[:shown]
}

// streamHoldMax is how many ids may wait for the rest of a character: no UTF-8 sequence is longer, so what
// is still broken then stays broken and is shown as U+FFFD.
const streamHoldMax = 8

// NewStream starts a text. With skipSpecial, special tokens give no text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{tok: t, skipSpecial: skipSpecial}
}

// Push takes the next id and returns the text that is now certain, often "".
func (s *Stream) Push(id int32) string {
	s.ids = append(s.ids, id)
	text := s.tok.Decode(s.ids, s.skipSpecial)
	if strings.HasSuffix(text, "\uFFFD") && len(s.ids)-s.shown < streamHoldMax {
		return ""
	}
	return s.show(text)
}

// Flush returns the text of ids that were held back, broken characters as U+FFFD, and starts a new text.
func (s *Stream) Flush() string {
	out := s.show(s.tok.Decode(s.ids, s.skipSpecial))
	*s = Stream{tok: s.tok, skipSpecial: s.skipSpecial}
	return out
}

// show returns what text adds to the context, and makes the ids just shown the context of the next ones:
// decoders that treat the start of a text in their own way (a stripped space) then do so only once.
func (s *Stream) show(text string) string {
	added := strings.TrimPrefix(text, s.prefix)
	if added == "" {
		return ""
	}
	s.ids = append(s.ids[:0], s.ids[s.shown:]...)
	s.shown = len(s.ids)
	s.prefix = s.tok.Decode(s.ids, s.skipSpecial)
	return added
}
