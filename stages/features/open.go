package features

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
)

// several is a source of several files.
type several struct {
	all  []checkpoint.Source
	of   map[string]checkpoint.Source
	list []checkpoint.Info
}

// Open opens a file of weights, or all of a folder together.
func Open(path string) (checkpoint.Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return openFile(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	s := &several{of: map[string]checkpoint.Source{}}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if !torch.IsFile(name) && filepath.Ext(name) != ".safetensors" {
			continue
		}
		src, err := openFile(name)
		if err == nil {
			err = s.add(src, name)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if len(s.all) == 0 {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Missing,
			Why: "no file of weights (.safetensors, .pth, .pt, .bin)", Try: "put the network's weights there"}
	}
	slices.SortFunc(s.list, func(a, b checkpoint.Info) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

func openFile(path string) (checkpoint.Source, error) {
	if torch.IsFile(path) {
		return torch.Open(path)
	}
	return checkpoint.OpenFile(path)
}

// add adds the tensors of a file that is open.
func (s *several) add(src checkpoint.Source, name string) error {
	s.all = append(s.all, src)
	for _, t := range src.Tensors() {
		if _, twice := s.of[t.Name]; twice {
			return &checkpoint.Error{File: name, Tensor: t.Name, Fault: checkpoint.Extra,
				Why: "another file of the folder has it too", Try: "leave one of the files there"}
		}
		s.of[t.Name] = src
		s.list = append(s.list, t)
	}
	return nil
}

// Tensors implements checkpoint.Source.
func (s *several) Tensors() []checkpoint.Info { return s.list }

// ReadRanges implements checkpoint.Source.
func (s *several) ReadRanges(name string, box [][2]int, dst []byte) error {
	src, ok := s.of[name]
	if !ok {
		return fmt.Errorf("features: no tensor %s", name)
	}
	return src.ReadRanges(name, box, dst)
}

// Close implements checkpoint.Source.
func (s *several) Close() error {
	var all []error
	for _, src := range s.all {
		all = append(all, src.Close())
	}
	return errors.Join(all...)
}
