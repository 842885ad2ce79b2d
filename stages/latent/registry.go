package latent

import (
	"maps"
	"slices"

	"github.com/lfactor/lfactor/stages/diffusers"
)

// Config is the contents of an autoencoder's config.json: a pointer to a struct whose fields are the keys of
// that file, with diffusers' defaults where a file says nothing.
type Config interface {
	// Class is diffusers' name, as in "_class_name".
	Class() string
	// Model is the autoencoder that the keys describe.
	Model() *Model
	// check reports keys that contradict each other or are out of range, and settles those that follow from others.
	check(f *diffusers.Faults)
}

// Class is a kind of autoencoder.
type Class struct {
	Paper string
	New   func() Config // with diffusers' defaults
	// Idle are keys that lie in published files and that diffusers does not read.
	Idle []string
	// Sizes are published autoencoders.
	Sizes []Size
}

// Size is what a class claims of a published autoencoder.
type Size struct {
	Name   string
	Keys   string // its config.json, without the class and without means and deviations of latents
	Params int64
}

var classes = map[string]Class{}

// Register adds a class under its name in diffusers. It is called when the package is loaded and returns
// true, so that it can stand in a variable's declaration.
func Register(c Class) bool {
	name := c.New().Class()
	if _, dup := classes[name]; dup {
		panic("latent: class " + name + " registered twice")
	}
	classes[name] = c
	return true
}

// Classes lists the names of all classes in order.
func Classes() []string { return slices.Sorted(maps.Keys(classes)) }

// Lookup is the class of a name.
func Lookup(name string) (Class, bool) { c, ok := classes[name]; return c, ok }

// ReadFile reads an autoencoder's config.json.
func ReadFile(path string) (Config, error) {
	text, err := diffusers.ReadFile(path, "an autoencoder's settings")
	if err != nil {
		return nil, err
	}
	return Read(path, text)
}

// Read reads the text of a config.json; file is what errors call it. Keys that it does not have get
// diffusers' defaults. A key that the class does not have, one given twice, a value of another type or out
// of range and keys that contradict each other are errors, all reported at once.
func Read(file string, text []byte) (Config, error) {
	f := diffusers.New(file)
	raw := f.Object(text, "give the config.json of a diffusers folder with an autoencoder")
	if f.Any() {
		return nil, f.Err()
	}
	class := f.Class(raw, "autoencoder", Classes())
	if class == "" {
		return nil, f.Err()
	}
	c := classes[class].New()
	if f.Fill(c, raw, classes[class].Idle, "no "+class); !f.Any() {
		c.check(f)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Marshal writes a config as config.json, as diffusers does. Read gives back an equal one.
func Marshal(c Config) []byte { return diffusers.Marshal(c.Class(), c) }
