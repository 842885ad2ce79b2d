package tables

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/run/record"
)

// Event is something that a run has said: a row of events.parquet, and a line of the dashboard's events.
type Event struct {
	Time  time.Time `parquet:"time,timestamp(microsecond)" json:"time"` // UTC
	Level string    `parquet:"level,dict" json:"level"`                 // info, warn, error
	Kind  string    `parquet:"kind,dict" json:"kind"`                   // as kinds has it
	Step  *int64    `parquet:"step,optional" json:"step,omitempty"`     // NULL where it is of none
	Value *float64  `parquet:"value,optional" json:"value,omitempty"`   // loss of an evaluation, seconds of a recovery
	Text  string    `parquet:"text" json:"text"`                        //
	File  string    `parquet:"-" json:"file,omitempty"`                 // of what was drawn, in the run's folder shown
}

// kinds tells an event's kind by the beginning of its text, the first that fits. What a run says for people
// begins with these words; its own records are named by theirs.
var kinds = []struct{ begins, kind string }{
	{"eval  ", ""}, {"saved step", "durable"}, {"checkpoint queued", "queued"}, {"checkpoint not saved", "unsaved"},
	{"! the checkpoint of step", "unsaved"}, {"eval", "eval"}, {"answer", "answer"}, {"copies in memory", "copies"},
	{"experts moved", "moved"}, {"recovered after", "recovered"}, {"step given up", "given up"},
	{"! slow:", "slow"}, {"! no step for", "stalled"}, {"! a connection broke", "broken"}, {"! device ", "device"},
	{"failed", "failed"},
	{"stack", "failed"}, {"stopp", "stopped"}, {"stage ", "stage"}, {"from ", "begin"}, {"! ", "warning"}, {"", "said"},
}

var numbers = regexp.MustCompile(`\bstep (\d+)|after ([\d.]+) s`)

// ParseEvent reads a line of log.jsonl. Lines that repeat for people what another one records have the kind "".
func ParseEvent(line []byte) (e Event, err error) {
	var l struct {
		Level string   `json:"level"`
		TS    float64  `json:"ts"`
		Msg   string   `json:"msg"`
		Step  *int64   `json:"step"`
		Loss  *float64 `json:"loss"`
		Every *float64 `json:"every"`
		Error string   `json:"error"`
		Ask   string   `json:"prompt"`
		Said  string   `json:"answer"`
		File  string   `json:"file"`
		Sets  []struct {
			Name string  `json:"name"`
			Loss float64 `json:"loss"`
		} `json:"sets"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return e, err
	}
	e = Event{Time: stamp(l.TS), Level: l.Level, Step: l.Step, Text: l.Msg, File: l.File}
	for _, k := range kinds {
		if strings.HasPrefix(l.Msg, k.begins) {
			e.Kind = k.kind
			break
		}
	}
	if l.Error != "" {
		e.Text += ": " + l.Error
	}
	for _, m := range numbers.FindAllStringSubmatch(l.Msg, -1) {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && e.Step == nil {
			e.Step = &n
		}
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && e.Kind == "recovered" {
			e.Value = &v
		}
	}
	if e.Kind == "eval" {
		e.Value = l.Loss
		for _, s := range l.Sets {
			e.Text += fmt.Sprintf("  %s %.4f", s.Name, s.Loss)
		}
	}
	if e.Kind == "answer" {
		e.Text = fmt.Sprintf("%q → %q", l.Ask, l.Said)
	}
	if e.Kind == "copies" {
		e.Value = l.Every
	}
	return e, nil
}

func events(dir string, row func(Event) error) error {
	return lines(filepath.Join(dir, "log.jsonl"), func(l json.RawMessage) error {
		e, err := ParseEvent(l)
		if err != nil || e.Kind == "" {
			return err
		}
		return row(e)
	})
}

// Job is a row of jobs.parquet: what an actor's device did, of the first 50,000 jobs of a run, as trace.json has them.
type Job struct {
	Actor   string  `parquet:"actor,dict"` // rank0, loader0.1
	Process int32   `parquet:"process"`
	Name    string  `parquet:"name"`      // 2F0.1: stage, kind, microbatch, segment; load, snapshot, write
	Kind    string  `parquet:"kind,dict"` // F, B, I, W, …; "" for what is no action
	Step    int64   `parquet:"step"`
	Start   float64 `parquet:"start_seconds"` // since the run began
	Seconds float64 `parquet:"seconds"`
}

// jobs reads trace.json line by line: a run that is under way has not ended the list yet.
func jobs(dir string, row func(Job) error) error {
	f, err := os.Open(filepath.Join(dir, "trace.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	names := map[[2]int64]string{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, lineMax)
	for in.Scan() {
		var e struct {
			Phase   string  `json:"ph"`
			Name    string  `json:"name"`
			Kind    string  `json:"cat"`
			Process int64   `json:"pid"`
			Row     int64   `json:"tid"`
			Start   float64 `json:"ts"`
			Long    float64 `json:"dur"`
			Args    struct {
				Name string `json:"name"`
				Step int64  `json:"step"`
			} `json:"args"`
		}
		if json.Unmarshal(bytes.TrimSuffix(bytes.TrimPrefix(in.Bytes(), []byte("[")), []byte(",")), &e) != nil {
			continue // the list's own brackets, or what a run is writing
		}
		key := [2]int64{e.Process, e.Row}
		switch {
		case e.Phase == "M" && e.Name == "thread_name":
			names[key] = record.ShortName(e.Args.Name)
		case e.Phase == "X":
			if err := row(Job{Actor: names[key], Process: int32(e.Process), Name: e.Name, Kind: e.Kind,
				Step: e.Args.Step, Start: e.Start / 1e6,
				Seconds: e.Long / 1e6}); err != nil {
				return err
			}
		}
	}
	return in.Err()
}
