package token

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawnForm is what transformers makes of a conversation in one form of its messages.
type drawnForm struct {
	Texts  bool    `json:"texts"`
	Parts  bool    `json:"parts"`
	Prompt bool    `json:"prompt"`
	IDs    []int32 `json:"ids"`
	Mask   []int   `json:"mask"`
	Error  string  `json:"error"`
}

// drawnChat is a conversation with a template.
type drawnChat struct {
	Name, Source, Shape string
	Messages            []json.RawMessage
	Tools               json.RawMessage
	Forms               []drawnForm
}

// TestChatsDrawn: all chat templates that TRL's package and the folders in LFACTOR_TEMPLATES have, each with
// about a hundred shapes of conversations: ids, masks and prompts are those of transformers and TRL, or the
// conversation is refused with a reason. It wants Python with transformers and TRL, named by LFACTOR_PYTHON or
// python3; with -v each refusal is told.
func TestChatsDrawn(t *testing.T) {
	if !*long {
		t.Skip("about 7,000 pairs of a template and a conversation are held to transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers, trl").Run(); err != nil {
		t.Skipf("%s cannot import transformers and trl (%v): no conversation is compared", python, err)
	}
	dir := t.TempDir()
	run := exec.Command(python, append([]string{"bench/golden/chat_drawn.py", dir},
		strings.Fields(os.Getenv("LFACTOR_TEMPLATES"))...)...)
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	compareDrawn(t, dir)
}

func compareDrawn(t *testing.T, dir string) {
	tok, conf, err := LoadDir(dir)
	require.NoError(t, err)
	f, err := os.Open(filepath.Join(dir, "chats.jsonl"))
	require.NoError(t, err)
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	var masks = map[string][]int{} // of TRL's templates for training, by ids
	for lines.Scan() {
		var c drawnChat
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		for _, o := range c.Forms {
			if strings.HasSuffix(c.Name, "_training") && o.Mask != nil {
				masks[strings.TrimSuffix(c.Name, "_training")+fmt.Sprint(o.IDs)] = o.Mask
			}
		}
	}
	require.NoError(t, lines.Err())
	_, err = f.Seek(0, 0)
	require.NoError(t, err)
	lines = bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c drawnChat
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		for _, prompt := range []bool{false, true} {
			kind, err := c.compare(tok, conf, prompt, masks)
			if err != nil {
				t.Errorf("%s, %s, prompt %v: %v", c.Name, c.Shape, prompt, err)
			}
			counts[kind]++
		}
	}
	require.NoError(t, lines.Err())
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d %s", counts[k], k)
	}
}

// compare tells in a word what came of a conversation.
func (c *drawnChat) compare(tok *Tokenizer, conf *Config, prompt bool, masks map[string][]int) (string, error) {
	tmpl, err := NewTemplate(c.Source, conf)
	if err != nil {
		return c.refused(prompt, err)
	}
	var turns []Message
	for _, raw := range c.Messages {
		var m Message
		if err := json.Unmarshal(raw, &struct{ Role *string }{&m.Role}); err != nil {
			return "unread", err
		}
		m.Raw = raw
		turns = append(turns, m)
	}
	var tools any
	if string(c.Tools) != "null" {
		tools = c.Tools
	}
	var ids []int32
	var mask []bool
	if prompt {
		var text string
		if text, err = tmpl.Render(turns, tools, true, nil); err == nil {
			ids = tok.Encode(text, false)
		}
	} else {
		ids, mask, err = EncodeChat(tok, tmpl, turns, ChatOptions{Tools: tools})
	}
	if err != nil {
		return c.refused(prompt, err)
	}
	for _, o := range c.Forms {
		if o.Prompt != prompt || o.Error != "" {
			continue
		}
		more := len(ids) - len(o.IDs)
		if more < 0 || !slices.Equal(ids[:len(o.IDs)], o.IDs) {
			continue
		}
		if more > 1 && strings.TrimSpace(tok.Decode(ids[len(o.IDs):len(ids)-1], false)) == "" {
			more = 1 // blanks before the token that stops, as before any other turn's
		}
		if more > 1 {
			continue
		}
		if prompt && more == 0 {
			return "prompt is the same", nil
		}
		// a turn begins behind the prompt that asks for it, of which TRL's templates learn a part
		if want := masks[c.Name+fmt.Sprint(ids)]; o.Mask == nil && want != nil {
			m := sameMask(tok, ids, mask, want)
			if m == "otherwise" {
				return "mask differs", fmt.Errorf("%s, TRL has %v", marked(tok, ids, mask), want)
			}
			return "as TRL's template for training: " + m, nil
		}
		if o.Mask != nil && sameMask(tok, ids, mask, o.Mask) != "the same" {
			return "mask differs", fmt.Errorf("%s, want %v", marked(tok, ids, mask), o.Mask)
		}
		return map[int]string{0: "ids are the same", 1: "ids are the same, and a token that stops the " +
			"last turn"}[more], nil
	}
	if strings.Contains(c.Forms[0].Error, "generator is not JSON serializable") {
		return "rendered, where transformers has no list of what a filter gives", nil
	}
	return "ids differ", fmt.Errorf("%s, as none of "+
		"%+v", marked(tok, ids, make([]bool, len(ids))), tok.Decode(c.Forms[0].IDs, false)+c.Forms[0].Error)
}

func (c *drawnChat) refused(prompt bool, err error) (string, error) {
	for _, o := range c.Forms {
		if o.Prompt == prompt && o.Error == "" {
			switch text := err.Error(); {
			case strings.Contains(text, errVanished.Error()):
				return "refused, since the template leaves something out", nil
			case strings.Contains(text, "cannot tell which text"):
				return "refused, since turns cannot be told", nil
			}
			return "refused for another reason", fmt.Errorf("%w", err)
		}
	}
	return "refused as by transformers", nil
}

// sameMask tells how a mask differs.
func sameMask(tok *Tokenizer, ids []int32, have []bool, want []int) string {
	less, more := 0, 0
	for i := range have {
		if have[i] && want[i] == 0 {
			more++
		}
		if !have[i] && want[i] == 1 {
			blank := strings.TrimSpace(tok.Decode(ids[i:i+1], false)) == ""
			if less++; !blank && (i+1 == len(want) || want[i+1] == 0) {
				return "otherwise" // a turn's end is not learnt
			}
		}
	}
	switch {
	case less+more == 0:
		return "the same"
	case less == 0:
		return "more is learnt"
	case more == 0:
		return "less is learnt"
	}
	return "otherwise"
}
