// Package tables makes tables in Parquet of what a run has written to its folder, for DuckDB, polars and
// others: metrics, experts, events, edges, actors, jobs and messages. docs/telemetry.md has their columns.
package tables

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Written is a table that was made.
type Written struct {
	Name string `json:"table"`
	File string `json:"file"`
	Rows int64  `json:"rows"`
}

// table is one of the files: rows are read from what the run has written, and handed on one at a time.
type table struct {
	name  string
	write func(dir, file string) (int64, error)
}

// all are the tables, in the order in which they are told.
var all = []table{
	{"metrics", made(metrics)}, {"experts", made(experts)}, {"events", made(events)}, {"edges", made(edges)},
	{"actors", made(uses)}, {"jobs", made(jobs)}, {"messages", made(messages)},
}

// Names are those of the tables.
func Names() (out []string) {
	for _, t := range all {
		out = append(out, t.name)
	}
	return out
}

// Make reads a run's folder (log.dir) and writes a file a table into out, which is made; a table that the
// run has nothing for gets no rows. A folder without a run is an error, as is a line that is no JSON, unless
// it is the last one of a file, which a run may be writing.
func Make(dir, out string) (made []Written, err error) {
	if _, err := os.Stat(filepath.Join(dir, "log.jsonl")); err != nil {
		return nil, exit.With(fmt.Errorf("%s: no run has written here: %w; name the folder that log.dir of a run "+
			"names", dir, err), exit.Corrupt)
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return nil, err
	}
	for _, t := range all {
		file := filepath.Join(out, t.name+".parquet")
		n, err := t.write(dir, file)
		if err != nil {
			return made, fmt.Errorf("table %s: %w", t.name, err)
		}
		made = append(made, Written{t.name, file, n})
	}
	return made, nil
}

// rowsMost are the rows that are written at a time, and the rows of a group.
const rowsMost = 64 << 10

// made writes a table whose rows a function reads. The file takes its name when it is whole.
func made[R any](read func(dir string, row func(R) error) error) func(dir, file string) (int64, error) {
	return func(dir, file string) (n int64, err error) {
		err = machine.Replace(file, 0o600, func(f *os.File) error {
			w := parquet.NewGenericWriter[R](f, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowsMost))
			batch := make([]R, 0, 1024)
			flush := func() error {
				_, err := w.Write(batch)
				batch = batch[:0]
				return err
			}
			err := read(dir, func(r R) error {
				n++
				if batch = append(batch, r); len(batch) == cap(batch) {
					return flush()
				}
				return nil
			})
			if err == nil {
				err = flush()
			}
			return errors.Join(err, w.Close())
		})
		return n, err
	}
}

// lineMax bounds a line of what a run writes.
const lineMax = 64 << 20

// lines reads a file of JSON lines; one that does not exist has none.
func lines[T any](name string, each func(T) error) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	in := bufio.NewScanner(f)
	in.Buffer(nil, lineMax)
	var wrong error
	for n := 1; in.Scan(); n++ {
		if wrong != nil {
			return wrong
		}
		var v T
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			wrong = fmt.Errorf("%s:%d: %w", name, n, err) // unless it is the last
			continue
		}
		if err := each(v); err != nil {
			return err
		}
	}
	return in.Err()
}

// stamp is a time of the run's files, seconds since 1970.
func stamp(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)).UTC() }

// Metric is a row of metrics.parquet: a step. A number that was none, such as a loss that overflowed, is NULL.
type Metric struct {
	Step      int64    `parquet:"step"`
	Loss      *float64 `parquet:"loss,optional"`              // nats a token, or what the objective says
	GradNorm  *float64 `parquet:"grad_norm,optional"`         //
	LR        float64  `parquet:"lr"`                         // learning rate
	TokensSec *float64 `parquet:"tokens_per_second,optional"` //
	MFU       *float64 `parquet:"mfu,optional"`               // share of the machine's peak
	DataWait  float64  `parquet:"data_wait_seconds"`          // that ranks waited for samples
	PeakBytes int64    `parquet:"peak_bytes"`                 // memory of the rank that needs most
	Scale     float64  `parquet:"loss_scale"`
	Skipped   bool     `parquet:"skipped"` // no update was made
	Seconds   float64  `parquet:"seconds"`
	Slowest   int32    `parquet:"slowest_rank"`
	Pass      *float64 `parquet:"pass,optional"` // how many passes over the data are made, of runs of train.epochs
	// Of runs that draw their answers: the largest difference between log-probabilities of sampler and
	// trainer in nats, over how many tokens, and how many were drawn by older weights.
	DrawnGap    *float64 `parquet:"drawn_gap,optional"`
	DrawnTokens *int64   `parquet:"drawn_tokens,optional"`
	DrawnOlder  *int64   `parquet:"drawn_older,optional"`
}

