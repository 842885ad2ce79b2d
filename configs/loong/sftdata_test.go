package loong_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/lfactor/lfactor/configs"

	"github.com/stretchr/testify/require"
)

// sftText is a file as LoongForge's documentation shows them.
const sftText = `default:
  columns: {prompt: question, response: answer}
alpaca_history:
  formatting: alpaca
  columns:
    prompt: instruction
    query: input
    response: output
    history: history
    system: null
share:
  format: sharegpt
  columns: {messages: conversations, images: images}
  tags: {role_tag: from, content_tag: value, user_tag: human, assistant_tag: gpt, observation_tag: observation, function_tag: function_call}
chat:
  format: openai
  columns: {images: images}
`

func TestSFTFormats(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sets.yaml")
	require.NoError(t, os.WriteFile(file, []byte(sftText), 0o644))
	all, err := SFTFormats(file)
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, SFTFormat{Name: "default", Format: "alpaca",
		Columns: map[string]string{"prompt": "question", "response": "answer"}}, all["default"])
	require.Equal(t, map[string]string{"prompt": "instruction", "query": "input", "response": "output",
		"history": "history"}, all["alpaca_history"].Columns)
	require.Equal(t, "observation", all["share"].Tags["observation_tag"])
	require.Equal(t, map[string]string{"messages": "messages", "tools": "tools", "images": "images"},
		all["chat"].Columns)

	f, err := FindSFT("", "multimodal_sharegpt")
	require.NoError(t, err)
	require.Equal(t, SFTFormat{Name: "multimodal_sharegpt", Format: "sharegpt",
		Columns: map[string]string{"messages": "messages", "images": "images"},
		Tags: map[string]string{"role_tag": "from", "content_tag": "value", "user_tag": "human",
			"assistant_tag": "gpt", "system_tag": "system"}}, f)
	_, err = FindSFT("", "multimodal_sharegp")
	require.EqualError(t, err,
		`LoongForge's data sets: there is no entry "multimodal_sharegp"; did you mean "multimodal_sharegpt"?`)

	for text, want := range map[string]string{
		"a:\n  format: sharegbt\n":               `sets.yaml:2: a.format: "sharegbt" is no format of conversations; did you mean "sharegpt"?`,
		"a:\n  columns:\n    promt: x\n":         `sets.yaml:3: a.columns.promt: is not a key of it; did you mean "prompt"?`,
		"a:\n  format: openai\n  tags: {rol: x}": `sets.yaml:3: a.tags.rol: is not a key of it; one of role_tag`,
		"a: b\n":                                 `sets.yaml:1: a: "b", want a mapping`,
		"a:\n  colums: {}\n":                     `sets.yaml:2: a.colums: is not part of an entry; did you mean "columns"?`,
		"a:\n  columns: [x]\n":                   `sets.yaml:2: a.columns: a list, want a mapping of names`,
		"a:\n  columns: {prompt: [x]}\n":         `sets.yaml:2: a.columns.prompt: a list, want a name`,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		_, err := SFTFormats(file)
		require.ErrorContains(t, err, want)
	}
}

// TestSFTFlags: the flags of launch scripts name entries, for each path or for all, and say what the data is.
func TestSFTFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sets.yaml")
	require.NoError(t, os.WriteFile(file, []byte(sftText), 0o644))
	load := func(args string) (*Config, error) {
		return Load(Request{Args: append(strings.Fields("--model-name qwen3-1.7b --training-phase sft"),
			strings.Fields(args)...)})
	}
	names := func(list []SFTFormat) (out []string) {
		for _, f := range list {
			out = append(out, f.Name)
		}
		return
	}
	for args, want := range map[string][]string{
		"--data-path a.json --sft-dataset sharegpt":      {"sharegpt"},
		"--data-path a.json b.json --sft-dataset alpaca": {"alpaca", "alpaca"},
		"--data-path a.json b.json --sft-dataset share chat --sft-dataset-config " +
			file: {"share", "chat"},
		"--data-path a.json --sft-dataset-config " +
			file: {"default"},
		"--data-path a.json --sft-dataset openai --sft-dataset-config /no/sft_dataset_config.yaml": {"openai"},
	} {
		c, err := load(args)
		require.NoError(t, err, args)
		require.Equal(t, want, names(c.SFT), args)
		require.Equal(t, "chat", c.Run.Data.Kind)
		require.Equal(t, strings.Contains(args, "/no/"), strings.Contains(strings.Join(c.Notices, "\n"),
			"the entries that LoongForge comes with are taken"))
	}
	c, err := load("--data-path a.json --valid-data-path b.json c.json --sft-dataset openai " +
		"--sft-valid-dataset alpaca")
	require.NoError(t, err)
	require.Equal(t, []string{"alpaca", "alpaca"}, names(c.SFTValid))
	c, err = Load(Request{Args: strings.Fields("--config-file " + loongTree +
		"internvl3.5/internvl3_5_8b.yaml --data-path x --sft-dataset-config " + file)})
	require.NoError(t, err)
	require.Empty(t, c.SFT, "the file says nothing of multimodal")
	require.Equal(t, "media", c.Run.Data.Kind)
	for args, want := range map[string]string{
		"--data-path a.json --sft-dataset sharegp":                                  `--sft-dataset: data.dataset: there is no entry "sharegp"; did you mean "sharegpt"?`,
		"--data-path a.json b.json c.json --sft-dataset alpaca openai":              "data.dataset: 2 entries for 3 paths",
		"--data-path a.json --sft-dataset alpaca data.kind=text":                    "data.kind: text, but data.dataset",
		"--data-path a.json --sft-dataset alpaca data.messages=openai":              "data.messages: and data.message_key exclude",
		"--data-path a.json --sft-dataset alpaca --sft-dataset-config /no/such.yml": "/no/such.yml: no such file",
	} {
		_, err := load(args)
		require.ErrorContains(t, err, want)
	}
}
