package format

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// openLine opens a file of one JSON line.
func openLine(t *testing.T, line string, o dataset.Options) dataset.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o644))
	s, err := dataset.Open(path, o)
	require.NoError(t, err, line)
	t.Cleanup(func() { s.Close() })
	return s
}

// Conversations come in the forms that other trainers read; docs/data.md has them in a table.
func TestForeignTurns(t *testing.T) {
	say := func(role, text string) dataset.Message { return dataset.Message{Role: role, Content: text} }
	muted := func(text string) dataset.Message {
		return dataset.Message{Role: "assistant", Content: text, Unlearnt: true}
	}
	raw := func(role, text string) dataset.Message {
		return dataset.Message{Role: role, Raw: json.RawMessage(text)}
	}
	q, a := say("user", "q"), say("assistant", "a")
	answer := raw("tool", `{"content":"1","name":"f","role":"tool","tool_call_id":"call00001"}`)
	answer.Content = "1"
	for _, c := range []struct {
		line string
		want []dataset.Message
	}{
		{`{"conversations":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`,
			[]dataset.Message{q, a}},
		{`{"messages":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`, []dataset.Message{q, a}},
		{`{"messages":"[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"}]"}`,
			[]dataset.Message{q, a}},
		{`{"messages":["{\"role\":\"user\",\"content\":\"q\"}","{\"role\":\"assistant\",\"content\":\"a\"}"]}`,
			[]dataset.Message{q, a}},
		{`{"prompt":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"q"}],` +
			`"completion":[{"role":"assistant","content":"a"}]}`, []dataset.Message{q, muted("a"), q, a}},
		{`{"messages":[{"role":"user","content":"q","weight":1},{"role":"assistant","content":"a","weight":0},` +
			`{"role":"assistant","content":"a","train":true}]}`, []dataset.Message{q, muted("a"), a}},
		{`{"conversations":[{"from":"human","value":"q","train":false},{"from":"gpt","value":"a","train":false},` +
			`{"from":"gpt","value":"a","training":null}]}`, []dataset.Message{q, muted("a"), a}},
		{`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","loss":false}]}`,
			[]dataset.Message{q, muted("a")}},
		{`{"conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\": \"f\", ` +
			`\"arguments\": {\"z\": 1, \"a\": 2}}"},{"from":"observation","value":"1"},{"from":"gpt","value":"a"}]}`,
			[]dataset.Message{q, raw("assistant",
				`{"role":"assistant","content":"","tool_calls":[{"id":"call00001",`+
					`"type":"function","function":{"name":"f","arguments":{"z": 1, "a": 2}}}]}`), answer, a}},
		{`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]}`,
			[]dataset.Message{raw("assistant", `{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}`)}},
		{`{"messages":[{"role":"tool_call","content":"{\"name\":\"f\"}"},{"role":"tool_call","content":` +
			`"<x>"}]}`, nil},
		{`{"messages":[{"role":"tool_call","content":"{\"name\":\"f\"}"},{"role":"tool_call","content":` +
			`"{\"name\":\"g\",\"arguments\":{}}"}]}`,
			[]dataset.Message{raw("assistant",
				`{"role":"assistant","content":"","tool_calls":[{"id":"call00001",`+
					`"type":"function","function":{"name":"f","arguments":{}}},{"id":"call00002","type":"function",`+
					`"function":{"name":"g","arguments":{}}}]}`)}},
		{`{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":null}]}`, nil},
		{`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":null}]}`, nil},
		{`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0.5}]}`, nil},
		{`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","train_detail":[{}]}]}`, nil},
		{`{"messages":[{"role":"user","content":"q","train":true},{"role":"assistant","content":"a"}]}`, nil},
		{`{"prompt":"q","completion":"a"}`, nil},
	} {
		d, err := openLine(t, c.line, dataset.Options{}).Read(0)
		if c.want == nil {
			var bad *dataset.BadSample
			require.ErrorAs(t, err, &bad, c.line)
			continue
		}
		require.NoError(t, err, c.line)
		require.Equal(t, c.want, d.Messages, c.line)
	}
}

