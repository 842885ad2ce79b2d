package token

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// otherFiles are the files of models that come without a tokenizer.json, in the order in which they are looked for.
var otherFiles = []struct {
	name string
	read func(b []byte) (*file, error)
}{
	{"tekken.json", parseTekken},
	{"qwen.tiktoken", qwenFile},
	{"tokenizer.model", modelFileOf},
	{"spiece.model", t5File},
}

// modelFileOf reads a tokenizer.model: SentencePiece's, or tiktoken's as Llama 3 has it.
func modelFileOf(b []byte) (*file, error) {
	if line, _, _ := bytes.Cut(b, []byte("\n")); bytes.Count(line, []byte(" ")) == 1 && len(line) < 200 {
		if _, err := parseRanks(line); err == nil {
			return llama3File(b)
		}
	}
	m, err := parseSentencePiece(b)
	if err != nil {
		return nil, err
	}
	return m.file()
}

// loadOther reads the tokenizer of a folder without a tokenizer.json. Its tokenizer_config.json says whether
// texts begin with BOS and end with EOS, and with added_tokens.json which tokens were added.
func loadOther(dir string, c *Config) (*Tokenizer, error) {
	for _, o := range otherFiles {
		path := filepath.Join(dir, o.name)
		b, err := readBounded(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f, err := o.read(b)
		if err != nil {
			return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
		}
		return f.finish(path, b, c)
	}
	if path := filepath.Join(dir, vocabName); exists(path) {
		return loadCLIP(path, c)
	}
	return nil, fmt.Errorf("load tokenizer: %s has no tokenizer.json, nor tekken.json, qwen.tiktoken, "+
		"tokenizer.model, spiece.model or vocab.json: %w; a model with another kind of tokenizer file can be saved "+
		"anew by transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)", dir, fs.ErrNotExist)
}

// finish makes the tokenizer of the file at path, whose contents are b, and of what stands beside it.
func (f *file) finish(path string, b []byte, c *Config) (*Tokenizer, error) {
	if err := f.addTokens(filepath.Dir(path), c); err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	t := &Tokenizer{}
	if err := t.build(f); err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	said := fmt.Sprint(f.AddedTokens, string(f.PostProcessor))
	sum := sha256.Sum256(append(b, said...))
	t.fingerprint = hex.EncodeToString(sum[:])
	t.scratch.New = func() any { return newScratch() }
	return t, nil
}

// addTokens takes over what stands beside the tokenizer's own file.
func (f *file) addTokens(dir string, c *Config) error {
	var more []addedToken
	for id, a := range c.added {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is no id", id)
		}
		a.ID = int32(n)
		more = append(more, a)
	}
	b, err := readBounded(filepath.Join(dir, "added_tokens.json"))
	var ids map[string]int32
	if err == nil {
		err = json.Unmarshal(b, &ids)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("added_tokens.json: %w", err)
	}
	for content, id := range ids {
		more = append(more, addedToken{ID: id, Content: content, Special: true})
	}
	slices.SortFunc(more, func(a, b addedToken) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Content, b.Content))
	})
	for _, a := range more {
		if !slices.ContainsFunc(f.AddedTokens, func(have addedToken) bool {
			return have.Content == a.Content
		}) {
			f.AddedTokens = append(f.AddedTokens, a)
		}
	}
	if f.normal != nil { // of a SentencePiece model
		return f.surround(c)
	}
	return nil
}

// surround puts BOS and EOS around texts where the configuration says so; BOS where it says nothing,
// as LlamaTokenizer does.
func (f *file) surround(c *Config) error {
	piece := func(name, usual string) (string, []int32) {
		name = cmp.Or(name, usual)
		id, ok := f.Model.Vocab[name]
		if !ok {
			return name, nil
		}
		return name, []int32{id}
	}
	special := map[string]map[string][]int32{}
	single := []map[string]map[string]string{{"Sequence": {"id": "A"}}}
	if name, ids := piece(c.BOS, "<s>"); ids != nil && isOn(c.AddBOS) && !f.ends {
		special[name] = map[string][]int32{"ids": ids}
		single = slices.Insert(single, 0, map[string]map[string]string{"SpecialToken": {"id": name}})
	}
	if name, ids := piece(c.EOS, "</s>"); ids != nil && (f.ends || c.AddEOS != nil && *c.AddEOS) {
		special[name] = map[string][]int32{"ids": ids}
		single = append(single, map[string]map[string]string{"SpecialToken": {"id": name}})
	}
	var err error
	f.PostProcessor, err = json.Marshal(map[string]any{"type": "TemplateProcessing", "single": single,
		"special_tokens": special})
	return err
}

