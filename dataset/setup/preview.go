package setup

import (
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// previewPage shows samples. It is one file that loads nothing: images are in it.
var previewPage = template.Must(template.New("preview").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'">
<title>{{.Name}}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fafafa}
article{background:#fff;border:1px solid #ddd;border-radius:8px;padding:1rem;margin:1rem 0}
h2{font-size:1rem;margin:0}small{color:#777}
.turn{margin:.5rem 0;padding:.5rem .75rem;border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere;background:#f0f0f0}
.assistant{background:#e6f0ff}.system{background:#fff6dd}.bad{background:#ffe3e3}
img,video{max-width:100%;max-height:22rem;display:block;margin:.25rem 0;border-radius:4px}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}article{background:#222;border-color:#444}.turn{background:#2c2c2c}.assistant{background:#1f3350}.system{background:#4a3f1c}.bad{background:#552525}}
</style>
<h1>{{.Name}}</h1><p>{{len .Samples}} of {{.All}} samples</p>
{{range .Samples}}<article><h2>{{.Key}}</h2><small>{{.Place}}</small>
{{if .Bad}}<div class="turn bad">{{.Bad}}</div>{{end}}
{{range .Turns}}<div class="turn {{.Role}}"><small>{{.Role}}</small>
{{range .Parts}}{{if .Image}}<img src="{{.Image}}" alt="{{.Note}}">{{else if .Video}}<video controls src="{{.Video}}"></video>{{else if .Note}}<small>{{.Note}}</small>
{{else}}{{.Text}}{{end}}{{end}}</div>
{{end}}</article>
{{end}}</html>
`))

// Preview is a page with some samples of a data set.
type Preview struct {
	Name    string
	All     int64
	Samples []previewSample
}

type previewSample struct {
	Key, Place, Bad string
	Turns           []previewTurn
}

type previewTurn struct {
	Role  string
	Parts []previewPart
}

// previewPart is text, an image, a video, or a note in place of one that is too large.
type previewPart struct {
	Text, Note   string
	Image, Video template.URL
}

// previewMediaMax bounds an image or video that is put into the page, in bytes.
const previewMediaMax = 4 << 20

// previewTextMax bounds the text of an episode, in bytes.
const previewTextMax = 4 << 10

// NewPreview reads n samples, spread evenly over the data at path. sampleType names the type of samples with
// media, "" lets each tell; one that cannot be used shows its reason.
func NewPreview(path string, o dataset.Options, n int64, sampleType string) (*Preview, error) {
	s, err := dataset.Open(path, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	p := &Preview{Name: s.Name(), All: s.Len()}
	for k := range min(n, s.Len()) {
		one, err := preview(s, k*s.Len()/min(n, s.Len()), sampleType, o.Tags)
		if err != nil {
			return nil, err
		}
		p.Samples = append(p.Samples, one)
	}
	return p, nil
}

// Write writes the page: one file that loads nothing.
func (p *Preview) Write(w io.Writer) error { return previewPage.Execute(w, p) }

// preview shows document i, whose messages have their parts under the names of tags.
func preview(s dataset.Source, i int64, kind string, tags dataset.Tags) (previewSample, error) {
	d, err := s.Read(i)
	p := previewSample{Key: d.Key, Place: d.Place.String()}
	var list []format.Conversation
	if err == nil && s.Kind().Form() == dataset.InParts {
		list, err = format.Converse(&d, kind, tags)
	}
	var bad *dataset.BadSample
	if errors.As(err, &bad) {
		p.Bad = bad.Reason
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("document %d of %s: %w", i, s.Name(), err)
	}
	alone := func(role, text string) { p.Turns = []previewTurn{{role, []previewPart{{Text: text}}}} }
	switch s.Kind().Form() {
	case dataset.InParts:
	case dataset.InMessages:
		list = []format.Conversation{{Messages: d.Messages}}
	case dataset.InRecord:
		b, _ := d.Part("json")
		alone(string(s.Kind()), string(b[:min(len(b), previewTextMax)]))
	case dataset.InTokens:
		alone("tokens", fmt.Sprint(d.Tokens[:min(len(d.Tokens), 1000)]))
	default:
		alone("text", d.Text)
	}
	for _, c := range list {
		media := c.Media
		for k := range c.Messages {
			t := previewTurn{Role: c.Messages[k].Role}
			for _, part := range format.PartsOf(&c.Messages[k]) {
				if part.Kind == "" || len(media) == 0 {
					t.Parts = append(t.Parts, previewPart{Text: part.Text})
					continue
				}
				t.Parts = append(t.Parts, previewMedium(&media[0]))
				media = media[1:]
			}
			p.Turns = append(p.Turns, t)
		}
	}
	return p, nil
}

// previewMedium puts an image or video into the page as a data URL. What is none by its own bytes is named
// only: a page must not run what a data set brings.
func previewMedium(m *dataset.Media) previewPart {
	kind := http.DetectContentType(m.Bytes)
	note := fmt.Sprintf("%s %s, %s, %d bytes", m.Kind, m.Key, kind, len(m.Bytes))
	if len(m.Bytes) > previewMediaMax {
		return previewPart{Note: note}
	}
	url := template.URL("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(m.Bytes))
	switch kind {
	case "image/jpeg", "image/png", "image/gif", "image/webp", "image/bmp":
		return previewPart{Note: note, Image: url}
	case "video/mp4", "video/webm":
		return previewPart{Note: note, Video: url}
	}
	return previewPart{Note: note}
}
