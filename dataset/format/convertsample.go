package format

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// sample makes the files of an entry: what convert_to_webdataset.py makes of it, in the order in which
// webdataset's writer puts them.
func (w *Annotations) sample(i int64, raw []byte, place dataset.Place) (key string, parts []dataset.Part, err error) {
	m, err := object(raw, place)
	if err != nil {
		return "", nil, err
	}
	e := &annotation{w: w, i: i, members: m, place: place}
	if m[w.Messages] == nil || isNull(m[w.Messages]) {
		return "", nil, e.bad("it has no key %q; name it with --columns_messages", w.Messages)
	}
	if w.Named() {
		key, parts, err = e.single()
	} else {
		key, parts, err = e.mixed()
	}
	if err != nil {
		return "", nil, err
	}
	slices.SortFunc(parts, func(a, b dataset.Part) int { return strings.Compare(a.Name, b.Name) })
	return key, parts, e.converses(key, parts)
}

// annotation is an entry of the annotations.
type annotation struct {
	w       *Annotations
	i       int64 // its number
	members map[string]json.RawMessage
	place   dataset.Place
}

func (e *annotation) bad(format string, args ...any) error {
	return &dataset.BadSample{Place: e.place, Reason: fmt.Sprintf(format, args...)}
}

// paths returns the files under a key of one or a key of several; ok says that there is such a key.
func (e *annotation) paths(one, several string) (out []string, ok bool, err error) {
	raw := e.members[one]
	if raw == nil || isNull(raw) {
		raw = e.members[several]
	}
	if raw == nil || isNull(raw) {
		return nil, false, nil
	}
	var nested [][]string
	if json.Unmarshal(raw, &nested) == nil && len(nested) == 1 {
		return nested[0], true, nil
	}
	if out, err = textOrList(raw); err != nil {
		return nil, true, e.bad("its %q or %q is no path and no list of paths", one, several)
	}
	return out, true, nil
}

// single makes a sample of one image, named by its id or its path.
func (e *annotation) single() (key string, parts []dataset.Part, err error) {
	paths, _, err := e.paths("image", "images")
	if err != nil {
		return "", nil, err
	}
	if len(paths) == 0 {
		return "", nil, e.bad("it has no image")
	}
	image, err := e.w.readMedia(e.i, e.w.ImageDir, "--image_dir", paths[0], e.place)
	if err != nil {
		return "", nil, err
	}
	key = paths[0]
	if raw := e.members["id"]; raw != nil && !isNull(raw) {
		if json.Unmarshal(raw, &key) != nil {
			key = string(raw) // a number
		}
	}
	text, err := pyJSON(e.members[e.w.Messages])
	if err != nil {
		return "", nil, notJSON(err, e.place)
	}
	return strings.ReplaceAll(key, ".", "_"), []dataset.Part{{Name: "jpg", Bytes: image},
		{Name: "json", Bytes: text}}, nil
}

// mixed makes a sample of any number of images and videos, or of text alone.
func (e *annotation) mixed() (key string, parts []dataset.Part, err error) {
	t := e.w.Tags
	videos, hasVideos, err := e.paths(t.Name(t.Videos, "video"), t.Name(t.Videos, "videos"))
	if err != nil {
		return "", nil, err
	}
	images, hasImages, err := e.paths(t.Name(t.Images, "image"), t.Name(t.Images, "images"))
	if err != nil {
		return "", nil, err
	}
	media := "text"
	switch {
	case hasVideos && hasImages && len(videos) > 0 && len(images) > 0:
		media = "mix"
	case hasVideos:
		media, images = "video", nil
	case hasImages:
		media = "image"
	}
	names := []string{}
	take := func(paths []string, dir, flag string) error {
		for _, p := range paths {
			b, err := e.w.readMedia(e.i, dir, flag, p, e.place)
			if err != nil {
				return err
			}
			// Readers give extensions in lower case, so that a name in any other would not be found again.
			name := fmt.Sprintf("%d_%s", len(names), strings.ToLower(path.Base(strings.ReplaceAll(p, "\\", "/"))))
			parts, names = append(parts, dataset.Part{Name: name, Bytes: b}), append(names, name)
		}
		return nil
	}
	if err := take(images, e.w.ImageDir, "--image_dir"); err != nil {
		return "", nil, err
	}
	if err := take(videos, e.w.VideoDir, "--video_dir"); err != nil {
		return "", nil, err
	}
	text, err := e.content(media, names)
	if err != nil {
		return "", nil, notJSON(err, e.place)
	}
	return fmt.Sprintf("%s_%d", media, e.i), append(parts, dataset.Part{Name: "json", Bytes: text}), nil
}

// content is the JSON part.
func (e *annotation) content(media string, names []string) ([]byte, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	kind, err := json.Marshal(media)
	if err != nil {
		return nil, err
	}
	messages, err := e.withSystem(e.members[e.w.Messages])
	if err != nil {
		return nil, err
	}
	members := []pyMember{{"texts", messages}, {"media", kind}}
	if e.w.SampleType == "chat_mix" {
		tools := e.members[e.w.Tags.Name(e.w.Tags.Tools, "tools")]
		if tools == nil {
			tools = json.RawMessage("null")
		}
		members = []pyMember{{"messages", messages}, {"tools", tools}, {"media", kind}}
	}
	if media != "text" {
		members = append(members, pyMember{"name", list})
	}
	return pyObject(members...)
}

// converses checks that the sample can be read as what it is written as, where the type is known.
func (e *annotation) converses(key string, parts []dataset.Part) error {
	k := e.w.kind
	if k == nil || strings.HasPrefix(k.Name, "packed_") {
		return nil
	}
	d := dataset.Document{Key: key, Parts: parts, Place: e.place, Layout: e.w.layout()}
	_, err := Converse(&d, "", e.w.Tags)
	return err
}
