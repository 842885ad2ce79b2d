package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
)

// draft is an answer that is drawn on, and then what was drawn of it: Answer and LogProbs are the new tokens alone.
type draft struct {
	Index    int
	Seed     uint64
	Prompt   []int32   `json:"-"`
	Answer   []int32   `json:"-"`
	LogProbs []float32 `json:"-"`
	Values   []float32 `json:"-"`
	Most     int       // tokens of the answer
	End      sample.End
	// Record and Heard are of answers that an environment takes part in; Script is what it says where it is
	// not asked, and ScriptFault why it says no more.
	Record      map[string]json.RawMessage
	Heard       []Heard
	Script      []Heard
	ScriptFault string
	// HeardFault is why the environment has failed.
	HeardFault string
	ids        *world.Dialogue // that its process is in
}

// Weights are a model's parameters as ranks have them: regions by the names of parameters, and From, where in each of its
// axes a region begins.
type Weights struct {
	*links.Pack
	From []float64
}

// take copies the ranks' parameters, each region of each from the rank that saves it. Where ranks wait until
// all is drawn with them, they are not copied.
func (r *Source) take() *Weights {
	r.table.Lock()
	w := Take(r.ranks)
	r.table.Unlock()
	if r.Plan.Staleness > 0 {
		for i, t := range w.Tensors {
			w.Tensors[i] = tensor.Over(t.DType, bytes.Clone(t.Bytes()), t.Shape...)
		}
	}
	return w
}

// Take are the ranks' parameters, which are not copied.
func Take(ranks []*host.Rank) *Weights {
	w := &Weights{Pack: links.NewPack(nil)}
	for _, rank := range ranks {
		for _, p := range rank.Parts() {
			w.add(p)
		}
	}
	return w
}

// add takes a rank's part of a parameter, without a copy; one in few bits as the numbers that products have of it.
func (w *Weights) add(p host.Part) {
	packed := strings.HasPrefix(p.Kind, checkpoint.PackedPrefix)
	if p.Kind != "param" && !packed {
		return
	}
	var shape []int
	var from []float64
	for _, x := range p.Region.Intervals(p.Param) {
		if x[1] <= x[0] {
			return // padding
		}
		shape, from = append(shape, x[1]-x[0]), append(from, float64(x[0]))
	}
	rows := p.Tensor.RowSlice(p.Row, p.Row+shape[0])
	defer rows.Release()
	w.Names, w.From = append(w.Names, p.Param.Name), append(w.From, from...)
	if packed {
		v := unpackedRows(p.Param.Packed, rows.Bytes(), p.Param.Columns())
		w.Tensors = append(w.Tensors, tensor.Of(tensor.F32, v, shape...))
		return
	}
	w.Tensors = append(w.Tensors, tensor.Over(rows.DType, rows.Bytes(), shape...))
}

// Drawer is a model that draws answers.
type Drawer struct {
	Engine  *sample.Engine
	params  []*grad.Param
	packed  map[string]kernels.Packing // how the trainer keeps parameters in few bits, by name
	backend kernels.Backend
	stops   []int32
	valued  bool           // values of tokens are wanted
	beat    func()         // is called between steps, if there is one
	ready   []func() error // of tasks whose answers have ended
	talk    *conversation  // nil where no environment answers
}

// NewDrawer makes the sampler's model, whose weights are put in later.
func NewDrawer(c *configs.Config, stops []int32) (*Drawer, error) {
	l := fit.Loss(c)
	b, err := kernels.Open(kernels.CPU, kernels.Options{Threads: c.Run.Plan.Threads})
	if err != nil {
		return nil, err
	}
	m, err := family.Build(c.Model, c.Run.Data.SeqLen)
	if err != nil {
		return nil, err
	}
	fill := func(*grad.Param, family.Region, []float32) error { return nil }
	if ahead := c.Run.Rollout.Ahead; ahead == 0 {
		m.DropMTP()
	} else {
		w, done, err := furtherOf(c, m)
		if err != nil {
			return nil, err
		}
		defer done()
		fill = w
	}
	valued := false
	if l != nil && l.Policy != nil {
		m.Spec.Objective = &family.Objective{Loss: l, Params: fit.LossParams(c)} // its head of values
		valued = l.Policy.Value != ""
	}
	g, err := sample.New(m, fit.Lora(c), fit.Precisions[c.Run.Train.Precision], b, tensor.NewPool("sampler", 0), fill)
	if err != nil {
		return nil, err
	}
	packed, err := PackedIn(c, m)
	if err != nil {
		return nil, err
	}
	SumsAs(c, g, packed)
	pages := c.Run.Rollout.Pages
	if pages == 0 {
		pages = min(4096, c.Run.Train.GlobalBatch*((c.Run.Data.SeqLen+sample.PageRows-1)/sample.PageRows))
	}
	if least := (c.Run.Data.SeqLen + sample.PageRows - 1) / sample.PageRows; pages < least {
		return nil, c.Fault("rollout.pages", fmt.Sprintf("%d pages have no room for one answer of %d tokens", pages,
			c.Run.Data.SeqLen), fmt.Sprintf("take %d or more", least))
	}
	e, err := sample.NewEngine(g, sample.EngineOptions{Pages: pages, Running: c.Run.Train.GlobalBatch,
		Rows: max(256, c.Run.Train.GlobalBatch), Further: c.Run.Rollout.Ahead > 0, Ahead: c.Run.Rollout.Ahead})
	if err != nil {
		return nil, err
	}
	params := slices.DeleteFunc(m.Params(fit.Lora(c)), func(p *grad.Param) bool { return ofFurther(p.Name) })
	talk, err := converses(c, stops)
	if err != nil {
		return nil, err
	}
	return &Drawer{Engine: e, talk: talk, params: params, packed: packed, backend: b, stops: stops,
		valued: valued}, nil
}

