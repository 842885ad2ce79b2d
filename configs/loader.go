package configs

import (
	"reflect"

	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
	"go.yaml.in/yaml/v3"
)

// loader reads one configuration.
type loader struct {
	c         *Config
	errs      []error
	failed    map[string]bool // keys whose value is at fault already
	broken    bool            // the run file could not be read at all
	modelRead bool            // the model's file was read without a fault

	script       bool          // --config-file names a LoongForge model file
	loong        *loong.Reader // of that file, and of overrides of parts of a model
	exitAfter    int           // --exit-interval
	samples      int           // --train-samples
	samplesAt    Origin
	clips        map[string]float64 // flags of clips and their noise levels
	low          map[string]string  // flags of recipes in FP8
	custom       []string           // --custom-pipeline-recompute-layers
	recompute    []string           // --recompute-num-layers
	uniform      bool               // --recompute-method uniform
	conversation []string           // --conv-style
	moved        []string           // --offload-modules and --offload-tensors
	words        map[string]word
	files        bool // files are looked at
	modelOnly    bool // there need be no data: the model is what is asked for
}

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
