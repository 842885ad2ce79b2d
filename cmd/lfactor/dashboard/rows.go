package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset/setup"
)

// rowsSamples is how many samples of each source a page of rows has.
const rowsSamples = 20

// rows gives a page of its own: the rows of a step ?step as they were trained, by the run's ledger the newest one
// where none is named, samples of the run's sources, and what a recipe has dropped that wrote them. Its script is
// the page's own, and may ask this server nothing.
func (s *Server) rows(w http.ResponseWriter, r *http.Request) {
	f := s.named(w, r)
	if f == nil {
		return
	}
	body, status, err := s.rowsPage(f, r)
	// Who takes it slowly keeps nobody else waiting, and a page that nobody takes is given up.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(rowsPatience)) // some have none
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Security-Policy", setup.ViewPolicy()+
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body) // who asks may have gone
}

// rowsPatience is how long a page of rows may be under way to a browser.
const rowsPatience = 10 * time.Minute

// rowsPage makes a page, one at a time, or says with which status there is none.
func (s *Server) rowsPage(f *folder, r *http.Request) (body []byte, status int, err error) {
	if !s.viewing.TryLock() {
		return nil, http.StatusServiceUnavailable, errors.New("such a page is being made; ask again when it is there")
	}
	defer s.viewing.Unlock()
	switch {
	case f.simulated():
		err = errors.New("a simulated step has no rows")
	case f.job != nil:
		err = errors.New("rows of a cluster's job are not told here, since who may look at jobs may not read their " +
			"data; lfactor data view --run DIR shows them on a host that has it")
	}
	if err != nil {
		return nil, http.StatusUnprocessableEntity, err
	}
	step, err := whole(r, "step", 0)
	if err != nil {
		return nil, http.StatusUnprocessableEntity, err
	}
	if dir := run.Elsewhere(filepath.Join(f.dir, "run.yaml")); dir != "" && s.o.Program != "" {
		body, err = rowsFrom(r.Context(), s.o.Program, dir, f.dir, step)
	} else {
		body, err = rowsOf(f.dir, step)
	}
	if err != nil {
		return nil, http.StatusUnprocessableEntity, err
	}
	return body, http.StatusOK, nil
}

// rowsOf reads a step again.
func rowsOf(dir string, step int64) ([]byte, error) {
	page := &setup.View{}
	if err := run.AddStep(page, dir, step, run.ViewOptions{Samples: rowsSamples}); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := page.Write(&b)
	return b.Bytes(), err
}

// rowsFrom has a process read a step again that works in the folder where the run was started, since the paths of
// its configuration begin there: runs of several folders are shown together.
func rowsFrom(ctx context.Context, program, started, dir string, step int64) ([]byte, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program, "data", "view", "--run", dir, "--step", strconv.FormatInt(step, 10),
		"-n", strconv.Itoa(rowsSamples), "--html", "-")
	var said bytes.Buffer
	c.Dir, c.Stderr = started, &said
	body, err := c.Output()
	if why := strings.TrimSpace(said.String()); err != nil && why != "" {
		return nil, fmt.Errorf("%s; the paths of its configuration begin at %s, where the run was started",
			strings.TrimPrefix(why, "error: "), started)
	}
	return body, err
}
