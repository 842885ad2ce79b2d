package format

import (
	"encoding/json"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// filled are rows of a table, whose objects all have the keys of all of them: in messages and tools the keys
// that are null were filled in, so they are left out, as TRL does (remove_none_values).
type filled struct{ Records }

// filledColumns are those that hold messages or tools.
var filledColumns = []string{"messages", "conversations", "prompt", "completion", "chosen", "rejected", "tools",
	"functions", "input", "preferred_output", "non_preferred_output"}

// Record implements records.
func (f filled) Record(i int64) ([]byte, dataset.Place, error) {
	b, place, err := f.Records.Record(i)
	if err != nil {
		return b, place, err
	}
	v, err := jinja.FromJSON(b)
	m, ok := v.(*jinja.Map)
	if err != nil || !ok {
		return b, place, nil // whoever reads it says so
	}
	changed := false
	for _, k := range m.Keys() {
		v, _ := m.Get(k)
		switch v.(type) {
		case *jinja.List, *jinja.Map:
			if name, _ := k.(string); slices.Contains(filledColumns, name) {
				m.Set(k, withoutNulls(v, &changed))
			}
		}
	}
	if !changed {
		return b, place, nil
	}
	out, err := jinja.ToJSON(m)
	return json.RawMessage(out), place, err
}

// withoutNulls leaves out the keys of objects that are null, at any depth.
func withoutNulls(v any, changed *bool) any {
	switch x := v.(type) {
	case *jinja.List:
		elems := slices.Clone(x.Elems())
		for i := range elems {
			elems[i] = withoutNulls(elems[i], changed)
		}
		return jinja.NewList(elems)
	case *jinja.Map:
		out := jinja.NewMap()
		for _, k := range x.Keys() {
			if v, _ := x.Get(k); v != nil {
				out.Set(k, withoutNulls(v, changed))
			} else {
				*changed = true
			}
		}
		return out
	}
	return v
}
