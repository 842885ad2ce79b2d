package torch

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Megatron keeps a model under names of its own: query, key and value of a group of heads in one matrix, gate and up in
// one, the layers of a model stacked along a first axis, experts along the next. A link says which rows of which of its
// tensors a tensor of Hugging Face is made of; the same links, turned round, say what its tensors are made of.

// piece is so many rows of a tensor, behind indexes of its first axes.
type piece struct {
	from string
	lead []int
	row  int
	rows int
}

// composed is a tensor made of others: behind each place of its first axes, pieces that follow one another.
type composed struct {
	name  string
	lead  []int // sizes of the first axes
	rest  []int // sizes of the axes behind the rows
	parts map[string][]piece
	col   int // the first of the columns that there are, of the tensors that it is made of
	// sections, in place of parts, are rows of several tensors that a rank has behind each other
	sections [][]piece
}

// rows are those behind one place of the first axes.
func (c *composed) rows() int {
	n := 0
	for _, p := range c.parts[place0(c.lead)] {
		n += p.rows
	}
	return n
}

// pieces are those of all places.
func (c *composed) pieces() (all []piece) {
	places := 1
	if len(c.lead) > 0 {
		places = c.lead[0]
	}
	for i := range places {
		all = append(all, c.parts[fmt.Sprint([]int{i}[:len(c.lead)])]...)
	}
	return all
}

func place0(lead []int) string { return fmt.Sprint(make([]int, len(lead))) }

// shape is that of the tensor.
func (c *composed) shape() []int { return append(append(slices.Clone(c.lead), c.rows()), c.rest...) }

// turned are the tensors that links take rows of, made of those that they are for.
func turned(links []*composed) []*composed {
	byName := map[string]*composed{}
	type at struct {
		row int
		p   piece
	}
	rows := map[string]map[string][]at{}
	for _, l := range links {
		to := 0
		for i, p := range l.pieces() {
			var lead []int
			if len(l.lead) > 0 { // pieces of one place each, which lie behind each other
				lead, to = []int{i}, 0
			}
			c := byName[p.from]
			if c == nil {
				c = &composed{name: p.from, rest: l.rest, lead: make([]int, len(p.lead)), parts: map[string][]piece{}}
				byName[p.from], rows[p.from] = c, map[string][]at{}
			}
			for i, n := range p.lead {
				c.lead[i] = max(c.lead[i], n+1)
			}
			k := fmt.Sprint(append([]int{}, p.lead...))
			rows[p.from][k] = append(rows[p.from][k], at{p.row, piece{l.name, lead, to, p.rows}})
			to += p.rows
		}
	}
	var out []*composed
	for _, name := range sortedKeys(byName) {
		c := byName[name]
		for _, k := range sortedKeys(rows[name]) {
			list := rows[name][k]
			slices.SortFunc(list, func(a, b at) int { return a.row - b.row })
			next := 0
			for _, x := range list {
				if x.row != next {
					panic(fmt.Sprintf("torch: rows of %s %s leave a gap or overlap at %d", name, k, next))
				}
				next += x.p.rows
				c.parts[k] = append(c.parts[k], x.p)
			}
		}
		out = append(out, c)
	}
	return out
}

// assembled is a source of tensors made of those of another.
type assembled struct {
	checkpoint.Source
	infos map[string]checkpoint.Info
	of    map[string]*composed
}

// assemble makes tensors of those of src. All rows of a tensor are of one type.
func assemble(src checkpoint.Source, list []*composed) (*assembled, error) {
	have := map[string]checkpoint.Info{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	a := &assembled{Source: src, infos: map[string]checkpoint.Info{}, of: map[string]*composed{}}
	for _, c := range list {
		info := checkpoint.Info{Name: c.name, Shape: c.shape()}
		for _, k := range sortedKeys(c.parts) {
			for _, p := range c.parts[k] {
				d := have[p.from].DType
				if info.DType == "" {
					info.DType = d
				}
				if d != info.DType {
					return nil, fmt.Errorf("tensor %s: parts are of types %s and %s", c.name, info.DType, d)
				}
			}
		}
		var err error
		if info.Bytes, err = checkpoint.ByteSize(info.DType, info.Shape); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", c.name, err)
		}
		a.infos[c.name], a.of[c.name] = info, c
	}
	return a, nil
}

// Tensors implements checkpoint.Source.
func (a *assembled) Tensors() []checkpoint.Info { return sortedInfos(a.infos) }

// ReadRanges implements checkpoint.Source.
func (a *assembled) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	c, info := a.of[name], a.infos[name]
	if c == nil {
		return &checkpoint.Error{Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	if err := checkBox(info.DType, info.Shape, ranges, dst); err != nil {
		return fmt.Errorf("tensor %s: %w", name, err)
	}
	if len(dst) == 0 {
		return nil
	}
	n := len(c.lead)
	at := make([]int, n)
	for i := range at {
		at[i] = ranges[i][0]
	}
	for {
		size := c.bytes(ranges[n:], info.DType)
		if err := a.place(c, at, ranges[n:], dst[:size], info.DType); err != nil {
			return err
		}
		dst = dst[size:]
		i := n - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < ranges[i][1] {
				break
			}
			at[i] = ranges[i][0]
		}
		if i < 0 {
			return nil
		}
	}
}

// bytes are those of a box behind one place of the first axes.
func (c *composed) bytes(box [][2]int, d checkpoint.DType) int {
	n := d.Bits() / 8
	for _, b := range box {
		n *= b[1] - b[0]
	}
	return n
}

// place reads a box behind one place of the first axes, piece by piece.
func (a *assembled) place(c *composed, at []int, box [][2]int, dst []byte, d checkpoint.DType) error {
	row, each := 0, c.bytes(append([][2]int{{0, 1}}, box[1:]...), d)
	for _, p := range c.parts[fmt.Sprint(at)] {
		from, to := max(box[0][0], row), min(box[0][1], row+p.rows)
		if from < to {
			var ranges [][2]int
			for _, i := range p.lead {
				ranges = append(ranges, [2]int{i, i + 1})
			}
			ranges = append(ranges, [2]int{p.row + from - row, p.row + to - row})
			ranges = append(ranges, box[1:]...)
			if c.col > 0 {
				x := &ranges[len(p.lead)+1]
				*x = [2]int{x[0] + c.col, x[1] + c.col}
			}
			part := dst[(from-box[0][0])*each : (to-box[0][0])*each]
			if err := a.Source.ReadRanges(p.from, ranges, part); err != nil {
				return err
			}
		}
		row += p.rows
	}
	return nil
}
