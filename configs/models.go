package configs

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
)

//go:embed models
var modelFiles embed.FS

// Models returns the names of the published models, family/size, sorted.
func Models() []string {
	files, err := fs.Glob(modelFiles, "models/*/*.yaml")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "models/"), ".yaml")
	}
	return files
}

// loongNames maps LoongForge's model names to ours.
var loongNames = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for _, name := range Models() {
		file := path.Join("models", name+".yaml")
		text, err := modelFiles.ReadFile(file)
		if err != nil {
			panic(err) // it was just listed
		}
		root, err := source.ParseYAML(file, text)
		if err != nil {
			panic(err) // a test loads them all
		}
		if names := source.Lookup(root, "names"); names != nil {
			for _, other := range names.Content {
				out[other.Value] = name
			}
		}
	}
	return out
})

// Published returns the model of a name from Models, or by LoongForge's name for it.
func Published(name string) (Model, error) {
	l := newLoader(name)
	l.publishedModel(name, Origin{Layer: source.LayerModel, File: name})
	return l.model()
}

// ReadModel returns the model of a Hugging Face directory, or of a model file.
func ReadModel(where string) (Model, error) {
	l := newLoader(where)
	if ext := filepath.Ext(where); ext == ".yaml" || ext == ".yml" {
		l.modelFile(where)
	} else {
		l.hfDir(where)
	}
	return l.model()
}

// model completes and checks what was read.
func (l *loader) model() (Model, error) {
	if err := registered(); err != nil {
		return Model{}, err
	}
	l.applyModel()
	if len(l.errs) == 0 {
		l.c.Model.Check(l)
	}
	return l.c.Model, errors.Join(l.errs...)
}

// readModel reads the file that the model's keys name, and remembers whether that went well.
func (l *loader) readModel() {
	before := len(l.errs)
	m := l.c.Run.Model
	switch {
	case m.given() != 1:
		l.modelRead = m.Description != "" && m.given() == 0 && !l.failed["model.description"]
		return // its Check says so, where there is no description
	case l.failed["model.path"]:
		return
	case m.Path != "":
		l.file("model.path", m.Path, filepath.Join(m.Path, "config.json"), l.hfDir)
	case m.Name != "":
		l.publishedModel(m.Name, l.c.place("model.name"))
	case l.script:
		if l.loong.Model != "" {
			l.publishedModel(l.loong.Model, l.loong.ModelAt)
		}
		before -= l.loong.Faults
	default:
		l.file("model.file", m.File, m.File, l.modelFile)
	}
	l.modelRead = len(l.errs) == before
}

// adaptedName enters the settings of a name of LoongForge's that means low-rank additions to a model.
func (l *loader) adaptedName() {
	name, _ := l.preset("model.name")
	a, ok := loong.Adapted[strings.ToLower(name)]
	if !ok {
		return
	}
	for _, key := range source.SortedKeys(a.Settings) {
		node, err := source.ParseValue(a.Settings[key])
		if err != nil {
			panic(fmt.Sprintf("configs: %s: %s: %v", name, key, err))
		}
		k := table().byName[key]
		l.c.given[key] = append([]setting{{k, node, Origin{Layer: source.LayerModel, File: name}}}, l.c.given[key]...)
	}
}

// differs says what LoongForge's own file of a name has otherwise.
func (l *loader) differs(name string, from Origin) {
	all := loong.Differs[strings.ToLower(name)]
	for _, key := range source.SortedKeys(all) {
		l.c.Notices = append(l.c.Notices, fmt.Sprintf("%s: %s is that of the published model; LoongForge's own "+
			"file has %s: set %s.%[2]s=%[3]s to follow it", from, key, all[key], overrides))
	}
}

// file reads what a key names, if it is there; otherwise the fault is the key's.
func (l *loader) file(key, where, needed string, read func(string)) {
	if _, err := os.Stat(needed); err != nil {
		if hint := hf.Absent(where, l.loong.Getenv); hint != "" && key == "model.path" {
			l.fail(l.c.place(key), key, hint, "lfactor config models lists models that need no files")
			return
		}
		l.fail(l.c.place(key), key, strings.TrimPrefix(err.Error(), "stat "),
			"name a directory or file of a model; lfactor config models lists those that need none")
		return
	}
	read(where)
}

// publishedModel reads a model by its published name, from the files in this program. LoongForge's names are known too.
func (l *loader) publishedModel(name string, from Origin) {
	if a, ok := loong.Adapted[strings.ToLower(name)]; ok {
		name = a.Model
	}
	l.differs(name, from)
	file := path.Join("models", strings.ToLower(name)+".yaml")
	text, err := modelFiles.ReadFile(file)
	if err != nil {
		if ours, ok := loongNames()[strings.ToLower(name)]; ok {
			file = path.Join("models", ours+".yaml")
			text, err = modelFiles.ReadFile(file)
		}
	}
	if err != nil {
		try := source.DidYouMean(strings.ToLower(name),
			slices.Concat(Models(), source.SortedKeys(loongNames()), source.SortedKeys(loong.Adapted)))
		if try == "" {
			try = "lfactor config models lists them"
		}
		l.fail(from, "model.name", "no published model "+source.Quoted(name), try)
		return
	}
	l.modelText("configs/"+file, text)
}

func (l *loader) modelFile(file string) {
	text, err := source.ReadFile(file)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.modelText(file, text)
}

// modelText enters a model file: the keys of Model at the top level.
func (l *loader) modelText(file string, text []byte) {
	root, err := source.ParseYAML(file, text)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.section(root, overrides, Origin{Layer: source.LayerModel, File: file})
}

// hfDir reads the model from config.json of a Hugging Face folder, and tells which of its keys were not read.
func (l *loader) hfDir(dir string) {
	l.describedFolder(dir)
	file := filepath.Join(dir, "config.json")
	text, err := source.ReadFile(file)
	if err != nil {
		if found, _ := filepath.Glob(filepath.Join(dir, "*.gguf")); len(found) > 0 { // a pattern of ours has no fault
			err = fmt.Errorf("%w; the folder has %s: name that file", err, filepath.Base(found[0]))
		}
		l.errs = append(l.errs, err)
		return
	}
	if unread := hf.Decode(l, file, text); len(unread) > 0 {
		l.c.Notices = append(l.c.Notices, file+": not read: "+strings.Join(unread, ", "))
	}
	says := func(tied string) bool { return bytes.Contains(text, []byte(`"tie_word_embeddings": `+tied)) }
	if (says("true") || !says("false")) && hf.OwnHead(dir) {
		l.Add(source.ModelKeys+".tie_word_embeddings", source.ScalarNode("false"),
			source.Origin{Layer: source.LayerModel, File: file})
	}
}
