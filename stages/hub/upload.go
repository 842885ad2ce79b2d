package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
)

const (
	sampleBytes  = 512      // of a file, by which a hub decides how it is kept
	regularBytes = 10 << 20 // of files that a hub wants in the commit itself: more is refused here
	partsMax     = 10_000
	lfsKind      = "application/vnd.git-lfs+json"
)

// Done is what Put did.
type Done struct {
	Files  int    `json:"files"`
	Sent   int    `json:"sent"` // whose contents the hub did not have
	Commit string `json:"commit"`
}

// local is a file that is put.
type local struct {
	name, path string
	size       int64
	sum        string // SHA-256
	lfs        bool
}

// Put makes one commit of the files of a directory, which may be links, in a repository that is made if
// it is not there. What the hub has already is not sent again, so that a repeated call goes on. Files
// whose names begin with a dot are left out.
func (c *Client) Put(ctx context.Context, dir string, r Repo, message string, private bool) (Done, error) {
	files, err := list(dir)
	if err != nil {
		return Done{}, err
	}
	done := Done{Files: len(files)}
	done.Sent, done.Commit, err = c.site.put(ctx, c, r, files, message, private)
	return done, err
}

func (huggingFace) put(ctx context.Context, c *Client, r Repo, files []local, message string, private bool) (sent int,
	commit string, err error) {
	if err := c.make(ctx, r, private); err != nil {
		return 0, "", err
	}
	if err := c.modes(ctx, r, files); err != nil {
		return 0, "", err
	}
	if sent, err = c.contents(ctx, r, files); err != nil {
		return sent, "", err
	}
	commit, err = c.commit(ctx, r, files, message)
	return sent, commit, err
}

// list finds the files of a directory, and their hashes.
func list(dir string) (out []local, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path) // of what a link names
		if err != nil || info.IsDir() {
			return err
		}
		if !info.Mode().IsRegular() {
			return exit.Usagef("%s is no file", path)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sum, err := hashOf(path)
		out = append(out, local{name: filepath.ToSlash(name), path: path, size: info.Size(), sum: sum})
		return err
	})
	if err == nil && len(out) == 0 {
		err = exit.Usagef("%s has no files", dir)
	}
	return out, err
}

// hashOf is a file's SHA-256.
func hashOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// send posts JSON.
func (c *Client) send(ctx context.Context, what, path string, body any, kind string, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.ask(ctx, what, http.MethodPost, path, bytes.NewReader(text), kind, into)
}

// make makes the repository; one that is there is left as it is.
func (c *Client) make(ctx context.Context, r Repo, private bool) error {
	owner, name, _ := strings.Cut(r.Name, "/")
	err := c.send(ctx, "making "+r.Name, "/api/repos/create", map[string]any{"name": name, "organization": owner,
		"private": private, "type": "model"}, "application/json", nil)
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusConflict {
		return nil
	}
	return err
}

// modes asks which files the hub keeps as large ones.
func (c *Client) modes(ctx context.Context, r Repo, files []local) error {
	for part := range slices.Chunk(files, 256) {
		var ask []map[string]any
		for _, f := range part {
			sample, err := head(f.path)
			if err != nil {
				return err
			}
			ask = append(ask, map[string]any{"path": f.name, "size": f.size,
				"sample": base64.StdEncoding.EncodeToString(sample)})
		}
		var answer struct {
			Files []struct {
				Path string `json:"path"`
				Mode string `json:"uploadMode"`
			} `json:"files"`
		}
		if err := c.send(ctx, r.Name, "/api/models/"+r.Name+"/preupload/"+url.PathEscape(r.Revision),
			map[string]any{"files": ask}, "application/json", &answer); err != nil {
			return err
		}
		mode := map[string]string{}
		for _, f := range answer.Files {
			mode[f.Path] = f.Mode
		}
		for i := range part {
			switch f := &part[i]; {
			case mode[f.name] == "lfs":
				f.lfs = true
			case mode[f.name] != "regular":
				return exit.With(fmt.Errorf("%s: the hub does not say how it keeps %s", r.Name, f.name), exit.Corrupt)
			case f.size > regularBytes:
				return exit.With(fmt.Errorf("%s: the hub wants %s, of %d bytes, in the commit itself", r.Name, f.name,
					f.size), exit.Unreachable)
			}
		}
	}
	return nil
}

// head is the beginning of a file.
func head(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, sampleBytes))
}

// action is where contents go, as the hub says.
type action struct {
	Href   string            `json:"href"`
	Header map[string]string `json:"header"`
}

