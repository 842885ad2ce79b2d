package token

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// file is tokenizer.json. Parts that come in variants stay raw until their type is known.
type file struct {
	Version       string          `json:"version"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         modelFile       `json:"model"`

	normal func() (normalizer, error) // in place of Normalizer, of a SentencePiece model
	ends   bool                       // texts end with EOS and begin without BOS, as T5's do
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type modelFile struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"-"`
	Merges       merges           `json:"merges"`

	Pieces   []scored         `json:"-"` // Unigram's vocab, by id
	UnkID    *int32           `json:"unk_id"`
	WordMax  *int             `json:"max_input_chars_per_word"`
	Ranks    map[string]int32 `json:"-"` // in place of Merges: a merge is of the rank of its result
	Single   bool             `json:"-"` // sums of scores are float32
	RawVocab json.RawMessage  `json:"vocab"`
}

// scored is a piece of Unigram and the logarithm of its probability.
type scored struct {
	Piece  string
	Score  float64
	hidden bool // text is not cut into it: a control piece, a byte, an unused one
}

// UnmarshalJSON reads ["▁the", -3.2].
func (s *scored) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &[]any{&s.Piece, &s.Score}) }

// readVocab reads the vocabulary, which is a map from tokens to ids, or Unigram's list.
func (f *modelFile) readVocab() error {
	if f.Type != "Unigram" && !(f.Type == "" && bytes.HasPrefix(bytes.TrimSpace(f.RawVocab), []byte("["))) {
		return json.Unmarshal(f.RawVocab, &f.Vocab)
	}
	f.Type = "Unigram"
	if err := json.Unmarshal(f.RawVocab, &f.Pieces); err != nil {
		return err
	}
	f.Vocab = make(map[string]int32, len(f.Pieces))
	for i, p := range f.Pieces {
		f.Vocab[p.Piece] = int32(i)
	}
	return nil
}

// merges accepts both forms in use: "a b" strings and ["a","b"] pairs.
type merges [][2]string

func (m *merges) UnmarshalJSON(b []byte) error {
	var pairs [][2]string
	if err := json.Unmarshal(b, &pairs); err == nil {
		*m = pairs
		return nil
	}
	var lines []string
	if err := json.Unmarshal(b, &lines); err != nil {
		return fmt.Errorf("model.merges: neither strings nor pairs: %w", err)
	}
	*m = make(merges, 0, len(lines))
	for i, l := range lines {
		a, c, ok := strings.Cut(l, " ")
		if !ok || strings.Contains(c, " ") {
			return fmt.Errorf("model.merges[%d]: %q is not two tokens joined by one space", i, l)
		}
		*m = append(*m, [2]string{a, c})
	}
	return nil
}

// model makes ids of one piece of text, which is not empty.
type model interface {
	appendIDs(s *scratch, out []int32, piece string) []int32
}

// models makes the models of tokenizer.json by type.
var models = map[string]func(f *modelFile, byteLevel bool) (model, error){
	"BPE":       func(f *modelFile, byteLevel bool) (model, error) { return newBPE(f, byteLevel) },
	"Unigram":   func(f *modelFile, _ bool) (model, error) { return newUnigram(f) },
	"WordPiece": func(f *modelFile, _ bool) (model, error) { return newWordPiece(f) },
	"WordLevel": func(f *modelFile, _ bool) (model, error) { return newWordLevel(f) },
}

// idMax bounds ids so that tables by id stay small: four times the largest published vocabulary.
const idMax = 1 << 20

