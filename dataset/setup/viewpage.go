package setup

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"strings"
)

// viewScript narrows the page down: by words, by source, by what is shown and, of what was dropped, by
// reason. It is all that the page runs.
//
//go:embed view.js
var viewScript string

//go:embed view.html
var viewHTML string

// ViewPolicy is the Content-Security-Policy of the page: it loads nothing, and runs its own script.
func ViewPolicy() string {
	h := sha256.Sum256([]byte(viewScript))
	return "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src 'sha256-" +
		base64.StdEncoding.EncodeToString(h[:]) + "'"
}

// viewPage is the page. What data sets bring is escaped, and nothing but the script above runs.
var viewPage = template.Must(template.New("view").Funcs(template.FuncMap{
	"script": func() template.JS { return template.JS(viewScript) },
	"policy": ViewPolicy,
	"lines": func(row ViewRow) string {
		var names []string
		for _, s := range row.Segments {
			names = append(names, s.Source)
		}
		return strings.Join(names, "\n")
	},
}).Parse(viewHTML))
