// Package source holds the source of the CUDA kernels, for what compiles them: the emulator of the tests, and nvcc.
package source

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
)

// Files are the kernels; all.cu includes the others.
//
//go:embed *.cu *.cuh
var Files embed.FS

// Hash is that of all files with their names, in order of names.
func Hash() string {
	h := sha256.New()
	for name, text := range All() {
		h.Write([]byte(name + "\x00"))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// All gives the files in order of names.
func All() func(yield func(name string, text []byte) bool) {
	return func(yield func(string, []byte) bool) {
		names, err := fs.Glob(Files, "*")
		if err != nil {
			panic(err) // the pattern is ours
		}
		for _, n := range names {
			text, err := Files.ReadFile(n)
			if err != nil {
				panic(err) // it was listed
			}
			if !yield(n, text) {
				return
			}
		}
	}
}
