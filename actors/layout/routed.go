package layout

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs/exit"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/topology"
)

// RoutingHeader is that of traces of a job's routing, of a model by its identity: choices are made where
// tokens are, so experts may lie elsewhere in a run that replays them.
func (j *Design) RoutingHeader(model string) routers.Header {
	m, e := j.Mesh, j.Model.Spec.Experts
	return routers.Header{Version: routers.TraceVersion, Model: model, Experts: e.Experts, Each: e.Each,
		Rows: j.Rows, Plan: fmt.Sprintf("pp=%d dp=%d cp=%d tp=%d, %d microbatches", m.Len(topology.PP), m.Replicas(),
			m.Len(topology.CP), m.Len(topology.TP), j.Micro)}
}

// RoutingFile is a rank's trace in a directory.
func RoutingFile(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("rank-%05d.routing", rank))
}

// OpenRouting opens a rank's trace, and holds it to a run's header if that says something. Key is what named
// the directory, for messages.
func OpenRouting(key, dir string, want routers.Header) (*routers.Trace, error) {
	name := RoutingFile(dir, want.Rank)
	f, err := os.Open(name)
	if err != nil {
		return nil, exit.With(fmt.Errorf("%s: %w: record a run of the same plan first", key, err), exit.Usage)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	t, err := routers.OpenTrace(f, info.Size()) // the file stays open as long as the process
	if err != nil {
		return nil, exit.With(fmt.Errorf("%s: %s %w", key, name, err), exit.Usage)
	}
	if why := t.Header.Fits(want); why != "" {
		return nil, exit.With(fmt.Errorf("%s: %s %s; record a run of this model and plan", key, name, why), exit.Usage)
	}
	return t, nil
}
