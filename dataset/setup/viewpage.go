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

// viewPage is the page. What data sets bring is escaped, and nothing but the script above runs: the policy
// names it by its hash.
var viewPage = template.Must(template.New("view").Funcs(template.FuncMap{
	"script": func() template.JS { return template.JS(viewScript) },
	"hash": func() string {
		h := sha256.Sum256([]byte(viewScript))
		return base64.StdEncoding.EncodeToString(h[:])
	},
	"lines": func(row ViewRow) string {
		var names []string
		for _, s := range row.Segments {
			names = append(names, s.Source)
		}
		return strings.Join(names, "\n")
	},
}).Parse(viewHTML))
