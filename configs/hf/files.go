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

// Unfold is the directory that shows a file that is a whole model; any other path comes back as it is.
func Unfold(path string) (string, error) {
	if f := unfold[strings.ToLower(filepath.Ext(path))]; f != nil {
		return f(path)
	}
	return path, nil
}
