package world

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"html"

	"github.com/lfactor/lfactor/topology/machine"
)

// Part is a group of episodes on a page, which were kept.
type Part struct {
	Title    string
	Episodes []Episode
}

// Page writes a page that needs nothing else: episodes frame by frame, as the first camera saw them.
func Page(name, title, said string, parts []Part) error {
	return machine.Create(name, func(w *bufio.Writer) {
		fmt.Fprintf(w, "<!doctype html><meta charset=\"utf-8\"><title>%s</title><style>"+
			"body{font-family:sans-serif;margin:2em}img{width:48px;margin:1px;image-rendering:pixelated}"+
			"p{margin:.2em 0}.no{color:#b00}</style>\n<h1>%[1]s</h1><p>%s</p>\n", html.EscapeString(title),
			html.EscapeString(said))
		for _, p := range parts {
			fmt.Fprintf(w, "<h2>%s</h2>\n", html.EscapeString(p.Title))
			for _, e := range p.Episodes {
				writeEpisode(w, e)
			}
		}
	})
}

func writeEpisode(w *bufio.Writer, e Episode) {
	class, said := "", "succeeded"
	switch {
	case e.Lost:
		class, said = " class=\"no\"", "set aside: "+e.Faults[len(e.Faults)-1].Why
	case !e.Success:
		class, said = " class=\"no\"", "failed"
	}
	fmt.Fprintf(w, "<p%s>%s: %s after %d steps</p>", class, html.EscapeString(e.Task), html.EscapeString(said), e.Steps)
	for _, c := range e.Scenes {
		if len(c.Views) > 0 && c.Views[0] != nil {
			fmt.Fprintf(w, "<img src=\"data:image/png;base64,%s\" alt=\"\">",
				base64.StdEncoding.EncodeToString(c.Views[0].PNG()))
		}
	}
	fmt.Fprintln(w)
}
