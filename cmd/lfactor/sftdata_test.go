package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

// said reads conversations as role: text, or why they are none.
func said(t *testing.T, f configs.SFTFormat, lines ...string) (out []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644))
	s, err := dataset.Open(path, setup.SFTOptions(dataset.Options{}, path, &f, false))
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, dataset.KindChat, s.Kind())
	for i := range s.Len() {
		d, err := s.Read(i)
		if err != nil {
			out = append(out, "! "+err.Error()[strings.Index(err.Error(), ": ")+2:])
			continue
		}
		var turns []string
		for _, m := range d.Messages {
			turns = append(turns, m.Role+": "+m.Content)
		}
		if d.Tools != nil {
			turns = append(turns, "tools "+string(d.Tools))
		}
		out = append(out, strings.Join(turns, " | "))
	}
	return
}

// TestSFTReading reads data by the entries that LoongForge comes with, as its sft_format_utils.py does: what
// an entry does not name is not read, question and answer alternate, the system's message goes in front.
func TestSFTReading(t *testing.T) {
	t.Parallel()
	all, err := configs.SFTFormats("")
	require.NoError(t, err)
	require.Equal(t, []string{"user: q\ni | assistant: a", "user: i | assistant: a",
		`! it has no key "output"; its keys are instruction`},
		said(t, all["default"], `{"instruction":"q","input":"i","output":"a","system":"s","history":[["x","y"]],"tools":[{}]}`, `{"instruction":"","input":"i","output":"a"}`, `{"instruction":"q"}`))
	require.Equal(t, []string{"system: s | user: x | assistant: y | user: q | assistant: a"},
		said(t, all["extended_alpaca"],
			`{"instruction":"q","input":"","output":"a","system":"s","history":[["x","y"]]}`))
	require.Equal(t, []string{"system: s | user: q | assistant: a",
		"! its turn 2 is the user's, and roles do not alternate",
		"! it has 1 turns, and the last has no answer",
		`! messages[0] has the role "human", which none is called here`,
		`! conversations[0] has the role "human", which none is called here`,
		"! its turn 1 is the assistant's, and roles do not alternate"},
		said(t, all["sharegpt"],
			`{"messages":[{"role":"user","content":"q"},{"role":"system","content":"s"},{"role":"assistant","content":"a"}],"system":"other"}`,
			`{"messages":[{"role":"user","content":"q"},{"role":"user","content":"q"}]}`,
			`{"messages":[{"role":"user","content":"q"}]}`,
			`{"messages":[{"role":"human","content":"q"},{"role":"assistant","content":"a"}]}`,
			`{"conversations":[{"from":"human","value":"q"}]}`,
			`{"messages":[{"role":"assistant","content":"q"},{"role":"assistant","content":"a"}]}`))
	require.Equal(t, []string{"system: s | user: q | assistant: a"}, said(t, all["multimodal_sharegpt"],
		`{"messages":[{"from":"system","value":"s"},{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`))
	require.Equal(t, []string{`user: q | assistant:  | tool: r | assistant: a | tools [{"name":"f"}]`},
		said(t, all["openai"],
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{}]},{"role":"tool","content":"r"},{"role":"assistant","content":"a"}],"tools":[{"name":"f"}]}`))
	own := configs.SFTFormat{Format: "sharegpt", Columns: map[string]string{"messages": "talk",
		"system": "rules", "tools": "functions"},
		Tags: map[string]string{"role_tag": "who", "content_tag": "what", "user_tag": "Q",
			"assistant_tag": "A", "observation_tag": "O", "function_tag": "F"}}
	require.Equal(t, []string{`system: s | user: q | assistant: call | tool: r | assistant: a | tools [{"name":"f"}]`}, said(t, own,
		`{"rules":"s","functions":[{"name":"f"}],"talk":[{"who":"Q","what":"q"},{"who":"F","what":"call"},{"who":"O","what":"r"},{"who":"A","what":"a"}]}`))
}

// TestSFTImages: conversations in multimodal_sharegpt with the images that they name are linted, shown
// and trained on as they are.
//
//lfvet:long a table of cases
func TestSFTImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Mkdir(in("images"), 0o755))
	ids, err := demo.SceneTokenizer(in("tokenizer"))
	require.NoError(t, err)
	r, all := rand.New(rand.NewPCG(5, 6)), demo.Scenes(false)
	var lines []string
	for i := range 48 {
		s := all[r.IntN(len(all))]
		name := fmt.Sprintf("images/%d.png", i)
		require.NoError(t, os.WriteFile(in(name), s.Png(r), 0o644))
		turns := []map[string]string{{"from": "human", "value": "<image>" + demo.SceneQuestions[0].Text},
			{"from": "gpt", "value": demo.SceneQuestions[0].Answer(s)}}
		switch i {
		case 7: // no role of the entry's
			turns[0]["from"] = "user"
		case 9:
			name = "images/none.png"
		}
		line, err := json.Marshal(map[string]any{"messages": turns, "images": []string{name}})
		require.NoError(t, err)
		lines = append(lines, string(line))
	}
	require.NoError(t, os.WriteFile(in("data.jsonl"), []byte(strings.Join(lines, "\n")), 0o644))

	out, err := simOutput(t, "data", "lint", in("data.jsonl"), "--dataset", "multimodal_sharegpt", "--media")
	require.Equal(t, exit.Data, cli.ExitCode(err))
	require.Contains(t, out, `its message 0 has the role "user", which none is called here`)
	require.Contains(t, out, `"images/none.png": no such file`)
	require.Contains(t, out, "48 documents, 2 findings")
	_, err = simOutput(t, "data", "preview", in("data.jsonl"), "--dataset", "multimodal_sharegpt", "--media",
		"--html", in("page.html"), "-n", "3")
	require.NoError(t, err)
	page, err := os.ReadFile(in("page.html"))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(page), "data:image/png;base64,"))
	require.Equal(t, 3, strings.Count(string(page), `<div class="turn assistant">`))
	_, err = simOutput(t, "data", "lint", in("data.jsonl"), "--dataset", "multimodal_sharept")
	require.ErrorContains(t, err, `did you mean "multimodal_sharegpt"?`)

	text := fmt.Sprintf(demo.DemoVLMConfig, ids["vocab"], ids["<|im_end|>"], ids["<|image_pad|>"],
		ids["<|video_pad|>"], ids["<|vision_start|>"], in("data.jsonl"), in("tokenizer"), 3, 1,
		in("checkpoints"), 3, in("run"))
	text = strings.Replace(text, ", sample_type: chat_mix", "", 1)
	cfg, err := configs.Load(configs.Request{File: "test", Text: []byte(text),
		Args: []string{"--sft-dataset", "multimodal_sharegpt", "checkpoint.save_hf=false"}})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
	require.Len(t, metrics(t, dir), 3)
	reasons := func() (out []string) {
		bad, err := dataset.ReadQuarantine(filepath.Join(dir, "run", "quarantine.jsonl"))
		require.NoError(t, err)
		for _, b := range bad {
			out = append(out, b.Reason)
		}
		return
	}
	require.NotEmpty(t, reasons())
	for _, b := range reasons() {
		require.Regexp(t, `the role "user"|none\.png`, b)
	}

	// Shards of them are a folder for Energon, whose messages have the same names.
	_, err = simOutput(t, "data", "convert", "--output_dir", in("wds"), "--json_file", in("data.jsonl"),
		"--image_dir", dir, "--sample_type", "multi_mix_qa", "--media", "image")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(in("run")))
	cfg, err = configs.Load(configs.Request{File: "test",
		Text: []byte(strings.Replace(text, in("data.jsonl"), in("wds"), 1)), Args: []string{"--sft-dataset",
			"multimodal_sharegpt", "checkpoint.save_hf=false", "train.steps=6", "checkpoint.dir=" +
				in("other")}})
	require.NoError(t, err)
	require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
	require.Len(t, metrics(t, dir), 6)
	require.Len(t, reasons(), 1)
	require.Contains(t, reasons()[0], `the role "user", which none is called here`)
}
