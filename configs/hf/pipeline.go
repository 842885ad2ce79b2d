package hf

import (
	"os"
	"path/filepath"
)

// PipelineIndex is the file that a folder of diffusers has which holds a model with its encoders and its
// scheduler, each in a folder of its own.
const PipelineIndex = "model_index.json"

// DenoiserDir is the folder of the model that is trained, of a pipeline's folder; any other is its own.
func DenoiserDir(dir string) string {
	if dir == "" || !there(filepath.Join(dir, PipelineIndex)) {
		return dir
	}
	for _, name := range []string{"transformer", "unet"} {
		if there(filepath.Join(dir, name, "config.json")) {
			return filepath.Join(dir, name)
		}
	}
	return dir
}

// PipelineDir is the folder of the pipeline that a model's folder belongs to, "" for none.
func PipelineDir(dir string) string {
	for _, root := range []string{dir, filepath.Dir(filepath.Clean(dir))} {
		if dir != "" && there(filepath.Join(root, PipelineIndex)) {
			return root
		}
	}
	return ""
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
