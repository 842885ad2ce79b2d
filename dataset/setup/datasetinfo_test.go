package setup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
)

// infoTurn is a turn as LLaMA-Factory's converters write it.
type infoTurn struct{ Role, Content string }

// infoCase is an entry with rows and what bench/golden/dataset_info.py read of them: null where a row is left out.
type infoCase struct {
	Entry json.RawMessage
	Rows  []json.RawMessage
	Read  []*struct {
		Prompt, Response []infoTurn
		System, Tools    *string
	}
}

// turnsOf are messages in those words: calls of functions are a list as JSON.
func turnsOf(t *testing.T, list []json.RawMessage) (out []infoTurn) {
	t.Helper()
	for _, raw := range list {
		var m struct {
			Role, Content string
			Calls         []struct {
				Function struct {
					Name      string          `json:"name"`
					Arguments json.RawMessage `json:"arguments"`
				}
			} `json:"tool_calls"`
		}
		require.NoError(t, json.Unmarshal(raw, &m))
		if len(m.Calls) > 0 {
			m.Role = "function"
			var calls []any
			for _, c := range m.Calls {
				calls = append(calls, c.Function)
			}
			text, err := json.Marshal(calls)
			require.NoError(t, err)
			m.Content = string(text)
		}
		if m.Role == "tool" {
			m.Role = "observation"
		}
		out = append(out, infoTurn{m.Role, m.Content})
	}
	return out
}

// infoRead reads a row by an entry: the system's text, prompt, answers and tools, or the reason why it is none.
func infoRead(t *testing.T, s dataset.Source, i int64) (system string, prompt, answers []infoTurn, tools, bad string) {
	t.Helper()
	d, err := s.Read(i)
	if err != nil {
		var why *dataset.BadSample
		require.ErrorAs(t, err, &why)
		return "", nil, nil, "", why.Reason
	}
	var all []json.RawMessage
	tools = string(d.Tools)
	for _, m := range d.Messages {
		raw := m.Raw
		if raw == nil {
			raw, err = json.Marshal(map[string]string{"role": m.Role, "content": m.Content})
			require.NoError(t, err)
		}
		all = append(all, raw)
	}
	if raw, ok := d.Part("json"); ok {
		var r struct {
			Prompt, Chosen, Rejected, Completion, Tools []json.RawMessage
			Label                                       bool
		}
		require.NoError(t, json.Unmarshal(raw, &r))
		empty := []json.RawMessage{[]byte(`{"role":"assistant","content":""}`)}
		switch {
		case r.Chosen != nil:
			all = append(append(r.Prompt, r.Chosen...), r.Rejected...)
		case r.Label: // a good answer stands first there, and none beside it
			all = append(append(r.Prompt, r.Completion...), empty...)
		default:
			all = append(append(r.Prompt, empty...), r.Completion...)
		}
		answers = turnsOf(t, all)
		prompt, answers = answers[:len(r.Prompt)], answers[len(r.Prompt):]
	} else {
		answers = turnsOf(t, all)
		prompt, answers = answers[:len(answers)-1], answers[len(answers)-1:]
	}
	if len(prompt) > 0 && prompt[0].Role == "system" {
		system, prompt = prompt[0].Content, prompt[1:]
	}
	return system, prompt, answers, tools, ""
}

// TestDatasetInfo: rows are read by entries of LLaMA-Factory's dataset_info.json as its own converters read them, pairs
// and judged answers too, and what it leaves out is set aside with a reason.
func TestDatasetInfo(t *testing.T) {
	text, err := os.ReadFile("testdata/dataset_info_rows.json")
	require.NoError(t, err)
	var cases map[string]infoCase
	require.NoError(t, json.Unmarshal(text, &cases))
	kinds := map[dataset.Kind]int{}
	for name, c := range cases {
		dir := t.TempDir()
		info, path := filepath.Join(dir, "dataset_info.json"), filepath.Join(dir, name+".jsonl")
		require.NoError(t, os.WriteFile(info, []byte(`{"`+name+`":`+string(c.Entry)+"}"), 0o600))
		var lines strings.Builder
		for _, r := range c.Rows {
			lines.Write(append(r, '\n'))
		}
		require.NoError(t, os.WriteFile(path, []byte(lines.String()), 0o600))
		all, err := configs.SFTFormats(info)
		require.NoError(t, err, name)
		f := all[name]
		s, err := dataset.Open(path, SFTOptions(dataset.Options{}, path, &f, false))
		require.NoError(t, err, name)
		kinds[s.Kind()]++
		for i, want := range c.Read {
			system, prompt, answers, tools, bad := infoRead(t, s, int64(i))
			if want == nil || strings.HasPrefix(name, "dpo_share") && want.Response[0].Role == "user" {
				require.NotEmpty(t, bad, "%s row %d: %v %v", name, i, prompt, answers)
				continue // the second it calls invalid, and learns nevertheless
			}
			require.Empty(t, bad, "%s row %d", name, i)
			for _, list := range [][]infoTurn{prompt, want.Prompt} {
				for k, turn := range list { // a call stands alone, or in a list
					if turn.Role == "function" {
						list[k].Content = strings.Trim(strings.Join(strings.Fields(turn.Content), ""), "[]")
					}
				}
			}
			require.Equal(t, want.Prompt, prompt, "%s row %d", name, i)
			require.Equal(t, want.Response, answers, "%s row %d", name, i)
			if want.System != nil && *want.System != "detailed thinking off" { // which it adds by itself
				require.Equal(t, *want.System, system, "%s row %d", name, i)
			}
			if want.Tools != nil && *want.Tools != "" && *want.Tools != "[]" {
				require.JSONEq(t, *want.Tools, tools, "%s row %d", name, i)
			}
		}
		require.NoError(t, s.Close())
	}
	require.Equal(t, map[dataset.Kind]int{dataset.KindChat: 9, dataset.KindPairs: 4, dataset.KindJudged: 2}, kinds)
}
