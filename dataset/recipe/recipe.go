package recipe

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/topology/machine"
)

// Recipe is a dataflow: inputs, steps and outputs.
type Recipe struct {
	Output     string // the folder
	Inputs     []Input
	Steps      []Step
	Outputs    []Output
	Workers    int
	Memory     int64 // bytes of sort buffers
	Quarantine int64 // documents that may be unreadable

	file   string
	text   []byte
	stages []stage // as plan makes them
}

// Input is documents to read.
type Input struct {
	Name      string   `yaml:"name"` // "input-0" and so on where none is given
	Paths     []string `yaml:"paths"`
	Format    string   `yaml:"format"`
	TextKey   string   `yaml:"text_key"`
	Documents string   `yaml:"documents"` // how plain text is cut
	Split     string   `yaml:"split"`
	BytesMax  int64    `yaml:"max_bytes"`
	Shuffle   int64    `yaml:"shuffle"` // seed of an order of all documents; 0 leaves them as they lie
	line      int
}

// options are those of opening the input.
func (in *Input) options() dataset.Options {
	return dataset.Options{Format: in.Format, TextKey: in.TextKey, Documents: in.Documents, Split: in.Split,
		BytesMax: in.BytesMax}
}

// Step is a node of the flow.
type Step struct {
	Name string   `yaml:"name"` // of the kind, where none is given
	Kind string   `yaml:"step"`
	From []string `yaml:"from"` // steps and inputs, in order; the step before, or all inputs
	line int
	step curate.Step
}

// state returns the step as one with state, nil for others.
func (s *Step) state() curate.Stateful {
	st, _ := s.step.(curate.Stateful)
	return st
}

// Output is files that documents are written to.
type Output struct {
	Name      string   `yaml:"name"`
	From      []string `yaml:"from"`
	Format    string   `yaml:"format"`
	Compress  string   `yaml:"compress"`
	Documents int64    `yaml:"documents"` // of a file
	Files     int64    `yaml:"files"`     // in place of that: how many, of the same number of documents
	line      int
	writer    Writer
}

// Defaults of recipes.
const (
	memoryDefault    = 1 << 30
	memoryMin        = 1 << 20
	documentsDefault = 100_000
	workDir          = ".work"
)

// file is a recipe as it stands in the file.
type file struct {
	Output     string `yaml:"output"`
	Workers    int    `yaml:"workers"`
	Memory     string `yaml:"memory"`
	Quarantine int64  `yaml:"quarantine"`
}

