package cost

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/topology/collective"
)

//go:embed keys.txt
var keyDocs string

// Key is a setting of a cluster file.
type Key struct {
	Name    string `json:"name"`
	Units   string `json:"units"`   // that its number may have, the smallest first; "" is a number alone, or a word
	Default string `json:"default"` // "" where there is none
	Must    bool   `json:"must"`    // it has to be there
	Doc     string `json:"doc"`
}

// usual is a machine of which nothing is said.
func usual() *Machine {
	return &Machine{Efficiency: 0.6, Stream: 0.8, Copy: 25e9, Hosts: 1, Reserve: UsualReserve,
		Local: collective.Link{PerByte: 1}, Remote: collective.Link{PerByte: 1}}
}

// Keys are all settings of a cluster file, in the order of sections.
func Keys() (all []Key) {
	for _, line := range strings.Split(strings.TrimSpace(keyDocs), "\n") {
		name, doc, _ := strings.Cut(line, "\t")
		k := Key{Name: name, Doc: doc}
		if i := slices.IndexFunc(fields, func(f field) bool { return f.key == name }); i >= 0 {
			f := &fields[i]
			k.Units, k.Must = strings.Join(f.names(), ", "), f.must
			if v := f.get(usual()); v != 0 && !f.must && !strings.HasPrefix(name, "second.") {
				k.Default = fmt.Sprint(v)
				if name == "host.copy" {
					k.Default = fmt.Sprintf("%g GB/s", v/speed["GB/s"])
				}
			}
		}
		all = append(all, k)
	}
	return all
}

// names are a field's units, the smallest first.
func (f *field) names() []string {
	return slices.SortedFunc(maps.Keys(f.units), func(a, b string) int { return cmp.Compare(f.units[a], f.units[b]) })
}
