package family

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// A policy may be hosted by a vision-language model, whichever it is: that model reads what a sample sees
// and is told as rows of its own, and what gives actions reads the states of these rows. The samples are
// sequences of the language model, each of so many rows of a prompt (Encoded.From, Encoded.Told), whose
// last one has the weight of the sample in the loss; actions lie beside them, as images that are read whole
// do. Its data are those of such images, without views and tokens, and
//
//	dif.text.take [texts]   rows of prompts among those of the language model, -1 for zeros
//	dif.canvas.cu [levels+1] their borders, sample by sample
//	dif.words.take, dif.words.cu those rows of dif.text.take that are words, and their borders
//	dif.views.take, dif.views.cu and those that are of views
//	dif.readout [rows]       which readout each row of the language model is, -1 for none
//	dif.canvas [rows]        the row of the language model that has the weight of an action's sample

// ToldPort is the port of what a language model makes of prompts, [rows of captions, its width].
const ToldPort = "told"

// Head makes what gives actions of what a vision-language model sees and reads. It is put behind the model,
// whose own head nothing reads then.
type Head interface {
	// Denoiser says what the actions are; it is called once.
	Denoiser() *Denoiser
	// Blocks take ToldPort, and give the loss by Denoiser.Predicted. Ports are those between them.
	Blocks() (blocks []Block, ports map[string]Port)
}

// Act puts a head behind a vision-language model. It is called once for a model.
func (m *Model) Act(h Head) error {
	if m.Vision == nil || m.Denoiser != nil || m.Headless() {
		return fmt.Errorf("%s is no vision-language model, and no other hosts what gives actions", m.Family)
	}
	d := h.Denoiser()
	d.Hosted, d.Canvas = true, true
	m.DropMTP() // its layers learn what is said next
	m.Denoiser, m.Modalities = d, append(m.Modalities, latents{d})
	if d.Readouts > 0 {
		m.readsOut()
	}
	m.Ports[ToldPort] = Port{Width: m.Spec.Hidden, Rows: Captions, Whole: true}
	end := &m.Blocks[len(m.Blocks)-1]
	end.Gives, end.Weight = []string{ToldPort}, 0.05
	end.Record = func(r *block.Rec, env map[string]*grad.Value) {
		env[ToldPort] = m.told(r, env["x"])
		m.Spec.balanced(r)
	}
	blocks, ports := h.Blocks()
	for name, p := range ports {
		m.Ports[name] = p
	}
	for _, b := range blocks {
		m.Add(b)
	}
	return nil
}

// readsOut puts readouts among the rows of the language model: learned rows behind those of a prompt, where
// its tokens are -1, which read what comes before them as any row does. What gives actions alone reads them.
func (m *Model) readsOut() {
	d := m.Denoiser
	m.Modalities = append(m.Modalities, readouts{d: d})
	for i, x := range m.Modalities {
		if k, ok := x.(kinds); ok {
			m.Modalities[i] = kinds{s: k.s, d: d}
		}
	}
	for i := range m.Blocks {
		b := &m.Blocks[i]
		if b.Name != EmbedName {
			continue
		}
		inner := b.Record
		b.Record = func(r *block.Rec, env map[string]*grad.Value) {
			inner(r, env)
			rows := r.T.Param(ReadoutName, []int{d.Readouts, m.Spec.Hidden}, -1, 1, true)
			env["x"] = place(r, env["x"], rows, "dif.readout")
		}
	}
}

// ReadoutName is the name of the readouts' rows, here and in files.
const ReadoutName = ExpertName + "readouts.weight"

// readouts is their modality, of one class.
type readouts struct {
	shapeless
	d *Denoiser
}

// TokenTensors implements Rowed.
func (readouts) TokenTensors() []string { return []string{"dif.readout"} }

