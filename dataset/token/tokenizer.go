// Package token turns text into token ids and back, as Hugging Face's `tokenizer.json` prescribes, and
// conversations into text by a model's chat template.
//
// Ids are those of the Python library `tokenizers` 0.23: the file is read as a chain of added-token matching,
// normalizers, pre-tokenizers, a model (BPE, Unigram, WordPiece or WordLevel), a post-processor and decoders.
// A part that is not known is an error that names it. Truncation and padding sections are ignored: lengths are the
// packer's business. Classes of characters are those of that library too (unicode.txt), not those of Go.
//
// Folders without a tokenizer.json are read by the files that models came with: SentencePiece's and
// tiktoken's tokenizer.model, qwen.tiktoken and tekken.json; of text encoders T5's spiece.model and CLIP's
// vocab.json with merges.txt.
//
// Encoding reads only immutable tables, so a Tokenizer serves any number of goroutines at once.
package token

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Tokenizer encodes and decodes text. It is immutable after Parse and safe for concurrent use.
type Tokenizer struct {
	added                   addedVocab
	normalize               normalizer // nil: none
	split                   []splitter
	model                   model
	byteLevel, byteFallback bool
	post                    postProcessor
	decode                  []decodeStep
	tokens                  []string // by id; "" where the id is unused
	ids                     map[string]int32
	byteTokens              [][]byte // by id, set when the whole decoder is ByteLevel
	fingerprint             string
	scratch                 sync.Pool // of *scratch
}

// fileBytesMax bounds tokenizer.json: the largest published one is about 35 MB.
const fileBytesMax = 1 << 28

// Load reads a tokenizer.json file. Errors name the file and the part that is wrong or unsupported.
func Load(path string) (*Tokenizer, error) {
	b, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, nil
}

// Parse builds a Tokenizer from the bytes of a tokenizer.json file.
func Parse(b []byte) (*Tokenizer, error) {
	f, err := parseFile(b)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	if err := t.build(f); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	t.fingerprint = hex.EncodeToString(sum[:])
	t.scratch.New = func() any { return newScratch() }
	return t, nil
}

// Encode returns the ids of text. With addSpecial the post-processor's tokens (BOS and the like) are added,
// as the Python library's encode does by default. Bytes that are not UTF-8 are read as U+FFFD, one for each
// maximal invalid stretch. Text of any length is taken; work is O(n log n) in the length of the longest piece.
// It panics with a *SlowError where a pattern of the tokenizer does not come to an end; see TryEncode.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	if !utf8.ValidString(text) {
		text = lossyUTF8([]byte(text))
	}
	s := t.scratch.Get().(*scratch)
	s.out = s.out[:0]
	s.seed(text)
	t.added.extract(text, t.normalize, func(p part) { t.encodePart(s, p) })
	out := make([]int32, 0, len(s.out)+t.post.extra(addSpecial))
	out = t.post.apply(out, s.out, addSpecial)
	s.trim()
	t.scratch.Put(s)
	return out
}

// TryEncode is Encode, with an error for a text on which a pattern of the tokenizer does not come to an
// end: a *SlowError.
func (t *Tokenizer) TryEncode(text string, addSpecial bool) (ids []int32, err error) {
	defer notSlow(&err)
	return t.Encode(text, addSpecial), nil
}

// notSlow makes an error of a panic with a *SlowError.
func notSlow(err *error) {
	switch r := recover().(type) {
	case nil:
	case *SlowError:
		*err = r
	default:
		panic(r)
	}
}

// EncodeRest returns the ids of a text that stands behind another, at the start of a line or of a word:
// without the tokens and the space that come in front of a whole text. It implements dataset.Continuer.
func (t *Tokenizer) EncodeRest(text string) (ids []int32, err error) {
	defer notSlow(&err)
	if text == "" {
		return nil, nil
	}
	before, all := t.Encode("\n", false), t.Encode("\n"+text, false)
	if len(all) >= len(before) && slices.Equal(all[:len(before)], before) {
		return all[len(before):], nil
	}
	return t.Encode(text, false), nil
}

// encodePart appends the ids of one stretch of text, which is either an added token or text for the model.
func (t *Tokenizer) encodePart(s *scratch, p part) {
	if p.id >= 0 {
		s.out = append(s.out, p.id)
		return
	}
	t.runSplits(s, 0, p.text, p.first)
}

// runSplits sends text through the pre-tokenizers from level on, and the pieces to the model.
func (t *Tokenizer) runSplits(s *scratch, level int, text string, first bool) {
	if text == "" {
		return
	}
	if level == len(t.split) {
		s.out = t.model.appendIDs(s, s.out, text)
		return
	}
	t.split[level].split(text, first, func(piece string, first bool) { t.runSplits(s, level+1, piece, first) })
}

// Decode returns the text of ids. With skipSpecial, special tokens are left out. Ids outside the vocabulary
// are left out too, as the Python library does; bytes that form no UTF-8 come out as U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	if t.byteTokens != nil {
		return t.decodeBytes(ids, skipSpecial)
	}
	parts := make([]string, 0, len(ids))
	for _, id := range ids {
		if tok, ok := t.visible(id, skipSpecial); ok {
			parts = append(parts, tok)
		}
	}
	if t.decode == nil {
		return strings.Join(parts, " ")
	}
	for _, step := range t.decode {
		parts = step(parts)
	}
	return strings.Join(parts, "")
}

// visible returns the token of id, unless there is none or it is special and to be skipped.
func (t *Tokenizer) visible(id int32, skipSpecial bool) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id] == "" {
		return "", false
	}
	if skipSpecial && t.added.special[id] {
		return "", false
	}
	return t.tokens[id], true
}

// VocabSize returns one more than the largest id, added tokens included: the rows an embedding needs.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// TokenID returns the id of a token given as it stands in the file ("<|im_end|>", "Ġthe", "▁the").
func (t *Tokenizer) TokenID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the token of an id as it stands in the file, and false for an id that has none.
func (t *Tokenizer) Token(id int32) (string, bool) {
	return t.visible(id, false)
}

// IsSpecial reports whether id is an added token marked special.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.added.special) && t.added.special[id]
}

// Fingerprint identifies the tokenizer: the SHA-256 of its file, in hexadecimal.
func (t *Tokenizer) Fingerprint() string { return t.fingerprint }
