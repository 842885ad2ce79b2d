package configs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// DescriptionFile is the file of a model's folder that describes its family, where lfactor does not have it.
const DescriptionFile = "description.yaml"

// Undescribed is a fault of a description, at a line of its text, 0 for none.
type Undescribed struct {
	Line int
	Why  string
}

func (u *Undescribed) Error() string { return u.Why }

// describer enters the family that a description says, and returns its model_type. A program without families has none.
var describer = func(string) (modelType string, err error) {
	return "", &Undescribed{Why: "this program has no families of decoders, which a description goes on with"}
}

// RegisterDescriber has a function called with the text of a description, before keys of its family are read. It
// returns *Undescribed for a text that describes none.
func RegisterDescriber(f func(text string) (modelType string, err error)) { describer = f }

// description reads the file that model.description names, and has its text in the place of the name, so that records
// of a run, and its other processes, need no file.
func (l *loader) description() {
	const key = "model.description"
	at, text := l.c.place(key), l.c.Run.Model.Description
	if text == "" || l.failed[key] {
		return
	}
	from := at
	if !strings.Contains(text, "\n") {
		b, err := source.ReadFile(text)
		if err != nil {
			l.fail(at, key, err.Error(), "name a file with model_type, config, layers and names: docs/descriptions.md")
			return
		}
		from, text = Origin{Layer: source.LayerModel, File: text}, string(b)
		l.c.Run.Model.Description = text
		given := l.c.given[key]
		given[len(given)-1].node = source.ScalarNode(text)
	}
	name, ok := l.described(from, key, text)
	if ok && l.c.Run.Model.given() == 0 { // sizes are the description's defaults
		hf.Decode(l, from.File, fmt.Appendf(nil, `{"model_type": %q}`, name))
	}
}

// described enters the family of a description, and what it says as a setting of the model.
func (l *loader) described(from Origin, key, text string) (modelType string, ok bool) {
	modelType, err := describer(text)
	var fault *Undescribed
	if errors.As(err, &fault) {
		if from.File != "" && key == "" || from.Layer == source.LayerModel {
			from.Line = fault.Line
		} else if fault.Line > 0 {
			fault.Why = fmt.Sprintf("line %d of the text: %s", fault.Line, fault.Why)
		}
		l.fail(from, key, fault.Why, "")
		return "", false
	}
	from.Layer, from.Line = source.LayerModel, 0
	l.Add(source.ModelKeys+".description", source.ScalarNode(text), from)
	return modelType, true
}

// describedFolder reads the description of a model's folder, if it has one.
func (l *loader) describedFolder(dir string) {
	file := filepath.Join(dir, DescriptionFile)
	if _, err := os.Lstat(file); err != nil {
		return // it has none
	}
	text, err := source.ReadFile(file)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.described(Origin{Layer: source.LayerModel, File: file}, "", string(text))
}
