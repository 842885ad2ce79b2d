package texts

import (
	"maps"
	"slices"
)

// Class is a class of transformers that encodes captions.
type Class struct {
	Name  string   // transformers' name, as in "architectures"
	Type  string   // "model_type" as transformers writes it
	Types []string // others that files of the class have
	Paper string
	// Idle are keys that transformers writes in its files and that say nothing about what an encoder
	// computes, beside those of all classes.
	Idle  []string
	Sizes []Size // the claim
	// fresh gives a configuration with transformers' defaults
	fresh func() config
}

// Size is a published configuration and the number of parameters that transformers counts in it.
type Size struct {
	Name   string
	Config string // of config.json: the keys that differ from the defaults
	Params int64
}

// config is a pointer to a struct whose fields are the keys of a config.json.
type config interface {
	// check reports keys that are out of range or contradict each other.
	check(f *faults)
	// model is the encoder of a configuration that passed.
	model() *Model
}

var classes = map[string]Class{}

// register enters a class. Two of one name are a bug of the program.
func register(c Class) bool {
	if _, dup := classes[c.Name]; dup {
		panic("texts: " + c.Name + " registered twice")
	}
	classes[c.Name] = c
	return true
}

// Classes lists the classes in the order of their names.
func Classes() (list []Class) {
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		list = append(list, classes[name])
	}
	return list
}

// classNames lists the values of "architectures".
func classNames() (names []string) {
	for _, c := range Classes() {
		names = append(names, c.Name)
	}
	return names
}
