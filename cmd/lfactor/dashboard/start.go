package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/topology/machine"
)

// OutputName is the file of a run's folder that has what a run has written that the page began.
const OutputName = "output.txt"

// files are the run files that may be started.
func (s *Server) files() (names []string) {
	for _, end := range []string{"*.yaml", "*.yml"} {
		all, _ := filepath.Glob(filepath.Join(s.o.Start, end)) // the patterns are well formed
		for _, f := range all {
			names = append(names, filepath.Base(f))
		}
	}
	return names
}

// begin starts a run of one of those files.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) {
	var of struct{ File string }
	err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&of)
	if err == nil && (s.o.Start == "" || !slices.Contains(s.files(), of.File)) {
		err = fmt.Errorf("%q is none of the run files that this server starts: lfactor ui --admin --start FOLDER", of.File)
	}
	if err == nil {
		err = s.launch(s.o.Start, of.File)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	answer(w, struct{}{})
}

// resume has a run that has ended go on where it stopped, in the folder where it was started.
func (s *Server) resume(f *folder, _ *http.Request) (any, error) {
	switch _, _, running := f.ask(); {
	case s.o.Start == "":
		return nil, errors.New("this server starts no runs: lfactor ui --admin --start FOLDER")
	case running:
		return nil, errors.New("the run is under way")
	case f.job != nil:
		return nil, errors.New("a cluster's job is begun anew by lfactor train --cluster")
	}
	file, err := filepath.Abs(filepath.Join(f.dir, "run.yaml"))
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.launch(cmp.Or(run.Elsewhere(file), "."), file)
}

// launch checks a run file, and has a process of its own, which outlives this one, train by it in a folder.
func (s *Server) launch(at, file string) error {
	var bad bytes.Buffer
	check := exec.Command(s.o.Program, "config", "check", file, "-o", "json")
	check.Dir, check.Stderr = at, &bad
	text, err := check.Output()
	var of struct {
		Log string `json:"log_dir"`
	}
	if err == nil {
		err = json.Unmarshal(text, &of)
	}
	if err != nil {
		return errors.New(cmp.Or(strings.TrimSpace(bad.String()), err.Error()))
	}
	dir := of.Log
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(at, dir)
	}
	if machine.Holder(dir) != 0 {
		return fmt.Errorf("a run is under way in %s", dir)
	}
	if err = os.MkdirAll(dir, 0o755); err == nil {
		_, err = machine.DetachedIn(at, filepath.Join(dir, OutputName), s.o.Program, "train", file)
	}
	same := func(f *folder) bool {
		a, gone := os.Stat(f.dir)
		b, lost := os.Stat(dir)
		return gone == nil && lost == nil && os.SameFile(a, b)
	}
	s.runsMu.Lock()
	defer s.runsMu.Unlock()
	if err == nil && !slices.ContainsFunc(s.runs, same) {
		s.runs = append(s.runs, newFolder(dir))
	}
	return err
}
