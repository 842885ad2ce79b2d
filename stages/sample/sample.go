package sample

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Generator holds a model's parameters and the state of one sequence.
type Generator struct {
	m     *family.Model
	lora  *block.Lora
	run   *grad.Runner
	dtype tensor.DType
	past  int
	fed   []int32 // the tokens of past, of a model whose positions depend on the length
	next  int32   // the position after the last token, where images take fewer positions than tokens
	cache map[string]*tensor.Tensor
	sums  map[string]int         // ranks along mesh axes in whose order sums are taken
	uncut func(name string) bool // sums of which parameters have no parts
}

// New loads the parameters through fill, which gives them as float32.
func New(m *family.Model, lora *block.Lora, d tensor.DType, b kernels.Backend, pool *tensor.Pool,
	fill func(p *grad.Param, g family.Region, dst []float32) error) (*Generator, error) {
	g := &Generator{m: m, lora: lora, dtype: d, cache: map[string]*tensor.Tensor{}}
	g.run = grad.NewRunner(b, pool)
	for _, p := range m.ParamsIn(d, lora) {
		full, err := pool.New(p.Name, tensor.F32, p.Shape...)
		if err != nil {
			return nil, err
		}
		if full.OnHost() {
			err = fill(p, family.Whole(p), full.F32())
		} else {
			host := tensor.Make(tensor.F32, p.Shape...)
			err = fill(p, family.Whole(p), host.F32())
			kernels.Write(full, host.Bytes())
		}
		if err != nil {
			return nil, err
		}
		if d := p.Value.DType; d != tensor.F32 {
			t, err := pool.New(p.Name, d, p.Shape...)
			if err != nil {
				return nil, err
			}
			b.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{full}, Out: []*tensor.Tensor{t}})
			full.Release()
			full = t
		}
		g.run.Params[p.Name] = full
	}
	return g, nil
}

// SumAs has the model take its sums in the order in which so many ranks along mesh axes do, by the names of
// these, so that its results have their bits; uncut, nil for none, tells of a parameter by its name that they
// do not cut it along its inputs. It is said before anything is computed.
func (g *Generator) SumAs(ranks map[string]int, uncut func(name string) bool) {
	g.sums, g.uncut = ranks, uncut
}

// options are those of what is recorded.
func (g *Generator) options() grad.Options {
	return grad.Options{DType: g.dtype, NoGrad: true, Sums: g.sums, Uncut: g.uncut}
}

// Put sets a region of a parameter, a range of each axis, to numbers in rows.
func (g *Generator) Put(name string, box [][2]int, v []float32) error {
	t := g.run.Params[name]
	if t == nil {
		return fmt.Errorf("sample: the model has no parameter %s", name)
	}
	if k, ok := g.run.Backend.(kernels.Keeper); ok {
		k.Changed()
	}
	Scatter(t.Shape, box, v, func(to int, row []float32) {
		tensor.Narrow(t.DType, row, t.Bytes()[to*t.DType.Size():][:len(row)*t.DType.Size()])
	})
	return nil
}

// Scatter gives the rows of a region of a tensor, a range of each axis, with their places in it.
func Scatter(shape []int, box [][2]int, v []float32, row func(at int, v []float32)) {
	n := box[len(box)-1][1] - box[len(box)-1][0]
	at := make([]int, len(box))
	for i := range at {
		at[i] = box[i][0]
	}
	for len(v) > 0 {
		to := 0
		for i, x := range at {
			to = to*shape[i] + x
		}
		row(to, v[:n])
		v = v[n:]
		for i := len(at) - 2; i >= 0; i-- {
			if at[i]++; at[i] < box[i][1] {
				break
			}
			at[i] = box[i][0]
		}
	}
}

// Runner has the parameters, and what runs traces over them, for whoever trains some of them between requests.
func (g *Generator) Runner() *grad.Runner { return g.run }

// Model is what the parameters are of, and Lora which adapters it has, nil for none.
func (g *Generator) Model() (*family.Model, *block.Lora) { return g.m, g.lora }

// Reset forgets the sequence.
func (g *Generator) Reset() {
	for k, t := range g.cache {
		t.Release()
		delete(g.cache, k)
	}
	g.past, g.next, g.fed = 0, 0, nil
}

// lengthen has positions that depend on the length of a sequence follow one of n tokens, until the function that it
// gives is called: as transformers' dynamic_rope_update does in every forward pass.
func (g *Generator) lengthen(n int) func() {
	s := &g.m.Spec
	before, local := s.Rope.Length, s.LocalRope.Length
	s.Rope.Length, s.LocalRope.Length = n, n
	return func() { s.Rope.Length, s.LocalRope.Length = before, local }
}

// Close gives the parameters and the cache back.
func (g *Generator) Close() {
	g.Reset()
	keeper, keeps := g.run.Backend.(kernels.Keeper)
	for k, t := range g.run.Params {
		if keeps {
			keeper.Forget(t)
		}
		t.Release()
		delete(g.run.Params, k)
	}
}

// Logits feeds tokens after those fed before and returns the logits of each, [tokens vocabulary] in rows.
func (g *Generator) Logits(tokens []int32) ([]float32, error) {
	return g.LogitsWith(tokens, family.Images{})
}

// LogitsWith is Logits for tokens among which images have their places.
func (g *Generator) LogitsWith(tokens []int32, pics family.Images) ([]float32, error) {
	return g.feed(tokens, pics, block.Rec{Logits: true, Cached: true, Past: g.past}, "logits")
}

