package hub

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // git's names of blobs
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
)

// Repo is a repository of models, with a branch, tag or commit of it. Site is the scheme of the hub that has it, ""
// for Hugging Face's.
type Repo struct{ Name, Revision, Site string }

// Scheme begins names of repositories that are to be fetched.
const Scheme = "hf://"

var repoName = regexp.MustCompile(`^([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*?)(?:@([\w][\w./-]*))?$`)

// ParseRepo reads OWNER/NAME or OWNER/NAME@REVISION, with Scheme or ModelScope before it or not.
func ParseRepo(text string) (Repo, error) {
	site, branch := "", "main"
	name, ok := strings.CutPrefix(text, ModelScope)
	if ok {
		site, branch = ModelScope, "master"
	}
	m := repoName.FindStringSubmatch(strings.TrimPrefix(name, Scheme))
	if m == nil || strings.Contains(m[3], "..") {
		return Repo{}, exit.Usagef("%q: want OWNER/NAME or OWNER/NAME@REVISION", text)
	}
	if m[3] == "" {
		m[3] = branch
	}
	return Repo{m[1] + "/" + m[2], m[3], site}, nil
}

// file is a file of a repository as the hub lists it.
type file struct {
	Path string `json:"rfilename"`
	Size int64  `json:"size"`
	Blob string `json:"blobId"` // git's name of it
	LFS  *large `json:"lfs"`
}

// large is a file that is named by the SHA-256 of its contents.
type large struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// etag is the name of the file's contents in the cache, and how it is computed.
func (f *file) etag() string {
	if f.LFS != nil {
		return f.LFS.SHA256
	}
	return f.Blob
}

// size is what the contents have.
func (f *file) size() int64 {
	if f.LFS != nil {
		return f.LFS.Size
	}
	return f.Size
}

// sum begins the hash that etag is.
func (f *file) sum() hash.Hash {
	if f.LFS != nil {
		return sha256.New()
	}
	h := sha1.New() //nolint:gosec // git's
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

var hashName = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// listing is what the hub says of a revision.
type listing struct {
	SHA   string `json:"sha"`
	Files []file `json:"siblings"`
}

// Patterns are the files that a model needs: weights in safetensors, or PyTorch's where there are none,
// and what lies beside them.
var Patterns = []string{"*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py", "LICENSE*",
	"README.md"}

// Get brings a revision of a repository into the cache and gives the directory of its snapshot. Files are those that
// patterns match by name, of all folders; nil is Patterns. Files that are whole there are not fetched again.
func (c *Client) Get(ctx context.Context, r Repo, patterns []string) (string, error) {
	what := r.Name + "@" + r.Revision
	l, err := c.site.list(ctx, c, r)
	if err != nil {
		return "", err
	}
	if err := l.check(what); err != nil {
		return "", err
	}
	root := filepath.Join(c.Cache, c.site.folder(r))
	snapshot := filepath.Join(root, "snapshots", l.SHA)
	files := l.chosen(patterns)
	if len(files) == 0 {
		return "", exit.Usagef("%s has no files that match %q", what, patterns)
	}
	for i := range files {
		if err := c.fetch(ctx, r, l.SHA, &files[i], root, snapshot); err != nil {
			return "", err
		}
	}
	ref := filepath.Join(root, "refs", filepath.FromSlash(r.Revision))
	if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
		return "", err
	}
	if r.Revision != l.SHA {
		if err := os.WriteFile(ref, []byte(l.SHA), 0o644); err != nil {
			return "", err
		}
	}
	return snapshot, nil
}

