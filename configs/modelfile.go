package configs

import (
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// ModelFile says whether a file has the keys of Model at its top level.
func ModelFile(path string) bool {
	text, err := source.ReadFile(path)
	if err != nil {
		return false // whoever reads it reports it
	}
	root, err := source.ParseYAML(path, text)
	return err == nil && source.Lookup(root, "_target_") == nil && source.Lookup(root, "model_type") != nil &&
		(source.Lookup(root, "hidden_size") != nil || source.Lookup(root, "text_preset") != nil)
}

// configFile enters --config-file: a LoongForge model file, or one of our own.
func (l *loader) configFile(values []string, o Origin) {
	if len(values) != 1 {
		l.fail(o, "", "the flag wants one file", "")
		return
	}
	l.Add("model.file", source.ScalarNode(values[0]), o)
	if l.script {
		l.loong.Path = values[0]
	}
}

// isLoong says whether --config-file names a file of LoongForge's.
func isLoong(args []string) bool {
	for i, arg := range args {
		path, ok := strings.CutPrefix(arg, "--config-file=")
		if arg == "--config-file" && i+1 < len(args) {
			path, ok = args[i+1], true
		}
		if ok {
			return LoongFile(path)
		}
	}
	return false
}
