// Package setup is what the section data of a run file means: its tokenizer, the options of its sources, and
// the file itself under a plan.
package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
)

// Tokenizer reads the tokenizer of data.tokenizer or of the model's directory.
func Tokenizer(c *configs.Config) (*token.Tokenizer, *token.Config, error) {
	dir := c.Run.Data.Tokenizer
	key := "data.tokenizer"
	if dir == "" {
		dir, key = c.Run.Model.Path, "model.path"
	}
	if dir == "" {
		return nil, nil, c.Fault("data.tokenizer", "no tokenizer is given", "set it to a directory with tokenizer.json")
	}
	if strings.HasSuffix(dir, ".json") {
		dir = filepath.Dir(dir)
	}
	t, conf, err := lastRead.load(dir)
	if err != nil {
		return nil, nil, c.Fault(key, err.Error()+hf.Partial(dir), "")
	}
	return t, conf, nil
}

// RunTokenizer is Tokenizer for a run, which needs none where its data are ids: nil then, if none is named and
// the model's directory has none either. The vocabulary is the model's, which must say how large it is.
func RunTokenizer(c *configs.Config) (*token.Tokenizer, *token.Config, error) {
	//lfvet:kind before a model is built its configuration alone tells that captions are not its own
	if c.Model.Denoises() {
		return nil, nil, nil // captions have the tokenizer of their encoder
	}
	t, conf, err := Tokenizer(c)
	if err == nil || c.Run.Data.Tokenizer != "" || c.Model.Vocab == 0 {
		return t, conf, err
	}
	if kind, bad := DataKind(c); bad != nil || kind.Form() != dataset.InTokens {
		return nil, nil, err
	}
	return nil, nil, nil
}

// lastRead is the tokenizer that was read last: checks of a configuration read it before the run does.
var lastRead readOnce

type readOnce struct {
	mu    sync.Mutex
	dir   string
	state string // of its files then
	tok   *token.Tokenizer
	conf  *token.Config
}

// load reads the tokenizer of a folder, unless it is the last one and none of its files has changed.
func (r *readOnce) load(dir string) (*token.Tokenizer, *token.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := ""
	entries, _ := os.ReadDir(dir) // LoadDir says what is wrong with the folder
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			state += fmt.Sprintln(e.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	if r.tok != nil && r.dir == dir && r.state == state {
		return r.tok, r.conf, nil
	}
	t, conf, err := token.LoadDir(dir)
	if err == nil {
		r.dir, r.state, r.tok, r.conf = dir, state, t, conf
	}
	return t, conf, err
}

// Vocabulary takes the tokenizer's size where the model's file gives none; a published model needs no
// tokenizer to plan.
func Vocabulary(cfg *configs.Config) error {
	if cfg.Model.Vocab > 0 {
		return nil
	}
	t, _, err := Tokenizer(cfg)
	if err != nil {
		return err
	}
	return cfg.CheckVocab(t.VocabSize())
}

// Config reads a run file under the file of a plan, "" for none: its settings stand before the user's own,
// args. Files has what it names on this host looked for too, as who trains needs it.
func Config(file, plan string, args []string, files bool) (*configs.Config, error) {
	if plan == "" {
		return configs.Load(configs.Request{File: file, Args: args, Getenv: os.Getenv, Files: files})
	}
	p, err := configs.OpenPlan(plan)
	if err != nil {
		return nil, err
	}
	// The model first: settings for another model would be faults of their own.
	if plain, err := configs.Load(configs.Request{File: file, Args: args, Getenv: os.Getenv}); err == nil &&
		plain.Model.Vocab > 0 {
		if err := p.Fits(plain); err != nil {
			return nil, err
		}
	}
	cfg, err := configs.Load(configs.Request{File: file,
		Args: append(append([]string{}, p.Settings...), args...), Getenv: os.Getenv, Files: files})
	if err != nil {
		return nil, err
	}
	if err := Vocabulary(cfg); err != nil {
		return nil, err
	}
	return cfg, p.Fits(cfg)
}

// EndOfDocument is the token that ends a document.
func EndOfDocument(t *token.Tokenizer, c *token.Config) (int32, error) {
	names := []string{"<|endoftext|>", "<|end_of_text|>", "</s>", c.EOS}
	if i := slices.IndexFunc(names, func(n string) bool { _, ok := t.TokenID(n); return ok }); i >= 0 {
		id, _ := t.TokenID(names[i])
		return id, nil
	}
	return 0, fmt.Errorf("the tokenizer has none of the tokens %q that end a document", names)
}
