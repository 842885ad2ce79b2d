package texts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Model is a text encoder: what its configuration says, as a list of layers.
type Model struct {
	Class  string
	Width  int      // of its states
	Layers int      // between the embedding and the final norm
	Vocab  int      // ids are below it
	Most   int      // tokens of a caption, 0 for no bound
	Pooled int      // width of a caption's pooled row, 0 for encoders without
	Half   bool     // its states fit into float16
	Notes  []string // on keys of its file, a line each

	config config
	kept   map[string]json.RawMessage // idle keys of its file
	parts  parts
	// pool finds the token whose row a caption is pooled to; nil for encoders without
	pool func(ids []int32) (int, error)
	// logical gives the model's name of a tensor of a file, "" for one that follows from the configuration
	logical func(file string) string
}

// parts records what an encoder is made of. x is [rows W].
type parts interface {
	// embed looks up the tokens. Data: ids [rows] i32, and what else the class reads.
	embed(s scope) *grad.Value
	// layer is layer i.
	layer(s scope, i int, x *grad.Value) *grad.Value
	// norm is the one behind the last layer.
	norm(s scope, x *grad.Value) *grad.Value
	// project makes pooled rows of rows of the normed states.
	project(s scope, x *grad.Value) *grad.Value
	// size is the number of weights that a token passes in a layer.
	size() int
	// widths are what tensor parallelism cuts: heads, and the width of MLPs.
	widths() []int
	// names are what the parameters of the embedding and of layer i begin with.
	names(i int) string
}

// Take says what an encoder gives: states behind all layers but the last Skip, normed as those behind the
// last one are if Norm is set, and pooled rows. Last and Penultimate are the usual ones.
type Take struct {
	Skip   int
	Norm   bool
	Pooled bool
}

// Last takes last_hidden_state, Penultimate what transformers calls hidden_states[-2].
var (
	Last        = Take{Norm: true}
	Penultimate = Take{Skip: 1}
)

// Check refuses what the encoder does not have.
func (m *Model) Check(t Take) error {
	if t.Skip < 0 || t.Skip > m.Layers {
		return fmt.Errorf("texts: states without the last %d layers of %s, which has %d: skip 0 to %[3]d",
			t.Skip, m.Class, m.Layers)
	}
	if t.Pooled && m.Pooled == 0 {
		return fmt.Errorf("texts: %s has no pooled rows: take them from a CLIP text encoder", m.Class)
	}
	return nil
}

// Component is that of an encoder's blocks where it is the whole model; else it is the encoder's name there.
const Component = "text_encoder"

// Names of what an encoder reads and gives, below the name that it has in a larger model.
const (
	StatesPort = "states" // [rows W]
	PooledPort = "pooled" // [captions P]
	Captions   = "captions"
	// rows between layers, and those behind the layer that states are taken of, where pooled rows need more
	innerPort, furtherPort = "x", "further"
)

// In is a name of an encoder's port, data or dimension in a model that calls the encoder name, which is ""
// where it is the whole model.
func In(name, of string) string {
	if name == "" {
		return of
	}
	return name + "." + of
}

// scope is where an encoder is recorded.
type scope struct {
	*block.Rec
	name string
}

func (s scope) of(name string) string { return In(s.name, name) }

// rows is the number of tokens: the dimension of the encoder's name, or the microbatch's rows where it is
// the whole model.
func (s scope) rows() int { return rowsOf(s.name)(s.Shape) }

// captionsOf is the number of captions: the dimension of the encoder's name, or the levels of noise of a
// denoiser that has it before its own blocks, one a sample.
func captionsOf(name string) func(block.Shape) int {
	return func(s block.Shape) int {
		if n := s.Dim(In(name, Captions)); n > 0 || name == "" {
			return n
		}
		return s.Dim(family.NoiseLevels)
	}
}

func rowsOf(name string) func(block.Shape) int {
	return func(s block.Shape) int {
		if name == "" {
			return s.Rows
		}
		return s.Dim(name)
	}
}

// ints is a tensor of the microbatch with a number for each row.
func (s scope) ints(name string) *grad.Value { return s.T.Data(s.of(name), tensor.I32, s.rows()) }

// cu cuts the rows into captions.
func (s scope) cu() *grad.Value { return s.T.Data(s.of("cu_seqlens"), tensor.I32, 2) }

// param declares a vector or matrix that all ranks have.
func (s scope) param(name string, decay bool, shape ...int) *grad.Value {
	return s.T.Param(s.of(name), shape, -1, 1, decay)
}

