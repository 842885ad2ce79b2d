package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// strictly decodes one JSON value, whose keys are those of v's structs to the letter, each once. Package json
// takes them in any case, and the last of two. Other keys of the value itself are for what other, nil for none, says.
func strictly(text []byte, v any, other func(name string, raw json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := exact(d, reflect.TypeOf(v), other); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("it goes on behind its JSON value")
	}
	return json.Unmarshal(text, v)
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

// exact reads a value and holds the keys of its objects to a type.
func exact(d *json.Decoder, t reflect.Type, other func(name string, raw json.RawMessage) error) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if k := t.Kind(); t == rawMessage || k != reflect.Struct && k != reflect.Map && k != reflect.Slice {
		var raw json.RawMessage
		return d.Decode(&raw)
	}
	begin, err := d.Token()
	if err != nil {
		return err
	}
	switch {
	case begin == json.Delim('{') && t.Kind() != reflect.Slice:
		seen := map[string]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name, of := key.(string), t
			if t.Kind() == reflect.Map {
				of = t.Elem()
			} else if of = fieldOf(t, name); of == nil && other == nil {
				return faulty{name, fmt.Errorf("unknown field %q", name)}
			}
			if seen[name] {
				return faulty{name, fmt.Errorf("it has the field %q twice", name)}
			}
			if seen[name] = true; of == nil {
				var raw json.RawMessage
				if err := d.Decode(&raw); err != nil {
					return err
				}
				if err := other(name, raw); err != nil {
					return err
				}
			} else if err := exact(d, of, nil); err != nil {
				return faulty{name, fmt.Errorf("%s: %w", name, err)}
			}
		}
	case begin == json.Delim('[') && t.Kind() == reflect.Slice:
		for d.More() {
			if err := exact(d, t.Elem(), nil); err != nil {
				return err
			}
		}
	case begin == json.Delim('{'), begin == json.Delim('['):
		return fmt.Errorf("%v where the value is to be %s", begin, t.Kind())
	default:
		return nil // what it is package json says
	}
	_, err = d.Token()
	return err
}

// fieldOf is the type of a struct's field by its name in JSON, nil for none. Embedded structs hide no names
// of others but those in JSON.
func fieldOf(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			if of := fieldOf(f.Type, name); of != nil {
				return of
			}
		} else if tag == name && tag != "-" && tag != "" {
			return f.Type
		}
	}
	return nil
}
