package hf

import (
	"encoding/json"
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

// Experts are the folders of both models of a pipeline whose noise levels are shared out to two, that of high
// noise first, and the share of the steps at which the first one begins; ok is false for other pipelines.
func Experts(root string) (high, low string, boundary float64, ok bool) {
	text, err := os.ReadFile(filepath.Join(root, PipelineIndex))
	if root == "" || err != nil {
		return "", "", 0, false
	}
	var index struct {
		Boundary *float64 `json:"boundary_ratio"`
	}
	high, low = filepath.Join(root, "transformer"), filepath.Join(root, "transformer_2")
	if json.Unmarshal(text, &index) != nil || index.Boundary == nil || !there(filepath.Join(low, "config.json")) {
		return "", "", 0, false
	}
	return high, low, *index.Boundary, true
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
