//go:build cuda

package cuda

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Files of a run's directory: what was chosen of each library.
const (
	chosenProducts   = "cublaslt.jsonl"
	chosenAttentions = "cudnn.jsonl"
)

// Chosen are a library's algorithms by shape, device and version of the library. They are kept in a run's
// directory, so that a run that goes on has the same bits, also where the library would choose anew. All
// ranks of a process share those of a directory.
type Chosen struct {
	mu   sync.Mutex
	file string // empty: they are not kept
	by   map[choice]string
	// tells whether a text is an algorithm
	valid func(algorithm string) bool
}

// choice is a line of the file.
type choice struct {
	Device  string `json:"device"`
	Library int    `json:"library"`
	Shape   string `json:"shape"`
}

type line struct {
	choice
	Algorithm string `json:"algorithm"` // as the library's user writes it; empty where the library has none
}

var chosenIn struct {
	sync.Mutex
	files map[string]*Chosen
}

// OpenChosen reads what a file of a run's directory has; an empty directory keeps nothing. valid tells
// whether a text is an algorithm.
func OpenChosen(dir, file string, valid func(algorithm string) bool) (*Chosen, error) {
	if dir == "" {
		return &Chosen{by: map[choice]string{}}, nil
	}
	chosenIn.Lock()
	defer chosenIn.Unlock()
	path := filepath.Join(dir, file)
	if c := chosenIn.files[path]; c != nil {
		return c, nil
	}
	c := &Chosen{file: path, by: map[choice]string{}, valid: valid}
	if err := c.read(); err != nil {
		return nil, err
	}
	if chosenIn.files == nil {
		chosenIn.files = map[string]*Chosen{}
	}
	chosenIn.files[path] = c
	return c, nil
}

// read takes what the file has. Of two lines for a shape the first counts, so that processes that chose at once agree.
func (c *Chosen) read() error {
	text, err := os.ReadFile(c.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	seen := map[choice]bool{}
	for i, row := range bytes.Split(text, []byte("\n")) {
		if len(row) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(row, &l); err != nil || l.Shape == "" || l.Algorithm != "" && !c.valid(l.Algorithm) {
			return fmt.Errorf("%s:%d: this is not an algorithm for a shape (%v); "+
				"delete the file to have all chosen anew", c.file, i+1, err)
		}
		if !seen[l.choice] {
			seen[l.choice], c.by[l.choice] = true, l.Algorithm
		}
	}
	return nil
}

// algorithm is that of a shape: the one that was chosen before, or what choose gives, which is kept. None is empty.
func (c *Chosen) algorithm(device string, library int, shape string, choose func() (string, error)) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := choice{device, library, shape}
	text, known := c.by[k]
	if !known {
		var err error
		if text, err = choose(); err != nil {
			return "", err
		}
		if err := c.keep(line{k, text}); err != nil {
			return "", err
		}
		c.by[k] = text
		if c.file == "" {
			return text, nil
		}
		if err := c.read(); err != nil { // another process may have been first
			return "", err
		}
		text = c.by[k]
	}
	return text, nil
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
