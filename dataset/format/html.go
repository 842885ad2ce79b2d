package format

import (
	"bytes"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// hidden are elements whose content is not seen, and blocks those that begin a line.
var (
	hidden = map[atom.Atom]bool{atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true,
		atom.Head: true, atom.Svg: true, atom.Iframe: true, atom.Object: true, atom.Select: true, atom.Textarea: true}
	blocks = map[atom.Atom]bool{atom.P: true, atom.Div: true, atom.Br: true, atom.Li: true, atom.Ul: true,
		atom.Ol: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true,
		atom.Tr: true, atom.Table: true, atom.Section: true, atom.Article: true, atom.Header: true, atom.Footer: true,
		atom.Nav: true, atom.Aside: true, atom.Main: true, atom.Blockquote: true, atom.Pre: true, atom.Dl: true,
		atom.Dt: true, atom.Dd: true, atom.Form: true, atom.Hr: true, atom.Figure: true, atom.Figcaption: true,
		atom.Title: true, atom.Option: true, atom.Address: true, atom.Fieldset: true}
)

// htmlText is the visible text of a page: blocks as lines, blanks joined, nothing that scripts or styles
// have. It does not judge what is the page's own and what is around it.
func htmlText(page []byte) string {
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil { // only reading gives errors, and this is in memory
		return ""
	}
	t := &textOfPage{}
	t.walk(root)
	return strings.TrimSpace(t.b.String())
}

// textOfPage writes text.
type textOfPage struct {
	b     strings.Builder
	line  bool // the next word begins a line
	blank bool // a blank stands before it
}

// walk writes what is under a node. Pages nest deeply; the parser bounds how deeply.
func (t *textOfPage) walk(n *html.Node) {
	switch {
	case n.Type == html.TextNode:
		t.text(n.Data)
		return
	case n.Type == html.ElementNode && hidden[n.DataAtom]:
		return
	}
	block := n.Type == html.ElementNode && blocks[n.DataAtom]
	t.line = t.line || block
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		t.walk(c)
	}
	t.line = t.line || block
	if n.DataAtom == atom.Td || n.DataAtom == atom.Th {
		t.blank = true
	}
}

// text writes words.
func (t *textOfPage) text(s string) {
	for i, w := range strings.Fields(s) {
		if i > 0 || strings.TrimLeft(s[:1], " \t\r\n\f") == "" {
			t.blank = true
		}
		switch {
		case t.b.Len() == 0:
		case t.line:
			t.b.WriteByte('\n')
		case t.blank:
			t.b.WriteByte(' ')
		}
		t.line, t.blank = false, false
		t.b.WriteString(w)
	}
	if s != "" && strings.TrimRight(s[len(s)-1:], " \t\r\n\f") == "" {
		t.blank = true
	}
}