// ofFurther tells whether a parameter is of a layer for further tokens, which the run does not train.
func ofFurther(name string) bool { return strings.HasPrefix(name, family.FurtherName) }

// furtherOf fills parameters of the layers for further tokens as the model's folder has them; adapters of
// them add nothing. The second result is to be called when all are filled.
func furtherOf(c *configs.Config, m *family.Model) (fill func(*grad.Param, family.Region, []float32) error,
	done func(), err error) {
	dir := c.Run.Model.Path
	src, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = src.Close() } // it is only read
	w, err := m.OpenWeights(src, dir)
	if err != nil {
		done()
		return nil, nil, err
	}
	own := map[string]bool{}
	for _, p := range m.Params(nil) {
		own[p.Name] = ofFurther(p.Name)
	}
	return func(p *grad.Param, g family.Region, dst []float32) error {
		if !ofFurther(p.Name) {
			return nil // the run's weights are put in later
		}
		clear(dst)
		if !own[p.Name] {
			return nil
		}
		ok, err := w.Read(p, g, dst)
		if err == nil && !ok {
			err = fmt.Errorf("%s has no %s, which rollout.ahead reads", dir, p.Name)
		}
		return err
	}, done, nil
}

// Each gives the regions of parameters: a range of each axis, and its numbers.
func (w *Weights) Each(take func(name string, box [][2]int, v []float32) error) error {
	from := w.From
	for i, t := range w.Tensors {
		if len(from) < len(t.Shape) || i >= len(w.Names) {
			return fmt.Errorf("weights of %d regions begin at %d numbers", len(w.Tensors), len(w.From))
		}
		box := make([][2]int, len(t.Shape))
		for k, n := range t.Shape {
			box[k] = [2]int{int(from[k]), int(from[k]) + n}
		}
		from = from[len(box):]
		v := make([]float32, t.Len())
		tensor.Widen(t.DType, t.Bytes(), v)
		if err := take(w.Names[i], box, v); err != nil {
			return err
		}
	}
	return nil
}

// Load puts weights in. Nothing is under way.
func (d *Drawer) Load(w *Weights) error {
	defer d.Engine.Flush()
	return w.Each(d.Engine.Generator().Put)
}

// fill puts weights in from where a run's come from.
func (d *Drawer) fill(from family.FillFunc) error {
	for _, p := range d.params {
		v, err := NumbersOf(p, d.packed, from)
		if err != nil {
			return err
		}
		box := make([][2]int, len(p.Shape))
		for i, n := range p.Shape {
			box[i] = [2]int{0, n}
		}
		if err := d.Engine.Generator().Put(p.Name, box, v); err != nil {
			return err
		}
	}
	d.Engine.Flush()
	return nil
}

