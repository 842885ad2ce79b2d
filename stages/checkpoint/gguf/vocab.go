package gguf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// tokenizerFile is what is read of a tokenizer.json.
type tokenizerFile struct {
	Added []struct {
		ID      int64  `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Model         struct {
		Type         string           `json:"type"`
		ByteFallback bool             `json:"byte_fallback"`
		Vocab        map[string]int64 `json:"vocab"`
		Merges       []merge          `json:"merges"`
		Unk          *string          `json:"unk_token"`
		Ignore       bool             `json:"ignore_merges"`
	} `json:"model"`
}

// merge is a pair of tokens, "a b" or ["a","b"].
type merge [2]string

// UnmarshalJSON reads either form.
func (m *merge) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		var pair []string
		if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
			return errors.Join(err, errors.New("a merge is of two tokens"))
		}
		*m = merge(pair)
		return nil
	}
	var s string
	err := json.Unmarshal(b, &s)
	var ok bool
	if m[0], m[1], ok = strings.Cut(s, " "); err == nil && !ok {
		err = fmt.Errorf("merge %q is of one token", s)
	}
	return err
}

// vocabulary makes the metadata of the tokenizer: from tokenizer.model where there is one, else from tokenizer.json.
func (e *exporter) vocabulary() error {
	v := &vocabulary{}
	conf, err := e.tokenizerConfig()
	if err != nil {
		return err
	}
	var more []pair
	b, err := os.ReadFile(filepath.Join(e.dir, "tokenizer.model"))
	switch {
	case err == nil && len(b) > 0 && b[0] == 1<<3|2:
		more, err = v.readPieces(b)
		if err != nil {
			return e.fault("tokenizer.model", "", checkpoint.Malformed, "%v", err)
		}
		if err := e.addTokens(v); err != nil {
			return err
		}
	case err == nil || errors.Is(err, fs.ErrNotExist):
		if more, err = e.readTokenizer(v, conf); err != nil {
			return err
		}
	default:
		return err
	}
	if len(v.tokens) > e.rows {
		return e.fault("", "model.embed_tokens.weight", checkpoint.Misshapen, "%d rows for %d tokens",
			e.rows, len(v.tokens))
	}
	e.put(v, conf, more)
	return nil
}

// put writes the vocabulary and the special tokens, with a token for each row of the embedding.
func (e *exporter) put(v *vocabulary, conf map[string]any, more []pair) {
	const at = "tokenizer.ggml."
	kinds, scores := make([]int32, e.rows), make([]float32, e.rows)
	for i := range kinds {
		if i >= len(v.tokens) || v.tokens[i] == "" {
			if i == len(v.tokens) {
				v.tokens = append(v.tokens, "")
			}
			v.tokens[i] = fmt.Sprintf("[PAD%d]", i)
			kinds[i], scores[i] = tokenUnused, -10000
			continue
		}
		if kinds[i] = int32(v.kinds[i]); i < len(v.scores) {
			scores[i] = float32(v.scores[i])
		}
	}
	e.meta = append(e.meta, pair{at + "model", v.model}, pair{at + "tokens", v.tokens}, pair{at + "token_type", kinds})
	if v.model == "llama" {
		e.meta = append(e.meta, pair{at + "scores", scores})
	} else {
		e.meta = append(e.meta, pair{at + "merges", v.merges})
	}
	for _, x := range [][2]string{{"bos_token", "bos"}, {"eos_token", "eos"}, {"pad_token", "padding"},
		{"unk_token", "unknown"}} {
		id := slices.Index(v.tokens, tokenText(conf[x[0]]))
		if n, ok := e.raw[x[0]+"_id"].(float64); ok && id < 0 && conf[x[0]] == nil {
			id = int(n)
		}
		if id >= 0 && id < e.rows {
			e.meta = append(e.meta, pair{at + x[1] + "_token_id", uint32(id)})
		}
	}
	e.meta = append(e.meta, more...)
	if t, ok := conf["chat_template"].(string); ok {
		e.meta = append(e.meta, pair{"tokenizer.chat_template", t})
	}
}

// tokenText is a token given as a text, or as an object.
func tokenText(v any) string {
	if m, ok := v.(map[string]any); ok {
		v = m["content"]
	}
	return cmp.Or(text(v), "\x00") // no token
}

// tokenizerConfig reads tokenizer_config.json, which may be missing, and the chat template beside it.
func (e *exporter) tokenizerConfig() (map[string]any, error) {
	conf := map[string]any{}
	b, err := os.ReadFile(filepath.Join(e.dir, "tokenizer_config.json"))
	if err == nil {
		if err = json.Unmarshal(b, &conf); err != nil {
			return nil, e.fault("tokenizer_config.json", "", checkpoint.Malformed, "%v", err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b, err = os.ReadFile(filepath.Join(e.dir, "chat_template.jinja"))
	if err == nil {
		conf["chat_template"] = string(b)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if list, ok := conf["chat_template"].([]any); ok { // named ones
		delete(conf, "chat_template")
		for _, x := range list {
			if m, ok := x.(map[string]any); ok && m["name"] == "default" {
				conf["chat_template"] = m["template"]
			}
		}
	}
	return conf, nil
}

// readTokenizer reads a tokenizer.json: merges of bytes, or of SentencePiece's pieces.
func (e *exporter) readTokenizer(v *vocabulary, conf map[string]any) (more []pair, err error) {
	const name = "tokenizer.json"
	b, err := os.ReadFile(filepath.Join(e.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, e.fault(name, "", checkpoint.Missing, "a GGUF file has its tokenizer in it: put the model's files of that into the "+
			"directory, or save it there by transformers' save_pretrained")
	}
	if err != nil {
		return nil, err
	}
	var f tokenizerFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, e.fault(name, "", checkpoint.Malformed, "%v", err)
	}
	if f.Model.Type != "BPE" {
		return nil, e.fault(name, "", checkpoint.Extra, "model.type is %q: merges of bytes and SentencePiece's are written as GGUF",
			f.Model.Type)
	}
	for _, a := range f.Added {
		f.Model.Vocab[a.Content] = a.ID
	}
	if v.tokens, err = sortedTokens(f.Model.Vocab); err != nil {
		return nil, e.fault(name, "", checkpoint.Malformed, "model.vocab: %v", err)
	}
	v.kinds = slices.Repeat([]int64{tokenNormal}, len(v.tokens))
	for _, a := range f.Added {
		if v.kinds[a.ID] = tokenUser; a.Special {
			v.kinds[a.ID] = tokenControl
		}
	}
	bos := e.beginsWithBOS(&f, conf)
	if f.Model.ByteFallback {
		f.pieces(v)
		prefix := bytes.Contains(f.Normalizer, []byte(`"Prepend"`)) ||
			bytes.Contains(f.PreTokenizer, []byte(`"Metaspace"`)) &&
				!bytes.Contains(compact(f.PreTokenizer), []byte(`"prepend_scheme":"never"`))
		return []pair{{"tokenizer.ggml.pre", "default"}, {"tokenizer.ggml.add_bos_token", bos},
			{"tokenizer.ggml.add_space_prefix", prefix}}, nil
	}
	if v.model = "gpt2"; len(f.Model.Merges) == 0 {
		return nil, e.fault(name, "", checkpoint.Missing, "model.merges is empty: llama.cpp loads no such vocabulary")
	}
	for _, m := range f.Model.Merges {
		v.merges = append(v.merges, m[0]+" "+m[1])
	}
	c, ok := f.cut()
	if !ok {
		return nil, e.fault(name, "", checkpoint.Extra,
			"how its pre_tokenizer cuts text has no name in llama.cpp that is known here: %v are", cutNames())
	}
	if c.ignore != f.Model.Ignore {
		if t := f.unmerged(v); t != "" {
			return nil, e.fault(name, "", checkpoint.Extra, "model.ignore_merges is %v, which llama.cpp takes to "+
				"be %v for %s, and merges do not make token %q", f.Model.Ignore, c.ignore, c.names[0], t)
		}
	}
	return []pair{{"tokenizer.ggml.pre", c.names[0]}, {"tokenizer.ggml.add_bos_token", bos}}, nil
}

// unmerged is a token that its merges do not make of its letters, "" where all are made: then it is the
// same whether a word that is a token is taken at once.
func (f *tokenizerFile) unmerged(v *vocabulary) string {
	rank := make(map[merge]int, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		if _, old := rank[m]; !old {
			rank[m] = i
		}
	}
	for i, t := range v.tokens {
		if v.kinds[i] != tokenNormal || t == "" {
			continue
		}
		var parts []string
		for _, r := range t {
			parts = append(parts, string(r))
		}
		for len(parts) > 1 {
			best, at := len(rank), -1
			for k := range len(parts) - 1 {
				if n, ok := rank[merge{parts[k], parts[k+1]}]; ok && n < best {
					best, at = n, k
				}
			}
			if at < 0 {
				return t
			}
			parts[at] += parts[at+1]
			parts = slices.Delete(parts, at+1, at+2)
		}
	}
	return ""
}

// beginsWithBOS reports whether texts begin with BOS, and notes which it is.
func (e *exporter) beginsWithBOS(f *tokenizerFile, conf map[string]any) bool {
	if add, ok := conf["add_bos_token"].(bool); ok {
		return add
	}
	var post struct {
		Single []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
		} `json:"single"`
		Processors []json.RawMessage `json:"processors"`
	}
	for _, raw := range append([]json.RawMessage{f.PostProcessor}, processors(f.PostProcessor)...) {
		post.Single = nil
		if json.Unmarshal(raw, &post) == nil && len(post.Single) > 0 && post.Single[0].SpecialToken != nil {
			first := post.Single[0].SpecialToken.ID
			if conf["bos_token"] == nil { // nobody else says which it is
				conf["bos_token"] = first
			}
			return first == tokenText(conf["bos_token"])
		}
	}
	return false
}

// processors are those of a sequence.
func processors(raw json.RawMessage) []json.RawMessage {
	var s struct {
		Processors []json.RawMessage `json:"processors"`
	}
	if json.Unmarshal(raw, &s) != nil {
		return nil // it is none
	}
	return s.Processors
}

// pieces makes of merges the scores that put them into their order.
func (f *tokenizerFile) pieces(v *vocabulary) {
	v.model = "llama"
	v.scores = make([]float64, len(v.tokens))
	rank := map[string]int{}
	for i, m := range f.Model.Merges {
		if _, old := rank[m[0]+m[1]]; !old {
			rank[m[0]+m[1]] = i
		}
	}
	for i, t := range v.tokens {
		switch n, made := rank[t]; {
		case v.kinds[i] != tokenNormal:
		case made:
			v.scores[i] = -float64(n)
		case len(t) == 6 && strings.HasPrefix(t, "<0x") && t[5] == '>':
			v.kinds[i] = tokenByte
		default:
			v.scores[i] = -float64(len(f.Model.Merges) + i)
		}
		if f.Model.Unk != nil && t == *f.Model.Unk {
			v.kinds[i] = tokenUnknown
		}
	}
}

// compact is JSON without white space.
func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw // it was decoded, so it is JSON, or empty
	}
	return b.Bytes()
}

// cut finds the rule by which text is cut: the steps that decide are compared, not how a file writes them.
func (f *tokenizerFile) cut() (*cut, bool) {
	have := steps(f.PreTokenizer)
	for i := range cuts {
		nfc := bytes.Contains(f.Normalizer, []byte(`"NFC"`))
		if slices.Equal(steps(json.RawMessage(cuts[i].before)), have) && nfc == cuts[i].nfc {
			return &cuts[i], true
		}
	}
	return nil, false
}

// steps are what decides how text is cut.
func steps(raw json.RawMessage) (out []string) {
	var p struct {
		Type    string            `json:"type"`
		Parts   []json.RawMessage `json:"pretokenizers"`
		Pattern struct {
			Regex string `json:"Regex"`
		} `json:"pattern"`
		Behavior   string `json:"behavior"`
		Invert     bool   `json:"invert"`
		Individual bool   `json:"individual_digits"`
		Prefix     bool   `json:"add_prefix_space"`
		UseRegex   *bool  `json:"use_regex"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return nil // an unknown form has no steps that are known
	}
	for _, part := range p.Parts {
		out = append(out, steps(part)...)
	}
	if p.Type == "Sequence" {
		return out
	}
	return []string{fmt.Sprint(p.Type, p.Pattern.Regex, p.Behavior, p.Invert, p.Individual, p.Prefix,
		p.UseRegex == nil || *p.UseRegex)}
}

