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
	"slices"
	"strconv"
)

// otherFiles are the files of models that come without a tokenizer.json, in the order in which they are
// looked for.
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
		"tokenizer.model, spiece.model or vocab.json: %w; "+
		"a model with another kind of tokenizer file can be saved anew by transformers: "+
		"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)", dir, fs.ErrNotExist)
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

// surround puts BOS and EOS around texts where the configuration says so; BOS where it says nothing, as
// LlamaTokenizer does.
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
		return nil, fmt.Errorf("load tokenizer %s: %d bytes, over the limit of %d", path, info.Size(),
			fileBytesMax)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return b, nil
}
