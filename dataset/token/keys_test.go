package token

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// keyed is what transformers makes of a folder in whose tokenizer_config.json a key is altered.
type keyed struct {
	Texts         []string
	Plain, Around [][]int32
	Chat          string
	Back          []string
	Named         map[string]string
	Length        float64
	Key, Value    string
	Moved         []string
	Error         string
}

// TestTokenizerKeys: a tokenizer_config.json in which one key is altered makes the ids, texts, chats and special
// tokens of transformers' AutoTokenizer, or is refused. It wants Python with transformers, named by LFACTOR_PYTHON or
// python3.
func TestTokenizerKeys(t *testing.T) {
	if !*long {
		t.Skip("each key of tokenizer_config.json is held to transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers").Run(); err != nil {
		t.Skipf("%s cannot import transformers (%v): no key is compared", python, err)
	}
	dir := filepath.Join(t.TempDir(), "keys")
	out, err := exec.Command(python, "../../bench/golden/tokenizer_keys.py", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	folders, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	counts := map[string]int{}
	for _, folder := range folders {
		what, err := keyIn(folder)
		if counts[what]++; err != nil {
			t.Errorf("%s: %v", filepath.Base(folder), err)
		}
	}
	t.Log(counts)
}

// keyIn tells what came of a folder.
func keyIn(dir string) (string, error) {
	var want keyed
	b, err := os.ReadFile(filepath.Join(dir, "want.json"))
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		return "unread", err
	}
	tok, c, err := LoadDir(dir)
	switch {
	case err != nil:
		return "refused", nil
	case want.Error != "":
		return "read, where transformers does not", nil
	}
	if strings.Contains(fmt.Sprint(c.Notes), want.Key+" = ") {
		return "noted", nil
	}
	named := map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD}
	if !reflect.DeepEqual(named, want.Named) {
		return "differs", fmt.Errorf("special tokens %v, want %v", named, want.Named)
	}
	for i, text := range want.Texts {
		for around, ids := range map[bool][]int32{false: want.Plain[i], true: want.Around[i]} {
			if have := tok.Encode(text, around); !slices.Equal(have, ids) {
				return "differs", fmt.Errorf("%s = %s: %q, around %v: %v, want %v", want.Key, want.Value, text, around, have, ids)
			}
		}
		if have := tok.Decode(want.Plain[i], false); have != want.Back[i] {
			return "differs", fmt.Errorf("%s = %s: back %q, want %q", want.Key, want.Value, have, want.Back[i])
		}
	}
	chat, err := NewTemplate(c.ChatTemplate, c)
	if err != nil {
		return "differs", err
	}
	text, err := chat.Render([]Message{{Role: "user", Content: "a cat"}, {Role: "assistant", Content: " sat"}}, nil, false, nil)
	if (err != nil || text != want.Chat) && !(want.Key == "chat_template" && err != nil) { // which leave a message out
		return "differs", fmt.Errorf("%s = %s: chat %q %v, want %q", want.Key, want.Value, text, err, want.Chat)
	}
	if len(want.Moved) > 0 {
		return "moves as in transformers", nil
	}
	return "moves nothing, as in transformers", nil
}

// TestNamedTokens: a chat template knows all special tokens that go by a name, and what tokenizer.json says otherwise
// of how a text begins is told.
func TestNamedTokens(t *testing.T) {
	c, err := parseConfig([]byte(`{"tokenizer_class": "LlamaTokenizer", "sep_token": {"content": "<x>"}, "cls_token": "<c>", "eos_token": "</s>",
		"add_prefix_space": false, "legacy": true}`))
	require.NoError(t, err)
	chat, err := NewTemplate("{{ messages[0].content + sep_token + cls_token + eos_token }}{{ bos_token is defined }}", c)
	require.NoError(t, err)
	text, err := chat.Render([]Message{{Role: "user", Content: "a"}}, nil, false, nil)
	require.NoError(t, err)
	require.Equal(t, "a<x><c></s>False", text)
	c.begins(&file{PreTokenizer: json.RawMessage(`{"type": "Metaspace", "prepend_scheme": "first"}`)})
	require.Len(t, c.Notes, 2)
	c.Notes = nil
	c.begins(&file{Normalizer: json.RawMessage(`{"type": "Prepend", "prepend": "▁"}`), PreTokenizer: json.RawMessage("null")})
	require.Len(t, c.Notes, 1)
	require.Contains(t, c.Notes[0], "add_prefix_space = false is not read")
}