// Tensors implements Modality.
func (p readouts) Tensors(in *Inputs, _ block.Shape) map[string]*tensor.Tensor {
	which := tensor.Make(tensor.I32, in.Rows)
	for i := range which.I32() {
		which.I32()[i] = -1
	}
	for _, x := range (latents{d: p.d}).items(in) {
		from, n := p.d.reads(&x)
		for k := range n {
			which.I32()[from+k] = int32(k)
		}
	}
	return map[string]*tensor.Tensor{"dif.readout": which}
}

// reads are the rows of a language model that what gives actions attends to: a sample's prompt, or the
// readouts behind it.
func (d *Denoiser) reads(x *Encoded) (from, n int) {
	if d.Readouts > 0 {
		return int(x.From) + x.Told, d.Readouts
	}
	return int(x.From), x.Told
}

// told are the rows of prompts behind the final norm, and declares what the model could say of them,
// which nothing reads.
func (m *Model) told(r *block.Rec, x *grad.Value) *grad.Value {
	t, s := r.T, m.Spec
	if !m.Denoiser.Early {
		x = s.norm().Record(r, "model.norm", x, s.Hidden)
	}
	end := t.Still()
	if m.Denoiser.Early {
		t.Param("model.norm.weight", []int{s.Hidden}, -1, 1, false)
	}
	if !s.Tie {
		t.Table(HeadName+".weight", s.Vocab, s.Hidden)
	}
	end()
	return t.Take(t.Place("", x), t.Data("dif.text.take", tensor.I32, Captions(r.Shape)))
}

// hosted reports a sample i that does not fit its language model's rows.
func (d *Denoiser) hosted(i int, x *Encoded, rows int) error {
	switch n := x.Tokens(); {
	case x.Grid != d.ChunkGrid() || len(x.X0) != n*d.Width():
		return fmt.Errorf("sample %d has %d numbers of actions in %v, want %d in %v", i+1, len(x.X0), x.Grid,
			d.Chunk*d.Width(), d.ChunkGrid())
	case x.Told < 1 || x.From < 0 || int(x.From)+x.Told+d.Readouts > rows:
		return fmt.Errorf("sample %d has %d rows of a prompt from row %d of %d", i+1, x.Told, x.From, rows)
	case len(x.State) != d.Sight.State:
		return fmt.Errorf("sample %d has a state of %d numbers, want %d", i+1, len(x.State), d.Sight.State)
	case x.Robot < 0 || int(x.Robot) >= max(1, d.Robots):
		return fmt.Errorf("sample %d is of robot %d, and the model knows %d", i+1, x.Robot, max(1, d.Robots))
	case min(x.Pad, x.Lead) < 0 || x.Pad+x.Lead > 0 && x.Pad+x.Lead >= n:
		return fmt.Errorf("sample %d has %d of %d actions that are not learnt", i+1, x.Pad+x.Lead, n)
	}
	return nil
}

// host lists the rows of prompts, and which row has the weight of a sample.
func (p latents) host(in *Inputs, s block.Shape, out map[string]*tensor.Tensor) {
	rows, cu := make([]int32, 0, Captions(s)), []int32{0}
	weights := tensor.Make(tensor.I32, p.d.Rows(s))
	for i := range weights.I32() {
		weights.I32()[i] = -1
	}
	for g, x := range p.items(in) {
		from, n := p.d.reads(&x)
		for k := range n {
			rows = append(rows, int32(from+k))
		}
		cu = append(cu, int32(len(rows)))
		for k := range x.Tokens() {
			weights.I32()[g*x.Tokens()+k] = int32(from + n - 1)
		}
	}
	for len(cu) <= Levels(s) {
		cu = append(cu, int32(len(rows)))
	}
	for len(rows) < Captions(s) {
		rows = append(rows, -1)
	}
	p.apart(in, s, out)
	out["dif.text.take"] = tensor.Of(tensor.I32, rows, len(rows))
	out["dif.canvas.cu"] = tensor.Of(tensor.I32, cu, len(cu))
	out["dif.canvas"] = weights
}

