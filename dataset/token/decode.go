package token

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeStep maps the texts of tokens to texts nearer to the original.
type decodeStep func([]string) []string

type decoderFile struct {
	Pattern       pattern `json:"pattern"`
	Content       string  `json:"content"`
	Start         int     `json:"start"`
	Stop          int     `json:"stop"`
	Replacement   string  `json:"replacement"`
	PrependScheme string  `json:"prepend_scheme"`
	AddPrefix     *bool   `json:"add_prefix_space"`
	Prefix        *string `json:"prefix"`
	Cleanup       *bool   `json:"cleanup"`
}

// parseDecoders returns nil where the file has no decoder.
func parseDecoders(raw json.RawMessage) ([]decodeStep, error) {
	leaves, err := flatten(raw, "decoder", "decoders", 0)
	if err != nil {
		return nil, err
	}
	var steps []decodeStep
	for _, l := range leaves {
		step, err := parseOneDecoder(l)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.json: decoder: %w", err)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// parseOneDecoder reads one step that turns tokens back into text; an unknown kind is refused,
// since the text would be wrong.
func parseOneDecoder(raw json.RawMessage) (decodeStep, error) {
	var f decoderFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	typ, err := typeOf(raw)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "ByteLevel":
		return decodeByteLevel, nil
	case "ByteFallback":
		return decodeByteFallback, nil
	case "Fuse":
		return func(parts []string) []string { return []string{strings.Join(parts, "")} }, nil
	case "Replace":
		replace, err := newReplacer(f.Pattern, f.Content)
		return eachPart(func(_ int, s string) string { return replace(s) }), err
	case "Strip":
		return f.stripStep()
	case "Metaspace":
		return f.metaspaceStep(), nil
	case "WordPiece":
		return f.wordPieceStep(), nil
	}
	return nil, fmt.Errorf("type %q is not supported", typ)
}

// eachPart makes a step that changes each part by itself.
func eachPart(f func(i int, s string) string) decodeStep {
	return func(parts []string) []string {
		for i, p := range parts {
			parts[i] = f(i, p)
		}
		return parts
	}
}

// stripStep drops up to start leading and stop trailing copies of one character from each part.
func (f *decoderFile) stripStep() (decodeStep, error) {
	if utf8.RuneCountInString(f.Content) != 1 || f.Start < 0 || f.Stop < 0 {
		return nil, fmt.Errorf("decoder Strip: content %q is not one character, or a count is negative", f.Content)
	}
	return eachPart(func(_ int, s string) string {
		for i := 0; i < f.Start && strings.HasPrefix(s, f.Content); i++ {
			s = s[len(f.Content):]
		}
		for i := 0; i < f.Stop && strings.HasSuffix(s, f.Content); i++ {
			s = s[:len(s)-len(f.Content)]
		}
		return s
	}), nil
}

// metaspaceStep turns marks into spaces, and drops those of the first token unless the scheme is "never".
func (f *decoderFile) metaspaceStep() decodeStep {
	never := f.PrependScheme == "never" || f.AddPrefix != nil && !*f.AddPrefix
	return eachPart(func(i int, s string) string {
		if i == 0 && !never {
			return strings.ReplaceAll(s, f.Replacement, "")
		}
		return strings.ReplaceAll(s, f.Replacement, " ")
	})
}

// cleanup takes the spaces away that splitting at punctuation made.
var cleanup = []string{" .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m",
	" do not", " don't", " 's", "'s", " 've", "'ve", " 're", "'re"}

// wordPieceStep joins the tokens that go on within a word, and puts spaces between the others.
func (f *decoderFile) wordPieceStep() decodeStep {
	prefix := "##"
	if f.Prefix != nil {
		prefix = *f.Prefix
	}
	return eachPart(func(i int, s string) string {
		if rest, ok := strings.CutPrefix(s, prefix); ok && i > 0 {
			s = rest
		} else if i > 0 {
			s = " " + s
		}
		for k := 0; isOn(f.Cleanup) && k < len(cleanup); k += 2 {
			s = strings.ReplaceAll(s, cleanup[k], cleanup[k+1])
		}
		return s
	})
}

// decodeByteLevel maps the printable characters back to the bytes that they stand for; bytes that
// are no UTF-8 become replacement characters.
func decodeByteLevel(parts []string) []string {
	var b []byte
	for _, p := range parts {
		b = append(b, rawBytes(p)...)
	}
	return []string{lossyUTF8(b)}
}

// rawBytes returns the bytes a token stands for, or the token's own where it is not written in the alphabet.
func rawBytes(tok string) []byte {
	if b, ok := bytesOf(tok); ok {
		return b
	}
	return []byte(tok)
}

// decodeByteFallback joins runs of <0xHH> tokens into text; a run that is not UTF-8 becomes one U+FFFD a byte.
func decodeByteFallback(parts []string) []string {
	var out []string
	var run []byte
	flush := func() {
		if utf8.Valid(run) && len(run) > 0 {
			out = append(out, string(run))
		} else if len(run) > 0 {
			out = append(out, strings.Repeat("\uFFFD", len(run)))
		}
		run = run[:0]
	}
	for _, p := range parts {
		if b, ok := fallbackByte(p); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, p)
	}
	flush()
	return out
}

// fallbackByte reads <0xHH>. A sign in front of one digit counts as a number for the library, so it does here.
func fallbackByte(tok string) (byte, bool) {
	if len(tok) != 6 || !strings.HasPrefix(tok, "<0x") || tok[5] != '>' {
		return 0, false
	}
	digits := tok[3:5]
	if digits[0] == '+' {
		digits = digits[1:]
	}
	v, err := strconv.ParseUint(digits, 16, 8)
	return byte(v), err == nil
}

// The printable alphabet of byte-level BPE: each byte is a character that is neither a control nor a space (GPT-2).
var (
	byteToRune [256]rune
	runeToByte [324]int16 // -1: not in the alphabet
)

func init() {
	for i := range runeToByte {
		runeToByte[i] = -1
	}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		byteToRune[b] = r
		runeToByte[r] = int16(b)
	}
}

// bytesOf returns the bytes that a token in the byte-level alphabet stands for.
func bytesOf(tok string) ([]byte, bool) {
	out := make([]byte, 0, len(tok))
	for _, r := range tok {
		if int(r) >= len(runeToByte) || runeToByte[r] < 0 {
			return nil, false
		}
		out = append(out, byte(runeToByte[r]))
	}
	return out, true
}

// alphabetOf writes bytes in the byte-level alphabet.
func alphabetOf(b []byte) string {
	out := make([]rune, len(b))
	for i, c := range b {
		out[i] = byteToRune[c]
	}
	return string(out)
}

// buildByteTokens prepares the fast path of decoders that are ByteLevel alone.
func (t *Tokenizer) buildByteTokens(raw json.RawMessage) {
	if typ, err := typeOf(raw); err != nil || typ != "ByteLevel" {
		return
	}
	t.byteTokens = make([][]byte, len(t.tokens))
	for id, tok := range t.tokens {
		t.byteTokens[id] = rawBytes(tok)
	}
}

func (t *Tokenizer) decodeBytes(ids []int32, skipSpecial bool) string {
	var b []byte
	for _, id := range ids {
		if _, ok := t.visible(id, skipSpecial); ok {
			b = append(b, t.byteTokens[id]...)
		}
	}
	return lossyUTF8(b)
}
