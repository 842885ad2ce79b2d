package checkpoint

// renaming shows some tensors of a source under other names.
type renaming struct {
	Source
	from map[string]string
}

// Renamed shows the tensors of src that from lists, by the names that they are to have.
func Renamed(src Source, from map[string]string) Source { return &renaming{src, from} }

// Tensors implements Source.
func (r *renaming) Tensors() []Info {
	at := map[string]Info{}
	for _, t := range r.Source.Tensors() {
		at[t.Name] = t
	}
	out := make([]Info, 0, len(r.from))
	for _, name := range SortedKeys(r.from) {
		t := at[r.from[name]]
		t.Name = name
		out = append(out, t)
	}
	return out
}

// ReadRanges implements Source.
func (r *renaming) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	from, ok := r.from[name]
	if !ok {
		return &Error{Tensor: name, Fault: Missing, Why: "there is no such tensor"}
	}
	return r.Source.ReadRanges(from, ranges, dst)
}
