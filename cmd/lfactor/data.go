package main

import (
	"os"

	"github.com/lfactor/lfactor/actors/host"
)

type data struct {
	r   *run
	ids []int32
}

func openData(r *run) (*data, error) {
	d := &data{r: r}
	for _, p := range r.cfg.Run.Data.Paths {
		b, err := readAll(p.Path)
		if err != nil {
			return nil, err
		}
		d.ids = append(d.ids, r.tok.Encode(string(b), false)...)
	}
	return d, nil
}
func (d *data) close()             {}
func (d *data) validates() bool    { return true }
func (d *data) commit(int64)       {}
func (d *data) position(int64) any { return nil }
func (d *data) batches(step int64, dp int) ([]host.Microbatch, error) {
	c := d.r.cfg.Run
	var out []host.Microbatch
	per := c.Train.GlobalBatch / c.Plan.DP
	if step < 0 {
		step = 10000 - step
	}
	for i := 0; i < per; i += c.Train.MicroBatch {
		mb := host.Microbatch{Cu: []int32{0}}
		for k := range c.Train.MicroBatch {
			n := (int(step)*c.Train.GlobalBatch + dp*per + i + k) * c.Data.SeqLen
			for j := range c.Data.SeqLen {
				mb.IDs = append(mb.IDs, d.ids[(n+j)%len(d.ids)])
				mb.Targets = append(mb.Targets, d.ids[(n+j+1)%len(d.ids)])
				mb.Positions = append(mb.Positions, int32(j))
				mb.Weights = append(mb.Weights, 1/float32(c.Train.GlobalBatch*c.Data.SeqLen))
			}
			mb.Cu = append(mb.Cu, int32(len(mb.IDs)))
		}
		out = append(out, mb)
	}
	return out, nil
}

func readAll(p string) (out []byte, err error) {
	st, err := os.Stat(p)
	if err != nil || !st.IsDir() {
		return os.ReadFile(p)
	}
	es, _ := os.ReadDir(p)
	for _, e := range es {
		b, _ := os.ReadFile(p + "/" + e.Name())
		out = append(out, b...)
	}
	return
}
