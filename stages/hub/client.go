// Package hub fetches models from a hub of Hugging Face's API into its cache, and puts directories there.
// What is fetched is held to the sizes and hashes that the hub says; what was begun goes on where it ended.
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
)

const (
	attemptsMax = 6        // of a request, or of a file without a byte of progress
	answerMax   = 64 << 20 // bytes of an answer that is no file
	redirectMax = 5
	waitMax     = 2 * time.Minute // that a hub may ask for
)

// Client speaks to a hub. Its zero value is none: see New.
type Client struct {
	Endpoint string        // as https://huggingface.co
	Token    string        // "" for none
	Cache    string        // of Hugging Face's layout
	Idle     time.Duration // without a byte, after which a transfer counts as broken
	Sleep    func(context.Context, time.Duration) error
	Say      func(format string, a ...any) // of what takes long; may be nil
	http     *http.Client
	offline  bool
	site     site
}

// site is what differs between hubs: how files of a revision are listed, where one is, which folder of the cache
// a repository has, and how a request has a token.
type site interface {
	list(ctx context.Context, c *Client, r Repo) (listing, error)
	address(r Repo, commit, path string) string
	folder(r Repo) string
	sign(q *http.Request, token string)
	tokens() string // how one is had
	// put makes a commit of files in a repository, which it makes first where it is not there.
	put(ctx context.Context, c *Client, r Repo, files []local, message string, private bool) (sent int, commit string,
		err error)
}

// huggingFace is the interface of huggingface.co.
type huggingFace struct{}

func (huggingFace) list(ctx context.Context, c *Client, r Repo) (l listing, err error) {
	err = c.ask(ctx, r.Name+"@"+r.Revision, http.MethodGet, "/api/models/"+r.Name+"/revision/"+
		url.PathEscape(r.Revision)+"?blobs=true", nil, "", &l)
	return l, err
}

func (huggingFace) address(r Repo, commit, path string) string {
	return "/" + r.Name + "/resolve/" + commit + "/" + (&url.URL{Path: path}).EscapedPath()
}

func (huggingFace) folder(r Repo) string { return "models--" + strings.ReplaceAll(r.Name, "/", "--") }

func (huggingFace) sign(q *http.Request, token string) {
	q.Header.Set("Authorization", "Bearer "+token)
}

func (huggingFace) tokens() string { return "`hf auth login` or HF_TOKEN gives a token" }

// New is a client as the environment says: HF_ENDPOINT, HF_HUB_OFFLINE, the cache's variables, and a token of
// HF_TOKEN, HF_TOKEN_PATH, or the file where `hf auth login` puts it.
func New(cache string, getenv func(string) string) *Client {
	c := &Client{Endpoint: strings.TrimSuffix(getenv("HF_ENDPOINT"), "/"), Cache: cache, Token: token(getenv),
		site: huggingFace{}, Idle: 30 * time.Second, Sleep: sleep, offline: truth(getenv("HF_HUB_OFFLINE"))}
	if c.Endpoint == "" {
		c.Endpoint = "https://huggingface.co"
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10, DisableCompression: true} // ranges are of the file as it is
	c.http = &http.Client{Transport: transport, CheckRedirect: follow}
	return c
}

// follow refuses too many redirects, and those that give up encryption. The token goes to the origin that was asked
// alone: Go's client takes another port of the host, and a host below it, for the same.
func follow(r *http.Request, via []*http.Request) error {
	if len(via) > redirectMax {
		return fmt.Errorf("more than %d redirects", redirectMax)
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("a redirect from https to %s", r.URL.Scheme)
	}
	if r.URL.Scheme != via[0].URL.Scheme || r.URL.Host != via[0].URL.Host {
		r.Header.Del("Authorization")
		r.Header.Del("Cookie")
	}
	return nil
}

