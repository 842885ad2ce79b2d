package recordings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/mcap"
	"github.com/lfactor/lfactor/dataset/media"
)

// mcapColumn is a topic, or a field of its messages.
type mcapColumn struct {
	topic *mcap.Topic
	field string // "" for all that are no whole numbers
	other string // another topic that has a column of this name, "" for none
}

// mcapColumns are the columns of numbers of a file, by their names, and what of its topics is not read.
type mcapColumns struct {
	by   map[string]mcapColumn
	left []string
}

// mcapLeft are topics that are not read, with their reasons, and in how many files that is so.
type mcapLeft struct {
	whys  []string
	files map[string]int
}

func (l *mcapLeft) add(why string) {
	if l.files[why]++; l.files[why] == 1 {
		l.whys = append(l.whys, why)
	}
}

// said are the reasons, in the order of files and of topics in them.
func (l *mcapLeft) said() (out []string) {
	for _, why := range l.whys {
		if n := l.files[why]; n > 1 {
			why += fmt.Sprintf(" (in %d files)", n)
		}
		out = append(out, why)
	}
	return out
}

// mcapName is what a column of a topic is called.
func mcapName(topic string) string { return strings.ReplaceAll(strings.Trim(topic, "/"), "/", ".") }

// sort finds the columns and the cameras among an episode's topics. A topic that cannot be read is noted.
func (m *MCAP) sort(e *mcapEpisode) (out mcapColumns, err error) {
	out.by, e.cameras = map[string]mcapColumn{}, map[string]*mcap.Topic{}
	leave := func(t *mcap.Topic, why string) {
		why = fmt.Sprintf("topic %s of %s: %s", format.Clip(t.Name), format.Clip(orName(t.Type, "no type")), why)
		m.lefts.add(why)
		out.left = append(out.left, why)
	}
	for _, t := range e.topics {
		switch {
		case t.Why != "":
			leave(t, t.Why)
		case t.Name == mcapTask || t.Name == mcapDocument:
			if other := e.topic(t.Name); other != t {
				return out, fmt.Errorf("%s has messages of %s and of %s, and is to have one kind", t.Name, other.Type,
					t.Type)
			}
		case t.Type == "sensor_msgs/msg/Image" || t.Type == "sensor_msgs/msg/CompressedImage":
			why, err := m.camera(e, t)
			if err != nil {
				return out, err
			}
			if why != "" {
				leave(t, why)
			}
		default:
			if err := out.add(e, t); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// camera adds a topic of pictures where it is one that is read. Where nobody named cameras, one whose first
// picture cannot be decoded is left out: why says so.
func (m *MCAP) camera(e *mcapEpisode, t *mcap.Topic) (why string, err error) {
	name, named := "observation.images."+mcapName(t.Name), m.o.Robot.Cameras
	if len(named) > 0 && !slices.Contains(named, name) {
		return "", nil
	}
	if len(named) == 0 {
		first, err := e.file.Message(t, 0)
		if err == nil {
			var b []byte
			if b, err = mcapPicture(first, m.o.Limit()); err == nil {
				_, err = media.Decode(b, media.Options{White: true})
			}
		}
		if err != nil {
			return err.Error(), nil
		}
	}
	if other := e.cameras[name]; other != nil {
		return "", fmt.Errorf("%s is the name of two topics of pictures, %s of %s and %s of %s: rename one of them",
			name, other.Name, other.Type, t.Name, t.Type)
	}
	e.cameras[name] = t
	return "", nil
}

// find is the column called name.
func (x mcapColumns) find(name string) (mcapColumn, error) {
	c, ok := x.by[name]
	if !ok {
		left := ""
		if len(x.left) > 0 {
			left = "; not read: " + strings.Join(x.left, "; ")
		}
		return c, fmt.Errorf("it has no topic of numbers %q; there are %s: name one by policy.action_key and "+
			"policy.state_key%s", format.Clip(name), strings.Join(slices.Sorted(maps.Keys(x.by)), ", "), left)
	}
	if c.other != "" {
		return c, fmt.Errorf("%s is the name of columns of two topics, %s of %s and %s: name another column, or rename "+
			"one of the topics", format.Clip(name), c.topic.Name, c.topic.Type, c.other)
	}
	return c, nil
}

// add adds the columns of a topic, by its first message.
func (x mcapColumns) add(e *mcapEpisode, t *mcap.Topic) error {
	first, err := e.file.Message(t, 0)
	if err != nil {
		return err
	}
	put := func(name string, c mcapColumn) {
		if other, ok := x.by[name]; ok && other.topic != t {
			c, c.other = other, t.Name+" of "+t.Type
		}
		x.by[name] = c
	}
	for _, field := range first.Names {
		if _, ok := first.Numbers[field]; ok {
			put(mcapName(t.Name)+"."+field, mcapColumn{topic: t, field: field})
		}
	}
	c := mcapColumn{topic: t}
	if t.Type == "sensor_msgs/msg/JointState" {
		c.field = "position"
	}
	if len(c.of(first)) > 0 {
		put(mcapName(t.Name), c)
	}
	return nil
}

// of are a message's numbers.
func (c mcapColumn) of(m *mcap.Message) (out []float64) {
	if c.field != "" {
		return m.Numbers[c.field]
	}
	for _, floats := range []bool{true, false} { // of a message of whole numbers alone those
		for _, field := range m.Names {
			v, ok := m.Numbers[field]
			if !ok || m.Floats[field] != floats || strings.HasPrefix(field, "header.") ||
				strings.HasPrefix(field, "layout.") {
				continue
			}
			out = append(out, v...)
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}
