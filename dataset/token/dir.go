package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Config is what tokenizer_config.json says beside the tokenizer itself. Tokens that are not given are "".
type Config struct {
	BOS, EOS, PAD, UNK string
	// nil: not said. Encode follows tokenizer.json, as the Python library does
	AddBOS, AddEOS *bool
	ChatTemplate   string            // the default template, "" for a model without one
	ChatTemplates  map[string]string // templates given by name ("default", "tool_use"), else nil
	MaxLength      float64           // model_max_length in tokens; some files say 1e30

	added map[string]addedToken // added_tokens_decoder, by id; nil where there is none
	// contents of added whose flag normalized is given
	normalized map[string]bool
	named      []givenToken // special tokens of tokenizer_config.json, in transformers' order
	class      string       // tokenizer_class
	prefix     *bool        // add_prefix_space
	old        *bool        // legacy, of Llama's class
	Notes      []string     // what of the file is not read
}

type configFile struct {
	BOS          tokenName       `json:"bos_token"`
	EOS          tokenName       `json:"eos_token"`
	PAD          tokenName       `json:"pad_token"`
	UNK          tokenName       `json:"unk_token"`
	AddBOS       *bool           `json:"add_bos_token"`
	AddEOS       *bool           `json:"add_eos_token"`
	ChatTemplate json.RawMessage `json:"chat_template"`
	MaxLength    float64         `json:"model_max_length"`

	Added  map[string]addedToken `json:"added_tokens_decoder"`
	Class  string                `json:"tokenizer_class"`
	Split  *bool                 `json:"split_special_tokens"`
	Prefix *bool                 `json:"add_prefix_space"`
	Legacy *bool                 `json:"legacy"`
}

// tokenName is a token given as a string, as {"content": …} or as null.
type tokenName string

func (n *tokenName) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return json.Unmarshal(b, (*string)(n))
	}
	var o struct {
		Content string `json:"content"`
	}
	err := json.Unmarshal(b, &o)
	*n = tokenName(o.Content)
	return err
}

// LoadDir reads tokenizer.json, tokenizer_config.json and chat_template.jinja of a Hugging Face model directory.
// Only the first must exist, or else tekken.json, qwen.tiktoken, tokenizer.model, T5's spiece.model or CLIP's
// vocab.json and merges.txt; a template in its own file wins over the one in the config.
func LoadDir(dir string) (*Tokenizer, *Config, error) {
	c := &Config{}
	path := filepath.Join(dir, "tokenizer_config.json")
	switch b, err := os.ReadFile(path); {
	case err == nil:
		if c, err = parseConfig(b); err != nil {
			return nil, nil, fmt.Errorf("load tokenizer %s: %w", path, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("load tokenizer: %w", err)
	}
	tok, err := loadFast(dir, c)
	if errors.Is(err, fs.ErrNotExist) {
		tok, err = loadOther(dir, c)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := c.readTemplates(dir); err != nil {
		return nil, nil, fmt.Errorf("load chat template: %w", err)
	}
	return tok, c, c.check(tok)
}

// readTemplates reads the chat templates that lie in files of their own, which win over those of the config:
// chat_template.jinja, further ones by name in additional_chat_templates, and where there is no other
// the processor's chat_template.json.
func (c *Config) readTemplates(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	own := err == nil
	files, err := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
	if err != nil {
		return err
	}
	if own || len(files) > 0 {
		c.ChatTemplate, c.ChatTemplates = string(b), nil
	}
	for _, path := range files {
		more, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if c.ChatTemplates == nil {
			c.ChatTemplates = map[string]string{}
		}
		c.ChatTemplates[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(more)
	}
	if c.ChatTemplate != "" || len(c.ChatTemplates) > 0 {
		return nil
	}
	b, err = os.ReadFile(filepath.Join(dir, "chat_template.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var f configFile
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return fmt.Errorf("chat_template.json: %w", err)
	}
	return c.takeTemplates(f.ChatTemplate)
}

// parseConfig reads tokenizer_config.json. The chat template may be one text or a list of named
// ones, of which "default" is taken.
func parseConfig(b []byte) (*Config, error) {
	var f configFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Split != nil && *f.Split {
		return nil, errors.New("split_special_tokens is true: special tokens in texts would be cut, so a chat " +
			"template could not write any; set it to false")
	}
	c := &Config{BOS: string(f.BOS), EOS: string(f.EOS), PAD: string(f.PAD), UNK: string(f.UNK),
		AddBOS: f.AddBOS, AddEOS: f.AddEOS, MaxLength: f.MaxLength, added: f.Added, class: f.Class, prefix: f.Prefix, old: f.Legacy}
	var said struct {
		Added map[string]struct {
			Content    string
			Normalized *bool
		} `json:"added_tokens_decoder"`
	}
	err := json.Unmarshal(b, &said)
	if err != nil {
		return nil, err
	}
	for _, a := range said.Added {
		if a.Normalized != nil {
			if c.normalized == nil {
				c.normalized = map[string]bool{}
			}
			c.normalized[a.Content] = true
		}
	}
	if c.named, err = namedTokens(b); err != nil {
		return nil, err
	}
	return c, c.takeTemplates(f.ChatTemplate)
}

// takeTemplates reads a chat template, or a list of templates by name.
func (c *Config) takeTemplates(raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] == 'n' {
		return nil
	}
	if raw[0] == '"' {
		return json.Unmarshal(raw, &c.ChatTemplate)
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return fmt.Errorf("chat_template: neither a string nor a list of {name, template}: %w", err)
	}
	c.ChatTemplates = map[string]string{}
	for _, n := range named {
		c.ChatTemplates[n.Name] = n.Template
	}
	c.ChatTemplate = c.ChatTemplates["default"]
	return nil
}

// check refuses special tokens that the tokenizer does not know: training would run without its end mark.
func (c *Config) check(tok *Tokenizer) error {
	for name, s := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD} {
		if _, ok := tok.TokenID(s); s != "" && !ok {
			return fmt.Errorf("tokenizer_config.json: %s %q is not a token of tokenizer.json", name, s)
		}
	}
	return nil
}

// JSON writes the config as a tokenizer_config.json that `transformers` loads beside a tokenizer.json.
func (c *Config) JSON() []byte {
	m := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for key, s := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD,
		"unk_token": c.UNK, "chat_template": c.ChatTemplate} {
		if s != "" {
			m[key] = s
		}
	}
	if c.MaxLength > 0 {
		m["model_max_length"] = c.MaxLength
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		panic(fmt.Sprintf("token: strings and numbers do not encode: %v", err))
	}
	return out.Bytes()
}
