package hf

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Caches of huggingface_hub keep a repository in models--OWNER--NAME: its files in blobs,
// a directory of links to them a commit in snapshots, and the commit of a branch
// in refs (https://huggingface.co/docs/huggingface_hub/guides/manage-cache).

var repoName = regexp.MustCompile(`^([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*?)(?:@([\w./-]+))?$`)

// Resolve finds the directory of files that a path means: itself; or, where it is a repository in a cache of
// Hugging Face's, or names one as OWNER/NAME or OWNER/NAME@REVISION, its snapshot there, by default that of
// main. Nothing is fetched. A path that is neither comes back as it is.
func Resolve(path string, getenv func(string) string) (string, error) {
	if _, err := os.Stat(path); err == nil {
		if _, err := os.Stat(filepath.Join(path, "snapshots")); err == nil {
			return snapshot(path, RepoOf(path), "main")
		}
		return path, nil
	}
	m := repoName.FindStringSubmatch(path)
	if m == nil {
		return path, nil
	}
	dir := filepath.Join(cache(getenv), "models--"+m[1]+"--"+m[2])
	if _, err := os.Stat(dir); err != nil {
		return path, nil
	}
	if m[3] == "" {
		m[3] = "main"
	}
	return snapshot(dir, m[1]+"/"+m[2], m[3])
}

// Absent says of a path that is not there, and may be the name of a repository, how it could be had;
// "" for other paths.
func Absent(path string, getenv func(string) string) string {
	m := repoName.FindStringSubmatch(path)
	if m == nil {
		return ""
	}
	return fmt.Sprintf("there is no directory %s, and no repository of this name in Hugging Face's "+
		"cache %s; `hf download %s/%s` fetches one (where its terms must be accepted: "+
		"after `hf auth login`)", path, cache(getenv), m[1], m[2])
}

// Partial says of a directory in the cache, which lacks a file, how the rest of it is fetched;
// "" for other directories.
func Partial(dir string) string {
	repo := RepoOf(dir)
	if repo == "" {
		return ""
	}
	return fmt.Sprintf("; it is a snapshot of %s in Hugging Face's cache, of which only some files were "+
		"fetched: `hf download %[1]s` fetches the rest", repo)
}

// CacheDir is the directory of huggingface_hub's cache, "" where the system names no home.
func CacheDir(getenv func(string) string) string { return cache(getenv) }

// cache is that directory.
func cache(getenv func(string) string) string {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	if dir := getenv("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	if dir := getenv("HF_HOME"); dir != "" {
		return filepath.Join(dir, "hub")
	}
	if dir := getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface", "hub")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "huggingface", "hub")
}

// RepoOf is the name OWNER/NAME of the repository of whose cache a path is a part, "" for other paths.
func RepoOf(path string) string {
	for _, part := range strings.Split(filepath.ToSlash(path), "/") {
		if name, ok := strings.CutPrefix(part, "models--"); ok {
			return strings.Replace(name, "--", "/", 1)
		}
	}
	return ""
}

// snapshot is the directory of a revision: a branch or tag that refs names, or a commit.
func snapshot(dir, repo, revision string) (string, error) {
	all := filepath.Join(dir, "snapshots")
	commit := revision
	if b, err := os.ReadFile(filepath.Join(dir, "refs", filepath.FromSlash(revision))); err == nil {
		commit = strings.TrimSpace(string(b))
	} else if have := commits(all); revision == "main" && len(have) == 1 {
		commit = have[0]
	}
	out := filepath.Join(all, filepath.Base(commit))
	if _, err := os.Stat(out); err != nil {
		return "", fmt.Errorf("%s has no snapshot of %s of %s, only %q; `hf download %s --revision %s` "+
			"fetches it", dir, revision, repo, commits(all), repo, revision)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(out, e.Name())); err != nil {
			return "", fmt.Errorf("%s links to a file that is not in the cache: the download was not finished; "+
				"`hf download %s` fetches the rest", filepath.Join(out, e.Name()), repo)
		}
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "config.json" }) {
		return "", fmt.Errorf("%s has no config.json: only some files of %s were fetched, as of a gated repository "+
			"whose terms were not accepted; after `hf auth login` `hf download %s` fetches the rest", out, repo, repo)
	}
	return out, nil
}

// commits lists the snapshots of a repository.
func commits(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
