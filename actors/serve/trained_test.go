package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"

	_ "github.com/lfactor/lfactor/dataset/format"
)

// A conversation has the same text in a request as in data.
func TestServedAsTrained(t *testing.T) {
	const show = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
	for _, messages := range []string{
		`[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]`,
		`[{"role":"developer","content":"d"},{"role":"user","name":"n","content":"q","refusal":null}]`,
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f",` +
			`"arguments":"{\"z\": 1, \"a\": {\"y\": 1, \"b\": 2.0}}"}}]},{"role":"tool","tool_call_id":"1","content":"r"}]`,
		`[{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":"","name":"f"}}]}]`,
		`[{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"}}]`,
		`[{"role":"assistant","content":"a","reasoning":"why"}]`,
		`[{"role":"user","content":[{"type":"text","text":"q"},{"type":"text","text":"r"}]}]`,
	} {
		for _, src := range []string{show,
			"{% for m in messages %}{{ m.role + ':' + m.content }}{% for c in " +
				"m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endfor %}"} {
			tmpl, err := token.NewTemplate(src, nil)
			require.NoError(t, err)
			var list []json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(messages), &list))
			var turns []dataset.Message
			for _, raw := range list {
				m, _, err := turn(raw, false)
				require.NoError(t, err, messages)
				turns = append(turns, m)
			}
			path := filepath.Join(t.TempDir(), "x.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(`{"messages":`+messages+"}\n"), 0o644))
			s, err := dataset.Open(path, dataset.Options{})
			require.NoError(t, err)
			defer s.Close()
			d, err := s.Read(0)
			require.NoError(t, err, messages)
			served, err := tmpl.Render(turns, nil, true, nil)
			require.NoError(t, err, messages)
			trained, err := tmpl.Render(d.Messages, nil, true, nil)
			require.NoError(t, err, messages)
			require.Equal(t, trained, served, messages)
		}
	}
}
