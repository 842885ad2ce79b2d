package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset/store"
)

// pathsMax bounds what one pattern stands for.
const pathsMax = 1 << 20

// ExpandPaths returns the files that a path means: braces first ("s-{000..010}.tar", "{train,val}.tar",
// nested and several, in their own order), then wild cards ("s-*.tar", sorted). A path that exists is taken as it is.
// An unclosed brace, or one that holds neither a comma nor a range, stands for itself, as in a shell.
//
// A folder of Hugging Face's cache ("datasets--ORG--NAME") means the data files of the revision that
// its refs/main names.
func ExpandPaths(path string) ([]string, error) {
	if _, err := os.Lstat(path); err == nil {
		if files, err := hubFiles(path); files != nil || err != nil {
			return files, err
		}
		return []string{path}, nil
	}
	words, err := ExpandBraces(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", store.Redact(path), err)
	}
	var out []string
	for _, w := range words {
		if _, err := os.Lstat(w); err == nil || !hasWildCard(w) {
			out = append(out, w)
			continue
		}
		found, err := glob(w)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("open %s: no file matches (%w)", store.Redact(w), errors.Join(err, fs.ErrNotExist))
		}
		out = append(out, found...)
	}
	return out, nil
}

// hubSuffixes are what names of data files in a repository of Hugging Face end in.
var hubSuffixes = []string{".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".tar", ".arrow", ".arrows"}

// hubFiles returns the data files of a folder of Hugging Face's cache, sorted, and nil for any other folder.
func hubFiles(path string) ([]string, error) {
	snapshots := filepath.Join(path, "snapshots")
	if info, err := os.Stat(snapshots); err != nil || !info.IsDir() ||
		!strings.Contains(filepath.Base(filepath.Clean(path)), "--") {
		return nil, nil
	}
	ref, err := os.ReadFile(filepath.Join(path, "refs", "main"))
	if err != nil {
		return nil, fmt.Errorf("open %s: it is a folder of Hugging Face's cache without a main revision; name one of %s/*: %w", path, snapshots, err)
	}
	root := filepath.Join(snapshots, filepath.Base(strings.TrimSpace(string(ref))))
	var out []string
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.ContainsFunc(hubSuffixes,
			func(s string) bool { return strings.HasSuffix(name, s) }) {
			out = append(out, name)
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no file ends in %s: it may not have been downloaded, as where a repository asks for a login", strings.Join(hubSuffixes, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %s: %w", path, root, err)
	}
	slices.Sort(out)
	return out, nil
}

// hasWildCard says whether a path names files by wild cards. Behind the question mark of a URL comes its query.
func hasWildCard(path string) bool {
	if s := store.Scheme(path); s == "http" || s == "https" {
		path, _, _ = strings.Cut(path, "?")
	}
	return strings.ContainsAny(path, "*?[")
}

// glob finds the files that a pattern with wild cards names.
func glob(pattern string) ([]string, error) {
	if store.Scheme(pattern) != "" {
		return store.Glob(pattern)
	}
	return filepath.Glob(pattern)
}

// ExpandBraces returns the words that patterns with braces stand for, at most pathsMax of each; no file needs to exist.
func ExpandBraces(patterns ...string) (out []string, err error) {
	for _, p := range patterns {
		words, err := expandBraces(p)
		if err != nil {
			return nil, err
		}
		out = append(out, words...)
	}
	return out, nil
}

// expandBraces replaces the first brace group by each of its words, and what follows likewise.
func expandBraces(s string) ([]string, error) {
	open, end := braceGroup(s)
	if open < 0 {
		return []string{s}, nil
	}
	words, err := braceWords(s[open+1 : end])
	if err != nil {
		return nil, err
	}
	tails, err := expandBraces(s[end+1:])
	if err != nil {
		return nil, err
	}
	if words == nil { // the brackets stand for themselves; what is inside may hold groups
		if words, err = expandBraces(s[open+1 : end]); err != nil {
			return nil, err
		}
		for i, w := range words {
			words[i] = "{" + w + "}"
		}
	}
	if len(words)*len(tails) > pathsMax {
		return nil, fmt.Errorf("the braces stand for more than %d paths", pathsMax)
	}
	out := make([]string, 0, len(words)*len(tails))
	for _, w := range words {
		for _, t := range tails {
			out = append(out, s[:open]+w+t)
		}
	}
	return out, nil
}

// braceGroup returns where the first bracket that is closed stands and where it is closed, or -1.
func braceGroup(s string) (open, end int) {
	for open = range len(s) {
		if s[open] != '{' {
			continue
		}
		depth := 0
		for end = open; end < len(s); end++ {
			depth += brace(s[end])
			if depth == 0 {
				return open, end
			}
		}
	}
	return -1, -1
}

// brace is by how much a character changes the depth of braces.
func brace(c byte) int {
	switch c {
	case '{':
		return 1
	case '}':
		return -1
	}
	return 0
}

// braceWords returns the words of a group's inside, nil where it is not a group.
func braceWords(s string) ([]string, error) {
	parts := splitTop(s)
	if len(parts) == 1 {
		return braceRange(s)
	}
	var out []string
	for _, p := range parts {
		words, err := expandBraces(p)
		if err != nil {
			return nil, err
		}
		out = append(out, words...)
	}
	return out, nil
}

// splitTop splits at the commas outside inner braces.
func splitTop(s string) (parts []string) {
	depth, from := 0, 0
	for i := range len(s) {
		depth += brace(s[i])
		if s[i] == ',' && depth == 0 {
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}

// braceRange returns the numbers of "a..b" or "a..b..step"; they are as wide as the wider end where one begins with 0.
func braceRange(s string) ([]string, error) {
	ends := strings.Split(s, "..")
	if len(ends) != 2 && len(ends) != 3 {
		return nil, nil
	}
	var n [3]int64
	for i, e := range ends {
		var err error
		if n[i], err = strconv.ParseInt(e, 10, 48); err != nil {
			return nil, nil
		}
	}
	from, to, step := n[0], n[1], max(n[2], -n[2], 1)
	count := max(to-from, from-to)/step + 1
	if count > pathsMax {
		return nil, fmt.Errorf("the braces stand for more than %d paths", pathsMax)
	}
	if to < from {
		step = -step
	}
	width := 0
	if leadsWithZero(ends[0]) || leadsWithZero(ends[1]) {
		width = max(len(ends[0]), len(ends[1]))
	}
	out := make([]string, 0, count)
	for i := range count {
		out = append(out, fmt.Sprintf("%0*d", width, from+i*step))
	}
	return out, nil
}

// leadsWithZero tells whether a number is written with leading zeros, which ranges in braces then keep.
func leadsWithZero(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return len(s) > 1 && s[0] == '0'
}
