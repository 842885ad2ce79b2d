package rollout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
)

// TestTalkTemplates: an answer, the token that ended it and what is written behind it are the conversation as the
// template writes it: with an end that is not the tokenizer's, one that begins the next message, one behind which
// the template writes something more, and white space.
func TestTalkTemplates(t *testing.T) {
	t.Parallel()
	const each = "{% for m in messages %}"
	marks := []string{"<eos>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>", "<|im_end|>"}
	var added []any
	vocab := map[string]int{"<unk>": 0}
	for i, m := range marks {
		vocab[m] = i + 1
		added = append(added, map[string]any{"id": i + 1, "content": m, "special": true})
	}
	dir := t.TempDir()
	for name, v := range map[string]any{"tokenizer_config.json": map[string]any{"eos_token": "<eos>"},
		"tokenizer.json": map[string]any{"version": "1.0", "added_tokens": added,
			"model": map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	tok, err := token.Load(filepath.Join(dir, "tokenizer.json"))
	require.NoError(t, err)
	for name, c := range map[string]struct{ template, stops, drawn, instead string }{
		"gemma": {each + "{{ '<start>' + m.role + '\n' + m.content + '<end_of_turn>\n' }}{% endfor %}" +
			"{% if add_generation_prompt %}<start>model\n{% endif %}", "<eos> <end_of_turn>", "<end_of_turn>", "<end_of_turn>"},
		"phi3": {each + "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}" +
			"{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}", "<|end|> <eos>", "<|end|>",
			"<|end|>"},
		"glm4": {each + "{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>" +
			"{% endif %}", "<|endoftext|> <|user|>", "<|user|>", "<|user|>"},
		"glm4 ends": {each + "{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}{% if add_generation_prompt %}" +
			"<|assistant|>{% endif %}", "<|endoftext|> <|user|>", "<|endoftext|>", ""},
		"qwen": {each + "{{ m.role + '\n' + m.content + ' <|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}" +
			"assistant\n{% endif %}", "<|im_end|> <|endoftext|>", "<|endoftext|>", " <|im_end|>"},
	} {
		chat, err := token.NewTemplate(c.template, &token.Config{EOS: "<eos>"})
		require.NoError(t, err)
		x := &conversation{tok: tok, chat: chat, role: "user"}
		for _, s := range strings.Fields(c.stops) {
			x.stops = append(x.stops, int32(vocab[s]))
		}
		all := []dataset.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: answerMark},
			{Role: "user", Content: "more"}}
		whole, err := chat.Render(all, nil, true, nil)
		require.NoError(t, err)
		short, err := chat.Render(all[:2], nil, false, nil)
		require.NoError(t, err)
		first, rest, _ := strings.Cut(whole, answerMark)
		_, end, _ := strings.Cut(short, answerMark)
		require.Equal(t, whole, first+answerMark+c.instead+x.behind(rest, end, int32(vocab[c.drawn])), name)
		_, err = x.write("more", int32(vocab[c.drawn]))
		require.NoError(t, err, name)
	}
}