// truth reads a variable as huggingface_hub does.
func truth(s string) bool {
	switch strings.ToUpper(s) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// token is that of the first place that has one.
func token(getenv func(string) string) string {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(getenv(name)); t != "" {
			return t
		}
	}
	path := getenv("HF_TOKEN_PATH")
	if path == "" {
		home := getenv("HF_HOME")
		if dir := getenv("XDG_CACHE_HOME"); home == "" && dir != "" {
			home = filepath.Join(dir, "huggingface")
		}
		if dir, err := os.UserHomeDir(); home == "" && err == nil {
			home = filepath.Join(dir, ".cache", "huggingface")
		}
		path = filepath.Join(home, "token")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // a hub is asked without one
	}
	return strings.TrimSpace(string(text))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// statusError is an answer that is no success.
type statusError struct {
	what   string
	code   int
	text   string
	after  time.Duration // to wait, 0 where the hub does not say
	signed bool          // a token was sent
	tokens string        // how one is had
}

// Error implements error.
func (e *statusError) Error() string {
	hint := ""
	switch {
	case e.code == http.StatusUnauthorized && !e.signed:
		hint = "; it may be private or gated, or not there: " + e.tokens
	case e.code == http.StatusUnauthorized:
		hint = "; the token is not valid"
	case e.code == http.StatusForbidden:
		hint = "; its terms may have to be accepted on its page, or the token lacks the right"
	case e.code == http.StatusNotFound:
		hint = "; there is no such repository, revision or file, or the token may not see it"
	}
	if e.text != "" {
		hint = ": " + e.text + hint
	}
	return fmt.Sprintf("%s: the hub answers %d %s%s", e.what, e.code, http.StatusText(e.code), hint)
}

// again reports whether another attempt may help.
func (e *statusError) again() bool {
	return e.code == http.StatusTooManyRequests || e.code == http.StatusRequestTimeout || e.code >= 500
}

// do sends a request and gives the answer if it is a success; the caller closes its body.
func (c *Client) do(ctx context.Context, what string, r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", "lfactor")
	if c.Token != "" {
		c.site.sign(r, c.Token)
	}
	answer, err := c.http.Do(r.WithContext(ctx))
	if err != nil {
		var bad *url.Error // its address may carry a signature
		if errors.As(err, &bad) {
			err = bad.Err
		}
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096)) // what it says is only for the message
	e := &statusError{what: what, code: answer.StatusCode, text: said(text), signed: c.Token != "",
		tokens: c.site.tokens()}
	if n, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && n >= 0 {
		e.after = min(time.Duration(n)*time.Second, waitMax)
	}
	return nil, e
}

// said is the message of a hub's answer.
func said(text []byte) string {
	var m struct {
		Error   string `json:"error"`
		Message string
	}
	if json.Unmarshal(text, &m) != nil {
		return ""
	}
	return plain(cmp.Or(m.Error, m.Message))
}

// plain is the beginning of a message in one line.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text[:min(len(text), 300)])
}

// pause waits before attempt n, as long as the hub asks or twice as long each time.
func (c *Client) pause(ctx context.Context, n int, cause error) error {
	d := 250 * time.Millisecond << n
	var status *statusError
	if errors.As(cause, &status) && status.after > 0 {
		d = status.after
	}
	if c.Say != nil {
		c.Say("%v; the next attempt is in %v", cause, d)
	}
	return c.Sleep(ctx, d)
}

// retry calls f until it succeeds, or no further attempt can help.
func (c *Client) retry(ctx context.Context, f func() error) error {
	if c.offline {
		return exit.Usagef("HF_HUB_OFFLINE is set: nothing is fetched or put")
	}
	for n := 0; ; n++ {
		err := f()
		var status *statusError
		if err == nil || ctx.Err() != nil || errors.As(err, &status) && !status.again() || n+1 == attemptsMax {
			return ended(err)
		}
		if err := c.pause(ctx, n, err); err != nil {
			return err
		}
	}
}

// ended gives an error the exit code of a hub that cannot be reached or refuses.
func ended(err error) error {
	var coded interface{ ExitCode() int }
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return exit.With(err, exit.Unreachable)
}

// ask gets or posts JSON, and reads JSON.
func (c *Client) ask(ctx context.Context, what, method, path string, body io.ReadSeeker, kind string, into any) error {
	return c.retry(ctx, func() error {
		var from io.Reader
		if body != nil {
			if _, err := body.Seek(0, io.SeekStart); err != nil {
				return err
			}
			from = body
		}
		r, err := http.NewRequest(method, c.Endpoint+path, from)
		if err != nil {
			return err
		}
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		answer, err := c.do(ctx, what, r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(io.LimitReader(answer.Body, answerMax+1))
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case len(text) > answerMax:
			return exit.With(fmt.Errorf("%s: an answer of more than %d bytes", what, answerMax), exit.Corrupt)
		case into == nil:
			return nil
		}
		if err := json.Unmarshal(text, into); err != nil {
			return exit.With(fmt.Errorf("%s: the answer is no JSON of a hub: %w", what, err), exit.Corrupt)
		}
		return nil
	})
}
