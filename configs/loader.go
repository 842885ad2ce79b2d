package configs

import (
	"reflect"

	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

func newLoader(file string) *loader {
	l := &loader{c: &Config{file: file, given: map[string][]setting{}}, failed: map[string]bool{},
		words: map[string]word{}}
	l.loong = &loong.Reader{Sink: l, Flags: knownFlags, Flag: keyOfFlag, Word: l.word,
		Integer: func(value *yaml.Node) (n int, why, try string) {
			why, try = setValue(reflect.ValueOf(&n).Elem(), value)
			return n, why, try
		}}
	return l
}

// keyOfFlag is the key that a flag of Megatron's means.
func keyOfFlag(name string) (key, typ string, f source.Flag, ok bool) {
	k := table().byFlag[name]
	if k == nil {
		return "", "", source.Flag{}, false
	}
	for _, f = range k.Flags {
		if f.Name == name {
			return k.Name, k.Type, f, true
		}
	}
	panic("configs: flag " + name + " is not among those of " + k.Name)
}

// Has implements source.Sink.
func (l *loader) Has(key string) bool { return table().byName[key] != nil }

// Add implements source.Sink.
func (l *loader) Add(key string, value *yaml.Node, o Origin) {
	k := table().byName[key]
	if k == nil {
		panic("configs: " + key + " is not a key")
	}
	l.add(setting{k, value, o})
}

// Fail implements source.Sink.
func (l *loader) Fail(o Origin, key, why, try string) { l.fail(o, key, why, try) }

// Report implements source.Sink.
func (l *loader) Report(err error) { l.errs = append(l.errs, err) }

// Unknown implements source.Sink.
func (l *loader) Unknown(o Origin, prefix, name string) { l.unknown(o, prefix, name) }

// Note implements source.Sink.
func (l *loader) Note(text string) { l.c.Notices = append(l.c.Notices, text) }

// Faults implements source.Sink.
func (l *loader) Faults() int { return len(l.errs) }

// Type implements hf.Sink.
func (l *loader) Type(key string) string {
	if k := table().byName[overrides+"."+key]; k != nil {
		return k.Type
	}
	return ""
}

// Optional implements hf.Sink.
func (l *loader) Optional(key string) (value string, some bool) {
	k := table().byName[overrides+"."+key]
	if k == nil || !k.some {
		return "", false
	}
	return k.Default, true
}