// parseFile reads tokenizer.json and checks that its kind of model is one that is supported.
func parseFile(b []byte) (*file, error) {
	f := &file{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if _, known := models[f.Model.Type]; !known && f.Model.Type != "" {
		return nil, fmt.Errorf("tokenizer.json: model.type %q is not supported; %s are", f.Model.Type,
			strings.Join(slices.Sorted(maps.Keys(models)), ", "))
	}
	if len(f.Model.RawVocab) == 0 {
		return nil, fmt.Errorf("tokenizer.json: model.vocab is empty")
	}
	if err := f.Model.readVocab(); err != nil {
		return nil, fmt.Errorf("tokenizer.json: model.vocab: %w", err)
	}
	return f, f.check()
}

// check refuses what cannot be a model.
func (f *file) check() error {
	if len(f.Model.Vocab) == 0 {
		return fmt.Errorf("tokenizer.json: model.vocab is empty")
	}
	for tok, id := range f.Model.Vocab {
		if id < 0 || id >= idMax {
			return fmt.Errorf("tokenizer.json: model.vocab[%q] has id %d, outside 0…%d", tok, id, idMax-1)
		}
	}
	return f.checkModel()
}

// checkModel refuses the BPE options that none of the supported families use, rather than ignoring them.
func (f *file) checkModel() error {
	if f.Model.Type == "WordPiece" {
		return nil
	}
	if v := f.Model.Prefix; v != nil && *v != "" {
		return fmt.Errorf("tokenizer.json: model.continuing_subword_prefix %q is not supported", *v)
	}
	if v := f.Model.Suffix; v != nil && *v != "" && f.Model.Type != "BPE" && f.Model.Type != "" {
		return fmt.Errorf("tokenizer.json: model.end_of_word_suffix %q of %s is not supported", *v, f.Model.Type)
	}
	return nil
}

// build turns the parsed file into the tables that encoding reads.
func (t *Tokenizer) build(f *file) error {
	var err error
	if f.normal == nil {
		f.normal = func() (normalizer, error) { return parseNormalizer(f.Normalizer) }
	}
	if t.normalize, err = f.normal(); err != nil {
		return err
	}
	splits, byteLevel, err := parseSplits(f.PreTokenizer)
	if err != nil {
		return err
	}
	t.split = splits
	t.byteLevel, t.byteFallback = byteLevel, f.Model.ByteFallback
	if t.model, err = models[cmp.Or(f.Model.Type, "BPE")](&f.Model, byteLevel); err != nil {
		return err
	}
	if err := t.buildIDs(f); err != nil {
		return err
	}
	if m, ok := t.model.(*bpe); ok {
		t.split = m.addWordSplit(t.split)
	}
	if t.post, err = parsePost(f.PostProcessor); err != nil {
		return err
	}
	t.decode, err = parseDecoders(f.Decoder)
	t.buildByteTokens(f.Decoder)
	return err
}

// buildIDs assigns ids to added tokens as the library does: an id the vocabulary knows is kept, else the
// next free one is taken in file order. The "id" field of the file is only what the writer saw.
func (t *Tokenizer) buildIDs(f *file) error {
	t.ids = make(map[string]int32, len(f.Model.Vocab)+len(f.AddedTokens))
	top := int32(-1)
	for tok, id := range f.Model.Vocab {
		t.ids[tok] = id
		top = max(top, id)
	}
	next := int32(len(f.Model.Vocab))
	for i := range f.AddedTokens {
		a := &f.AddedTokens[i]
		if a.Content == "" {
			continue
		}
		id, known := t.ids[a.Content]
		if !known {
			id = next
			t.ids[a.Content] = id
			next++
		}
		a.ID = id
		top = max(top, id)
	}
	if int(top) >= idMax {
		return fmt.Errorf("tokenizer.json: %d ids, over the limit of %d", top+1, idMax)
	}
	t.tokens = make([]string, top+1)
	for tok, id := range f.Model.Vocab {
		if have := t.tokens[id]; have == "" || tok < have {
			t.tokens[id] = tok
		}
	}
	t.added = newAddedVocab(f.AddedTokens, t.normalize, t.tokens)
	return nil
}

// variant is the part of a node every variant shares.
type variant struct {
	Type string `json:"type"`
}

// typeOf returns the type of a variant node, "" for a missing or null one.
func typeOf(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return "", nil
	}
	var v variant
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", err
	}
	if v.Type == "" {
		return "", fmt.Errorf("a part has no type")
	}
	return v.Type, nil
}

// depthMax bounds nested Sequence nodes.
const depthMax = 16

// flatten resolves nested Sequence nodes into a list of leaf nodes; key is the member that holds the list.
func flatten(raw json.RawMessage, part, key string, depth int) ([]json.RawMessage, error) {
	typ, err := typeOf(raw)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %s: %w", part, err)
	}
	if typ == "" {
		return nil, nil
	}
	if typ != "Sequence" {
		return []json.RawMessage{raw}, nil
	}
	if depth >= depthMax {
		return nil, fmt.Errorf("tokenizer.json: %s: Sequence nested over %d deep", part, depthMax)
	}
	var m map[string]json.RawMessage
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %s: %w", part, err)
	}
	if err := json.Unmarshal(m[key], &list); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %s: Sequence without a list %q", part, key)
	}
	var out []json.RawMessage
	for _, l := range list {
		leaves, err := flatten(l, part, key, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, leaves...)
	}
	return slices.Clip(out), nil
}

// pattern is {"String": s} or {"Regex": r}.
type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}
