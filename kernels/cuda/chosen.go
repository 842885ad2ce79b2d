//go:build cuda

package cuda

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// chosenFile lies in a run's directory.
const chosenFile = "cublaslt.jsonl"

// Chosen are algorithms by shape of product, device and version of the library. They are kept in a run's
// directory, so that a run that goes on has the same bits, also where the library would choose anew. All
// ranks of a process share those of a directory.
type Chosen struct {
	mu   sync.Mutex
	file string // empty: they are not kept
	by   map[choice]string
}

// choice is a line of the file.
type choice struct {
	Device  string `json:"device"`
	Library int    `json:"library"`
	Product string `json:"product"`
}

type line struct {
	choice
	Algorithm string `json:"algorithm"` // in hexadecimal digits; empty where the library has none
}

var chosenIn struct {
	sync.Mutex
	dirs map[string]*Chosen
}

// OpenChosen reads what a run's directory has; an empty name keeps nothing.
func OpenChosen(dir string) (*Chosen, error) {
	if dir == "" {
		return &Chosen{by: map[choice]string{}}, nil
	}
	chosenIn.Lock()
	defer chosenIn.Unlock()
	if c := chosenIn.dirs[dir]; c != nil {
		return c, nil
	}
	c := &Chosen{file: filepath.Join(dir, chosenFile), by: map[choice]string{}}
	text, err := os.ReadFile(c.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for i, row := range bytes.Split(text, []byte("\n")) {
		if len(row) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(row, &l); err != nil || len(l.Algorithm) != 0 && len(l.Algorithm) != 128 {
			return nil, fmt.Errorf("%s:%d: is no algorithm of a product (%v); "+
				"delete the file to have them chosen anew", c.file, i+1, err)
		}
		c.by[l.choice] = l.Algorithm
	}
	if chosenIn.dirs == nil {
		chosenIn.dirs = map[string]*Chosen{}
	}
	chosenIn.dirs[dir] = c
	return c, nil
}

// algorithm is that of a product: the one that was chosen before, or what choose gives, which is kept.
// None is nil.
func (c *Chosen) algorithm(device string, library int, product string, choose func() ([]byte,
	error)) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := choice{device, library, product}
	text, known := c.by[k]
	if !known {
		a, err := choose()
		if err != nil {
			return nil, err
		}
		text = hex.EncodeToString(a)
		if err := c.keep(line{k, text}); err != nil {
			return nil, err
		}
		c.by[k] = text
	}
	return hex.DecodeString(text)
}

// keep appends a line in one write.
func (c *Chosen) keep(l line) error {
	if c.file == "" {
		return nil
	}
	row, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(row, '\n')); err != nil {
		_ = f.Close() // the write has failed already
		return err
	}
	return f.Close()
}
