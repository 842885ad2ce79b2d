package curate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Kind is a kind of step.
type Kind struct {
	Name   string // as recipes give it
	Doc    string // one sentence for people
	Source string // where its rules come from
	// Settings returns a pointer to a struct of its settings with their defaults. Fields have yaml tags, and
	// types that YAML scalars and lists have.
	Settings func() Settings
}

// Settings of a step, as Kind.Settings makes them and a recipe fills them.
type Settings interface {
	// Open reads what the step needs (models, lists) once for all workers. Its errors are *Fault where a
	// setting is wrong.
	Open() (Step, error)
}

// Columns are the columns beside the text that a step reads and writes, and whether it changes the text.
type Columns struct {
	Reads, Writes []string
	Text          bool
}

// Step is an opened step. It is not changed by use.
type Step interface {
	// Columns says what the step touches.
	Columns() Columns
	// Do looks at a document, may change it, and says why it is to be dropped: "" keeps it. The reason is
	// one of a few words, as "gopher_short_doc".
	Do(k *Desk, d *Doc) (reason string)
}

// Stateful is a step that has to see all documents before it knows which are to go. It signs each, and is
// told afterwards which units of a document are copies of earlier ones.
type Stateful interface {
	Step // Do may drop documents before they are signed
	// Form is how many keys of how many bytes a unit has at most, and how documents are found by them.
	Form() Form
	// Sign emits the keys of a document: units count from 0, buckets stand beside each other, and a key has
	// the length of the form. Keys are compared as bytes.
	Sign(k *Desk, d *Doc, emit func(bucket int, unit uint32, key []byte))
	// Drop changes a document of which units were found to be copies, in ascending order, and says why it is
	// to be dropped as a whole, or "".
	Drop(d *Doc, units []uint32) (reason string)
}

// Form is how the keys of a Stateful step are compared.
type Form struct {
	Buckets int
	Bytes   int // of a key
	// Clusters joins documents that share a key in any bucket, and leaves one of each cluster: which one is
	// decided as Datatrove does. Otherwise each key stays with the first unit that has it.
	Clusters bool
	// Near says of two keys with the same first Prefix bytes, without these, whether their documents are joined;
	// nil joins those with the same key. Of keys that agree in the prefix NearMax are compared with each.
	Near   func(a, b []byte) bool
	Prefix int
}

// NearMax is how many different keys with the same prefix each is compared with: the last ones before it.
const NearMax = 1000

// Fault is what is wrong with a setting.
type Fault struct{ Key, Why, Try string }

// Error names the setting; recipes put their place in front.
func (f *Fault) Error() string {
	s := f.Key + ": " + f.Why
	if f.Try != "" {
		s += "; " + f.Try
	}
	return s
}

var kinds struct {
	sync.Mutex
	list []Kind
}

// Register adds a kind of step; a step's file calls it in a variable's declaration. Two steps of one name
// are a bug of the program.
func Register(k Kind) bool {
	kinds.Lock()
	defer kinds.Unlock()
	if slices.ContainsFunc(kinds.list, func(o Kind) bool { return o.Name == k.Name }) {
		panic(fmt.Sprintf("curate: two steps are named %q", k.Name))
	}
	kinds.list = append(kinds.list, k)
	return true
}

// Kinds returns what is registered, by name.
func Kinds() []Kind {
	kinds.Lock()
	defer kinds.Unlock()
	out := slices.Clone(kinds.list)
	slices.SortFunc(out, func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Names lists the names of all steps.
func Names() (out []string) {
	for _, k := range Kinds() {
		out = append(out, k.Name)
	}
	return out
}

// Find returns the kind of a name.
func Find(name string) (Kind, bool) {
	list := Kinds()
	i := slices.IndexFunc(list, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return list[i], true
}