// addTokens adds what tokenizer.json has beyond the pieces of tokenizer.model.
func (e *exporter) addTokens(v *vocabulary) error {
	b, err := os.ReadFile(filepath.Join(e.dir, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f tokenizerFile
	if err := json.Unmarshal(b, &f); err != nil {
		return e.fault("tokenizer.json", "", checkpoint.Malformed, "%v", err)
	}
	for _, a := range f.Added {
		if a.ID < 0 || a.ID >= int64(e.rows) {
			return e.fault("tokenizer.json", "", checkpoint.Malformed, "added token %q has id %d of %d", a.Content,
				a.ID, e.rows)
		}
		for int64(len(v.tokens)) <= a.ID {
			v.tokens, v.kinds, v.scores = append(v.tokens, ""), append(v.kinds, tokenUnused), append(v.scores, 0)
		}
		if v.tokens[a.ID] == a.Content && v.kinds[a.ID] != tokenNormal {
			continue
		}
		v.tokens[a.ID] = a.Content
		if v.kinds[a.ID] = tokenUser; a.Special {
			v.kinds[a.ID] = tokenControl
		}
	}
	return nil
}

// readPieces reads a SentencePiece model of merges.
func (v *vocabulary) readPieces(b []byte) (more []pair, err error) {
	v.model = "llama"
	prefix, bpe := true, false
	err = fields(b, func(n uint64, num uint64, sub []byte) error {
		switch n {
		case 1:
			v.tokens, v.scores, v.kinds = append(v.tokens, ""), append(v.scores, 0), append(v.kinds, tokenNormal)
			at := len(v.tokens) - 1
			return fields(sub, func(n, num uint64, s []byte) error {
				switch n {
				case 1:
					v.tokens[at] = string(s)
				case 2:
					v.scores[at] = float64(math.Float32frombits(uint32(num)))
				case 3:
					v.kinds[at] = int64(num)
				}
				return nil
			})
		case 2:
			return fields(sub, func(n, num uint64, _ []byte) error {
				bpe = bpe || n == 3 && num == 2
				return nil
			})
		case 3:
			return fields(sub, func(n, num uint64, _ []byte) error {
				if n == 3 {
					prefix = num != 0
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && !bpe {
		err = errors.New("it is no model of merges")
	}
	return []pair{{"tokenizer.ggml.pre", "default"}, {"tokenizer.ggml.add_bos_token", true},
		{"tokenizer.ggml.add_space_prefix", prefix}}, err
}

// fields reads the fields of a protocol buffer: their number, and their value or bytes.
func fields(b []byte, use func(n, v uint64, s []byte) error) error {
	bad := errors.New("it is no SentencePiece model")
	for len(b) > 0 {
		tag, size := binary.Uvarint(b)
		if size <= 0 {
			return bad
		}
		b = b[size:]
		var v uint64
		var s []byte
		switch tag & 7 {
		case 0:
			if v, size = binary.Uvarint(b); size <= 0 {
				return bad
			}
		case 2:
			n, head := binary.Uvarint(b)
			if head <= 0 || n > uint64(len(b)-head) {
				return bad
			}
			s, size = b[head:head+int(n)], head+int(n)
		case 5, 1:
			if size = 4; tag&7 == 1 {
				size = 8
			}
			if len(b) < size {
				return bad
			}
			for i := range size {
				v |= uint64(b[i]) << (8 * i)
			}
		default:
			return bad
		}
		if err := use(tag>>3, v, s); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
