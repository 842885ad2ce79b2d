package recipe

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/topology/machine"
)

// Plan is what a recipe will do, with sizes and times that are predicted from a sample of its inputs.
type Plan struct {
	Recipe    string      `json:"recipe"`
	Documents int64       `json:"documents"`
	Bytes     int64       `json:"bytes"` // of texts; from the sample where files do not tell
	Stages    []PlanStage `json:"stages"`
	Steps     []PlanStep  `json:"steps"`
	Workers   int         `json:"workers"`
	Sampled   int         `json:"sampled"` // documents
	Seconds   float64     `json:"seconds"` // of the whole, with so many workers
	CPU       float64     `json:"cpu"`     // seconds of processors
	Work      int64       `json:"work"`    // bytes on disk while it is under way
}

// PlanStage is a stage of a plan.
type PlanStage struct {
	Ways   [][]string `json:"ways"` // each from where documents lie to the sink
	Sink   string     `json:"sink"`
	Blocks int        `json:"blocks"`
}

// PlanStep is what is predicted of an input or a step. Copies are found when all documents are there, so
// that steps with state are taken to let all through.
type PlanStep struct {
	Name    string  `json:"name"`
	Step    string  `json:"step"`
	In      int64   `json:"in"`
	Out     int64   `json:"out"`
	Seconds float64 `json:"seconds"` // of one worker
}

// The sample that a plan looks at.
const (
	sampleDocs = 600
	sampleTime = 3 * time.Second
	warmDocs   = 40
)

// clock adds up the time of parts of the work, as processors had it: how busy others keep them changes
// nothing. Where the system does not tell it is the time that goes by.
type clock struct {
	last           time.Duration
	spent, in, out map[string]float64
}

func newClock() *clock {
	return &clock{spent: map[string]float64{}, in: map[string]float64{}, out: map[string]float64{}}
}

// begin begins a part.
func (c *clock) begin() { c.last = worked() }

// lap ends a part, and begins the next.
func (c *clock) lap(name string) {
	now := worked()
	c.spent[name] += (now - c.last).Seconds()
	c.last = now
}

var started = time.Now()

// worked is the time that processors have worked for this process.
func worked() time.Duration {
	if s := machine.CPUSeconds(); s > 0 {
		return time.Duration(s * float64(time.Second))
	}
	return time.Since(started)
}

// MakePlan looks at a recipe's inputs, reads a sample of them, and predicts. Nothing is written.
func MakePlan(ctx context.Context, r *Recipe) (*Plan, error) {
	f, err := r.open()
	if err != nil {
		return nil, err
	}
	defer closeInputs(f.inputs)
	p := &Plan{Recipe: r.file, Workers: r.Workers}
	for at := range f.stages {
		p.Stages = append(p.Stages, f.planStage(at))
	}
	return p, f.predict(ctx, p)
}

// planStage names the parts of a stage.
func (f *flow) planStage(at int) PlanStage {
	s := f.stages[at]
	out := PlanStage{Blocks: len(f.units[at])}
	for _, w := range s.paths {
		var way []string
		if w.from.input {
			way = append(way, f.Inputs[w.from.at].Name)
		} else {
			way = append(way, f.Steps[w.from.at].Name)
		}
		for _, k := range w.steps {
			way = append(way, f.Steps[k].Name)
		}
		out.Ways = append(out.Ways, way)
	}
	if s.step >= 0 {
		out.Sink = f.Steps[s.step].Name
	} else {
		out.Sink = "output " + f.Outputs[s.output].Name
	}
	return out
}

// Names of work that belongs to no step.
const (
	laidDown = "blocks"
	compared = "compare"
	written  = "outputs"
)

// comparePerKey is what sorting and joining a key takes, in seconds of one worker, measured with 10⁶ keys of 64 bytes.
const comparePerKey = 1.2e-6

// predict takes a sample through the whole flow and scales up what it took.
func (f *flow) predict(ctx context.Context, p *Plan) error {
	c := newClock()
	var scale []float64
	for _, in := range f.inputs {
		p.Documents += in.docs
	}
	end := time.Now().Add(sampleTime)
	for i, in := range f.inputs {
		share := int64(sampleDocs)
		if p.Documents > 0 {
			share = max(20, sampleDocs*in.docs/p.Documents)
		}
		n, bytes, err := f.sampleInput(ctx, c, i, min(share, in.docs), end)
		if err != nil {
			return err
		}
		by := 0.0
		if n > 0 {
			by = float64(in.docs) / float64(n)
		}
		scale = append(scale, by)
		p.Sampled += n
		p.Bytes += int64(float64(bytes) * by)
	}
	total := 0.0
	by := 0.0 // of all inputs together
	if p.Sampled > 0 {
		by = float64(p.Documents) / float64(p.Sampled)
	}
	row := func(name, step string, by float64) {
		s := PlanStep{Name: name, Step: step, In: int64(c.in[name] * by), Out: int64(c.out[name] * by),
			Seconds: c.spent[name] * by}
		total += s.Seconds
		p.Steps = append(p.Steps, s)
	}
	for i, in := range f.inputs {
		row(in.Name, "read", scale[i])
	}
	for _, s := range f.Steps {
		row(s.Name, s.Kind, by)
		if st := s.state(); st != nil {
			c.spent[compared] += c.in[s.Name] * float64(st.Form().Buckets) * comparePerKey
		}
	}
	for _, name := range []string{laidDown, compared, written} {
		row(name, "", by)
	}
	p.CPU, p.Seconds = total, total/float64(p.Workers)
	p.Work = int64(c.in[laidDown+" bytes"] * by)
	return nil
}

