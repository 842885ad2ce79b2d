package gguf

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Import makes a Hugging Face directory of the file path: config.json, the tokenizer's files and
// safetensors. dtype, "f32", "f16" or "bf16", is that of all tensors; "" keeps theirs, and float32 for what
// is quantized. Of a conversion that was interrupted it writes what j has not.
func Import(j *checkpoint.Journal, path, dir, dtype string, shardBytes int64) error {
	m, err := Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	var src checkpoint.Source = m
	if dtype != "" {
		if src, err = checkpoint.Cast(m, dtype); err != nil {
			return err
		}
	}
	if err := checkpoint.OS.MkdirAll(dir); err != nil {
		return err
	}
	if err := m.Sides(dir, checkpoint.DType(strings.ToUpper(dtype))); err != nil {
		return err
	}
	return checkpoint.BuildDir(j, dir, checkpoint.Finite(src), shardBytes)
}

// Sides writes config.json and the tokenizer's files into a directory that is there, for weights of a type,
// "" for what they are.
func (m *Model) Sides(dir string, dtype checkpoint.DType) error {
	files, err := m.Tokenizer()
	if err != nil {
		return err
	}
	files["config.json"] = m.Config(dtype)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}
