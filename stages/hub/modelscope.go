package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // names a list of files
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/hf"
)

// ModelScope begins names of repositories that are to be fetched from ModelScope.
const ModelScope = "ms://"

var _ = hf.RegisterScheme(ModelScope, func(name string) (string, error) {
	return Have(context.Background(), name, os.Getenv)
})

// modelScope is the interface of modelscope.cn for downloads, as its own package asks it.
type modelScope struct{}

// NewModelScope is a client as the environment says: MODELSCOPE_DOMAIN and MODELSCOPE_API_TOKEN, and the rest as New.
func NewModelScope(cache string, getenv func(string) string) *Client {
	c := New(cache, getenv)
	c.site, c.Token = modelScope{}, strings.TrimSpace(getenv("MODELSCOPE_API_TOKEN"))
	c.Endpoint = strings.TrimSuffix(getenv("MODELSCOPE_DOMAIN"), "/")
	if c.Endpoint == "" {
		c.Endpoint = "www.modelscope.cn"
	}
	if !strings.Contains(c.Endpoint, "://") {
		c.Endpoint = "https://" + c.Endpoint
	}
	return c
}

func (modelScope) list(ctx context.Context, c *Client, r Repo) (l listing, err error) {
	var answer struct {
		Code    int
		Message string
		Data    struct {
			Files []struct {
				Path, Type, Sha256 string
				Size               int64
			}
		}
	}
	what := r.Name + "@" + r.Revision
	if err := c.ask(ctx, what, http.MethodGet, "/api/v1/models/"+r.Name+"/repo/files?"+url.Values{
		"Revision": {r.Revision}, "Recursive": {"true"}}.Encode(), nil, "", &answer); err != nil {
		return l, err
	}
	if answer.Code != http.StatusOK {
		return l, exit.With(fmt.Errorf("%s: the hub answers %d %s", what, answer.Code, plain(answer.Message)),
			exit.Unreachable)
	}
	for _, f := range answer.Data.Files {
		if f.Type != "tree" {
			l.Files = append(l.Files, file{Path: f.Path, LFS: &large{SHA256: f.Sha256, Size: f.Size}})
		}
	}
	slices.SortFunc(l.Files, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	h := sha1.New() //nolint:gosec // likewise
	for _, f := range l.Files {
		fmt.Fprintf(h, "%q %d %s\n", f.Path, f.size(), f.etag())
	}
	l.SHA = fmt.Sprintf("%x", h.Sum(nil)) // the list names no commit
	return l, nil
}

func (modelScope) address(r Repo, _, path string) string {
	return "/api/v1/models/" + r.Name + "/repo?" + url.Values{"Revision": {r.Revision}, "FilePath": {path}}.Encode()
}

func (modelScope) folder(r Repo) string {
	return "modelscope--" + strings.ReplaceAll(r.Name, "/", "--")
}

func (modelScope) sign(q *http.Request, token string) {
	q.AddCookie(&http.Cookie{Name: "m_session_id", Value: token})
}

func (modelScope) tokens() string { return "MODELSCOPE_API_TOKEN gives a token" }

// cached is the snapshot that was fetched before, "" for none.
func (c *Client) cached(r Repo) string {
	root := filepath.Join(c.Cache, c.site.folder(r))
	sha, err := os.ReadFile(filepath.Join(root, "refs", filepath.FromSlash(r.Revision)))
	if err != nil || !hashName.Match(sha) {
		return ""
	}
	dir := filepath.Join(root, "snapshots", string(sha))
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}
