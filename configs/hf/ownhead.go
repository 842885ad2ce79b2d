package hf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// headerMax bounds the header of a safetensors file.
const headerMax = 100 << 20

// stored is where a tensor lies.
type stored struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // in the data
	file    string
	data    int64
	name    string
}

// OwnHead reports whether the safetensors files of a directory have a head with other numbers than the table of words:
// transformers then uses the two as they are, whatever tie_word_embeddings says (tie_weights of modeling_utils.py).
func OwnHead(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return false
	}
	var head, table stored
	for _, file := range files {
		all, data, err := header(file)
		if err != nil {
			continue // who opens the weights says so
		}
		for name, text := range all {
			s := stored{file: file, data: data, name: name}
			of, word := (*stored)(nil), "."+name
			switch {
			case strings.HasSuffix(word, ".lm_head.weight"):
				of = &head
			case strings.HasSuffix(word, ".embed_tokens.weight"), strings.HasSuffix(word, ".wte.weight"):
				of = &table
			}
			// other towers and further heads have longer names
			first := of != nil && (of.name == "" || cmp.Or(len(name)-len(of.name), strings.Compare(name, of.name)) < 0)
			if first && json.Unmarshal(text, &s) == nil {
				*of = s
			}
		}
	}
	beside := strings.HasPrefix(table.name, strings.TrimSuffix(head.name, "lm_head.weight")) // else it is of another part
	return head.file != "" && table.file != "" && beside && !same(head, table)
}

// header reads the header of a safetensors file; data is where the tensors begin.
func header(file string) (all map[string]json.RawMessage, data int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var n uint64
	if err := binary.Read(f, binary.LittleEndian, &n); err != nil {
		return nil, 0, err
	}
	if n > headerMax {
		return nil, 0, fmt.Errorf("%s: header of %d bytes, at most %d", file, n, headerMax)
	}
	err = json.NewDecoder(io.LimitReader(f, int64(n))).Decode(&all)
	return all, int64(n) + 8, err
}

// same compares the bytes of two tensors.
func same(a, b stored) bool {
	if a.DType != b.DType || a.Offsets[1]-a.Offsets[0] != b.Offsets[1]-b.Offsets[0] {
		return false
	}
	var parts [2]io.Reader
	for i, s := range []stored{a, b} {
		f, err := os.Open(s.file)
		if err != nil {
			return true
		}
		defer f.Close()
		parts[i] = io.NewSectionReader(f, s.data+s.Offsets[0], s.Offsets[1]-s.Offsets[0])
	}
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(parts[0], x)
		m, other := io.ReadFull(parts[1], y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if err != nil || other != nil {
			return true
		}
	}
}