// metricsFile is where a run writes its metrics unless log.jsonl of its run file says otherwise.
func metricsFile(dir string) string { return filepath.Join(dir, "metrics.jsonl") }

func metrics(dir string, row func(Metric) error) error {
	number := func(v float64) *float64 {
		if v == -1 { // what JSON cannot hold
			return nil
		}
		return &v
	}
	return lines(metricsFile(dir), func(m run.Metrics) error {
		r := Metric{Step: m.Step, Loss: number(m.Loss), GradNorm: number(m.GradNorm), LR: m.LR,
			TokensSec: number(m.TokensSec), MFU: number(m.MFU), DataWait: m.DataWait, PeakBytes: int64(m.PeakBytes),
			Scale: m.Scale, Skipped: m.Skipped, Seconds: m.Seconds, Slowest: int32(m.Slowest)}
		if m.Pass > 0 {
			r.Pass = &m.Pass
		}
		if d := m.Drawn; d != nil {
			tokens, older := int64(d.Tokens), int64(d.Older)
			if r.DrawnTokens, r.DrawnOlder = &tokens, &older; tokens > 0 {
				r.DrawnGap = number(d.Gap)
			}
		}
		return row(r)
	})
}

// Expert is a row of experts.parquet: an expert of a layer in a step that log.experts names.
type Expert struct {
	Step    int64   `parquet:"step"`
	Block   int32   `parquet:"block"` // the layer
	Expert  int32   `parquet:"expert"`
	Rows    float64 `parquet:"rows"`    // that went to it
	Dropped float64 `parquet:"dropped"` // rows of the layer that went to none
	Entropy float64 `parquet:"entropy"` // of the layer's router, nats, the mean of tokens
}

func experts(dir string, row func(Expert) error) error {
	return lines(metricsFile(dir), func(m run.Metrics) error {
		for _, l := range m.Experts {
			for e, n := range l.Rows {
				if err := row(Expert{Step: m.Step, Block: int32(l.Block), Expert: int32(e), Rows: n,
					Dropped: l.Dropped, Entropy: l.Entropy}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Edge is a row of edges.parquet: what went over an edge in a window of time. Edges without messages and
// waits have no row.
type Edge struct {
	Time     time.Time `parquet:"time,timestamp(microsecond)"` // of the window's end, UTC
	Seconds  float64   `parquet:"seconds"`                     // that the window lasted
	Step     int64     `parquet:"step"`                        // the newest that was committed
	From     string    `parquet:"from_actor,dict"`             // the sender: rank0, loader0.1, coordinator
	To       string    `parquet:"to_actor,dict"`               //
	Messages int64     `parquet:"messages"`
	Bytes    int64     `parquet:"bytes"`   // of their tensors
	Looks    int32     `parquet:"looks"`   // how often actors were asked
	Waits    int32     `parquet:"waits"`   // looks at which to_actor waited for from_actor
	Longest  float64   `parquet:"longest"` // seconds of the longest such wait that was seen
}

func edges(dir string, row func(Edge) error) error {
	return lines(filepath.Join(dir, run.EdgesName), func(w record.EdgeWindow) error {
		for _, e := range w.Edges {
			if err := row(Edge{Time: stamp(w.Time), Seconds: w.Seconds, Step: w.Step, From: e.From, To: e.To,
				Messages: e.Messages, Bytes: e.Bytes, Looks: int32(w.Looks),
				Waits: int32(e.Waits), Longest: e.Longest}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Use is a row of actors.parquet: what an actor did in a window of time.
type Use struct {
	Time    time.Time `parquet:"time,timestamp(microsecond)"` // of the window's end, UTC
	Seconds float64   `parquet:"seconds"`                     // that the window lasted
	Step    int64     `parquet:"step"`                        // the newest that was committed
	Actor   string    `parquet:"actor,dict"`
	Looks   int32     `parquet:"looks"`        // how often it was asked
	Busy    int32     `parquet:"busy"`         // looks at which its device was at work
	Waits   int32     `parquet:"waits"`        // looks at which it waited for another actor
	Memory  int64     `parquet:"memory_bytes"` // that its device held at the last look
}

func uses(dir string, row func(Use) error) error {
	return lines(filepath.Join(dir, run.EdgesName), func(w record.EdgeWindow) error {
		for _, a := range w.Actors {
			if err := row(Use{Time: stamp(w.Time), Seconds: w.Seconds, Step: w.Step, Actor: a.Actor,
				Looks: int32(w.Looks), Busy: int32(a.Busy), Waits: int32(a.Waits),
				Memory: a.Memory}); err != nil {
				return err
			}
		}
		return nil
	})
}
