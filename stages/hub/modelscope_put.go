package hub

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/configs/exit"
)

const (
	// scopeLarge is the size above which a file goes beside the commit, whatever it has.
	scopeLarge = 1 << 20
	// Of a repository that is made: who may see it.
	scopePrivate, scopePublic = 1, 5
)

// scopeAnswer is what ModelScope says of everything.
type scopeAnswer struct {
	Code    int
	Success *bool
	Message string
	Data    json.RawMessage
}

// put makes a commit as ModelScope's own package does: contents that the hub has not are sent to where it says, and
// small texts are in the commit.
func (s modelScope) put(ctx context.Context, c *Client, r Repo, files []local, message string, private bool) (sent int,
	commit string, err error) {
	there, err := s.make(ctx, c, r, private)
	if err != nil {
		return 0, "", err
	}
	if sent, err = s.contents(ctx, c, r, files); err != nil {
		return sent, "", err
	}
	var actions []map[string]any
	for _, f := range files {
		a := map[string]any{"action": "create", "path": f.name, "size": f.size, "type": "lfs", "sha256": f.sum,
			"content": "", "encoding": ""}
		if there[f.name] {
			a["action"] = "update"
		}
		if !f.lfs {
			text, err := os.ReadFile(f.path)
			if err != nil {
				return sent, "", err
			}
			a["type"], a["sha256"], a["encoding"] = "normal", "", "base64"
			a["content"] = base64.StdEncoding.EncodeToString(text)
		}
		actions = append(actions, a)
	}
	err = s.say(ctx, c, "the commit to "+r.Name, http.MethodPost, "/api/v1/repos/models/"+r.Name+"/commit/"+
		url.PathEscape(r.Revision), map[string]any{"commit_message": message, "actions": actions}, nil)
	return sent, r.Revision, err // the answer names no commit
}

// make makes the repository where it is not there, and tells which files it has.
func (s modelScope) make(ctx context.Context, c *Client, r Repo, private bool) (there map[string]bool, err error) {
	there = map[string]bool{}
	l, err := s.list(ctx, c, r)
	for _, f := range l.Files {
		there[f.Path] = true
	}
	var status *statusError
	if err == nil || !errors.As(err, &status) || status.code != http.StatusNotFound {
		return there, err // what a list that failed has is not known, and not for making
	}
	owner, name, _ := strings.Cut(r.Name, "/")
	see := scopePublic
	if private {
		see = scopePrivate
	}
	return there, s.say(ctx, c, "making "+r.Name, http.MethodPost, "/api/v1/models", map[string]any{"Path": owner,
		"Name": name, "Visibility": see, "License": "", "ChineseName": "", "OriginalModelId": "", "TrainId": ""}, nil)
}

// say asks, and gives an error for an answer that says no.
func (modelScope) say(ctx context.Context, c *Client, what, method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var a scopeAnswer
	if err := c.ask(ctx, what, method, path, bytes.NewReader(text), "application/json", &a); err != nil {
		return err
	}
	return a.of(what, into)
}

// of is what an answer has.
func (a scopeAnswer) of(what string, into any) error {
	if a.Code != http.StatusOK || a.Success != nil && !*a.Success {
		return exit.With(fmt.Errorf("%s: the hub answers %d %s", what, a.Code, plain(a.Message)), exit.Unreachable)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(a.Data, into); err != nil {
		return exit.With(fmt.Errorf("%s: the answer is no JSON of a hub: %w", what, err), exit.Corrupt)
	}
	return nil
}

// contents sends what goes beside the commit and is not there yet.
func (s modelScope) contents(ctx context.Context, c *Client, r Repo, files []local) (sent int, err error) {
	at := map[string]local{}
	var objects []map[string]any
	for i := range files {
		f := &files[i]
		if f.lfs = f.size > scopeLarge; !f.lfs {
			text, err := os.ReadFile(f.path)
			if err != nil {
				return 0, err
			}
			f.lfs = !utf8.Valid(text)
		}
		if _, twice := at[f.sum]; f.lfs && !twice {
			at[f.sum] = *f
			objects = append(objects, map[string]any{"oid": f.sum, "size": f.size})
		}
	}
	if len(objects) == 0 {
		return 0, nil
	}
	var answer struct{ Objects []object }
	if err := s.say(ctx, c, r.Name, http.MethodPost, "/api/v1/repos/models/"+r.Name+"/info/lfs/objects/batch",
		map[string]any{"operation": "upload", "objects": objects}, &answer); err != nil {
		return 0, err
	}
	for _, o := range answer.Objects {
		f, known := at[o.OID]
		switch {
		case !known:
			return sent, exit.With(fmt.Errorf("%s: the hub asks for %q, which is not put", r.Name, o.OID), exit.Corrupt)
		case o.Actions.Upload == nil:
			continue
		}
		if err := s.send(ctx, c, f, o.Actions.Upload.Href); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// send puts a file's contents, with the token, as ModelScope's package does: only to the hub itself, or by TLS.
func (modelScope) send(ctx context.Context, c *Client, f local, href string) error {
	if !strings.HasPrefix(href, c.Endpoint+"/") && !strings.HasPrefix(href, "https://") {
		return exit.With(fmt.Errorf("%s: the hub wants it at %q, without TLS", f.name, plain(href)), exit.Corrupt)
	}
	return c.retry(ctx, func() error {
		in, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer in.Close()
		q, err := http.NewRequest(http.MethodPut, href, in)
		if err != nil {
			return err
		}
		if q.ContentLength = f.size; f.size == 0 {
			q.Body = http.NoBody
		}
		answer, err := c.do(ctx, f.name, q)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var a scopeAnswer
		text, err := io.ReadAll(io.LimitReader(answer.Body, answerMax))
		if err != nil || json.Unmarshal(text, &a) != nil ||
			a.Code == 0 { // a store that says nothing has taken it
			return err
		}
		return a.of(f.name, nil)
	})
}