// check refuses what leaves the directory, and what has no hash.
func (l *listing) check(what string) error {
	if !hashName.MatchString(l.SHA) {
		return exit.With(fmt.Errorf("%s: the hub names commit %q", what, l.SHA), exit.Corrupt)
	}
	for _, f := range l.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || strings.Contains(f.Path, `\`) ||
			path.Clean(f.Path) != f.Path {
			return exit.With(fmt.Errorf("%s: file name %q leaves the directory", what, f.Path), exit.Corrupt)
		}
		if !hashName.MatchString(f.etag()) || f.size() < 0 {
			return exit.With(fmt.Errorf("%s: %s has no size and hash in the hub's list", what, f.Path), exit.Corrupt)
		}
	}
	return nil
}

// chosen are the files that patterns match, in the order of their names.
func (l *listing) chosen(patterns []string) (out []file) {
	usual := patterns == nil
	if usual {
		patterns = Patterns
		if !slices.ContainsFunc(l.Files, func(f file) bool {
			return strings.HasSuffix(f.Path, ".safetensors")
		}) {
			patterns = append(slices.Clone(patterns), "*.bin", "*.gguf")
		}
	}
	for _, f := range l.Files {
		if slices.ContainsFunc(patterns, func(p string) bool {
			ok, _ := path.Match(p, path.Base(f.Path)) // patterns that are wrong match nothing
			whole, _ := path.Match(p, f.Path)         // likewise
			return ok || whole
		}) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// fetch brings one file to the cache, unless it is there, and links it into the snapshot.
func (c *Client) fetch(ctx context.Context, r Repo, commit string, f *file, root, snapshot string) error {
	link := filepath.Join(snapshot, filepath.FromSlash(f.Path))
	blob := filepath.Join(root, "blobs", f.etag())
	if info, err := os.Stat(blob); err != nil || info.Size() != f.size() {
		if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
			return err
		}
		if err := c.bring(ctx, r, commit, f, blob); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	to, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return err
	}
	if old, err := os.Readlink(link); err == nil && old == to {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(to, link)
}

// bring fetches contents to blob: what an attempt has got stays in a file beside it, from whose end the next one
// goes on. Attempts are counted anew when more bytes are there than ever before: an answer that is shorter than the
// hub's list says, as a login page is, may come for ever. What is whole and has another hash is thrown away once.
func (c *Client) bring(ctx context.Context, r Repo, commit string, f *file, blob string) error {
	part, thrown := blob+".incomplete", false
	what := r.Name + "/" + f.Path
	most := sizeOf(part)
	for n := 0; ; n++ {
		err := c.attempt(ctx, r, commit, f, part)
		if err == nil {
			if err = verify(f, part, what); err == nil {
				return os.Rename(part, blob)
			}
			if err2 := os.Remove(part); err2 != nil {
				return errors.Join(err, err2)
			}
			if thrown {
				return err
			}
			thrown, n = true, -1
			continue
		}
		var status *statusError
		var coded interface{ ExitCode() int }
		switch {
		case ctx.Err() != nil || errors.As(err, &coded) || errors.As(err, &status) && !status.again():
			return ended(err)
		case sizeOf(part) > most:
			n, most = -1, sizeOf(part) // it goes on
		case n+1 >= attemptsMax:
			return ended(err)
		}
		if err := c.pause(ctx, max(n, 0), err); err != nil {
			return err
		}
	}
}

// sizeOf is that of a file, 0 for none.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// attempt asks for what part lacks, and appends it.
func (c *Client) attempt(ctx context.Context, r Repo, commit string, f *file, part string) error {
	if c.offline {
		return exit.Usagef("HF_HUB_OFFLINE is set: nothing is fetched")
	}
	what := r.Name + "/" + f.Path
	have := sizeOf(part)
	if have > f.size() {
		if err := os.Remove(part); err != nil {
			return err
		}
		have = 0
	}
	switch {
	case f.size() == 0:
		return os.WriteFile(part, nil, 0o644)
	case have == f.size(): // it was ended before it was looked at
		return nil
	}
	q, err := http.NewRequest(http.MethodGet, c.Endpoint+c.site.address(r, commit, f.Path), nil)
	if err != nil {
		return err
	}
	if have > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(c.Idle, func() { cancel(fmt.Errorf("%s: no byte came for %v", what, c.Idle)) })
	defer idle.Stop()
	answer, err := c.do(ctx, what, q)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer answer.Body.Close()
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if answer.StatusCode != http.StatusPartialContent {
		have, flags = 0, flags|os.O_TRUNC // the hub gives the whole
	} else if err := rangeOf(answer, have, f.size(), what); err != nil {
		if err2 := os.Remove(part); err2 != nil && !errors.Is(err2, os.ErrNotExist) {
			return errors.Join(err, err2)
		}
		return err
	}
	out, err := os.OpenFile(part, flags, 0o644)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, &watched{io.LimitReader(answer.Body, f.size()-have+1), idle, c.Idle})
	err = errors.Join(causeOf(ctx, err), out.Close())
	switch {
	case err != nil:
		return fmt.Errorf("%s: after %d of %d bytes: %w", what, have+n, f.size(), err)
	case have+n > f.size():
		if err := os.Remove(part); err != nil {
			return err
		}
		return exit.With(fmt.Errorf("%s: the hub sends more than the %d bytes that it says", what, f.size()),
			exit.Corrupt)
	case have+n < f.size():
		return fmt.Errorf("%s: the answer (%s) ended after %d of the %d bytes that the hub's list says", what,
			cmp.Or(plain(answer.Header.Get("Content-Type")), "of no type"), have+n, f.size())
	}
	return nil
}

// causeOf gives the cause of a context that has ended, in place of an error that only says so.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// rangeOf holds an answer to the range that was asked for.
func rangeOf(answer *http.Response, from, size int64, what string) error {
	want := fmt.Sprintf("bytes %d-%d/%d", from, size-1, size)
	if got := answer.Header.Get("Content-Range"); got != want {
		return fmt.Errorf("%s: the hub sends %q, not %q: the file has changed", what, got, want)
	}
	return nil
}

// watched puts off a timer with every byte.
type watched struct {
	io.Reader
	idle  *time.Timer
	after time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.idle.Reset(w.after)
	}
	return n, err
}

// verify holds contents to their hash.
func verify(f *file, path, what string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	h := f.sum()
	if _, err := io.Copy(h, in); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.etag() {
		return exit.With(fmt.Errorf("%s: what was fetched has hash %s, the hub says %s: it was damaged on the way, or "+
			"the hub sends another file", what, got, f.etag()), exit.Corrupt)
	}
	return nil
}