// object is what the hub says of large contents; no upload is of those that it has.
type object struct {
	OID     string `json:"oid"`
	Actions struct {
		Upload, Verify *action
	} `json:"actions"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// contents sends large files that the hub does not have; sent is how many.
func (c *Client) contents(ctx context.Context, r Repo, files []local) (sent int, err error) {
	at := map[string]local{}
	var objects []map[string]any
	for _, f := range files {
		if _, twice := at[f.sum]; f.lfs && !twice {
			at[f.sum] = f
			objects = append(objects, map[string]any{"oid": f.sum, "size": f.size})
		}
	}
	for part := range slices.Chunk(objects, 256) {
		var answer struct {
			Transfer string
			Objects  []object
		}
		err := c.send(ctx, r.Name, "/"+r.Name+".git/info/lfs/objects/batch",
			map[string]any{"operation": "upload", "transfers": []string{"basic", "multipart"}, "objects": part,
				"hash_algo": "sha256", "ref": map[string]string{"name": r.Revision}}, lfsKind, &answer)
		if err != nil {
			return sent, err
		}
		if t := answer.Transfer; t != "" && t != "basic" && t != "multipart" {
			return sent, exit.With(fmt.Errorf("%s: the hub takes large files by %q alone, which is not spoken here: "+
				"put them with its own package", r.Name, plain(t)), exit.Unreachable)
		}
		for _, o := range answer.Objects {
			f, known := at[o.OID]
			switch {
			case o.Error != nil:
				return sent, exit.With(fmt.Errorf("%s: %s: the hub refuses it: %s", r.Name, f.name, o.Error.Message),
					exit.Unreachable)
			case !known:
				return sent, exit.With(fmt.Errorf("%s: the hub asks for %q, which is not put", r.Name, o.OID),
					exit.Corrupt)
			case o.Actions.Upload == nil:
				continue
			}
			if err := c.upload(ctx, f, o); err != nil {
				return sent, err
			}
			sent++
		}
	}
	return sent, nil
}

// upload sends a file as one body or in parts, and has the hub look at it.
func (c *Client) upload(ctx context.Context, f local, o object) error {
	up := o.Actions.Upload
	if text := up.Header["chunk_size"]; text != "" {
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil || size < 1 || (f.size+size-1)/size > partsMax {
			return exit.With(fmt.Errorf("%s: parts of %q bytes", f.name, text), exit.Corrupt)
		}
		if err := c.inParts(ctx, f, up, size); err != nil {
			return err
		}
	} else if _, err := c.put(ctx, f, up.Href, 0, f.size); err != nil {
		return err
	}
	if o.Actions.Verify == nil {
		return nil
	}
	return c.post(ctx, f.name, o.Actions.Verify.Href, map[string]any{"oid": f.sum, "size": f.size})
}

// inParts sends a file in parts, to an address for each, and says that all are there.
func (c *Client) inParts(ctx context.Context, f local, up *action, size int64) error {
	n := int((f.size + size - 1) / size)
	var parts []map[string]any
	for i := range n {
		to := ""
		for key, href := range up.Header { // "00001" and "1" are the same
			if k, err := strconv.Atoi(key); err == nil && k == i+1 {
				to = href
			}
		}
		if to == "" {
			return exit.With(fmt.Errorf("%s: the hub gives no address for part %d of %d", f.name, i+1, n), exit.Corrupt)
		}
		from := int64(i) * size
		tag, err := c.put(ctx, f, to, from, min(size, f.size-from))
		if err != nil {
			return err
		}
		if tag == "" {
			return exit.With(fmt.Errorf("%s: part %d has no mark", f.name, i+1), exit.Corrupt)
		}
		parts = append(parts, map[string]any{"partNumber": i + 1, "etag": tag})
	}
	return c.post(ctx, f.name, up.Href, map[string]any{"oid": f.sum, "parts": parts})
}

// put sends a part of a file to an address that is signed, without the token.
func (c *Client) put(ctx context.Context, f local, href string, from, n int64) (tag string, err error) {
	bare := *c
	bare.Token = ""
	return tag, c.retry(ctx, func() error {
		in, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer in.Close()
		r, err := http.NewRequest(http.MethodPut, href, io.NewSectionReader(in, from, n))
		if err != nil {
			return err
		}
		r.ContentLength = n
		if n == 0 {
			r.Body = http.NoBody
		}
		answer, err := bare.do(ctx, f.name, r)
		if err != nil {
			return err
		}
		tag = answer.Header.Get("ETag")
		return answer.Body.Close()
	})
}

// post sends JSON to an address that the hub gave: the token goes to the hub alone.
func (c *Client) post(ctx context.Context, what, href string, body any) error {
	to := *c
	if path, ok := strings.CutPrefix(href, c.Endpoint); ok && strings.HasPrefix(path, "/") {
		return to.send(ctx, what, path, body, lfsKind, nil)
	}
	to.Token, to.Endpoint = "", ""
	return to.send(ctx, what, href, body, lfsKind, nil)
}

// commit makes a commit of all files.
func (c *Client) commit(ctx context.Context, r Repo, files []local, message string) (string, error) {
	var lines bytes.Buffer
	add := json.NewEncoder(&lines)
	entry := func(key string, value any) error {
		return add.Encode(map[string]any{"key": key, "value": value})
	}
	if err := entry("header", map[string]string{"summary": message, "description": ""}); err != nil {
		return "", err
	}
	for _, f := range files {
		if f.lfs {
			if err := entry("lfsFile", map[string]any{"path": f.name, "algo": "sha256", "oid": f.sum,
				"size": f.size}); err != nil {
				return "", err
			}
			continue
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			return "", err
		}
		if err := entry("file", map[string]any{"path": f.name, "encoding": "base64",
			"content": base64.StdEncoding.EncodeToString(text)}); err != nil {
			return "", err
		}
	}
	var answer struct {
		OID string `json:"commitOid"`
	}
	err := c.ask(ctx, "the commit to "+r.Name, http.MethodPost, "/api/models/"+r.Name+"/commit/"+
		url.PathEscape(r.Revision), bytes.NewReader(lines.Bytes()), "application/x-ndjson", &answer)
	return answer.OID, err
}
