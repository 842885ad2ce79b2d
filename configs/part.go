package configs

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// Part is a group of keys of models that its owner declares beside the code that reads them: a kind of mixer,
// experts, scales. T is a struct whose fields have the tags of Model's: key, type by the field, default, min,
// max, oneof, unit, flag, class and doc. The keys stand below model.overrides like Model's own, and families
// list those that they have (hf.Family).
type Part[T any] struct{ name string }

// Rules say what the fields of a part must be to each other, and what follows from them; each may be nil.
type Rules[T any] struct {
	// Check reports what no plan can run. It runs for every model that is read, whatever its family.
	Check func(m Model, v T, at Report)
	// Complete fills in keys of Model that are not given and follow from the part's.
	Complete func(m *Model, v T)
}

// Report receives a fault: key is one of a model's, without what stands before it in run files.
type Report func(key, why, try string)

// declared are the parts by name, without their types.
var declared = map[string]declaration{}

type declaration struct {
	typ      reflect.Type
	check    func(m Model, at Report)
	complete func(m *Model)
}

// Declare enters a part under a name of its own. It is called before a configuration is read, as the value of
// a variable of a package.
func Declare[T any](name string, r Rules[T]) Part[T] {
	if _, dup := declared[name]; dup {
		panic("configs: part " + name + " declared twice")
	}
	if tabled {
		panic("configs: part " + name + " declared after a configuration was read")
	}
	p := Part[T]{name}
	d := declaration{typ: reflect.TypeFor[T]()}
	if r.Check != nil {
		d.check = func(m Model, at Report) { r.Check(m, p.Of(m), at) }
	}
	if r.Complete != nil {
		d.complete = func(m *Model) { r.Complete(m, p.Of(*m)) }
	}
	declared[name] = d
	return p
}

// Of is what a model says of the part; a model that was not read from anything has the keys' defaults.
func (p Part[T]) Of(m Model) T {
	if v, ok := m.parts[p.name]; ok {
		return *v.(*T)
	}
	return *defaults(p.name).Interface().(*T)
}

// Set changes what a model says of the part; copies of the model keep what they have.
func (p Part[T]) Set(m *Model, v T) {
	m.parts = maps.Clone(m.parts)
	if m.parts == nil {
		m.parts = map[string]any{}
	}
	m.parts[p.name] = &v
}

// defaults is a pointer to a part with the defaults of its keys.
func defaults(name string) reflect.Value {
	v := reflect.New(declared[name].typ)
	for i := range v.Elem().NumField() {
		tag := v.Elem().Type().Field(i).Tag
		if text := tag.Get("default"); text != "" {
			mustSet(v.Elem().Field(i), tag.Get("key"), text)
		}
	}
	return v
}

// part is the struct of a part, entered into the model if it is not there.
func (m *Model) part(name string) reflect.Value {
	v, ok := m.parts[name]
	if !ok {
		v = defaults(name).Interface()
		m.parts = maps.Clone(m.parts)
		if m.parts == nil {
			m.parts = map[string]any{}
		}
		m.parts[name] = v
	}
	return reflect.ValueOf(v).Elem()
}

// registered says what a program lacks that reads configurations without the families of models, which
// register themselves where they are built.
func registered() error {
	if len(hf.Families()) > 0 {
		return nil
	}
	return errors.New("configs: this program has no families of models, so that no configuration can be read: " +
		`import _ "github.com/lfactor/lfactor/stages/family/all", which registers them`)
}

// biases refuses Megatron's biases of query, key and value alone for a family that has none of them without
// one of the projection behind attention.
func (l *loader) biases() {
	const key = overrides + ".attention_bias"
	m, o := &l.c.Model, l.c.Origin(key)
	flag := o.Layer == source.LayerFlag || o.Layer == source.LayerLoong
	if flag && m.AttentionBias && hf.Families()[m.Decoder()].OutBias {
		l.fail(o, key, m.Decoder()+" has biases of query, key and value only with one behind attention",
			"set model.overrides.attention_bias=true for all of them, or change model_type")
	}
}

// Has says whether models of the decoder's family have an optional key.
func (m Model) Has(key string) bool { return hf.Has(m.ModelType, m.Decoder(), key) }

// checkParts lets each part hold its keys to each other.
func (m *Model) checkParts(at faults) {
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if check := declared[name].check; check != nil {
			check(*m, func(key, why, try string) { at.fault(overrides+"."+key, why, try) })
		}
	}
}

// optional are the keys that not all families have: those of parts, and those of Model's own that some
// family says it has, or has fixed.
func (t *keyTable) optional() {
	some := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(hf.Families())) {
		f := hf.Families()[name]
		for _, key := range slices.Concat(f.Has, f.Offered, slices.Collect(maps.Keys(f.Fixed))) {
			if t.byName[overrides+"."+key] == nil {
				panic(fmt.Sprintf("configs: family %s has %s, a key that nothing declares", name, key))
			}
			some[key] = true
		}
	}
	for _, k := range t.keys {
		if key, ok := strings.CutPrefix(k.Name, overrides+"."); ok && k.model {
			// a tower's keys are its kind's, not the family's: Vision.checkOwn
			k.some = k.part != "" && !strings.HasPrefix(key, "vision.") || some[key]
		}
	}
}

// NearestDivisor is the divisor of n that is nearest to a number, for the remedy of a fault.
func NearestDivisor(n, to int) int { return nearestDivisor(n, to) }