// States gives what the head would read of tokens that are a whole sequence: their states behind the final
// norm, [tokens hidden] in rows. Images may have their places among them. The sequence that was fed before
// is forgotten, and of this one nothing is kept.
func (g *Generator) States(tokens []int32, pics family.Images) ([]float32, error) {
	g.Reset()
	defer g.Reset()
	return g.feed(tokens, pics, block.Rec{States: true}, "final")
}

// feed runs the model on tokens and gives what it makes under a name; further results are kept for the next tokens.
func (g *Generator) feed(tokens []int32, pics family.Images, rec block.Rec, want string) ([]float32, error) {
	n := len(tokens)
	if r := g.m.Spec.Rope; r.Type == "longrope" && len(pics.Grids) == 0 {
		if long := g.past+n > r.Original; long && g.past > 0 && g.past <= r.Original { // all keys turn by the long factors now
			all := slices.Concat(g.fed, tokens)
			g.Reset()
			rec.Past = 0
			out, err := g.feed(all, pics, rec, want)
			return out[len(out)/len(all)*(len(all)-n):], err
		}
		g.fed = append(g.fed, tokens...)
	}
	defer g.lengthen(g.past + n)()
	shape := block.Shape{Rows: n}
	if v := g.m.Vision; v != nil {
		if err := v.Check(&pics); err != nil {
			return nil, fmt.Errorf("sample: %w", err)
		}
		if g.past > 0 && g.m.Sight(n, &pics) != nil {
			return nil, fmt.Errorf("sample: the tokens of an image see each other both ways, so that images come with " +
				"the first tokens")
		}
		shape = v.Shape(n, v.Class(pics.Patches(), pics.Frames()))
	}
	rec.Shape, rec.Lora = shape, g.lora
	tr := g.m.Record(g.options(), rec, family.Stage{To: len(g.m.Blocks)})
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = int32(g.past + i)
	}
	data := map[string]*tensor.Tensor{"ids": tensor.Of(tensor.I32, tokens, n),
		"positions":    tensor.Of(tensor.I32, pos, n),
		"cu_seqlens":   tensor.Of(tensor.I32, []int32{0, int32(n)}, 2),
		"cu_seqlens_k": tensor.Of(tensor.I32, []int32{0, int32(g.past + n)}, 2)}
	g.look(data, tokens, pics, shape)
	if kinds := g.m.Kinds(data["ids"].I32()); kinds != nil {
		data[block.KindsOf] = kinds
	}
	if err := g.run.Place(data); err != nil {
		return nil, err
	}
	for k, t := range g.cache {
		data["past."+k] = t
		delete(g.cache, k)
	}
	f := g.run.NewFrame(tr, data, nil, nil)
	if _, err := g.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	var out []float32
	for k, t := range f.Outputs() {
		if k == want {
			out = g.read(t)
			continue
		}
		g.cache[k] = t
	}
	f.Close()
	g.run.Close() // the next trace has constants of its own
	g.past += n
	return out, nil
}

// read gives the numbers of a result, and the result back.
func (g *Generator) read(t *tensor.Tensor) []float32 {
	host := kernels.Host(g.run.Backend, t)
	out := make([]float32, t.Len())
	if t.DType == tensor.F32 {
		copy(out, host.F32())
	} else {
		tensor.Widen(t.DType, host.Bytes(), out)
	}
	host.Release()
	t.Release()
	return out
}

// look adds what a composed model reads: positions on three axes, and images, whose tokens have no
// embedding of their own.
func (g *Generator) look(data map[string]*tensor.Tensor, tokens []int32, pics family.Images, shape block.Shape) {
	v, n := g.m.Vision, len(tokens)
	if v == nil {
		return
	}
	pos := v.Positions(n, []int32{0, int32(n)}, &pics)
	for i := range pos {
		pos[i] += g.next
	}
	for i := range n {
		g.next = max(g.next, pos[3*i]+1, pos[3*i+1]+1, pos[3*i+2]+1)
	}
	data["positions3"] = tensor.Of(tensor.I32, pos, n, 3)
	ids := append([]int32(nil), tokens...)
	for _, p := range pics.Grids {
		for _, s := range p.Spans {
			for i := s[0]; i < s[1]; i++ {
				ids[i] = -1
			}
		}
	}
	data["ids"] = tensor.Of(tensor.I32, ids, n)
	maps.Copy(data, v.Data(&pics, shape))
	maps.Copy(data, g.m.Sight(n, &pics))
}

// Generate continues a prompt. Each new token goes to emit, which may end the generation.
func (g *Generator) Generate(prompt []int32, p Params, emit func(id int32) bool) error {
	return g.GenerateWith(prompt, family.Images{}, p, emit)
}

// GenerateWith is Generate for a prompt with images.
func (g *Generator) GenerateWith(prompt []int32, pics family.Images, p Params, emit func(id int32) bool) error {
	if len(prompt) == 0 {
		return fmt.Errorf("sample: the prompt has no tokens")
	}
	if g.m.Headless() {
		return fmt.Errorf("sample: the model gives scores or vectors of texts and draws no tokens")
	}
	g.Reset()
	feed, drawn := prompt, counts{}
	drawn.see(prompt, true)
	var d drawer
	for i := range p.Max {
		logits, err := g.LogitsWith(feed, pics)
		if err != nil {
			return err
		}
		vocab := g.m.Spec.Vocab
		id := d.draw(logits[len(logits)-vocab:], &p, &drawn, Uniform(p.Seed, 0, i))
		for _, s := range p.Stop {
			if s == id {
				return nil
			}
		}
		if !emit(id) {
			return nil
		}
		feed, pics = []int32{id}, family.Images{}
		drawn.see(feed, false)
	}
	return nil
}