// Blocks are the encoder's blocks, of which the larger model that they are put into calls the encoder name:
// parameters, ports, data and dimensions begin with it (In). With "" the encoder is the whole model. Layers
// that nothing is taken of are left out. The ports that they give are StatesPort and, if asked for,
// PooledPort. Data: ids, positions and cu_seqlens of the captions, and pool [captions].
func (m *Model) Blocks(name string, t Take) []family.Block {
	tap := m.Layers - t.Skip
	last := tap
	if t.Pooled {
		last = m.Layers
	}
	after := func(i int) string { // the port of what layer i gives, -1 for the embedding
		if i < tap {
			return In(name, innerPort)
		}
		return In(name, furtherPort)
	}
	var list []family.Block
	add := func(of string, takes []string, gives []string, weight float64,
		record func(s scope, env map[string]*grad.Value)) {
		list = append(list, family.Block{Name: In(name, of), Component: cmp.Or(name, Component), Of: name,
			Takes: takes, Gives: gives, Weight: weight * float64(m.parts.size()), Recompute: weight == 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) { record(scope{r, name}, env) }})
	}
	add(m.parts.names(-1), nil, []string{after(-1)}, 0.1, func(s scope, env map[string]*grad.Value) {
		env[after(-1)] = s.T.Place("residual", m.parts.embed(s))
	})
	for i := range last {
		add(m.parts.names(i), []string{after(i - 1)}, []string{after(i)}, 1, func(s scope, env map[string]*grad.Value) {
			env[after(i)] = m.parts.layer(s, i, env[after(i-1)])
		})
	}
	takes, gives := []string{after(tap - 1)}, []string{In(name, StatesPort)}
	if last > tap {
		takes = append(takes, after(last-1))
	}
	if t.Pooled {
		gives = append(gives, In(name, PooledPort))
	}
	add("final", takes, gives, 0.1, func(s scope, env map[string]*grad.Value) {
		m.final(s, env, env[after(tap-1)], env[after(last-1)], t)
	})
	return list
}

// final gives what is taken, of states behind the layers that are asked for and of x behind all of them.
func (m *Model) final(s scope, env map[string]*grad.Value, states, x *grad.Value, t Take) {
	given := states
	if t.Norm {
		given = m.parts.norm(s, states)
	}
	env[s.of(StatesPort)] = given
	if !t.Pooled {
		return
	}
	normed := given
	if !t.Norm || states != x {
		normed = m.parts.norm(s, x)
	}
	at := s.T.Data(s.of("pool"), tensor.I32, captionsOf(s.name)(s.Shape))
	env[s.of(PooledPort)] = m.parts.project(s, s.T.Take(normed, at))
}

// Ports are the ports of Blocks.
func (m *Model) Ports(name string) map[string]family.Port {
	rows := family.Port{Width: m.Width, Rows: rowsOf(name), Of: name}
	pooled := family.Port{Width: m.Pooled, Of: name, Whole: true, Rows: captionsOf(name)}
	return map[string]family.Port{In(name, innerPort): rows, In(name, furtherPort): rows,
		In(name, StatesPort): rows, In(name, PooledPort): pooled}
}

// Alone is the encoder as a whole model, whose last stage gives StatesPort and PooledPort to whoever takes them.
func (m *Model) Alone(t Take) *family.Model {
	return &family.Model{Family: m.Class, Blocks: m.Blocks("", t), Ports: m.Ports("")}
}

// Record traces the whole encoder for captions of rows tokens together.
func (m *Model) Record(o grad.Options, rows, captions int, t Take) *grad.Trace {
	alone := m.Alone(t)
	st := family.Stage{To: len(alone.Blocks), Out: []family.Flow{{Port: StatesPort}}}
	if t.Pooled {
		st.Out = append(st.Out, family.Flow{Port: PooledPort})
	}
	shape := block.Shape{Rows: rows, Dims: map[string]int{Captions: captions}}
	return alone.Record(o, block.Rec{Shape: shape}, st)
}

// Params lists all parameters in order of first use, those that a Take leaves out among them.
func (m *Model) Params() []*grad.Param {
	return m.Record(grad.Options{NoGrad: true}, 1, 1, Take{Norm: true, Pooled: m.Pooled > 0}).Params
}

// Count is the number of parameters.
func (m *Model) Count() (n int64) {
	for _, p := range m.Params() {
		n += int64(tensor.Len(p.Shape))
	}
	return n
}

// Data are the tensors that blocks read of captions, by their names in a model that calls the encoder name.
// An id outside of the vocabulary, an empty or too long caption and one whose pooled row cannot be found are
// errors that name the caption by its number.
func (m *Model) Data(name string, captions [][]int32, t Take) (map[string]*tensor.Tensor, error) {
	var ids, positions, pool []int32
	cu := []int32{0}
	for i, c := range captions {
		if err := m.fits(c); err != nil {
			return nil, fmt.Errorf("caption %d: %w", i, err)
		}
		if t.Pooled {
			at, err := m.pool(c)
			if err != nil {
				return nil, fmt.Errorf("caption %d: %w", i, err)
			}
			pool = append(pool, int32(len(ids)+at))
		}
		for j, id := range c {
			ids, positions = append(ids, id), append(positions, int32(j))
		}
		cu = append(cu, int32(len(ids)))
	}
	data := map[string]*tensor.Tensor{In(name, "ids"): tensor.Of(tensor.I32, ids, len(ids)),
		In(name, "cu_seqlens"): tensor.Of(tensor.I32, cu, len(cu))}
	if m.Most > 0 {
		data[In(name, "positions")] = tensor.Of(tensor.I32, positions, len(positions))
	}
	if t.Pooled {
		data[In(name, "pool")] = tensor.Of(tensor.I32, pool, len(pool))
	}
	return data, nil
}

// fits holds a caption to the vocabulary and the positions of the encoder.
func (m *Model) fits(ids []int32) error {
	switch bad := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= m.Vocab }); {
	case len(ids) == 0:
		return fmt.Errorf("it has no tokens; encode it with the tokenizer's special tokens")
	case m.Most > 0 && len(ids) > m.Most:
		return fmt.Errorf("%d tokens, and %s has %d positions; cut it (Tokenizer.IDs)", len(ids), m.Class, m.Most)
	case bad >= 0:
		return fmt.Errorf("token %d has the id %d, outside of the vocabulary of %d; take the tokenizer "+
			"that came with the encoder", bad, ids[bad], m.Vocab)
	}
	return nil
}
