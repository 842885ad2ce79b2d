package serve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset/token/jinja"
)

// imagesMost bounds the images of a request.
const imagesMost = 64

// contentPart is a part of a message's content.
type contentPart struct {
	Type  string  `json:"type"`
	Text  *string `json:"text"`
	Image *struct {
		URL    string `json:"url"`
		Detail string `json:"detail"`
	} `json:"image_url"`
}

// contentOf is a message's content as it was given, a text or a list of parts, and the files of the images, in order.
func contentOf(raw json.RawMessage, sees bool) (content any, images [][]byte, err error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text, nil, nil
	}
	var parts []contentPart
	if err := strictly(raw, &parts, nil); err != nil {
		return nil, nil, bad("", "its content is no text and no list of parts: %v", err)
	}
	var list []any
	for _, p := range parts {
		switch {
		case p.Text != nil && p.Image != nil:
			return nil, nil, bad("", "a part of its content has both text and image_url")
		case p.Type == "text" && p.Text != nil:
			list = append(list, partOf("type", "text", "text", *p.Text))
		case p.Type == "image_url" && p.Image != nil && sees:
			file, err := dataURL(p.Image.URL)
			if err != nil {
				return nil, nil, err
			}
			if p.Image.Detail != "" && p.Image.Detail != "auto" {
				return nil, nil, fmt.Errorf("the detail of an image is %.40q: the model's processor decides on its size", p.Image.Detail)
			}
			if images = append(images, file); len(images) > imagesMost {
				return nil, nil, fmt.Errorf("it has more than %d images", imagesMost)
			}
			list = append(list, partOf("type", "image"))
		case sees:
			return nil, nil, fmt.Errorf("its content has a part of the type %.40q, and the model reads text and image_url", p.Type)
		default:
			return nil, nil, fmt.Errorf("its content has a part of the type %.40q, and the model reads text", p.Type)
		}
	}
	if list == nil {
		return "", nil, nil
	}
	return jinja.NewList(list), images, nil
}

// partOf is an object of keys and their values, in order.
func partOf(pairs ...string) *jinja.Map {
	m := jinja.NewMap()
	for i := 0; i < len(pairs); i += 2 {
		m.Set(pairs[i], pairs[i+1])
	}
	return m
}

// dataURL is the file that an address has in itself (RFC 2397).
func dataURL(url string) ([]byte, error) {
	kind, data, ok := strings.Cut(url, ",")
	if !strings.HasPrefix(kind, "data:image/") || !ok || !strings.HasSuffix(kind, ";base64") {
		return nil, fmt.Errorf("an image is at %.40q: give it as data:image/png;base64,… since nothing is fetched here", url)
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("an image is no base64: %v", err)
	}
	return b, nil
}
