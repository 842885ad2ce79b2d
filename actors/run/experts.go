package run

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
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
		GoesOn: r.start.first > 1 ||
			r.life > 0}
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

// HeatRow is a row of a map of experts: what is counted, and how often it went to each expert.
type HeatRow struct {
	Name string
	Rows []float64
}

// HeatMap draws how experts were used as SVG: a column an expert, white for even use, red for more and blue
// for less.
func HeatMap(rows []HeatRow, title string) string {
	const cell, left, top = 14.0, 150.0, 34.0
	most := 0
	for _, r := range rows {
		most = max(most, len(r.Rows))
	}
	w, h := left+cell*float64(max(30, most))+20, top+cell*float64(len(rows))+30
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`, w, h)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%g" y="18">%s</text>`, left,
		title)
	for i, r := range rows {
		sum := 0.0
		for _, n := range r.Rows {
			sum += n
		}
		y := top + cell*float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, left-6, y+cell-3, r.Name)
		for e, n := range r.Rows {
			share := n * float64(len(r.Rows)) / math.Max(1, sum)
			fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" fill="%s">`, left+cell*float64(e),
				y, cell-1, cell-1, colour(share))
			fmt.Fprintf(&b, `<title>%s, expert %d: %.0f rows, %.2f of even use</title></rect>`, r.Name, e,
				n, share)
		}
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g">expert 0 to %d · white: even use · red: more, up to 4 times · blue: less</text></svg>`, left, h-10, most-1)
	return b.String()
}

// colour is that of so many times even use.
func colour(share float64) string {
	x := math.Max(-1, math.Min(1, math.Log2(math.Max(share, 1e-3))/2))
	fade := int(math.Round(255 * (1 - math.Abs(x))))
	if x > 0 {
		return fmt.Sprintf("#ff%02x%02x", fade, fade)
	}
	return fmt.Sprintf("#%02x%02xff", fade, fade)
}

// drawExperts writes the drawing of the newest loads.
func (p *reporter) drawExperts() {
	if len(p.loads) == 0 {
		return
	}
	path := filepath.Join(p.dir, "experts.svg")
	title := fmt.Sprintf("rows of tokens by expert, step %d", p.loadsAt)
	var rows []HeatRow
	for _, l := range p.loads {
		rows = append(rows, HeatRow{fmt.Sprintf("block %d", l.Block), l.Rows})
	}
	if err := os.WriteFile(path, []byte(HeatMap(rows, title)), 0o600); err != nil {
		p.say("! the drawing of experts is not written: %v", err)
		return
	}
	p.say("experts %s", path)
}
