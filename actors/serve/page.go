package serve

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

//go:embed page
var page embed.FS

// pageKinds are the types of the page's files, which want no other site.
var pageKinds = map[string]string{"index.html": "text/html", "chat.js": "text/javascript", "chat.css": "text/css"}

const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:"

// pages declares the page on which people talk to the model, and what it asks beside the API: what there is, another
// server's answers, and pairs of answers that are kept. The page itself tells nothing, and needs no token.
func (s *Server) pages() {
	for name, kind := range pageKinds {
		at := "GET /page/" + name
		if name == "index.html" {
			at = "GET /{$}"
		}
		s.mux.HandleFunc(at, func(w http.ResponseWriter, _ *http.Request) {
			text, err := page.ReadFile(path.Join("page", name))
			if err != nil {
				panic(fmt.Sprintf("serve: a file of the page is missing: %v", err))
			}
			h := w.Header()
			h.Set("Content-Type", kind+"; charset=utf-8")
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write(text) // who asks may have gone
		})
	}
	s.mux.HandleFunc("GET /page/about", s.guarded(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"chats": s.noChat == nil, "sees": s.imageProcessor != nil, "pairs": s.o.Pairs != "",
			"beside": s.o.Beside != nil})
	}))
	s.mux.HandleFunc("POST /page/pairs", handled(s, s.keepPair))
	if s.o.Beside != nil {
		proxy := besides(s.o.Beside)
		for _, at := range []string{"GET /beside/v1/models", "POST /beside/v1/chat/completions", "POST /beside/v1/completions"} {
			s.mux.HandleFunc(at, s.guarded(proxy.ServeHTTP))
		}
	}
}

// besides hands requests on to another server, with the token that they show.
func besides(to *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Path = r.In.URL.Path[len("/beside"):]
			r.SetURL(to)
			for _, name := range []string{"Origin", "Cookie", "Referer"} { // they are this server's
				r.Out.Header.Del(name)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			answer(w, http.StatusBadGateway, fault{http.StatusBadGateway, "server_error", fmt.Sprintf("the server of --beside, %s, "+
				"gives no answer: %v", to.Redacted(), err), "", "beside"}.chat())
		}}
}

// pairBody is a pair of answers as data of preferences has it.
type pairBody struct {
	Prompt   json.RawMessage `json:"prompt"`
	Chosen   json.RawMessage `json:"chosen"`
	Rejected json.RawMessage `json:"rejected"`
}

// keepPair writes a line behind those of the file of pairs, if training would read it.
func (s *Server) keepPair(_ context.Context, b *pairBody) (any, error) {
	if s.o.Pairs == "" {
		return nil, fault{http.StatusNotFound, "not_found_error", "no pairs are kept here: lfactor serve --pairs FILE does", "", ""}
	}
	line, err := json.Marshal(b)
	if err != nil {
		return nil, bad("", "the pair is no JSON: %v", err)
	}
	if _, err := format.ParsePair(&dataset.Document{Parts: []dataset.Part{{Name: "json", Bytes: line}}}); err != nil {
		return nil, bad("", "the pair is none that training reads: %v", err)
	}
	s.pairing.Lock()
	defer s.pairing.Unlock()
	f, err := os.OpenFile(s.o.Pairs, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--pairs: %w", err)
	}
	was, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		if _, err = f.Write(append(line, '\n')); err != nil {
			err = errors.Join(err, f.Truncate(was)) // no half of a line is left
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("--pairs: %s: %w", s.o.Pairs, err)
	}
	return map[string]any{"kept": true}, nil
}
