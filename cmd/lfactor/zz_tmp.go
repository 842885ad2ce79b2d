package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
)

type tmpText struct{ files []string }

func (s *tmpText) Name() string       { return "tmp" }
func (s *tmpText) Kind() dataset.Kind { return dataset.KindText }
func (s *tmpText) Len() int64         { return int64(len(s.files)) }
func (s *tmpText) Read(i int64) (dataset.Document, error) {
	b, err := os.ReadFile(s.files[i])
	return dataset.Document{Text: string(b), Place: dataset.Place{File: s.files[i]}}, err
}
func (s *tmpText) Fingerprint() string { return fmt.Sprint(len(s.files)) }
func (s *tmpText) Close() error        { return nil }

var _ = dataset.Register(dataset.Format{Name: "text", Open: func(path string, o dataset.Options) (dataset.Source, error) {
	f, err := filepath.Glob(filepath.Join(path, "*.txt"))
	return &tmpText{f}, err
}, Match: func(string, []byte) bool { return true }})