// readBounded reads a file of at most fileBytesMax.
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	if info.Size() > fileBytesMax {
		return nil, fmt.Errorf("load tokenizer %s: %d bytes, over the limit of %d", path, info.Size(), fileBytesMax)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return b, nil
}

// What follows adds the tokens that the files beside a tokenizer.json have, as transformers 5 does when it loads
// a folder: added_tokens_decoder of tokenizer_config.json, or where there is none special_tokens_map.json and
// added_tokens.json; then the special tokens that go by a name, and the extra ones.

// givenToken is a special token under its key.
type givenToken struct {
	key   string
	token addedToken
	text  bool // it is a text, without flags
}

// specialKeys are the names of special tokens, in the order in which they are added. Other keys in _token are
// a model's own, and follow; then the lists of extra tokens.
var specialKeys = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

var extraKeys = []string{"extra_special_tokens", "additional_special_tokens"}

// UnmarshalJSON reads a token with its flags; one that does not say is normalized unless it is special.
func (a *addedToken) UnmarshalJSON(b []byte) error {
	type plain addedToken
	var f struct {
		plain
		Normalized *bool `json:"normalized"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*a = addedToken(f.plain)
	a.Normalized = !a.Special
	if f.Normalized != nil {
		a.Normalized = *f.Normalized
	}
	return nil
}

// specialToken reads a token that is special: a text, or an object with flags. "" is none.
func specialToken(raw json.RawMessage) (a addedToken, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		err = json.Unmarshal(raw, &a.Content)
		a.Special = true
		return a, err
	}
	var said struct{ Normalized bool }
	if err = json.Unmarshal(raw, &a); err == nil {
		err = json.Unmarshal(raw, &said)
	}
	a.Special, a.Normalized = true, said.Normalized
	return a, err
}

// namedTokens reads the special tokens of tokenizer_config.json or special_tokens_map.json.
func namedTokens(b []byte) (out []givenToken, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	add := func(key string, raw json.RawMessage) error {
		a, err := specialToken(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if a.Content != "" {
			out = append(out, givenToken{key, a, bytes.HasPrefix(bytes.TrimSpace(raw), []byte(`"`))})
		}
		return nil
	}
	keys, err := keysInOrder(b)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		raw := m[key]
		if slices.Contains(specialKeys, key) && string(raw) != "null" || strings.HasSuffix(key, "_token") &&
			isToken(raw) {
			if err := add(key, raw); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range extraKeys {
		var list []json.RawMessage
		var dict map[string]json.RawMessage
		name := key
		if json.Unmarshal(m[key], &list) != nil && json.Unmarshal(m[key], &dict) == nil {
			name = "" // they are a model's own
			keys, err := keysInOrder(m[key])
			if err != nil {
				return nil, err
			}
			for _, k := range keys {
				list = append(list, dict[k])
			}
		}
		for _, raw := range list {
			if err := add(name, raw); err != nil {
				return nil, err
			}
		}
		if len(list) > 0 {
			break
		}
	}
	return out, nil
}

// keysInOrder are the keys of a JSON object as it has them.
func keysInOrder(b []byte) (out []string, err error) {
	v, err := jinja.FromJSON(b)
	if err != nil {
		return nil, err
	}
	m, ok := v.(*jinja.Map)
	if !ok {
		return nil, errors.New("it is no JSON object")
	}
	for _, k := range m.Keys() {
		if s, ok := k.(string); ok {
			out = append(out, s)
		}
	}
	return out, nil
}

// isToken tells whether a value under a key in _token is one: add_bos_token is not.
func isToken(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '{')
}

// loadFast reads a folder's tokenizer.json with the tokens that the files beside it add.
func loadFast(dir string, c *Config) (*Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	b, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	f, err := parseFile(b)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	c.begins(f)
	before := fmt.Sprint(f.AddedTokens)
	if err := f.more(dir, c); err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	t := &Tokenizer{}
	if err := t.build(f); err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	if said := fmt.Sprint(f.AddedTokens); said != before {
		b = append(b, said...)
	}
	sum := sha256.Sum256(b)
	t.fingerprint = hex.EncodeToString(sum[:])
	t.scratch.New = func() any { return newScratch() }
	return t, nil
}

