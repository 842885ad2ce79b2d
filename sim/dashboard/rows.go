package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

// rowsSamples is how many samples of each source a page of rows has.
const rowsSamples = 20

// rows gives a page of its own: the rows of a step ?step as they were trained, by the run's ledger
// the newest one
// where none is named, samples of the run's sources, and what a recipe has dropped that wrote
// them. Its script is
// the page's own, and may ask this server nothing.
func (s *Server) rows(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	runs := s.all()
	if err != nil || id < 0 || id >= len(runs) {
		http.Error(w, "there is no such run", http.StatusNotFound)
		return
	}
	body, status, err := s.rowsPage(runs[id], r)
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
		return nil, http.StatusServiceUnavailable,
			errors.New("such a page is being made; ask again when it is there")
	}
	defer s.viewing.Unlock()
	page, err := rowsOf(f, r)
	if err != nil {
		return nil, http.StatusUnprocessableEntity, err
	}
	var b bytes.Buffer
	if err = page.Write(&b); err != nil {
		return nil, http.StatusInternalServerError, err
	}
	return b.Bytes(), http.StatusOK, nil
}

// rowsOf reads a step again.
func rowsOf(f *folder, r *http.Request) (*setup.View, error) {
	switch {
	case f.simulated():
		return nil, errors.New("a simulated step has no rows")
	case f.job != nil:
		return nil, errors.New("rows of a cluster's job are not told here, since who may look at " +
			"jobs may not read their data; " +
			"lfactor data view --config run.yaml shows them on a host that has it")
	}
	step, err := whole(r, "step", 0)
	if err != nil {
		return nil, err
	}
	o := run.ViewOptions{Number: step, Steps: 1, Samples: rowsSamples, Dropped: true}
	l, err := dataset.ReadLedger(filepath.Join(f.dir, run.LedgerName))
	if err != nil {
		return nil, fmt.Errorf("no step is recorded yet: %w", err)
	}
	defer l.Close() //nolint:errcheck // it was read only
	last, ok := l.Last()
	if !ok {
		return nil, errors.New("no step is recorded yet")
	}
	if step == 0 {
		o.Number = last
	}
	if _, o.Start, err = l.Blame(o.Number); err != nil {
		return nil, err
	}
	page := &setup.View{Name: fmt.Sprintf("step %d of %s", o.Number, f.dir)}
	return page, run.AddView(page, filepath.Join(f.dir, "run.yaml"), o)
}