// submit has answers drawn, behind those under way. When the last of them has ended, done takes what was drawn.
func (d *Drawer) submit(all []draft, done func(got []draft)) error {
	got := make([]draft, len(all))
	left := len(all)
	if left == 0 {
		done(got)
	}
	for i := range all {
		got[i].Index = all[i].Index
		if err := d.begin(&all[i], &got[i], func() {
			if got[i].ids != nil {
				d.talk.talks.Leave(got[i].ids)
			}
			if left--; left == 0 {
				d.ready = append(d.ready,
					func() error { // when the step is over: values are of the same model
						err := d.values(all, got)
						done(got)
						return err
					})
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// begin has an answer drawn on, of which got are the tokens that are new; over is told when it has ended.
func (d *Drawer) begin(a, got *draft, over func()) error {
	answer := append(a.Answer[:len(a.Answer):len(a.Answer)], got.Answer...)
	if len(answer) >= a.Most { // an environment has said more than there is room for now
		got.End = sample.EndLength
		over()
		return nil
	}
	q := &sample.Request{Prompt: append(a.Prompt[:len(a.Prompt):len(a.Prompt)], answer...), Began: len(answer),
		Sample: a.Index, Params: sample.Params{Temperature: 1, Max: a.Most, Seed: a.Seed, Stop: d.stops}}
	q.Emit = func(t sample.Token) bool {
		got.Answer, got.LogProbs = append(got.Answer, t.ID), append(got.LogProbs, t.LogProb)
		return true
	}
	q.Done = func(why sample.End) {
		switch got.End = why; {
		case why == sample.EndNumber: // weights that draw nothing are an error of the run
			d.ready = append(d.ready, func() error {
				return fmt.Errorf("a logit of answer %d is no number: the weights that draw are spoilt", a.Index)
			})
			over()
		case why == sample.EndStop && d.talk != nil:
			d.talk.ask(a, got, func(ended bool) error {
				if ended {
					over()
					return nil
				}
				return d.begin(a, got, over)
			})
		case why != sample.EndCancel && why != sample.EndError:
			over()
		}
	}
	return d.Engine.Submit(q)
}

// busy reports whether some answer has not ended.
func (d *Drawer) busy() bool {
	return d.Engine.Busy() || len(d.ready) > 0 || d.talk != nil && d.talk.waits > 0
}

// step draws a token of each answer under way.
func (d *Drawer) step() error {
	if d.beat != nil {
		d.beat()
	}
	var err error
	if d.Engine.Busy() {
		err = d.Engine.Step()
	}
	if d.talk != nil && err == nil {
		err = d.talk.take(!d.Engine.Busy() && len(d.ready) == 0)
	}
	ready := d.ready
	d.ready = nil
	for _, f := range ready {
		if err == nil {
			err = f()
		}
	}
	return err
}

// values finds the values of what was drawn, where the loss reads them: of the rows that drew the tokens.
func (d *Drawer) values(all, got []draft) error {
	if !d.valued {
		return nil
	}
	var ids, positions []int32
	cu := []int32{0}
	for i, a := range all {
		text := append(append(append([]int32{}, a.Prompt...), a.Answer...), got[i].Answer...)
		for k := range text {
			positions = append(positions, int32(k))
		}
		ids = append(ids, text...)
		cu = append(cu, int32(len(ids)))
	}
	v, err := d.Engine.Generator().Values(ids, positions, cu)
	if err != nil {
		return err
	}
	for i, a := range all {
		from := int(cu[i]) + len(a.Prompt) - 1
		got[i].Values = append([]float32{}, v[from:cu[i+1]-1]...)
	}
	return nil
}

// Close gives the model back.
func (d *Drawer) Close() {
	if d.talk != nil {
		d.talk.close()
	}
	d.Engine.Close()
	kernels.Close(d.backend)
}

// work does what it is told until no more comes: takes weights, and draws tasks.
func (d *Drawer) work(in <-chan actors.Message, say func(actors.Message)) error {
	for {
		var m actors.Message
		var ok bool
		if d.busy() {
			select {
			case m, ok = <-in:
			default:
				if err := d.step(); err != nil {
					return err
				}
				continue
			}
		} else {
			m, ok = <-in
		}
		if !ok {
			return nil
		}
		if err := d.told(m, say); err != nil {
			return err
		}
	}
}

// told does what a message says.
func (d *Drawer) told(m actors.Message, say func(actors.Message)) error {
	if m.Kind == pool.Load {
		defer links.Release(m)
		p, ok := m.Payload.(*links.Pack)
		if !ok {
			return errors.New("weights without numbers")
		}
		return d.Load(&Weights{p, m.Values})
	}
	all, err := unpacked(m)
	if err != nil {
		return err
	}
	return d.submit(all, func(got []draft) {
		say(packed(actors.Message{Kind: pool.Result, Step: m.Step, Values: m.Values}, got))
	})
}

// commandsMost bounds what a sampler is told before it answers: the weights of all publications that lie
// ahead, with their tasks.
func (r *Source) commandsMost() int {
	c := &r.Cfg.Run
	return 2 + (c.Train.GlobalBatch+1)*(c.Rollout.Staleness+2)
}