// begins notes where the configuration says otherwise than tokenizer.json, whose word it is here, what a text begins
// with: transformers makes its own classes anew by the configuration.
func (c *Config) begins(f *file) {
	text := append(slices.Clone(f.Normalizer), f.PreTokenizer...)
	for key, v := range map[string]struct {
		given    *bool
		yes, any string
	}{"add_prefix_space": {c.prefix, `_space": *true|"(first|always)"|"Prepend"`, `_space"|"prepend_scheme"|"Prepend"`},
		"legacy": {c.old, `"always"|"Prepend"`, `"prepend_scheme"|"Prepend"`}} {
		if v.given != nil && !strings.HasPrefix(c.class, "PreTrained") && regexp.MustCompile(v.any).Match(text) &&
			*v.given != regexp.MustCompile(v.yes).Match(text) {
			c.Notes = append(c.Notes, fmt.Sprintf("tokenizer_config.json: %s = %v is not read: tokenizer.json says otherwise what a "+
				"text begins with, and transformers' %s follows the configuration", key, *v.given, c.class))
		}
	}
}

// more adds what the files beside tokenizer.json have.
func (f *file) more(dir string, c *Config) error {
	var listed []addedToken
	var err error
	if c.added != nil {
		listed, err = byID(c.added)
	} else {
		listed, err = c.legacy(dir)
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(c.named, func(a, b givenToken) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, a := range listed {
		if !a.Special && slices.ContainsFunc(c.named, func(g givenToken) bool {
			return g.token.Content == a.Content && !slices.Contains(extraKeys, g.key)
		}) {
			a.Special, a.Normalized = true, a.Normalized && c.normalized[a.Content]
		}
		f.enter(a)
	}
	there := slices.Clone(f.AddedTokens)
	for i, g := range c.named {
		if !slices.ContainsFunc(there, func(a addedToken) bool { return a.Content == g.token.Content }) &&
			!slices.ContainsFunc(c.named[:i], func(b givenToken) bool {
				return b.token == g.token && b.text == g.text
			}) {
			f.enter(g.token)
		}
	}
	return nil
}

// rank is the place of a token among the special ones: by name, a model's own with flags, those without, extra ones.
func (g givenToken) rank() int {
	switch at := slices.Index(specialKeys, g.key); {
	case at >= 0:
		return at
	case slices.Contains(extraKeys, g.key):
		return len(specialKeys) + 2
	case g.text:
		return len(specialKeys) + 1
	}
	return len(specialKeys)
}

// enter adds a token; one that is there already takes over its flags.
func (f *file) enter(a addedToken) {
	at := slices.IndexFunc(f.AddedTokens, func(have addedToken) bool { return have.Content == a.Content })
	switch {
	case a.Content == "":
	case at < 0:
		f.AddedTokens = append(f.AddedTokens, a)
	default:
		a.ID = f.AddedTokens[at].ID
		f.AddedTokens[at] = a
	}
}

// byID are the tokens of an added_tokens_decoder, in order.
func byID(decoder map[string]addedToken) (out []addedToken, err error) {
	for id, a := range decoder {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is no id", id)
		}
		a.ID = int32(n)
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// legacy reads special_tokens_map.json, whose tokens win over those of the config, and added_tokens.json.
func (c *Config) legacy(dir string) ([]addedToken, error) {
	b, err := os.ReadFile(filepath.Join(dir, "special_tokens_map.json"))
	if err == nil {
		var named []givenToken
		if named, err = namedTokens(b); err != nil {
			return nil, fmt.Errorf("special_tokens_map.json: %w", err)
		}
		c.overrule(named)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if b, err = readBounded(filepath.Join(dir, "added_tokens.json")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var ids map[string]int32
	if err := json.Unmarshal(b, &ids); err != nil {
		return nil, fmt.Errorf("added_tokens.json: %w", err)
	}
	var out []addedToken
	c.normalized = map[string]bool{}
	for content, id := range ids {
		c.normalized[content] = true // it says so
		special := slices.ContainsFunc(c.named, func(g givenToken) bool {
			usual := slices.Contains(specialKeys, g.key) || slices.Contains(extraKeys, g.key)
			return usual && g.token.Content == content
		})
		out = append(out, addedToken{ID: id, Content: content, Special: special, Normalized: !special})
	}
	slices.SortFunc(out, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// overrule puts special tokens in the place of the config's of the same name. Extra ones are added.
func (c *Config) overrule(named []givenToken) {
	for _, g := range named {
		at := slices.IndexFunc(c.named, func(have givenToken) bool {
			return have.key == g.key && !slices.Contains(extraKeys, g.key)
		})
		if at < 0 {
			c.named = append(c.named, g)
		} else {
			c.named[at] = g
		}
		switch g.key {
		case "bos_token":
			c.BOS = g.token.Content
		case "eos_token":
			c.EOS = g.token.Content
		case "pad_token":
			c.PAD = g.token.Content
		case "unk_token":
			c.UNK = g.token.Content
		}
	}
}
