package mcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Message is a decoded message: its values by the names of their fields, with dots between those of types
// within types. Values of lists of types are one behind the other.
type Message struct {
	Names   []string // of fields, in order
	Numbers map[string][]float64
	Texts   map[string]string // of lists of texts the last
	Bytes   map[string][]byte // lists of bytes, which must not be changed
	Floats  map[string]bool   // of Numbers, those that are no whole numbers by their type
}

// Bounds of a message: its values, fields without one counted as one, and the names of its fields.
const (
	valuesMost = 1 << 22
	namesMost  = 1 << 16
)

// decoder reads a message's values.
type decoder struct {
	all   []byte // behind its head: what places are counted in
	at    int
	order binary.ByteOrder
	out   *Message
	named map[string]bool // Names
	n     int
}

// decode reads a message: plain CDR, of either order of bytes.
func (m *message) decode(b []byte) (*Message, error) {
	if len(b) < 4 || b[0] != 0 || b[1] > 1 {
		return nil, fmt.Errorf("it begins with %x, and plain CDR begins with 0000 or 0001", b[:min(2, len(b))])
	}
	d := &decoder{all: b[4:], order: binary.LittleEndian, named: map[string]bool{},
		out: &Message{Numbers: map[string][]float64{},
			Texts: map[string]string{}, Bytes: map[string][]byte{}, Floats: map[string]bool{}}}
	if b[1] == 0 {
		d.order = binary.BigEndian
	}
	if err := d.fields(m, ""); err != nil {
		return nil, err
	}
	return d.out, nil
}

// take is the next n bytes, which lie at a multiple of align.
func (d *decoder) take(n, align int) ([]byte, error) {
	at := (d.at + align - 1) / align * align
	if n < 0 || at+n > len(d.all) {
		return nil, errShort
	}
	d.at = at + n
	return d.all[at : at+n], nil
}

// fields reads those of a type.
func (d *decoder) fields(m *message, prefix string) error {
	if len(m.fields) == 0 { // a type without fields has a byte
		_, err := d.take(1, 1)
		return err
	}
	for i := range m.fields {
		f := &m.fields[i]
		n := 1
		if f.count == anyValues {
			b, err := d.take(4, 4)
			if err != nil {
				return err
			}
			if n = int(d.order.Uint32(b)); n > len(d.all) {
				return errShort
			}
		} else if f.count >= 0 {
			n = f.count
		}
		if d.n += max(1, n); d.n > max(valuesMost, len(d.all)) {
			return errors.New("it has too many values")
		}
		if err := d.values(f, prefix+f.name, n); err != nil {
			return err
		}
	}
	return nil
}

// values reads n values of a field.
func (d *decoder) values(f *field, name string, n int) error {
	if f.of != nil {
		for range n {
			if err := d.fields(f.of, name+"."); err != nil {
				return err
			}
		}
		return nil
	}
	if !d.named[name] {
		if len(d.named) == namesMost {
			return fmt.Errorf("it has over %d fields", namesMost)
		}
		d.named[name], d.out.Names = true, append(d.out.Names, name)
	}
	size := sizes[f.kind]
	switch {
	case f.kind == "string":
		return d.texts(name, n)
	case size == 1 && f.count != oneValue && f.kind != "bool":
		b, err := d.take(n, 1)
		d.out.Bytes[name] = b
		return err
	}
	d.out.Floats[name] = strings.HasPrefix(f.kind, "float")
	if d.out.Numbers[name] == nil {
		d.out.Numbers[name] = []float64{}
	}
	for range n {
		b, err := d.take(size, size)
		if err != nil {
			return err
		}
		d.out.Numbers[name] = append(d.out.Numbers[name], d.number(f.kind, b))
	}
	return nil
}

// texts reads n texts, each behind its length, with a zero at its end.
func (d *decoder) texts(name string, n int) error {
	for range n {
		b, err := d.take(4, 4)
		if err != nil {
			return err
		}
		text, err := d.take(int(d.order.Uint32(b)), 1)
		if err != nil {
			return err
		}
		d.out.Texts[name] = strings.TrimSuffix(string(text), "\x00")
	}
	return nil
}

// number is a value of a kind.
func (d *decoder) number(kind string, b []byte) float64 {
	switch kind {
	case "int8":
		return float64(int8(b[0]))
	case "bool", "byte", "char", "uint8":
		return float64(b[0])
	case "int16":
		return float64(int16(d.order.Uint16(b)))
	case "uint16":
		return float64(d.order.Uint16(b))
	case "int32":
		return float64(int32(d.order.Uint32(b)))
	case "uint32":
		return float64(d.order.Uint32(b))
	case "int64":
		return float64(int64(d.order.Uint64(b)))
	case "uint64":
		return float64(d.order.Uint64(b))
	case "float32":
		return float64(math.Float32frombits(d.order.Uint32(b)))
	}
	return math.Float64frombits(d.order.Uint64(b))
}
