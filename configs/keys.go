package configs

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// Class says what a resumed run may do with a setting.
type Class string

// The classes.
const (
	Free   Class = "free"   // may change at any time
	Replan Class = "replan" // changes the plan, not the training: checked and allowed
	Fixed  Class = "fixed"  // another value is another run: refused
)

// Key describes one setting. The table of all keys is made from the tags of Run and Model.
type Key struct {
	Name    string   `json:"key"`               // dotted
	Type    string   `json:"type"`              // string, integer, number, boolean, bytes, list of …, mapping
	Default string   `json:"default,omitempty"` // as YAML; "" if there is none
	Doc     string   `json:"doc"`
	Unit    string   `json:"unit,omitempty"`
	OneOf   []string `json:"one_of,omitempty"`
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	Class   Class    `json:"on_resume"`
	Flags   []Flag   `json:"flags,omitempty"`

	from  map[string]string // translates values of flags
	model bool              // a field of Model or of one of its parts, not of Run
	part  string            // that has the field, "" for Model itself
	some  bool              // only some families have it
	index []int             // of the field
	runs  bool              // it names a program
	now   func() []string   // what OneOf is by now, where descriptions add to it
	typ   reflect.Type
}

// Flag is a Megatron or LoongForge flag that means a key.
type Flag = source.Flag

// section is a struct of settings that checks them against each other.
type section interface{ Check(at faults) }

// faults collects what is wrong; the place of a key is found by whoever implements it.
type faults interface {
	fault(key, why, try string)
}

// overrides begins the keys of Model.
const overrides = source.ModelKeys

// table is built once: every key by name, and in the order of the structs.
var table = sync.OnceValue(func() *keyTable {
	t := &keyTable{byName: map[string]*Key{}, byFlag: map[string]*Key{}, sections: map[string]bool{"": true}}
	tabled = true
	t.add(reflect.TypeFor[Run](), "", nil, Key{})
	t.sections[overrides] = true
	t.add(reflect.TypeFor[Model](), overrides, nil, Key{model: true})
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		t.add(declared[name].typ, overrides, nil, Key{model: true, part: name})
	}
	t.optional()
	return t
})

// tabled says that the table was built: what registers later would not be in it.
var tabled bool

type keyTable struct {
	keys     []*Key
	byName   map[string]*Key
	byFlag   map[string]*Key
	sections map[string]bool
}

// Keys returns the table of settings in the order of a run file.
func Keys() []Key {
	var out []Key
	for _, k := range table().keys {
		out = append(out, *k)
	}
	return out
}

// add enters the fields of a struct, whose place of says; nested structs are sections.
func (t *keyTable) add(typ reflect.Type, prefix string, index []int, of Key) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() {
			continue
		}
		name := f.Tag.Get("key")
		if prefix != "" {
			name = prefix + "." + name
		}
		at := append(slices.Clone(index), i)
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[RopeScaling]() {
			t.sections[name] = true
			t.add(f.Type, name, at, of)
			continue
		}
		k := newKey(name, f)
		k.index, k.model, k.part = at, of.model, of.part
		if other := t.byName[name]; other != nil {
			panic(fmt.Sprintf("configs: %s is declared twice, by %q and %q", name, other.part, k.part))
		}
		t.keys = append(t.keys, k)
		t.byName[name] = k
		for _, flag := range k.Flags {
			if other := t.byFlag[flag.Name]; other != nil && other != k {
				panic(fmt.Sprintf("configs: flag %s means both %s and %s", flag.Name, other.Name, name))
			}
			t.byFlag[flag.Name] = k
		}
	}
}

// newKey makes a key from the tags of its field. A key without a text or a class is a defect of the program.
func newKey(name string, f reflect.StructField) *Key {
	k := &Key{Name: name, Type: typeName(f.Type), Default: f.Tag.Get("default"), Doc: f.Tag.Get("doc"),
		Unit: f.Tag.Get("unit"), Class: Class(f.Tag.Get("class")), from: map[string]string{}, typ: f.Type}
	if k.Doc == "" || k.Class == "" {
		panic(fmt.Sprintf("configs: %s: %s lacks doc or class", name, f.Name))
	}
	switch s := f.Tag.Get("oneof"); s {
	case "":
	case "families": // those that have registered
		k.OneOf, k.now = hf.Names(), hf.Names
	case "decoders": // those of them that stand behind an encoder
		k.OneOf, k.now = hf.Behind(), hf.Behind
	case "mixers":
		k.OneOf = uniqueSorted(mixers)
	case "mlps":
		k.OneOf = uniqueSorted(mlps)
	case "projectors":
		k.OneOf = uniqueSorted(projectors)
	case "towers":
		k.OneOf = source.SortedKeys(towers)
	default:
		for _, v := range strings.Split(s, "|") {
			if list, offered := strings.CutPrefix(v, "@"); offered { // what other packages have registered
				k.OneOf = append(k.OneOf, source.Offered(list)...)
			} else {
				k.OneOf = append(k.OneOf, v)
			}
		}
	}
	k.Min, k.Max = bound(f, "min"), bound(f, "max")
	k.runs = f.Tag.Get("names") == "program"
	for _, s := range splitTag(f.Tag.Get("flag")) {
		flag, value, _ := strings.Cut(s, "=")
		k.Flags = append(k.Flags, Flag{Name: flag, Value: value})
	}
	for _, s := range splitTag(f.Tag.Get("from")) {
		flag, value, _ := strings.Cut(s, "=")
		k.from[flag] = value
	}
	return k
}

func splitTag(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// bound reads a limit from a tag; nil if there is none.
func bound(f reflect.StructField, tag string) *float64 {
	s, ok := f.Tag.Lookup(tag)
	if !ok {
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("configs: %s: %s: %v", f.Name, tag, err))
	}
	return &v
}

// pathType is the type name of a WeightPath.
const pathType = "path or {path, weight, name}"

// typeName is the type of a setting as users read it.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Bytes]():
		return "bytes"
	case reflect.TypeFor[WeightPath]():
		return pathType
	case reflect.TypeFor[RopeScaling]():
		return "mapping"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Int:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	}
	panic(fmt.Sprintf("configs: no settings of type %v", t))
}

// names returns the keys directly below a section, and its sections.
func (t *keyTable) names(section string) []string {
	var out []string
	under := func(name string) {
		rest := name
		if section != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(name, section+"."); !ok {
				return
			}
		}
		first, _, _ := strings.Cut(rest, ".")
		out = append(out, first)
	}
	for _, k := range t.keys {
		under(k.Name)
	}
	return uniqueSorted(out)
}

// field returns the settable field of a key, in a run or in a model that no other shares its parts with.
func (k *Key) field(run *Run, m *Model) reflect.Value {
	switch {
	case k.part != "":
		return m.part(k.part).FieldByIndex(k.index)
	case k.model:
		return reflect.ValueOf(m).Elem().FieldByIndex(k.index)
	}
	return reflect.ValueOf(run).Elem().FieldByIndex(k.index)
}

// uniqueSorted removes duplicates.
func uniqueSorted(words []string) []string {
	out := slices.Clone(words)
	slices.Sort(out)
	return slices.Compact(out)
}
