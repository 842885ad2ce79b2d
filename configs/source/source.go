// Package source has what every reader of settings needs: values with the place where they were given, faults that name
// the place, and YAML with lines. A reader enters what it finds into a Sink, by our names of keys.
package source

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Layer says where a value comes from. Of two, the greater wins.
type Layer int

// The layers. A model file in LoongForge's style stands above flags, as it does there.
const (
	LayerDefault Layer = iota
	LayerModel         // the model's own file
	LayerFile          // the run file
	LayerEnv           // an environment variable
	LayerOverride
	LayerFlag
	LayerLoong // a LoongForge model file given by --config-file
	LayerTop   // an override over that
)

// Origin is the place of a value.
type Origin struct {
	Layer Layer
	File  string // of the run or model file
	Line  int
	Text  string // the flag, override or variable as it was given
}

// String is the place as messages name it.
func (o Origin) String() string {
	switch o.Layer {
	case LayerDefault:
		return "default"
	case LayerModel, LayerFile, LayerLoong:
		if o.Line > 0 {
			return fmt.Sprintf("%s:%d", o.File, o.Line)
		}
		return o.File
	}
	return o.Text
}

// ModelKeys begins our names of a model's keys.
const ModelKeys = "model.overrides"

// Flag is a Megatron or LoongForge flag that means a key.
type Flag struct {
	Name  string `json:"name"`            // without dashes
	Value string `json:"value,omitempty"` // the value it stands for; "" if it takes one
}

// Sink takes what a reader of a file or of a command line finds.
type Sink interface {
	// Has says whether there is a key of this name, such as model.overrides.hidden_size.
	Has(key string) bool
	// Add enters a value of a key that there is.
	Add(key string, value *yaml.Node, o Origin)
	// Fail reports what is wrong with a key, which may be one of the reader's own, and what would be right.
	Fail(o Origin, key, why, try string)
	// Report takes an error of a file that could not be read.
	Report(err error)
	// Unknown reports a key below prefix that is not known, with the nearest known one.
	Unknown(o Origin, prefix, name string)
	// Note takes a line for the user.
	Note(text string)
	// Faults is how much has been reported so far.
	Faults() int
}

// Quiet is a sink that enters and reports nothing: it keeps in Wrong, which must be made, the keys that Fail names.
type Quiet struct {
	Sink
	Wrong map[string]bool
}

// Add does nothing.
func (q Quiet) Add(string, *yaml.Node, Origin) {}

// Note does nothing.
func (q Quiet) Note(string) {}

// Fail keeps the key.
func (q Quiet) Fail(_ Origin, key, _, _ string) { q.Wrong[key] = true }

// Set makes a set of words.
func Set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// SortedKeys returns the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// SameValue compares two values as they are written, numbers as numbers.
func SameValue(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return a == b || err1 == nil && err2 == nil && x == y
}

// NodeKind names a value for messages.
func NodeKind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Tag == "!!null":
		return "no value"
	}
	return Quoted(n.Value)
}

// Lookup returns the value of a key of a mapping, or nil.
func Lookup(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
