package hf

import (
	"path/filepath"
	"strings"
)

// unfold makes a directory in the form of Hugging Face of single files that are whole models, by their ending.
var unfold = map[string]func(path string) (dir string, err error){}

// RegisterFile says how a file of an ending, as .gguf, is shown as a directory with config.json and tokenizer;
// its weights stay where they are, and checkpoint.OpenFolder finds them.
func RegisterFile(ending string, folder func(path string) (dir string, err error)) struct{} {
	unfold[ending] = folder
	return struct{}{}
}

// fetchers bring what names of a scheme, as hf://, stand for.
var fetchers = map[string]func(name string) (dir string, err error){}

// RegisterScheme says how a directory is had that a name of a scheme stands for.
func RegisterScheme(scheme string, fetch func(name string) (dir string, err error)) struct{} {
	fetchers[scheme] = fetch
	return struct{}{}
}

// Unfold is the directory that shows a file that is a whole model, or that a name of a scheme stands for; any
// other path comes back as it is.
func Unfold(path string) (string, error) {
	if scheme, _, ok := strings.Cut(path, "://"); ok && fetchers[scheme+"://"] != nil {
		return fetchers[scheme+"://"](path)
	}
	if f := unfold[strings.ToLower(filepath.Ext(path))]; f != nil {
		return f(path)
	}
	return path, nil
}
