package run

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// RecordName is the file of log.dir that says whose records lie there, and how the run ended.
const RecordName = "run.json"

// Record is that file.
type Record struct {
	Form    int       `json:"form"` // of this file
	ID      string    `json:"id"`   // of the run, in its checkpoints too
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	Status  string    `json:"status"`           // Running, Finished, Stopped or Failed
	Reason  string    `json:"reason,omitempty"` // of a run that has failed
	Ended   time.Time `json:"ended,omitzero"`
	// Files are names of records that the run file gives, beside those that every run has.
	Files []string `json:"files,omitempty"`
}

// What a Record says of a run. One that says Running may have been killed.
const (
	Running  = "running"
	Finished = "finished"
	Stopped  = "stopped"
	Failed   = "failed"
)

// ReadRecord reads the record of a run directory; it is zero where there is none. Of one that a later program has
// written the name, the beginning and a reason are read.
func ReadRecord(dir string) (r Record) {
	b, err := os.ReadFile(filepath.Join(dir, RecordName))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return Record{}
	}
	if r.Form > recordForm {
		r = Record{ID: r.ID, Name: r.Name, Started: r.Started, Files: r.Files, Status: "unknown",
			Reason: fmt.Sprintf("%s has form %d, of a later lfactor; this one reads up to %d", RecordName, r.Form, recordForm)}
	}
	return r
}

// runSection is where a checkpoint has the identity of its run.
const runSection = "run"

// records are the names, or patterns of them, of what a run writes in log.dir about itself. What is kept to be used
// again, such as latents and the answers of a reference, is no run's own.
var records = []string{"run.yaml", RecordName, MarksName, "log.jsonl", "metrics.jsonl", EdgesName, "edges-*.json", "edges", "loss.svg",
	"quarantine.jsonl", LedgerName, record.ChainName, record.TraceName, rollout.FileName, "tensorboard", "experts.svg", "routing", "tensors",
	"tables", "report.html", "profile.*", ShownDir}

// ownFolder sees to it that log.dir has this run's records alone. What another run has left there is moved to a folder
// of its own beside it, and what this one has there, whose checkpoint it goes on from, comes back.
func (r *Run) ownFolder() error {
	dir, c := r.cfg.Run.Log.Dir, &r.cfg.Run
	have := ReadRecord(dir)
	r.record = Record{ID: fmt.Sprintf("%x", time.Now().UnixNano()), Name: cmp.Or(c.Log.Name, r.job.Model.Family),
		Started: today().UTC()}
	for _, name := range []string{c.Log.JSONL, c.Log.TensorBoard} {
		if name = filepath.Clean(name); filepath.Base(name) == name && name != "." && !slices.Contains(records, name) {
			r.record.Files = append(r.record.Files, name)
		}
	}
	if r.start.step > 0 {
		var id string
		var bad *checkpoint.Error
		err := r.start.saved.Section(runSection, &id)
		switch {
		case errors.As(err, &bad) && bad.Fault == checkpoint.Missing, err == nil && (id == "" || id == have.ID):
			r.record.ID, r.record.Started = cmp.Or(have.ID, r.record.ID), cmp.Or(have.Started, r.record.Started)
			return r.tell(Running, "")
		case err != nil:
			return err
		}
		r.record.ID = id
	}
	old, err := setAside(dir, have)
	if err != nil {
		return fmt.Errorf("log.dir: the records of the run before cannot be moved: %w; empty the folder, or name another", err)
	}
	if old != "" {
		fmt.Fprintf(r.io.Progress, "note: %s had another run's records; they are in %s now\n", dir, old)
	}
	if r.start.step > 0 {
		if back := r.bringBack(); back != nil {
			return back
		}
	}
	return r.tell(Running, "")
}

// today is when a run begins.
var today = time.Now

// firstDay sets the day that a chat template writes, where neither the run file nor the checkpoint has one: that on
// which the run began, which the process that leads tells the others, and the record those who ask.
func (r *Run) firstDay() {
	d := &r.cfg.Run.Data
	if d.Date != "" || r.tok == nil || r.start.saved != nil && !converted(r.start.saved) {
		return // a checkpoint without a day is of a version that wrote another
	}
	if t, err := setup.Template(r.cfg, r.tok, r.conf); err != nil || !t.Dated() {
		return // openData tells of an error, where it needs one
	}
	d.Date = cmp.Or(os.Getenv(envDay), cmp.Or(r.record.Started, today()).Local().Format(time.DateOnly))
}

