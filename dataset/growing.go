package dataset

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Batches gives the batches of steps: a Loader, or a Growing.
type Batches interface {
	// Step returns the microbatches of a step; io.EOF says that there are no more.
	Step(step int64) ([]Batch, error)
	// Position is where the next step begins, and Seek goes to one.
	Position() Position
	Seek(p Position) error
	// Stages tells how busy the parts of the pipeline were.
	Stages() ([]Stage, time.Duration)
	// Close ends reading.
	Close()
}

// Growing gives the batches of a data set that grows: generation by generation, each in its own seeded order
// and once. What a generation leaves over at its end is filled up with padding, so that no sample is lost
// and none comes twice. Which samples a step has is a function of the position and of the ledger's lines,
// not of when they were written; a step whose generation is not there yet waits.
type Growing struct {
	cfg    LoaderConfig
	enc    Encoder
	open   func(gen int64) ([]Weighted, func(), error)
	at     *Loader // of the generation
	free   func()  // closes its sources
	gen    int64
	since  int64              // the step that it begins with
	starts map[int64]Position // where recent steps began
	next   int64
	closed chan struct{}
}

// ErrNotYet says that a generation is not there yet.
var ErrNotYet = errors.New("the generation has not come yet")

// lookEvery is how long a stream waits between looks at the ledger.
const lookEvery = 200 * time.Millisecond

// OpenGrowing starts at the first step. open opens the sources of a generation and says how to close them;
// it returns ErrNotYet where it is not there, and io.EOF behind the last one.
func OpenGrowing(cfg LoaderConfig, enc Encoder, open func(gen int64) ([]Weighted, func(), error)) (*Growing, error) {
	cfg.Passes, cfg.KeepLast = 1, true
	g := &Growing{cfg: cfg, enc: enc, open: open, starts: map[int64]Position{}, closed: make(chan struct{})}
	return g, g.enter(0, 0)
}

// enter opens a generation, and waits until it is there.
func (g *Growing) enter(gen, since int64) error {
	sources, free, err := g.open(gen)
	for errors.Is(err, ErrNotYet) {
		select {
		case <-time.After(lookEvery):
		case <-g.closed:
			return err
		}
		sources, free, err = g.open(gen)
	}
	if err != nil {
		return err
	}
	cfg := g.cfg
	cfg.Sources = sources
	cfg.Seed += uint64(gen) * 0x9e3779b97f4a7c15 // each generation has another order
	l, err := OpenLoader(cfg, g.enc)
	if err != nil {
		free()
		return fmt.Errorf("generation %d: %w", gen, err)
	}
	g.leave()
	g.at, g.free, g.gen, g.since = l, free, gen, since
	return nil
}

// leave closes the generation that is open.
func (g *Growing) leave() {
	if g.at != nil {
		g.at.Close()
		g.free()
		g.at = nil
	}
}

// generationSamples is how many samples the numbers of a generation have room for.
const generationSamples = 1 << 40

// Step implements Batches.
func (g *Growing) Step(step int64) ([]Batch, error) {
	if step != g.next {
		start, ok := g.starts[step]
		if !ok {
			return nil, fmt.Errorf("loader: step %d is asked for and step %d comes next; seek to its position first",
				step, g.next)
		}
		if err := g.Seek(start); err != nil {
			return nil, err
		}
	}
	start := g.Position()
	b, err := g.at.Step(step - g.since)
	for err == io.EOF {
		if err = g.enter(g.gen+1, step); err != nil {
			return nil, err
		}
		start = g.Position()
		b, err = g.at.Step(0)
	}
	if err != nil {
		return nil, err
	}
	if g.gen > 0 {
		b = g.number(b)
	}
	g.starts[step] = start
	delete(g.starts, step-startsMax)
	g.next = step + 1
	return b, nil
}

// number gives the samples of a batch numbers that those of other generations do not have.
func (g *Growing) number(in []Batch) []Batch {
	out := make([]Batch, len(in))
	for i, b := range in {
		base := g.gen * generationSamples
		ids := make([]int64, len(b.SampleIDs))
		for k, id := range b.SampleIDs {
			if ids[k] = id; id >= 0 { // padding has none
				ids[k] += base
			}
		}
		b.SampleIDs = ids
		origins := make([]Origin, len(b.Origins))
		for k, o := range b.Origins {
			o.Sample += base
			origins[k] = o
		}
		b.Origins = origins
		out[i] = b
	}
	return out
}

// Position implements Batches: that of the generation, with the steps of all.
func (g *Growing) Position() Position {
	p := g.at.Position()
	p.Generation, p.Since = g.gen, g.since
	p.Step += g.since
	return p
}

// Seek implements Batches.
func (g *Growing) Seek(p Position) error {
	if p.Generation < 0 || p.Since < 0 || p.Since > p.Step {
		return fmt.Errorf("loader: the position %+v cannot be one of this data", p)
	}
	if p.Generation != g.gen || g.at == nil {
		if err := g.enter(p.Generation, p.Since); err != nil {
			return err
		}
	}
	in := p.clone()
	in.Generation, in.Since = 0, 0
	in.Step -= p.Since
	if err := g.at.Seek(in); err != nil {
		return err
	}
	g.since, g.next = p.Since, p.Step
	return nil
}

// Stages implements Batches: those of the generation under way.
func (g *Growing) Stages() ([]Stage, time.Duration) { return g.at.Stages() }

// Close implements Batches.
func (g *Growing) Close() {
	close(g.closed)
	g.leave()
}
