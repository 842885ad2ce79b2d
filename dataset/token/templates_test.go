package token

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A model may have several chat templates: that named tool_use writes conversations with tools, as in
// transformers, wherever they lie.
func TestTemplatesByName(t *testing.T) {
	const words = `{"model":{"type":"WordLevel","vocab":{"<unk>":0},"unk_token":"<unk>"}}`
	say := func(x string) string { return "{{ '" + x + "' }}{{ messages[0].content }}" }
	for name, files := range map[string]map[string]string{
		"a list": {"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"` + say("D") +
			`"},{"name":"tool_use","template":"` + say("T") + `"}]}`},
		"files": {"chat_template.jinja": say("D"), "additional_chat_templates/tool_use.jinja": say("T")},
	} {
		dir := t.TempDir()
		files["tokenizer.json"] = words
		for f, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644))
		}
		_, conf, err := LoadDir(dir)
		require.NoError(t, err, name)
		tmpl, err := NewTemplate(conf.ChatTemplate, conf)
		require.NoError(t, err, name)
		require.Contains(t, tmpl.ToolSource(), "'T'", name)
		for want, tools := range map[string]any{"Dq": nil, "Tq": json.RawMessage(`[{"name":"f"}]`)} {
			text, err := tmpl.Render([]Message{{Role: "user", Content: "q"}}, tools, true, nil)
			require.NoError(t, err)
			require.Equal(t, want, text, name)
		}
	}
	_, err := NewTemplate("", &Config{ChatTemplates: map[string]string{"rag": "x", "tool_use": "y"}})
	require.ErrorContains(t, err, "rag, tool_use")
}
