package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
)

const logName = "stages.jsonl"

// turn is a line of stages.jsonl.
type turn struct {
	Time  time.Time `json:"time"`
	Stage string    `json:"stage"`
	Kind  string    `json:"kind"` // begin or end
	From  string    `json:"from,omitempty"`
	Set   string    `json:"set,omitempty"` // see settings
}

// settings identifies what a stage is told: the text of the run file, and the arguments.
func (s *staged) settings(n int, more []string) (string, error) {
	text, err := os.ReadFile(s.Run)
	sum := sha256.New()
	for _, a := range append(s.args(n, more), string(text)) {
		fmt.Fprintf(sum, "%d %s", len(a), a)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), err
}

// state is how far a stage has come.
type state struct {
	begun bool // its folder has some of it
	over  bool
	but   string // what is to be said of one that is over
}

// states are those of all stages. What has begun from something else than it would begin from now is refused.
func (s *staged) states(more []string) ([]state, error) {
	last, err := s.turns()
	if err != nil {
		return nil, exit.With(err, exit.Corrupt)
	}
	out := make([]state, len(s.Stages))
	for n := len(out) - 1; n >= 0; n-- {
		t, is := last[s.Stages[n].Name], &out[n]
		dir := filepath.Join(s.Dir, s.Stages[n].Name)
		_, err := os.Stat(dir)
		is.begun = t.Kind != "" && err == nil
		_, err = os.Stat(filepath.Join(s.export(n), "config.json"))
		follows := n+1 < len(out) && out[n+1].over
		is.over = t.Kind == "end" && (err == nil || follows)
		if (is.begun || is.over) && t.From != s.from(n) {
			return nil, exit.Usagef("stage %s began from %s, and would now begin from %s: remove %s to train it from "+
				"there, or set the file of stages back", s.Stages[n].Name, t.From, s.from(n), dir)
		}
		if n+1 < len(out) && out[n+1].begun && !is.over && !is.begun {
			return nil, exit.Usagef("stage %s began from %s, which is to be trained again: remove %s too",
				s.Stages[n+1].Name, s.export(n), filepath.Join(s.Dir, s.Stages[n+1].Name))
		}
		set, err2 := s.settings(n, more)
		if err2 != nil {
			return nil, err2
		}
		if t.Set != "" && t.Set != set {
			is.but = fmt.Sprintf(", with other settings or another run file than now; remove %s to train it with these",
				dir)
		}
		if err != nil {
			is.but += fmt.Sprintf("; its export is gone, and %s, which began from it, is over: remove %s too to train "+
				"both again", s.Stages[min(n+1, len(out)-1)].Name, filepath.Join(s.Dir, s.Stages[min(n+1,
				len(out)-1)].Name))
		}
	}
	return out, nil
}

func (s *staged) log() string { return filepath.Join(s.Dir, logName) }

// turns are the last lines of stages, with what each began from. A line that a crash has cut is as if it
// were not there.
func (s *staged) turns() (map[string]turn, error) {
	last := map[string]turn{}
	text, err := os.ReadFile(s.log())
	if errors.Is(err, os.ErrNotExist) {
		return last, nil
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		var t turn
		if json.Unmarshal(line, &t) != nil || t.Kind != "begin" && t.Kind != "end" {
			continue
		}
		if t.Kind == "end" {
			t.From = last[t.Stage].From
		}
		last[t.Stage] = t
	}
	return last, err
}

// note appends a line, which is on disk when it returns.
func (s *staged) note(t turn) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return appendLine(s.log(), text)
}

// appendLine appends a line, behind a break where a crash has left none.
func appendLine(name string, line []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	i, err := f.Stat()
	if err == nil && i.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, i.Size()-1); err == nil && last[0] != '\n' {
			line = append([]byte("\n"), line...)
		}
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
