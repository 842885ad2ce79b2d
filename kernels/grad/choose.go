package grad

import (
	"fmt"
	"strings"
)

// Choice is what becomes, between forward and backward, of a tensor that the backward needs.
type Choice uint8

// The policies of the options decide, or the tensor stays on the device, goes to host memory, or is computed again.
const (
	ByPolicy Choice = iota
	Keep
	Away
	Again
)

// Made is what one operation of a block's forward leaves for the backward: an entry of Trace.Made.
type Made struct {
	Block  int
	Tensor string
	Bytes  int64 // on one rank
	Cost   Cost  // of computing it again on one rank
	Reads  []int // earlier entries that computing it again needs
	Needed bool  // the backward reads it, whatever is computed again
	Again  bool  // it may be computed again
	Away   bool  // it may go to host memory
}

// nameTensors gives what the operations of each block write names that are the same in all layers of a kind:
// a layer's part of the parameter's name that the operation reads, or else the operation's own; what a
// communication brings has its operand's name, with .exchanged behind it. Of several with one name in a
// block the second is called .2, and further results of an operation have their number behind a colon.
func (t *Tape) nameTensors() {
	type named struct {
		block int
		name  string
	}
	seen := map[named]int{}
	for _, n := range t.nodes {
		if n.Phase != F || n.Block < 0 || n.Op.Role == param || n.Op.Role == constant || n.Op.Role == data {
			continue
		}
		name := n.Op.Name
		switch {
		case n.Op.comm() && n.Op.Role != unshard:
			if in := n.In[0].tensor; in != "" {
				name = in + ".exchanged"
			}
		case n.Op.Role == compute:
			for _, v := range n.In {
				if p := paramBehind(v); p != "" {
					name = p
					break
				}
			}
		}
		k := named{n.Block, name}
		if seen[k]++; seen[k] > 1 {
			name = fmt.Sprintf("%s.%d", name, seen[k])
		}
		for i, v := range n.Out {
			if v.tensor = name; i > 0 {
				v.tensor = fmt.Sprintf("%s:%d", name, i)
			}
		}
	}
}

// paramBehind is the name of the parameter that v is, without the layer before it and the kind of tensor
// behind; "" for other values.
func paramBehind(v *Value) string {
	for v != nil && v.Node.Op.Role != param {
		switch v.Node.Op.Role {
		case alias, unshard, cutOut, convert:
			v = v.Node.In[0]
		default:
			return ""
		}
	}
	if v == nil {
		return ""
	}
	parts := strings.Split(v.Name, ".")
	for i := len(parts) - 2; i >= 0; i-- {
		if strings.Trim(parts[i], "0123456789") == "" {
			parts = parts[i+1:]
			break
		}
	}
	if n := len(parts); n > 1 && (parts[n-1] == "weight" || parts[n-1] == "bias") {
		parts = parts[:n-1]
	}
	return strings.Join(parts, ".")
}

// stored is the value whose storage v is.
func stored(v *Value) *Value {
	for v.Node.Op.Role == alias {
		v = v.Node.In[0]
	}
	return v
}

// chosen is what the options say of a forward value by name.
func (t *Tape) chosen(v *Value) Choice {
	if v = stored(v); t.Choose == nil || v.tensor == "" {
		return ByPolicy
	}
	return t.Choose(v.Node.Block, v.Node.Out[0].tensor)
}

// Made lists what the blocks of a trace make in the forward, in that order. The trace must be recorded
// without recompute, offload and choices, so that its backward reads what the forward has made.
func (tr *Trace) Made() (out []Made) {
	t := &Tape{Options: tr.Options, whole: tr.whole}
	at := map[*Node]int{}
	for _, n := range tr.nodes {
		if n.Phase != F || n.Op.Role == alias {
			continue
		}
		switch n.Op.Role {
		case compute, convert, cutOut, pick, dispatch, combine, offsets, rotate, piece, stack, natural, swap:
		default:
			continue
		}
		if n.Block < 0 || n.Out[0].tensor == "" {
			continue
		}
		m := Made{Block: n.Block, Tensor: n.Out[0].tensor, Again: n.Op.again() && !tr.whole[n.Block] && !n.Out[0].Kept,
			Away: n.Out[0].moves()}
		one := *n
		one.Then = nil
		t.cost(&m.Cost, &one)
		for _, v := range n.Out {
			m.Bytes += bytesOf(&tr.Options, v)
			m.Again = m.Again && !v.Exported
			m.Away = m.Away && !v.Exported
		}
		at[n] = len(out)
		for _, v := range n.In {
			if v == nil {
				continue
			}
			if i, ok := at[stored(v).Node]; ok {
				m.Reads = append(m.Reads, i)
				if out[i].Block != n.Block { // what crosses a border is never computed again there
					out[i].Again = false
				}
			}
		}
		out = append(out, m)
	}
	for _, n := range tr.nodes {
		if n.Phase == F {
			continue
		}
		for _, v := range n.In {
			if v == nil {
				continue
			}
			s := stored(v)
			if i, ok := at[s.Node]; ok && s.Node.Phase == F {
				out[i].Needed = true
				if out[i].Block != n.Block {
					out[i].Again = false
				}
			}
		}
	}
	for _, p := range tr.Out {
		if i, ok := at[stored(p.Value).Node]; ok {
			out[i].Again = false
		}
	}
	return out
}
