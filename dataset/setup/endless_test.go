package setup

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// Lint says that a template's answers end in no token that stops them.
func TestLintEndless(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	file("tokenizer.json",
		`{"model":{"type":"WordLevel","vocab":{"<unk>":0,"q":1,"a":2,":":3,"user":4,"assistant":5,`+
			`"</s>":6},"unk_token":"<unk>"},"pre_tokenizer":{"type":"Whitespace"},"added_tokens":[{"id":6,"content":`+
			`"</s>","special":true}]}`)
	chats := file("chats.jsonl",
		`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`+"\n")
	for template, found := range map[string]int{
		"{% for m in messages %}{{ m.role }} : {{ m.content }} {% endfor %}":                1,
		"{% for m in messages %}{{ m.role }} : {{ m.content }} {{ eos_token }}{% endfor %}": 0,
	} {
		file("tokenizer_config.json", `{"eos_token":"</s>"}`)
		file("chat_template.jinja", template)
		r := NewLint()
		require.NoError(t, r.Lint(context.Background(), chats, dir, dataset.Options{}))
		require.Len(t, r.Findings, found, template)
		if found > 0 {
			require.Contains(t, r.Findings[0], "will not learn to stop")
		}
	}
}
