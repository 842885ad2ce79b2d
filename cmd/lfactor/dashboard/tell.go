package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/lfactor/lfactor/topology/cost"
)

// Tell writes what a page would be told of the run in a folder, as JSON: of checkpoints, samples (of a step,
// 0 for the newest) or plan, whose step is simulated on m. Agents of a cluster ask for it on the run's host.
func Tell(w io.Writer, dir, name string, step int64, m *cost.Machine) error {
	s := New(0, Options{Dirs: []string{dir}, Machine: m})
	ask := map[string]func(*folder, *http.Request) (any, error){"checkpoints": checkpointsOf,
		"samples": samplesOf, "plan": s.planOf}[name]
	if ask == nil {
		return fmt.Errorf("--tell %s: want checkpoints, samples or plan", name)
	}
	r := &http.Request{URL: &url.URL{}}
	if step > 0 {
		r.URL.RawQuery = fmt.Sprintf("step=%d", step)
	}
	v, err := ask(s.runs[0], r)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(v)
}