// sampleInput reads n documents spread over an input and takes them through the flow.
func (f *flow) sampleInput(ctx context.Context, c *clock, input int, n int64, end time.Time) (docs int, bytes int64,
	err error) {
	in := f.inputs[input]
	w := f.newWorker()
	var list []*curate.Doc
	for k := range n {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if k > 0 && time.Now().After(end) {
			break
		}
		at := k * in.docs / n
		file := in.fileOf(at)
		c.begin()
		d, err := in.read(file, at-in.first[file])
		if err != nil && !isBad(err) {
			return 0, 0, err
		}
		c.lap(in.Name)
		docs++
		c.in[in.Name]++
		bytes += int64(len(d.Text))
		if err == nil {
			c.out[in.Name]++
			in.again(d) // rather than hold all files
			list = append(list, d)
		}
	}
	// tables that steps make when they are first used are made by the first documents, once, and do not count
	if err := f.sampleWays(w, newClock(), input, list[:min(len(list), warmDocs)]); err != nil {
		return 0, 0, err
	}
	return docs, bytes, f.sampleWays(w, c, input, list)
}

// sampleWays takes documents of an input through all ways.
func (f *flow) sampleWays(w *worker, c *clock, input int, list []*curate.Doc) error {
	for at, s := range f.stages {
		for _, way := range s.paths {
			if err := f.sampleWay(w, c, at, way, input, list); err != nil {
				return err
			}
		}
	}
	return nil
}

// sampleWay takes documents through a way, all that lies in front of it included, and through its sink.
func (f *flow) sampleWay(w *worker, c *clock, at int, way path, input int, list []*curate.Doc) error {
	if !f.leadsFrom(way.from, input) {
		return nil
	}
	m := &making{worker: w, path: way, stage: f.stages[at]}
	if m.stage.step >= 0 {
		m.keys = make([][]byte, f.Steps[m.stage.step].state().Form().Buckets)
	}
	for _, d := range list {
		d := *d
		d.Fields = slices.Clone(d.Fields)
		if !f.pass(w, &d, way) {
			continue
		}
		m.sampleSteps(c, &d, input)
	}
	c.begin()
	raw, err := m.encode(w.pack)
	if err != nil {
		return err
	}
	c.in[laidDown+" bytes"] += float64(len(raw))
	if err := decodeDocs(m.docs, f.Inputs, func(*curate.Doc, int) error { return nil }); err != nil {
		return err
	}
	c.lap(laidDown)
	if m.stage.step >= 0 {
		return nil
	}
	o := f.Outputs[m.stage.output]
	out, err := o.writer.Create(io.Discard, o.Compress, nil)
	if err != nil {
		return err
	}
	if err := f.decode(m.docs, func(d *curate.Doc, _ int) error {
		return out.Add(d)
	}); err != nil {
		return err
	}
	c.lap(written)
	return out.Close()
}

// leadsFrom says whether documents of an input come to a place.
func (f *flow) leadsFrom(at ref, input int) bool {
	if at.input {
		return at.at == input
	}
	return slices.ContainsFunc(f.stages[f.stageOf(at.at)].paths, func(p path) bool {
		return f.leadsFrom(p.from, input)
	})
}

// pass takes a document up to the source of a way, without counting, and says whether it arrives: by the
// first way that leads there.
func (f *flow) pass(w *worker, d *curate.Doc, way path) bool {
	if way.from.input {
		return true
	}
	s := f.stages[f.stageOf(way.from.at)]
	if len(s.paths) == 0 {
		return false
	}
	p := s.paths[0]
	if !f.pass(w, d, p) {
		return false
	}
	for _, k := range append(slices.Clone(p.steps), s.step) {
		if f.Steps[k].step.Do(w.desk, d) != "" {
			return false
		}
	}
	return true
}

// sampleSteps takes a document through the steps of a way and times each.
func (m *making) sampleSteps(c *clock, d *curate.Doc, input int) {
	c.begin()
	for i, k := range m.path.steps {
		s := &m.Steps[k]
		kept := s.step.Do(m.desk, d) == ""
		if m.counts(i + 1) {
			c.in[s.Name]++
			if kept {
				c.out[s.Name]++
			}
		}
		c.lap(s.Name)
		if !kept {
			return
		}
	}
	if m.stage.step >= 0 {
		s := &m.Steps[m.stage.step]
		c.in[s.Name]++
		c.out[s.Name]++
		s.state().Sign(m.desk, d, func(b int, unit uint32, key []byte) {
			m.keys[b] = appendTail(append(m.keys[b], key...), 0, unit)
		})
		c.lap(s.Name)
	}
	m.add(d, input)
}
