package main

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/zip"
)

// entry is a file of the tree, as golang.org/x/mod/zip asks for it.
type entry struct {
	root, path string
	info       fs.FileInfo
}

// Path implements zip.File.
func (e entry) Path() string { return e.path }

// Lstat implements zip.File.
func (e entry) Lstat() (os.FileInfo, error) { return e.info, nil }

// Open implements zip.File.
func (e entry) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(e.root, e.path)) }

// checkTree reports files that the zip of a Go module refuses, so that `go install` of a commit would fail, and entries
// at the root that the line "root" of layers.txt does not list. What .gitignore names is not part of the tree.
func checkTree(root string, p *layerPolicy, r *report) error {
	ignored, err := ignorePatterns(filepath.Join(root, ".gitignore"))
	if err != nil {
		return err
	}
	var files []zip.File
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.Name() == ".git" || ignored.has(rel, d.IsDir()) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.Contains(rel, "/") && len(p.root) > 0 && !slices.Contains(p.root, rel) {
			r.at(rel, 1, "root", "%s is not listed on the line \"root\" of layers.txt: put it into one "+
				"of the folders there", rel)
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		files = append(files, entry{root, rel, info})
		return err
	})
	if err != nil {
		return err
	}
	checked, _ := zip.CheckFiles(files) // its error is what the lists say
	for _, f := range checked.Invalid {
		r.at(f.Path, 1, "name", "the zip of a Go module refuses this file: %v", f.Err)
	}
	return checked.SizeError
}

// ignoreRule is a line of .gitignore: a pattern for names at any depth, or with a leading slash for paths
// from the root.
type ignoreRule struct {
	pattern string
	rooted  bool
	folders bool
}

type ignoreRules []ignoreRule

// ignorePatterns reads the plain patterns that this project's .gitignore has; no file means none.
func ignorePatterns(name string) (out ignoreRules, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		p, rooted := strings.CutPrefix(line, "/")
		p, folders := strings.CutSuffix(p, "/")
		out = append(out, ignoreRule{p, rooted, folders})
	}
	return out, s.Err()
}

// has reports whether a path from the root is ignored.
func (l ignoreRules) has(rel string, dir bool) bool {
	for _, r := range l {
		name := rel
		if !r.rooted {
			name = path.Base(rel)
		}
		if ok, _ := path.Match(r.pattern, name); ok && (dir || !r.folders) { // a bad pattern ignores nothing
			return true
		}
	}
	return false
}