// tell writes the record.
func (r *Run) tell(status, reason string) error {
	r.record.Form, r.record.Status, r.record.Reason, r.record.Ended = recordForm, status, reason, time.Time{}
	if status != Running {
		r.record.Ended = time.Now().UTC()
	}
	b, err := json.Marshal(r.record)
	if err != nil {
		return err
	}
	return machine.ReplaceBytes(filepath.Join(r.cfg.Run.Log.Dir, RecordName), 0o600, b)
}

// closes is deferred by a run: it ends it with its error, or with what the program panics with.
func (r *Run) closes(err *error) {
	gone := recover()
	if *err = r.ended(*err, gone); gone != nil {
		panic(gone)
	}
}

// ended says in the record how the run has ended, and releases what it holds. It returns the run's error. gone is what
// the program has panicked with, nil for nothing.
func (r *Run) ended(err error, gone any) error {
	if r.unlock == nil {
		return err
	}
	defer r.unlock()
	status, why := Finished, ""
	switch {
	case gone != nil:
		status, why = Failed, configs.Redact(fmt.Sprint("panic: ", gone))
	case errors.Is(err, ErrStopped):
		status = Stopped
	case err != nil:
		status, why = Failed, configs.Redact(err.Error())
	}
	if r.record.ID == "" {
		return err
	}
	if told := r.tell(status, why); told != nil && err == nil {
		return told
	}
	return err
}

// kept is the folder of the records of earlier runs in a run directory: beside runs/latest, and before below others.
func kept(dir string) string {
	if filepath.Base(dir) == "latest" {
		return filepath.Dir(dir)
	}
	return filepath.Join(dir, "before")
}

// setAside moves the records in dir to a folder that has the time at which their run began, and returns it, "" where
// there are none.
func setAside(dir string, have Record) (to string, err error) {
	log, err := os.Stat(filepath.Join(dir, "log.jsonl"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && log.Size() == 0 {
		return "", nil
	} else if err != nil {
		return "", err
	}
	began := have.Started
	if began.IsZero() {
		began = log.ModTime()
	}
	name := began.UTC().Format("20060102-150405")
	if have.Name != "" {
		name += "-" + filepath.Base(have.Name)
	}
	to = filepath.Join(kept(dir), name)
	for n := 2; machine.Exists(to); n++ {
		to = filepath.Join(kept(dir), fmt.Sprintf("%s-%d", name, n))
	}
	return to, moveRecords(dir, to, have)
}

// moveRecords moves the records of a run from one folder to another.
func moveRecords(from, to string, of Record) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	all, err := os.ReadDir(from)
	for _, e := range all {
		known := func(pattern string) bool {
			ok, _ := filepath.Match(pattern, e.Name()) // all are patterns
			return ok
		}
		if slices.ContainsFunc(records, known) || slices.Contains(of.Files, e.Name()) {
			err = errors.Join(err, os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		}
	}
	return err
}

// bringBack moves this run's records, which were set aside, to log.dir.
func (r *Run) bringBack() error {
	dir := r.cfg.Run.Log.Dir
	all, err := os.ReadDir(kept(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		from := filepath.Join(kept(dir), e.Name())
		if was := ReadRecord(from); e.IsDir() && was.ID == r.record.ID {
			r.record.Started = was.Started
			fmt.Fprintf(r.io.Progress, "note: the records in %s are this run's and are in %s again\n", from, dir)
			return errors.Join(moveRecords(from, dir, was), os.Remove(from))
		}
	}
	return err
}

// lockRun holds the directories that a run writes.
func lockRun(cfg *configs.Config) (func(), error) {
	var held []func()
	release := func() {
		for _, f := range held {
			f()
		}
	}
	dirs := map[string]string{"log.dir": cfg.Run.Log.Dir, "checkpoint.dir": cfg.Run.Checkpoint.Dir}
	for _, key := range []string{"checkpoint.dir", "log.dir"} {
		if dirs[key] == "" || key == "log.dir" && dirs[key] == dirs["checkpoint.dir"] {
			continue
		}
		f, err := machine.LockDir(key, dirs[key])
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, f)
	}
	return release, nil
}
