package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/run/rollout"
)

const (
	drawnTail = 8 << 20 // bytes at the end of a run's log of answers that are looked at
	drawnMost = 2000    // answers that are sent at a time
	drawnText = 4000    // letters of a text
)

// drawnAnswer is an answer that a run drew, as rollouts.jsonl has it, without its tokens.
type drawnAnswer struct {
	Step    int64    `json:"step"`
	Sample  int64    `json:"sample"`
	Index   int      `json:"index"`
	Version int64    `json:"version"`
	Asked   string   `json:"asked"`
	Text    string   `json:"text"`
	Reward  *float64 `json:"reward"`
	End     string   `json:"end"`
	Fault   string   `json:"fault,omitempty"`
	Suspect bool     `json:"suspect,omitempty"`
	Tokens  int      `json:"tokens"`
}

// drawnOf are the newest answers that a run drew, with its rewards, the newest first: ?most.
func drawnOf(f *folder, r *http.Request) (any, error) {
	most, err := whole(r, "most", 400)
	if err != nil {
		return nil, err
	}
	out := []drawnAnswer{}
	log, err := os.Open(filepath.Join(f.dir, rollout.FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	} else if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // it is only read
	i, err := log.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, i.Size()-drawnTail)
	text, err := io.ReadAll(io.NewSectionReader(log, from, i.Size()-from))
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(text, []byte("\n"))
	for k := len(lines) - 2; k >= 0 && int64(len(out)) < min(max(most, 0), drawnMost); k-- { // the last has no end
		var a struct {
			drawnAnswer
			Answer []int32 `json:"answer"`
		}
		if json.Unmarshal(lines[k], &a) != nil {
			break // the rest of a line, at the beginning of what was read
		}
		a.Tokens, a.Asked, a.Text = len(a.Answer), short(a.Asked), short(a.Text)
		out = append(out, a.drawnAnswer)
	}
	return out, nil
}

// short is a text, or its beginning.
func short(text string) string {
	if r := []rune(text); len(r) > drawnText {
		return string(r[:drawnText]) + " …"
	}
	return text
}
