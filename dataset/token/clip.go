package token

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of a vocabulary and its merges, which models had before tokenizer.json.
const (
	vocabName  = "vocab.json"
	mergesName = "merges.txt"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// clipParts are the parts of CLIP's tokenizer beside its vocabulary (arXiv:2103.00020, transformers'
// CLIPTokenizer): lower case, single spaces, letters by themselves and each digit alone.
const (
	clipNormalizer = `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace",
		"pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]}`
	clipSplit = `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
	"<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"},
		"behavior": "Removed", "invert": true}, {"type": "ByteLevel", "add_prefix_space": false}]}`
	clipBOS, clipEOS, clipSuffix = "<|startoftext|>", "<|endoftext|>", "</w>"
)

// loadCLIP reads CLIP's tokenizer of a folder with vocab.json, merges.txt and tokenizer_config.json, whose
// tokenizer_class says that it is one.
func loadCLIP(path string, c *Config) (*Tokenizer, error) {
	if strings.TrimSuffix(c.class, "Fast") != "CLIPTokenizer" {
		return nil, fmt.Errorf("load tokenizer %s: tokenizer_config.json gives the tokenizer_class %q, and "+
			"a %s is read of CLIPTokenizer alone; save it anew with transformers: "+
			"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)", path, c.class, vocabName)
	}
	vocab, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	beside := filepath.Join(filepath.Dir(path), mergesName)
	merges, err := readBounded(beside)
	if err != nil {
		return nil, err
	}
	f := &file{Normalizer: json.RawMessage(clipNormalizer), PreTokenizer: json.RawMessage(clipSplit),
		Decoder: json.RawMessage(`{"type": "ByteLevel"}`), Model: modelFile{Type: "BPE"}}
	if err := json.Unmarshal(vocab, &f.Model.Vocab); err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	for i, line := range slices.Collect(strings.Lines(string(merges))) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("load tokenizer %s:%d: %q is not two tokens joined by one space", beside, i+1, line)
		}
		f.Model.Merges = append(f.Model.Merges, [2]string{a, b})
	}
	if err := f.clipTokens(filepath.Dir(path), c); err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return f.finish(path, slices.Concat(vocab, merges), c)
}

// clipTokens finds the tokens that begin, end and fill a text: those of tokenizer_config.json, else of
// special_tokens_map.json, else CLIP's. Where tokenizer_config.json lists the added tokens, they are as it
// says; special ones that it does not list are found in the text as it stands.
func (f *file) clipTokens(dir string, c *Config) error {
	given, err := readTokens(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return err
	}
	if len(c.added) == 0 {
		later, err := readTokens(filepath.Join(dir, "special_tokens_map.json"))
		if err != nil {
			return err
		}
		for key, t := range later {
			given[key] = t
		}
	}
	of := func(key, usual string) string {
		t := given[key]
		t.Content, t.Special = cmp.Or(t.Content, usual), true
		listed := slices.Collect(maps.Values(c.added))
		if !slices.ContainsFunc(append(listed, f.AddedTokens...), func(a addedToken) bool {
			return a.Content == t.Content
		}) {
			f.AddedTokens = append(f.AddedTokens, t)
		}
		return t.Content
	}
	unk := of("unk_token", clipEOS)
	c.BOS, c.EOS, c.PAD = of("bos_token", clipBOS), of("eos_token", clipEOS), of("pad_token", clipEOS)
	c.UNK = unk
	suffix := clipSuffix
	f.Model.UnkToken, f.Model.Suffix = &unk, &suffix
	begin, okBegin := f.Model.Vocab[c.BOS]
	end, okEnd := f.Model.Vocab[c.EOS]
	if !okBegin || !okEnd {
		return fmt.Errorf("bos_token %q or eos_token %q is not in the vocabulary", c.BOS, c.EOS)
	}
	f.PostProcessor, err = json.Marshal(map[string]any{"type": "RobertaProcessing",
		"cls": []any{c.BOS, begin}, "sep": []any{c.EOS, end}})
	return errors.Join(err, f.check())
}

// readTokens reads the special tokens of a file that may not exist: of each key the token, with its flags
// where the file gives them.
func readTokens(path string) (map[string]addedToken, error) {
	out := map[string]addedToken{}
	b, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	var raw map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(b, &raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, key := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
		var t addedToken
		text, ok := raw[key]
		if !ok || string(text) == "null" {
			continue
		}
		if text[0] == '"' {
			err = json.Unmarshal(text, &t.Content)
		} else {
			err = json.Unmarshal(text, &t)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, key, err)
		}
		out[key] = t
	}
	return out, nil
}
