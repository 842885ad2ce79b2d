package trained

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/sample"
)

// withGeneration reads a generation_config.json.
func withGeneration(t *testing.T, text string) (*Trained, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o600))
	m := &Trained{}
	m.stops(configs.Model{EOS: []int{2}})
	return m, m.generation(dir)
}

// TestGenerationConfig: tokens that end a text and how answers are drawn are the file's, where nobody says otherwise;
// what it has beside is told, and what is no number refused.
func TestGenerationConfig(t *testing.T) {
	m, err := withGeneration(t, `{"eos_token_id": [7, 8], "temperature": 0.6, "top_k": -1, "top_p": 0.9, "min_p": null,
		"repetition_penalty": 1.05, "do_sample": true, "num_beams": 1, "max_new_tokens": 2048, "no_repeat_ngram_size": 3,
		"chat_format": "chatml", "transformers_version": "4.0"}`)
	require.NoError(t, err)
	require.Equal(t, []int32{7, 8}, m.stop)
	p := sample.Params{Temperature: 1, TopP: 1, MinP: 0.1}
	m.Usual(&p, func(key string) bool { return key == "top_p" })
	require.Equal(t, sample.Params{Temperature: 0.6, TopP: 1, MinP: 0.1, Repetition: 1.05}, p)
	require.Len(t, m.Notes, 1)
	require.Contains(t, m.Notes[0], "not read: chat_format, max_new_tokens, no_repeat_ngram_size;")
	m, err = withGeneration(t, `{"eos_token_id": 9}`)
	require.NoError(t, err)
	require.Equal(t, []int32{9}, m.stop)
	require.Empty(t, m.Notes)
	m, err = withGeneration(t, `{"eos_token_id": null}`)
	require.NoError(t, err)
	require.Equal(t, []int32{2}, m.stop)
	for text, why := range map[string]string{`{"temperature": "hot"}`: `temperature: "hot" is no number`,
		`{"eos_token_id": "</s>"}`: `eos_token_id: "</s>" is no number`, `{"top_p": 2}`: "top_p is 2", `[]`: "cannot unmarshal"} {
		_, err = withGeneration(t, text)
		require.ErrorContains(t, err, why)
	}
	dir := worded(t, "qwen3-next-mtp")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id": [7]}`), 0o600))
	m, err = Open(dir, "")
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, []int32{7, 1}, m.Stops(), "with the tokenizer's")
}

// TestGenerationKeys: each key of transformers' generation_config.json acts, is told, or moves no answer of
// transformers' either. It wants Python with transformers, named by LFACTOR_PYTHON or python3.
func TestGenerationKeys(t *testing.T) {
	if !*long {
		t.Skip("each key is held to transformers' answers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import torch, transformers").Run(); err != nil {
		t.Skipf("%s cannot import torch and transformers (%v): no key is compared", python, err)
	}
	out, err := exec.Command(python, "../../bench/golden/generation_keys.py").Output()
	require.NoError(t, err)
	counts, keys := map[string]int{}, []string(nil)
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var c struct {
			Keys  []string
			Key   string
			Value json.RawMessage
			Base  map[string]json.RawMessage
			Moved bool
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		if c.Keys != nil {
			keys = c.Keys
			continue
		}
		what := becomes(t, c.Base, c.Key, c.Value)
		counts[what]++
		require.False(t, c.Moved && what == "nothing", "%s = %s is silent", c.Key, c.Value)
		keys = slices.DeleteFunc(keys, func(k string) bool { return k == c.Key })
	}
	for _, key := range keys { // those of which no small model shows anything
		_, idle := undrawn[key]
		require.True(t, idle || becomes(t, map[string]json.RawMessage{}, key, json.RawMessage(`"x"`)) == "noted", key)
	}
	t.Logf("%v; by the table alone: %v", counts, keys)
	for _, k := range slices.Sorted(maps.Keys(undrawn)) {
		require.Nil(t, drawn[k], k)
	}
}

// becomes tells what a value in place of a key's does.
func becomes(t *testing.T, base map[string]json.RawMessage, key string, value json.RawMessage) string {
	t.Helper()
	read := func(v map[string]json.RawMessage) (*Trained, error) {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return withGeneration(t, string(text))
	}
	was, err := read(base)
	require.NoError(t, err)
	all := maps.Clone(base)
	all[key] = value
	is, err := read(all)
	switch {
	case err != nil:
		return "refused"
	case !reflect.DeepEqual(was.stop, is.stop) || !reflect.DeepEqual(was.usual, is.usual):
		return "acts"
	case strings.Contains(strings.Join(is.Notes, " "), key):
		return "noted"
	}
	return "nothing"
}
