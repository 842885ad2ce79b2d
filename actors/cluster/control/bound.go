package control

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Whatever comes from the wire or the store is held to bounds before anybody acts on it: a number that is
// negative or enormous would be an index, or an amount of memory, in the one process that knows the cluster.
// A field's tags say which: most for a number or the length of a text, list or map, least for a number, and
// each for the texts of a list. A field without tags has the bounds below.
const (
	mostText   = 4096 // bytes; a path
	mostItems  = 1 << 16
	mostNumber = 1 << 60
	// MostProcs is how many processes a job may have.
	MostProcs = 1 << 13
	// MostBeside is how many of them there may be for each host of the cluster.
	MostBeside = 256
)

// Unbounded says that a field of a message, a job or what is stored of it is out of its bounds.
type Unbounded struct{ Field, Text string }

// Error implements error.
func (u *Unbounded) Error() string { return u.Field + " " + u.Text }

// Check holds a message to its bounds. The error is an *Unbounded.
func (m *Message) Check() error {
	if err := Bounded("message", m); err != nil {
		return err
	}
	names := []string{m.Job, string(m.Kind)}
	for _, p := range m.Procs {
		names = append(names, p.Job)
	}
	for _, name := range names {
		if name != "" && !word.MatchString(name) {
			return &Unbounded{"message", fmt.Sprintf("names %.64q: want letters, digits and dashes, 32 at most", name)}
		}
	}
	return nil
}

// word is the name of a job or of a kind of message: a part of a path, and never more than that.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,31}$`)

// Check holds a job that somebody wants to its bounds. The error is an *Unbounded.
func (s *Spec) Check() error {
	if err := Bounded("job", s); err != nil {
		return err
	}
	switch {
	case s.Procs < 1:
		return &Unbounded{"job.procs", fmt.Sprintf("is %d: want at least one process", s.Procs)}
	case len(s.Args) == 0:
		return &Unbounded{"job.args", "is empty: want a command"}
	case !path.IsAbs(s.Dir):
		return &Unbounded{"job.dir", fmt.Sprintf("is %.64q: want an absolute path", s.Dir)}
	case s.Log != "" && !path.IsAbs(s.Log):
		return &Unbounded{"job.log", fmt.Sprintf("is %.64q: want an absolute path", s.Log)}
	}
	for _, k := range s.Keep {
		if !path.IsAbs(k) {
			return &Unbounded{"job.keep", fmt.Sprintf("has %.64q: want absolute paths", k)}
		}
	}
	for i, t := range s.Talks {
		if t.A >= s.Procs || t.B >= s.Procs || t.A == t.B {
			return &Unbounded{fmt.Sprintf("job.talks[%d]", i),
				fmt.Sprintf("is between processes %d and %d of %d", t.A, t.B, s.Procs)}
		}
	}
	return nil
}

// Bounded holds all fields of a value to the bounds that their tags say. The error is an *Unbounded.
func Bounded(name string, v any) error {
	if u := within(reflect.ValueOf(v), ""); u != nil {
		u.Field = name + u.Field
		return u
	}
	return nil
}

// tagged is the number of a tag of a field, or what holds without it.
func tagged(tag reflect.StructTag, name string, without int64) int64 {
	if n, err := strconv.ParseInt(tag.Get(name), 10, 64); err == nil {
		return n
	}
	return without
}

// within holds a value to the bounds of a field's tag; the error names the field below this one.
func within(v reflect.Value, tag reflect.StructTag) *Unbounded {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if least, most := numbers(tag); v.Int() < least || v.Int() > most {
			return &Unbounded{"", fmt.Sprintf("is %d: want %d to %d", v.Int(), least, most)}
		}
	case reflect.Float64:
		if _, most := numbers(tag); !(v.Float() >= 0 && v.Float() <= float64(most)) {
			return &Unbounded{"", fmt.Sprintf("is %g: want 0 to %d", v.Float(), most)}
		}
	case reflect.String:
		if strings.IndexByte(v.String(), 0) >= 0 {
			return &Unbounded{"", "has a byte that is zero"}
		}
		return length("bytes", v.Len(), tag, mostText)
	case reflect.Pointer:
		if !v.IsNil() {
			return within(v.Elem(), tag)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if u := within(v.Field(i), f.Tag); u != nil {
				key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				u.Field = "." + key + u.Field
				return u
			}
		}
	case reflect.Slice, reflect.Array, reflect.Map:
		return items(v, tag)
	}
	return nil
}

func numbers(tag reflect.StructTag) (least, most int64) {
	return tagged(tag, "least", 0), tagged(tag, "most", mostNumber)
}

func length(what string, n int, tag reflect.StructTag, without int64) *Unbounded {
	if most := tagged(tag, "most", without); int64(n) > most {
		return &Unbounded{"", fmt.Sprintf("has %d %s, and %d are the most", n, what, most)}
	}
	return nil
}

// items holds a list or a map to its length, and what is in it to the field's bound for each.
func items(v reflect.Value, tag reflect.StructTag) *Unbounded {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		return length("bytes", v.Len(), tag, maxFrame)
	}
	if u := length("items", v.Len(), tag, mostItems); u != nil {
		return u
	}
	var each reflect.StructTag
	if text := tag.Get("each"); text != "" {
		each = reflect.StructTag(`most:"` + text + `"`)
	}
	if v.Kind() == reflect.Map {
		for it := v.MapRange(); it.Next(); {
			u := within(it.Key(), "")
			if u == nil {
				u = within(it.Value(), each)
			}
			if u != nil {
				u.Field = fmt.Sprintf("[%.64v]%s", it.Key(), u.Field)
				return u
			}
		}
		return nil
	}
	for i := range v.Len() {
		if u := within(v.Index(i), each); u != nil {
			u.Field = fmt.Sprintf("[%d]%s", i, u.Field)
			return u
		}
	}
	return nil
}

// Within reports whether a path is one of the directories or below one, as it is written.
func Within(name string, dirs []string) bool {
	name = path.Clean(name)
	return path.IsAbs(name) && slices.ContainsFunc(dirs, func(d string) bool {
		d = path.Clean(d)
		return name == d || strings.HasPrefix(name, strings.TrimSuffix(d, "/")+"/")
	})
}
