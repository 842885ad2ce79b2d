package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology"
)

// Length is the longest sequence that a plan trains within a device's memory; its JSON names are those of docs/json.md.
type Length struct {
	SeqLen    int      `json:"seq_len"` // 0 where not even the shortest fits
	TP        int      `json:"tp"`
	PP        int      `json:"pp"`
	CP        int      `json:"cp"`
	DP        int      `json:"dp"`
	Zero      int      `json:"zero"`
	Chunks    int      `json:"chunks"`
	Comm      string   `json:"cp_comm,omitempty"`
	Recompute string   `json:"recompute"`
	Peak      int64    `json:"peak_bytes"`
	Settings  []string `json:"settings"` // of a run file that trains so
}

const (
	// lengthStep is what lengths are multiples of, times the parts that a plan cuts a sequence into.
	lengthStep = 64
	// lengthMost bounds the lengths that are tried: positions of float32 angles are exact up to it.
	lengthMost = 1 << 24
	// ringMost bounds the rings that are tried, in ranks times chunks: the newest chunk's queries go round
	// with the keys of all chunks before, and a layer's program grows with both.
	ringMost = 64
	// manyChunks is how many chunks a plan with chunks cuts a sequence into.
	manyChunks = 16
)

// Longest finds, for every way to spread the devices over tensor, pipeline, context and data parallelism,
// with and without chunks and full recomputation, the longest sequence whose training fits, one sequence a
// microbatch. The longest comes first; of equals the one with fewer means.
func (p *Search) Longest(ctx context.Context) ([]Length, error) {
	var out []Length
	ways := p.lengths()
	for i, c := range ways {
		p.see("ways to spread the devices", i, len(ways))
		if ctx.Err() != nil {
			return nil, exit.With(errors.New("interrupted"), exit.Interrupted)
		}
		cfg, err := p.config(append(c.settings(lengthStep*c.parts()), "plan.layers=[]")...)
		if err != nil {
			continue // heads, layers or experts do not divide
		}
		cfg.Model.Vocab = p.cfg.Model.Vocab
		if err := p.longest(cfg, &c); err != nil {
			return nil, err
		}
		c.Settings = c.settings(c.SeqLen)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Length) int {
		return cmp.Or(b.SeqLen-a.SeqLen, a.Chunks-b.Chunks, a.PP-b.PP, a.TP-b.TP)
	})
	if len(out) == 0 {
		return nil, exit.Usagef("no plan spreads %s over %d devices", p.Model(), p.Space.Devices)
	}
	if out[0].SeqLen == 0 {
		return out, exit.With(fmt.Errorf("no plan of %d devices trains even %d tokens within %s; add hosts",
			p.Space.Devices, lengthStep*out[0].parts(), tensor.Bytes(p.Space.Limit)), exit.Fit)
	}
	return out, nil
}

// lengths lists the plans that are tried.
func (p *Search) lengths() (out []Length) {
	for _, tp := range p.Space.TP {
		for pp := 1; tp*pp <= p.Space.Devices; pp *= 2 {
			rest := p.Space.Devices / (tp * pp)
			if tp*pp*rest != p.Space.Devices {
				continue
			}
			for _, shared := range []bool{false, true} {
				c := Length{TP: tp, PP: pp, CP: 1, DP: rest, Chunks: 1}
				if shared {
					c.CP, c.DP = rest, 1
				}
				if shared && rest == 1 {
					continue
				}
				if rest > 1 {
					c.Zero = 3
				}
				for _, recompute := range []string{"selective", "full"} {
					for _, chunks := range []int{1, manyChunks} {
						c.Recompute, c.Chunks, c.Comm = recompute, chunks, ""
						switch {
						case c.CP*c.Chunks > ringMost:
							c.Comm = "gather"
						case c.CP > 1:
							c.Comm = "ring"
						}
						out = append(out, c)
					}
				}
			}
		}
	}
	return out
}

// parts is what a sequence is cut into by chunks and ranks.
func (c *Length) parts() int { return 2 * c.CP * c.TP * c.Chunks }