// apart lists rows of prompts that are of views, and those that are words, among all rows of prompts.
func (p latents) apart(in *Inputs, s block.Shape, out map[string]*tensor.Tensor) {
	seen := make([]bool, in.Rows)
	for _, g := range in.Images.Grids {
		for _, span := range g.Spans {
			for i := span[0]; i < span[1]; i++ {
				seen[i] = true
			}
		}
	}
	var of []bool
	each := []int32{0}
	for _, x := range p.items(in) {
		from, n := p.d.reads(&x)
		of = append(of, seen[from:from+n]...)
		each = append(each, int32(len(of)))
	}
	p.shared(of, each, s, out)
}

// parts is apart of prompts that have features of views among their tokens: takes are where their rows lie,
// features first, and each their borders, sample by sample.
func (p latents) parts(takes, each []int32, s block.Shape, out map[string]*tensor.Tensor) {
	seen := make([]bool, each[len(each)-1])
	for i := range seen {
		seen[i] = int(takes[i]) < p.d.Sight.FeatureRows(s)
	}
	p.shared(seen, each, s, out)
}

// shared lists the rows that are of views and those that are words, with their borders, by those of samples.
func (p latents) shared(seen []bool, each []int32, s block.Shape, out map[string]*tensor.Tensor) {
	var rows [2][]int32
	cu := [2][]int32{{0}, {0}}
	for k := 0; k+1 < len(each); k++ {
		for at := each[k]; at < each[k+1]; at++ {
			which := 0
			if seen[at] {
				which = 1
			}
			rows[which] = append(rows[which], at)
		}
		for i := range rows {
			cu[i] = append(cu[i], int32(len(rows[i])))
		}
	}
	for i, name := range []string{"words", "views"} {
		for len(cu[i]) <= Levels(s) {
			cu[i] = append(cu[i], int32(len(rows[i])))
		}
		for len(rows[i]) < Captions(s) {
			rows[i] = append(rows[i], -1)
		}
		out["dif."+name+".take"] = tensor.Of(tensor.I32, rows[i], len(rows[i]))
		out["dif."+name+".cu"] = tensor.Of(tensor.I32, cu[i], len(cu[i]))
	}
}

// Apart are those rows of x, [rows of captions, n], that are of views, or those that are words, with their borders.
func (d *Denoiser) Apart(r *block.Rec, x *grad.Value, views bool) (rows, cu *grad.Value) {
	name := "dif.words"
	if views {
		name = "dif.views"
	}
	return r.T.Take(x, r.T.Data(name+".take", tensor.I32, Captions(r.Shape))),
		r.T.Data(name+".cu", tensor.I32, Levels(r.Shape)+1)
}

// heads are the kinds of policy.expert.
var heads = map[string]func(width int, p *configs.Policy) Head{}

// ExpertName begins the names of the parameters of an expert of actions (policy.expert), here and in files.
const ExpertName = "action_expert."

// RegisterHead enters what gives actions behind any vision-language model, whose states have so many
// numbers, as a value of policy.expert. Names of its parameters begin with ExpertName.
func RegisterHead(kind string, build func(width int, p *configs.Policy) Head) struct{} {
	if _, dup := heads[kind]; dup {
		panic("family: head of actions " + kind + " registered twice")
	}
	heads[kind] = build
	return struct{}{}
}

// ActBy is Act by the head that the section policy says.
func (m *Model) ActBy(p *configs.Policy) error {
	build := heads[p.Expert]
	if build == nil {
		return fmt.Errorf("no head of actions is called %s", p.Expert)
	}
	if err := m.Act(build(m.Spec.Hidden, p)); err != nil {
		return err
	}
	m.drawn = ExpertName
	m.Source = besideExpert(m.Source)
	if m.Other != nil {
		m.Other = besideExpert(m.Other)
	}
	return nil
}

// besideExpert is a layout of a model with an expert's parameters beside it.
func besideExpert(own func(name string) Source) func(name string) Source {
	return func(name string) Source {
		if strings.HasPrefix(name, ExpertName) {
			return Source{Name: name}
		}
		return own(name)
	}
}
