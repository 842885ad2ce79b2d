package mcap

import (
	"encoding/binary"
	"math"
)

// Writer makes a file of texts and lists of numbers: std_msgs/String and std_msgs/Float64MultiArray.
type Writer struct {
	b        []byte
	channels map[string]uint16
}

// The definitions of what a Writer writes.
const (
	stringText = "string data\n"
	floatsText = "std_msgs/MultiArrayLayout layout\nfloat64[] data\n" +
		"================================================================================\nMSG: std_msgs/MultiArrayLayout\n" +
		"std_msgs/MultiArrayDimension[] dim\nuint32 data_offset\n" +
		"================================================================================\nMSG: std_msgs/MultiArrayDimension\n" +
		"string label\nuint32 size\nuint32 stride\n"
)

// NewWriter begins a file.
func NewWriter() *Writer {
	w := &Writer{b: append([]byte(nil), magic...), channels: map[string]uint16{}}
	w.record(opHeader, lengthed(lengthed(nil, "ros2"), "lfactor"))
	for i, s := range [][2]string{{"std_msgs/msg/String", stringText}, {"std_msgs/msg/Float64MultiArray", floatsText}} {
		b := binary.LittleEndian.AppendUint16(nil, uint16(i+1))
		w.record(opSchema, lengthed(lengthed(lengthed(b, s[0]), "ros2msg"), s[1]))
	}
	return w
}

// lengthed appends a text behind its length.
func lengthed(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func (w *Writer) record(op byte, b []byte) {
	w.b = append(w.b, op)
	w.b = append(binary.LittleEndian.AppendUint64(w.b, uint64(len(b))), b...)
}

// message writes one of a topic, with a channel before its first.
func (w *Writer) message(topic string, schema uint16, time int64, b []byte) {
	id, ok := w.channels[topic]
	if !ok {
		id = uint16(len(w.channels))
		w.channels[topic] = id
		head := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, id), schema)
		w.record(opChannel, lengthed(lengthed(lengthed(head, topic), "cdr"), ""))
	}
	head := binary.LittleEndian.AppendUint16(nil, id)
	head = binary.LittleEndian.AppendUint32(head, 0)
	for range 2 {
		head = binary.LittleEndian.AppendUint64(head, uint64(time))
	}
	w.record(opMessage, append(append(head, 0, 1, 0, 0), b...))
}

// Text writes a std_msgs/String at a time in nanoseconds.
func (w *Writer) Text(topic string, time int64, s string) {
	w.message(topic, 1, time, lengthed(nil, s+"\x00"))
}

// Floats writes a std_msgs/Float64MultiArray at a time in nanoseconds.
func (w *Writer) Floats(topic string, time int64, v []float64) {
	b := make([]byte, 8, 16+8*len(v)) // no dimensions, and an offset of 0
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	if b = append(b, make([]byte, 4)...); len(v) == 0 { // to a multiple of 8
		b = b[:12]
	}
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	w.message(topic, 2, time, b)
}

// Close ends the file and gives its bytes.
func (w *Writer) Close() []byte {
	w.record(opDataEnd, make([]byte, 4))
	w.record(opFooter, make([]byte, 20))
	return append(w.b, magic...)
}