// settings are those of a run file.
func (c *Length) settings(seq int) []string {
	out := []string{
		fmt.Sprintf("data.seq_len=%d", seq), "train.micro_batch=1", fmt.Sprintf("train.global_batch=%d", c.DP*c.PP),
		fmt.Sprintf("plan.tp=%d", c.TP), fmt.Sprintf("plan.pp=%d", c.PP), fmt.Sprintf("plan.cp=%d", c.CP),
		fmt.Sprintf("plan.dp=%d", c.DP), fmt.Sprintf("plan.zero=%d", c.Zero), "plan.zero_ranks=0",
		fmt.Sprintf("plan.sequence_parallel=%v", c.TP > 1), "plan.virtual_stages=1", "plan.ep=1", "plan.etp=1",
		"plan.recompute=" + c.Recompute, "plan.recompute_layers=[]", "plan.procs=1",
		"plan.cp_comm=" + cmp.Or(c.Comm, "gather"), "plan.cp_layout=auto", "plan.ulysses=0", "plan.keep_chunks=0",
	}
	if c.Chunks == 1 {
		return append(out, "plan.schedule=1f1b", "plan.chunk_size=0")
	}
	return append(out, "plan.schedule=chunkpipe", fmt.Sprintf("plan.chunk_size=%d", seq/c.Chunks))
}

// PlanSettings are those of the settings that a plan's file may hold: all but the length of the data.
func (c *Length) PlanSettings() []string {
	return slices.DeleteFunc(slices.Clone(c.Settings), func(s string) bool { return strings.HasPrefix(s, "data.") })
}

// longest sets a plan's length and peak.
func (p *Search) longest(cfg *configs.Config, c *Length) error {
	unit := lengthStep * c.parts()
	n, peak, err := mostUnits(lengthMost/unit, p.Space.Limit, func(units int) (int64, error) {
		return p.peakOf(cfg, c, units*unit)
	})
	c.SeqLen, c.Peak = n*unit, peak
	return err
}

// mostUnits is the largest number from 1 to most whose peak is within a limit, with that peak; 0 if there is
// none. Peaks grow nearly evenly, so that a number between one that fits and one that does not is where a
// line through both meets the limit; where two in a row came to lie on the same side it is the middle, so
// that the numbers tried are at most some twice as many as a bisection's.
func mostUnits(most int, limit int64, peak func(units int) (int64, error)) (low int, at int64, err error) {
	first, err := peak(1)
	if err != nil || first > limit {
		return 0, 0, err
	}
	low, at = 1, first
	var over int64 // the peak of high, once some number does not fit
	for high, side, next := most+1, 0, 2; low+1 < high; {
		got, err := peak(next)
		if err != nil {
			return 0, 0, err
		}
		if got <= limit {
			low, at, side = next, got, max(0, side)+1
		} else {
			high, over, side = next, got, min(0, side)-1
		}
		switch {
		case over == 0:
			slope := float64(max(1, at-first)) / float64(low-1)
			next = min(low+1+int(float64(limit-at)/slope), 8*low)
		case side > 1 || side < -1:
			next, side = low+(high-low)/2, 0
		default:
			next = low + int(float64(high-low)*float64(limit-at)/float64(over-at))
		}
		next = min(max(next, low+1), high-1)
	}
	return low, at, nil
}

// peakOf is the largest predicted peak of any rank at a length.
func (p *Search) peakOf(cfg *configs.Config, c *Length, seq int) (int64, error) {
	at := *cfg
	at.Run.Data.SeqLen = seq
	if c.Chunks > 1 {
		at.Run.Plan.ChunkSize = seq / c.Chunks
	}
	j, err := p.job(&at)
	if err != nil {
		return 0, err
	}
	l, err := layout.New(j)
	if err != nil {
		return 0, exit.With(err, exit.Usage)
	}
	most := int64(0)
	for pp := range j.Mesh.Len(topology.PP) { // ranks of a stage hold the same
		most = max(most, l.Memory(j.Mesh.Move(0, topology.PP, pp)).Total())
	}
	return most, nil
}
