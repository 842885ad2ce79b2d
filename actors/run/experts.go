package run

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/record"
)

// ExpertUse is how a layer's experts were used in a step, in metrics.jsonl.
type ExpertUse struct {
	Block   int       `json:"block"`
	Rows    []float64 `json:"rows"` // by expert
	Dropped float64   `json:"dropped"`
	Entropy float64   `json:"entropy"` // of the router's shares, nats, the mean of tokens
}

// used turns what ranks have counted into a line's part.
func used(loads []core.Load) (out []ExpertUse) {
	for _, l := range loads {
		out = append(out, ExpertUse{l.Block, l.Rows, l.Dropped, l.Entropy / math.Max(1, l.Tokens)})
	}
	return out
}

// ExpertMove says where the experts of a layer lie from then on, in metrics.jsonl: the expert of each place
// of all ranks of plan.ep, in order of ranks.
type ExpertMove struct {
	Block  int   `json:"block"`
	Expert []int `json:"experts_by_place"`
}

// places turns what the coordinator has decided into a line's part.
func places(moved []core.Placed) (out []ExpertMove) {
	for _, p := range moved {
		out = append(out, ExpertMove(p))
	}
	return out
}

// RoutingDir is where a run's traces lie.
func (r *Run) RoutingDir() string {
	c := r.cfg.Run
	if c.Train.RoutingDir != "" {
		return c.Train.RoutingDir
	}
	return filepath.Join(c.Log.Dir, "routing")
}

// routing is what the host does with choices of routers, nil for nothing.
func (r *Run) routing() *host.Routing {
	c := r.cfg.Run
	o := &host.Routing{Every: int64(c.Log.Experts), Header: r.job.RoutingHeader(r.cfg.Model.Identity()),
		GoesOn: r.start.first > 1 || r.life > 0}
	switch c.Train.Routing {
	case "record":
		o.Record = r.RoutingDir()
	case "replay":
		o.Replay = r.RoutingDir()
	}
	if o.Every == 0 && o.Record == "" && o.Replay == "" {
		return nil
	}
	return o
}

// drawExperts writes the drawing of the newest loads.
func (p *reporter) drawExperts() {
	if len(p.loads) == 0 {
		return
	}
	path := filepath.Join(p.dir, "experts.svg")
	title := fmt.Sprintf("rows of tokens by expert, step %d", p.loadsAt)
	var rows []record.HeatRow
	for _, l := range p.loads {
		rows = append(rows, record.HeatRow{Name: fmt.Sprintf("block %d", l.Block), Rows: l.Rows})
	}
	if err := os.WriteFile(path, []byte(record.HeatMap(rows, title)), 0o600); err != nil {
		p.say("! the drawing of experts is not written: %v", err)
		return
	}
	p.say("experts %s", path)
}
