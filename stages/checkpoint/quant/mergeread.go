package quant

import (
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// wrapped takes the names of PEFT's layers around the model's from that of a tensor.
var wrapped = strings.NewReplacer(".token_adapter.base_layer.", ".", ".base_layer.", ".", ".modules_to_save.", ".")

// read takes the tensors of the adapter: those that it has whole first, since what is added may be to them.
func (m *Merging) read() error {
	var rest []checkpoint.Info
	for _, t := range m.adapter.Tensors() {
		name, ok := strings.CutPrefix(t.Name, checkpoint.AdapterPrefix)
		switch {
		case !ok:
			return m.fault(t.Name, checkpoint.Extra, "names of PEFT begin with %s", checkpoint.AdapterPrefix)
		case strings.Contains(name, ".original_module."): // the base's own beside one that was trained
		case strings.Contains(name, ".lora_"), strings.HasSuffix(name, checkpoint.TokenRows):
			rest = append(rest, t)
		default:
			if err := m.whole(t, wrapped.Replace(name)); err != nil {
				return err
			}
		}
	}
	for _, t := range rest {
		name := strings.TrimPrefix(t.Name, checkpoint.AdapterPrefix)
		var err error
		if module, up, table := additionOf(name); up != "" {
			err = m.addition(t, module, up, table)
		} else if module, ok := strings.CutSuffix(name, loraBias); ok {
			err = m.bias(t, module)
		} else if module, ok := strings.CutSuffix(name, checkpoint.TokenRows); ok {
			err = m.tokens(t, module)
		} else if !strings.HasSuffix(name, loraUp) && !strings.HasSuffix(name, loraTableUp) &&
			!strings.HasSuffix(strings.TrimSuffix(name, ".weight"), loraMagnitude) {
			err = m.fault(t.Name, checkpoint.Extra, "no part of an addition that can be merged")
		}
		if err != nil {
			return err
		}
	}
	if err := m.matched(); err != nil {
		return err
	}
	return m.part()
}

// of is what becomes of the tensor of a module, or of that name; nil where the base has none.
func (m *Merging) of(module string) *change {
	for _, name := range []string{module + ".weight", m.base.Names[module], module} {
		if c := m.changes[name]; c != nil {
			return c
		}
		t, ok := m.have[name]
		c := &change{Info: t, from: name}
		if name == m.base.Head && name != "" {
			t, ok = m.have[m.base.Table]
			if c.from, c.Info = m.base.Table, t; m.shared != "" {
				c.Shape = m.adapter.ByName[m.shared].Shape
			}
			c.Name = name
		}
		if ok {
			m.changes[name] = c
			return c
		}
	}
	return nil
}

// whole takes a tensor that the adapter has in place of one of the base's.
func (m *Merging) whole(t checkpoint.Info, name string) error {
	c := m.of(name)
	if c == nil {
		c = m.of(strings.TrimSuffix(name, ".weight"))
	}
	words := c != nil && (strings.HasSuffix(c.Name, "lm_head.weight") || strings.HasSuffix(c.Name, "embed_tokens.weight") ||
		c.Name == m.base.Table || c.Name == m.base.Head)
	if c == nil || !slices.Equal(c.Shape, t.Shape) &&
		!(words && len(t.Shape) == 2 && t.Shape[0] > 0 && t.Shape[1] == c.Shape[1]) {
		return m.fault(t.Name, checkpoint.Extra, "shape %v, and the base model has nothing of this name and shape", t.Shape)
	}
	if !slices.Equal(c.Shape, t.Shape) {
		c.Shape, m.Words = t.Shape, t.Shape[0]
	}
	module := strings.TrimSuffix(name, ".weight")
	saved := slices.ContainsFunc(m.config.Saved, func(end string) bool { return strings.HasSuffix(module, end) })
	tied := m.base.Head != "" && (c.Name == m.base.Table || c.Name == m.base.Head)
	switch {
	case !tied || saved && !m.config.Tie:
		c.whole = t.Name
	case m.shared == "" || c.Name == m.base.Table:
		m.shared = t.Name
		fallthrough
	default:
		if c.Name == m.base.Head {
			delete(m.changes, c.Name)
		}
		m.of(strings.TrimSuffix(m.base.Table, ".weight")).Shape = t.Shape
	}
	return nil
}

// part gives a tied model a head of its own where the adapter changes one of the two alone.
func (m *Merging) part() error {
	table, head := m.changes[m.base.Table], m.changes[m.base.Head]
	if m.base.Head == "" {
		table = nil
	}
	if table != nil && head != nil && m.config.Tie && table.add.turns(head.add) { // one addition, kept twice
		delete(m.changes, m.base.Head)
		head = nil
	}
	if table != nil && head == nil && (table.whole != "" || table.add != nil && !m.config.Tie) {
		head = m.of(strings.TrimSuffix(m.base.Head, ".weight"))
	}
	for _, c := range []*change{table, head} {
		if c != nil && c.whole == "" {
			c.whole = m.shared
		}
	}
	if head != nil && m.base.Head != "" {
		if head.rows == nil && table != nil {
			head.rows = table.rows
		}
		if m.Untied = true; table == nil {
			table = m.of(strings.TrimSuffix(m.base.Table, ".weight"))
			table.whole = m.shared
		}
	}
	if m.Words == 0 {
		return nil
	}
	for _, t := range m.Tensors() {
		if words := strings.HasSuffix(t.Name, "lm_head.weight") || strings.HasSuffix(t.Name, "embed_tokens.weight"); words &&
			t.Shape[0] != m.Words {
			return m.fault(t.Name, checkpoint.Missing, "%d rows in the base, and the adapter's other table has %d", t.Shape[0],
				m.Words)
		}
	}
	return nil
}

// turns reports whether an addition to a table is another to a head, the other way round.
func (a *addition) turns(head *addition) bool {
	if a == nil || head == nil || a.scale != head.scale || a.in != head.out || a.out != head.in || a.rank != head.rank {
		return false
	}
	for k := range a.rank {
		for i := range a.in {
			if a.down[k*a.in+i] != head.up[i*a.rank+k] {
				return false
			}
		}
		for o := range a.out {
			if a.up[o*a.rank+k] != head.down[k*a.out+o] {
				return false
			}
		}
	}
	return true
}

// addition takes an addition, of which t is the first matrix.
func (m *Merging) addition(t checkpoint.Info, module, up string, table bool) error {
	c := m.of(module)
	switch {
	case c == nil:
		return m.fault(t.Name, checkpoint.Extra, "the base model has no weight of %s", module)
	case c.add != nil:
		return m.fault(t.Name, checkpoint.Extra, "%s has another addition", c.Name)
	}
	a, err := m.readAddition(t, checkpoint.AdapterPrefix+up, c.Info, module, table)
	if err != nil {
		return err
	}
	c.add = a
	return nil
}

// bias takes the bias of an addition.
func (m *Merging) bias(t checkpoint.Info, module string) error {
	to, of := m.of(module+".bias"), m.of(module)
	if to == nil || of == nil || !slices.Equal(to.Shape, t.Shape) {
		return m.fault(t.Name, checkpoint.Extra, "the base model has no bias of %s that it could be added to", module)
	}
	first := m.adapter.ByName[checkpoint.AdapterPrefix+module+loraDown]
	if len(first.Shape) != 2 || first.Shape[0] == 0 {
		return m.fault(t.Name, checkpoint.Missing, "no matrices of %s", module)
	}
	scale, err := m.config.scale(module, first.Shape[0])
	if err != nil {
		return m.fault(t.Name, checkpoint.Malformed, "%v", err)
	}
	if to.bias, err = (&finder{src: m.adapter, path: m.adapter.Path}).floats(t, checkpoint.Whole(t.Shape)...); err != nil {
		return err
	}
	for i, x := range to.bias {
		to.bias[i] = float32(scale * float64(x))
	}
	return nil
}

// tokens takes rows of a table that were trained by themselves.
func (m *Merging) tokens(t checkpoint.Info, module string) error {
	c, at := m.of(module), m.config.rowsOf(module)
	if c == nil || len(t.Shape) != 2 || len(c.Shape) != 2 || t.Shape[0] != len(at) || t.Shape[1] != c.Shape[1] ||
		slices.ContainsFunc(at, func(row int) bool { return row < 0 || row >= c.Shape[0] }) {
		return m.fault(t.Name, checkpoint.Misshapen, "%v are not the rows %v of a table of %s", t.Shape, at, module)
	}
	v, err := (&finder{src: m.adapter, path: m.adapter.Path}).floats(t, checkpoint.Whole(t.Shape)...)
	if err != nil {
		return err
	}
	c.rows = map[int][]float32{}
	for i, row := range at {
		c.rows[row] = v[i*t.Shape[1] : (i+1)*t.Shape[1]]
	}
	return nil
}
