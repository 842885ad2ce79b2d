package checkpoint

import (
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
)

// sideFiles are the files of a Hugging Face directory besides its weights that an export needs for transformers to
// load it. Python files are copied, never run, and only by these names: families that transformers lacks bring them.
var sideFiles = []string{
	"config.json", "generation_config.json", "description.yaml",
	"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
	"added_tokens.json",
	"vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "*.tiktoken",
	"preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json",
	"configuration_*.py", "modeling_*.py", "tokenization_*.py",
	"LICENSE*", "USE_POLICY.md", "NOTICE*",
}

// sideBytesMax bounds one side file; the largest known tokenizers have about 35 MB.
const sideBytesMax = 256 << 20

// CopySideFiles copies configuration, tokenizer and licence files verbatim from one Hugging Face directory
// to another and returns their names, sorted. Weights are not copied, nor links that leave src; those of a
// snapshot in Hugging Face's cache are followed within its repository.
func CopySideFiles(src, dst string) ([]string, error) {
	root := verbatim(src)
	entries, err := os.ReadDir(src) // sorted by name
	if err != nil {
		return nil, err
	}
	if err := OS.MkdirAll(dst); err != nil {
		return nil, err
	}
	var copied []string
	for _, e := range entries {
		if e.IsDir() || !isSideFile(e.Name()) {
			continue
		}
		if err := copyFile(root, e.Name(), filepath.Join(dst, e.Name())); err != nil {
			return copied, err
		}
		copied = append(copied, e.Name())
	}
	return copied, OS.SyncDir(dst)
}

// isSideFile tells whether a file belongs beside the weights: configurations and tokenizers, which a conversion copies.
func isSideFile(name string) bool {
	for _, pattern := range sideFiles {
		if ok, _ := path.Match(pattern, name); ok { // patterns are this file's own
			return true
		}
	}
	return false
}

// copyFile copies a side file. A size that no configuration has is refused, so that a wrong file
// does not fill the disk.
func copyFile(root folder, name, to string) error {
	in, size, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer in.Close()
	if size > sideBytesMax {
		return &Error{File: filepath.Join(root.Name(), name), Fault: Malformed,
			Why: "too large for a configuration or tokenizer"}
	}
	if err := OS.RemoveAll(to); err != nil {
		return err
	}
	out, err := OS.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