// Load reads a recipe and checks it as a whole; it opens the models and lists that steps need, and no input.
func Load(path string) (*Recipe, error) {
	text, err := source.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Parse is Load of a recipe's text; path is its name for people.
func Parse(path string, text []byte) (*Recipe, error) {
	root, err := source.ParseYAML(path, text)
	if err != nil {
		return nil, err
	}
	r := &Recipe{file: path, text: text}
	in := &curate.Reader{File: path}
	f := file{Workers: runtime.NumCPU(), Quarantine: 100}
	in.Into(root, "", &f, "inputs", "steps", "outputs")
	r.Output, r.Workers, r.Quarantine, r.Memory = f.Output, f.Workers, f.Quarantine, memoryDefault
	r.sizes(in, root, f)
	r.readInputs(in, root)
	r.readSteps(in, root)
	r.readOutputs(in, root)
	if err := in.Err(); err != nil {
		return nil, err
	}
	r.check(in)
	if err := in.Err(); err != nil {
		return nil, err
	}
	return r, r.cut()
}

// sizes checks the keys at the top.
func (r *Recipe) sizes(in *curate.Reader, root *yaml.Node, f file) {
	line := func(key string) int {
		if n := source.Lookup(root, key); n != nil {
			return n.Line
		}
		return root.Line
	}
	if f.Output == "" {
		in.Fail(line("output"), "output", "is not given", "name a folder")
	}
	if f.Workers < 1 {
		in.Fail(line("workers"), "workers", fmt.Sprintf("%d workers do nothing", f.Workers), "leave it out")
	}
	if f.Quarantine < 0 {
		in.Fail(line("quarantine"), "quarantine", "it is below 0", "")
	}
	if f.Memory != "" {
		n, err := configs.ParseBytes(f.Memory)
		if r.Memory = int64(n); err != nil || n < memoryMin {
			in.Fail(line("memory"), "memory", fmt.Sprintf("%q is no size of at least 1MiB", f.Memory),
				"write it as 512MiB or 4GiB")
		}
	}
}

// entries returns the mappings of a list in the recipe.
func entries(in *curate.Reader, root *yaml.Node, key string) []*yaml.Node {
	n := source.Lookup(root, key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		in.Fail(n.Line, key, source.NodeKind(n)+" stands where a list is wanted", "begin each entry with a dash")
		return nil
	}
	return n.Content
}

// readInputs reads what documents come from.
func (r *Recipe) readInputs(in *curate.Reader, root *yaml.Node) {
	for i, n := range entries(in, root, "inputs") {
		key := fmt.Sprintf("inputs[%d]", i)
		v := Input{Name: fmt.Sprintf("input-%d", i), line: n.Line}
		if n.Kind == yaml.ScalarNode { // a path alone
			v.Paths = []string{n.Value}
		} else {
			in.Into(n, key, &v, "path")
			if p := source.Lookup(n, "path"); p != nil {
				v.Paths = append(v.Paths, p.Value)
			}
		}
		if v.Paths = slices.DeleteFunc(v.Paths, func(p string) bool { return p == "" }); len(v.Paths) == 0 {
			in.Fail(n.Line, key+".path", "is not given", "name a file, a folder or a pattern")
		}
		r.Inputs = append(r.Inputs, v)
	}
	if len(r.Inputs) == 0 {
		in.Fail(root.Line, "inputs", "none is given", "list what is to be read")
	}
}

// readSteps reads the steps and opens them.
func (r *Recipe) readSteps(in *curate.Reader, root *yaml.Node) {
	for i, n := range entries(in, root, "steps") {
		key := fmt.Sprintf("steps[%d]", i)
		s := Step{line: n.Line, From: names(in, n, key)}
		k, settings := in.Kind(n, key)
		if settings != nil {
			s.Kind = k.Name
			s.step = in.Open(k, settings, key, "name", "step", "from")
			if v := source.Lookup(settings, "name"); v != nil {
				s.Name = v.Value
			}
		}
		if s.Name == "" {
			s.Name = s.Kind
		}
		r.Steps = append(r.Steps, s)
	}
}

// names reads a key "from": one name or several.
func names(in *curate.Reader, n *yaml.Node, key string) []string {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	v := source.Lookup(n, "from")
	switch {
	case v == nil:
		return nil
	case v.Kind == yaml.ScalarNode:
		return []string{v.Value}
	}
	var o struct {
		From []string `yaml:"from"`
	}
	in.Into(&yaml.Node{Kind: yaml.MappingNode, Line: v.Line,
		Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "from", Line: v.Line}, v}}, key, &o)
	return o.From
}

// readOutputs reads what is written.
func (r *Recipe) readOutputs(in *curate.Reader, root *yaml.Node) {
	for i, n := range entries(in, root, "outputs") {
		key := fmt.Sprintf("outputs[%d]", i)
		o := Output{Name: "data", Format: "jsonl", Documents: documentsDefault, line: n.Line}
		in.Into(n, key, &o, "from")
		o.From = names(in, n, key)
		switch {
		case o.Documents < 1:
			in.Fail(n.Line, key+".documents", "a file has at least one document", "")
		case o.Files < 0:
			in.Fail(n.Line, key+".files", "there is at least one file", "")
		case o.Files > 0 && source.Lookup(n, "documents") != nil:
			in.Fail(n.Line, key+".files", "documents says how many files there are, too", "leave one of them out")
		}
		if o.Name == "" || o.Name != filepath.Base(o.Name) || strings.HasPrefix(o.Name, ".") {
			in.Fail(n.Line, key+".name", fmt.Sprintf("%q is no name of files", o.Name), "use letters and digits")
		}
		r.Outputs = append(r.Outputs, o)
	}
	if len(r.Outputs) == 0 {
		r.Outputs = []Output{{Name: "data", Format: "jsonl", Documents: documentsDefault, line: root.Line}}
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		w, err := findWriter(o.Format, o.Compress)
		if err != nil {
			in.Fail(o.line, fmt.Sprintf("outputs[%d].format", i), err.Error(), "")
		}
		o.writer = w
		if w.Finish != nil && len(r.Outputs) > 1 {
			in.Fail(o.line, fmt.Sprintf("outputs[%d].format", i), w.Name+" has an index of all files of the folder, "+
				"where another output would lie too", "write it by a recipe of its own")
		}
	}
}

// Work removes nothing that is not this package's: it is the folder with what is under way.
func (r *Recipe) work(parts ...string) string {
	return filepath.Join(append([]string{r.Output, workDir}, parts...)...)
}

// writeAtomic writes a file that is there as a whole or not at all, and on disk when it returns.
func writeAtomic(path string, write func(f *os.File) error) error {
	if err := machine.Replace(path, 0o644, func(f *os.File) error { return cmp.Or(write(f), f.Sync()) }); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
