package trained

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// Task is what trained models of one kind have of their own when they are opened and exported. Its package
// registers it, so that a program has the tasks that it links. A model that no task owns is one of language, as
// transformers keeps it.
type Task struct {
	Name string
	// Owns reports whether a model is of this kind; at most one task owns a model.
	Owns func(m *family.Model) bool
	// Library is what loads an export, library_name of a page on a hub; "" is transformers.
	Library string
	// Mute says why such a model is not asked for text.
	Mute string
	// Export writes a run's checkpoint into a folder in the library's form; nil for transformers' form.
	Export func(e *Exporter, dst string) error
	// Adapters writes a run's adapters alone, of a task that has an Export.
	Adapters func(e *Exporter, dst string) error
	// Beside writes into a folder that has transformers' form what the task's readers need there, whoever owns
	// the model; nil for a task that needs nothing.
	Beside func(e *Exporter, dst string) error
	// Notes are what an export does not say, and what its usual readers do not read; nil for a task without.
	Notes func(e *Exporter) []string
	// Shows prepares what is shown of such a model behind evaluations; it gives nil for a model of another kind.
	Shows func(m *Trained, q *Showing) (func() ([]Shown, error), error)
	// Settings is the configuration that a folder in transformers' form has of the task, by which its model is
	// built; it gives nil for another folder, and is nil for a task that has none.
	Settings func(dir, tokenizer string) (*configs.Config, error)
}

// tasks are those that are linked, by their names.
var tasks = map[string]*Task{}

// Register adds a task; a name that is taken is a programmer's mistake.
func Register(t Task) *Task {
	if tasks[t.Name] != nil {
		panic(fmt.Sprintf("trained: task %q is registered twice", t.Name))
	}
	tasks[t.Name] = &t
	return &t
}

// taskOf is the task that owns a model, nil for a model of language.
func taskOf(m *family.Model) *Task {
	for _, t := range allTasks() {
		if t.Owns(m) {
			return t
		}
	}
	return nil
}

// ofLanguage reports whether a model's files have the form of transformers' models of language.
func ofLanguage(m *family.Model) bool {
	t := taskOf(m)
	return t == nil || t.Export == nil
}

// allTasks are the tasks in the order of their names.
func allTasks() (all []*Task) {
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		all = append(all, tasks[name])
	}
	return all
}

// settings is the configuration that a folder has of a task, nil for a model of language alone.
func settings(dir, tokenizer string) (*configs.Config, error) {
	for _, t := range allTasks() {
		if t.Settings == nil {
			continue
		}
		if cfg, err := t.Settings(dir, tokenizer); cfg != nil || err != nil {
			return cfg, err
		}
	}
	return nil, nil
}

// Showing says what is to be shown of a model behind each evaluation of its run.
type Showing struct {
	Prompts  []string
	Images   [][]byte // encoded, one for each prompt; nil for none
	Steps    int      // of a sampler
	Guidance float64  // 0 is the usual one
}

// Shown is what a model has made of a prompt: a written answer, a file, or both.
type Shown struct {
	Prompt string `json:"prompt"`
	Answer string `json:"answer,omitempty"`
	File   string `json:"file,omitempty"` // its ending, and then its name
	Bytes  []byte `json:"-"`
}

// Shows is what shows q of a model, with the weights that Fill has then; nil for a model of language.
func (m *Trained) Shows(q *Showing) (show func() ([]Shown, error), err error) {
	for _, t := range allTasks() {
		if t.Shows != nil && show == nil && err == nil {
			show, err = t.Shows(m, q)
		}
	}
	return show, err
}

// Notes are what an export does not say, or what its readers do not read.
func (e *Exporter) Notes() (out []string) {
	for _, t := range allTasks() {
		if t.Notes != nil {
			out = append(out, t.Notes(e)...)
		}
	}
	return out
}

// beside has every task write what its readers need in a folder of transformers' form.
func (e *Exporter) beside(dst string) error {
	for _, t := range allTasks() {
		if t.Beside == nil {
			continue
		}
		if err := t.Beside(e, dst); err != nil {
			return err
		}
	}
	return nil
}