// A row offers tools and sets variables of the template, under the names of today and of before.
func TestOffers(t *testing.T) {
	for line, want := range map[string][2]string{
		`{"messages":[{"role":"user","content":"q"}],"functions":[{"name":"f"}]}`: {`[{"type":"function","function":{"name":"f"}}]`, ``},
		`{"messages":[{"role":"user","content":"q"}],"tools":["{\"a\":1}"]}`: {`[{"a":1}]`,
			``},
		`{"messages":[{"role":"user","content":"q"}],"chat_template_kwargs":{"think":false}}`: {``,
			`{"think":false}`},
	} {
		d, err := openLine(t, line, dataset.Options{}).Read(0)
		require.NoError(t, err)
		require.Equal(t, want, [2]string{string(d.Tools), string(d.Vars)}, line)
	}
}

// Records of prompts are known by their keys, and data.kind can name them.
func TestPromptForms(t *testing.T) {
	for _, line := range []string{
		`{"prompt":"q"}`, `{"prompt":"q","tests":["x"]}`, `{"question":"q","answer":"a"}`, `{"problem":"q","answer":"a"}`,
		`{"prompt":[{"role":"user","content":"q"}],"reward_model":{"ground_truth":"a"}}`,
		`{"prompt":"[{\"role\":\"user\",\"content\":\"q\"}]"}`,
	} {
		s := openLine(t, line, dataset.Options{})
		require.Equal(t, dataset.KindPrompts, s.Kind(), line)
		_, err := s.Read(0)
		require.NoError(t, err, line)
	}
	e := &PromptEncoder{Text: letterEncoder{}, Most: 100,
		Write: func(turns []dataset.Message, tools, vars json.RawMessage) (string, error) {
			return turns[0].Content + string(tools) + string(vars), nil
		}}
	d, err := openLine(t,
		`{"prompt":[{"role":"user","content":"q"}],"tools":[{"n":1}],"chat_template_kwargs":{"x":1}}`,
		dataset.Options{}).Read(0)
	require.NoError(t, err)
	out, err := e.EncodeSample(&d)
	require.NoError(t, err)
	require.Len(t, out[0].Tokens, len(`q[{"n":1}]{"x":1}`))
}

// letterEncoder makes a token of each byte.
type letterEncoder struct{}

func (letterEncoder) Fingerprint() string { return "letters" }
func (letterEncoder) Encode(text string, _ bool) (out []int32) {
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out
}

// Tables fill the keys that an object lacks with null; such are none.
func TestFilled(t *testing.T) {
	r := filled{oneRecord(
		`{"messages":[{"role":"user","content":"q","tool_calls":null},{"role":"assistant",` +
			`"tool_calls":[{"function":{"name":"f","arguments":{"x":1.0,"y":null}}}]}],` +
			`"functions":[{"name":"f","parameters":{"x":null}}],"answer":null}`)}
	b, _, err := r.Record(0)
	require.NoError(t, err)
	require.Equal(t,
		`{"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":`+
			`{"name":"f","arguments":{"x":1.0}}}]}],"functions":[{"name":"f","parameters":{}}],"answer":null}`, string(b))
}

// oneRecord is a record by itself.
type oneRecord string

func (oneRecord) Len() int64          { return 1 }
func (oneRecord) Fingerprint() string { return "" }
func (oneRecord) Close() error        { return nil }
func (r oneRecord) Record(int64) ([]byte, dataset.Place, error) {
	return []byte(r), dataset.Place{}, nil
}

// A system's text beside the turns is the first message in every shape, under the names that other trainers read.
func TestSystemBeside(t *testing.T) {
	const talk = `[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]`
	for line, want := range map[string]string{
		`{"messages":` + talk + `,"system":"s"}`:             "s",
		`{"messages":` + talk + `,"system_prompt":"s"}`:      "s",
		`{"messages":` + talk + `,"system":null}`:            "",
		`{"conversations":` + talk + `,"system_prompt":"s"}`: "s",
		`{"messages":[{"role":"system","content":"own"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"system":"s"}`: "own",
	} {
		d, err := openLine(t, line, dataset.Options{}).Read(0)
		require.NoError(t, err, line)
		if want == "" {
			require.Len(t, d.Messages, 2, line)
			continue
		}
		require.Len(t, d.Messages, 3, line)
		require.Equal(t, [2]string{"system", want}, [2]string{d.Messages[0].Role, d.Messages[0].Content}, line)
	}
}
